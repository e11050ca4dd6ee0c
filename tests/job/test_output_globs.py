"""Output folders whose names Spark would take for patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_case import SMALL, run_main, run_ok
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["out[1]", "out{a,b}", "out*"])
def test_an_output_with_the_name_of_a_pattern_is_kept_too(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / name
    run_ok(capsys, output, *SMALL)
    assert (output / "run.json").is_file()
    run_main(capsys, "--output", str(output), *SMALL).error(4)


def test_a_pattern_in_an_outputs_name_does_not_match_other_results(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ok(capsys, tmp_path / "out1", *SMALL)
    run_ok(capsys, tmp_path / "out?", *SMALL)
    assert (tmp_path / "out?" / "run.json").is_file()
