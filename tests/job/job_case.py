"""Running the job in the tests' own process, and reading back what it wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import CONNECT
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.job.eugkm import main
from dpkm_spark.job.options import parse_options
from dpkm_spark.job.request import Request, make_request
from dpkm_spark.spark.frames import table_to_frame

#: Keeps a run small: 9 cells in two dimensions, two starts.
SMALL = ("--grid", "fixed", "--cells-per-dimension", "3", "--restarts", "2", "--no-report")


@dataclass(frozen=True)
class Outcome:
    """What a run showed."""

    code: int
    out: str
    err: str

    @property
    def shown(self) -> str:
        """All that a person saw."""
        return self.out + self.err

    def error(self, code: int) -> str:
        """Give the one line of an expected failure."""
        assert self.code == code, self.shown
        assert self.out == ""
        lines = [line for line in self.err.splitlines() if not line.startswith("[eugkm ")]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("eugkm: error: ")
        return lines[0].removeprefix("eugkm: error: ")


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run the job in this process, in the session that the tests hold."""
    capsys.readouterr()
    with connect_url():
        code = main(arguments)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)


@contextmanager
def connect_url() -> Iterator[None]:
    """On Connect, a job finds its server by this variable; the active session is then reused."""
    if not CONNECT:
        yield
        return
    before = os.environ.get("SPARK_REMOTE")
    os.environ["SPARK_REMOTE"] = "sc://127.0.0.1"
    try:
        yield
    finally:
        os.environ.pop("SPARK_REMOTE")
        if before is not None:
            os.environ["SPARK_REMOTE"] = before


def run_ok(capsys: pytest.CaptureFixture[str], output: Path, *arguments: str) -> Outcome:
    """Run the job into ``output``, which must work."""
    outcome = run_main(capsys, "--output", str(output), *arguments)
    assert outcome.code == 0, outcome.shown
    return outcome


def request_of(*arguments: str) -> Request:
    """Give the checked request of a command line."""
    return make_request("eugkm", parse_options("eugkm", "", "", arguments))


def input_flags(path: Path | str, *, k: int = 3, epsilon: str = "1") -> tuple[str, ...]:
    """Give the flags that every run on a table needs, but the bounds."""
    return ("--input", str(path), "--k", str(k), "--epsilon", epsilon)


def save(
    spark: SparkSession, path: Path, columns: dict[str, Sequence[Any]], kind: str = "parquet"
) -> Path:
    """Write columns as a table and give its path."""
    frame = table_to_frame(spark, pa.table({name: pa.array(v) for name, v in columns.items()}))
    return save_frame(frame, path, kind)


def save_frame(frame: DataFrame, path: Path, kind: str = "parquet") -> Path:
    """Write a frame and give its path."""
    frame.write.format(kind).save(str(path))
    return path


def read_part(output: Path, part: str = "centroids") -> pa.Table:
    """Read a parquet part of an output, by another reader than the one under test."""
    return pq.read_table(output / part)


def read_run(output: Path) -> dict[str, Any]:
    """Read run.json."""
    record: dict[str, Any] = json.loads((output / "run.json").read_text(encoding="utf-8"))
    return record
