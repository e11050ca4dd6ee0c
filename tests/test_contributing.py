"""The worked example of CONTRIBUTING.md must work as printed, job and all."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest
from conftest import ROOT
from job.job_case import connect_url
from pyspark.sql import SparkSession

from dpkm_spark.algorithms.algorithm import Algorithm
from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.job.run import main


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = types.ModuleType("oneround")
    monkeypatch.setitem(sys.modules, "oneround", module)
    exec(compile(code, "CONTRIBUTING.md", "exec"), module.__dict__)  # noqa: S102 - our own text
    algorithm: Algorithm = module.__dict__["ALGORITHM"]
    monkeypatch.setitem(ALGORITHMS, algorithm.name, algorithm)
    return algorithm


@pytest.mark.spark
def test_the_worked_example_is_a_whole_job(
    example: Algorithm, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect_url():
        code = main(example.name, ["--output", str(tmp_path / "out"), "--k", "4"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "4 clusters of the embedded sample at epsilon = 1,\nby one noisy round." in shown.out
    record = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert record["private"] is True
    assert [query["query"] for query in record["queries"]] == ["cluster_sums"]
    assert record["privacy"]["spent"] == "1"


def test_its_help_and_its_plan_come_from_the_same_file(
    example: Algorithm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(example.name, ["--dry-run"]) == 0
    assert "cluster_sums" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(example.name, ["--help"])
    assert "single noisy round" in capsys.readouterr().out
