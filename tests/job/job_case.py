"""Running a job in the tests' own process, and reading back what it wrote."""

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

from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.job.options import parse_options
from dpkm_spark.job.request import Request, make_request
from dpkm_spark.job.run import main
from dpkm_spark.spark.frames import table_to_frame

_GRID = ("--grid", "fixed", "--cells-per-dimension", "3", "--restarts", "2")

#: Keeps a run of each algorithm small: 9 cells in two dimensions, two starts, two rounds.
TINY: dict[str, tuple[str, ...]] = {
    "eugkm": _GRID,
    "dplloyd": ("--rounds", "2"),
    "gkm": ("--block-size", "100"),
    "pgkm": ("--generations", "2"),
    "hybrid": (*_GRID, "--hybrid-rule", "always"),
    "lloyd": ("--restarts", "2", "--max-iter", "2"),
    "gene": ("--generations", "2"),
}
#: The same for EUGkM alone, and without a report.
SMALL = (*_GRID, "--no-report")
PRIVATE = [name for name, algorithm in ALGORITHMS.items() if algorithm.private]


@dataclass(frozen=True)
class Outcome:
    """What a run showed."""

    code: int
    out: str
    err: str
    job: str = "eugkm"

    @property
    def shown(self) -> str:
        """All that a person saw."""
        return self.out + self.err

    @property
    def steps(self) -> list[str]:
        """The lines of progress, without the clock."""
        start = f"[{self.job} "
        return [line.partition("] ")[2] for line in self.err.splitlines() if line.startswith(start)]

    def error(self, code: int) -> str:
        """Give the one line of an expected failure."""
        assert self.code == code, self.shown
        assert self.out == ""
        lines = [line for line in self.err.splitlines() if not line.startswith(f"[{self.job} ")]
        assert len(lines) == 1, self.err
        assert lines[0].startswith(f"{self.job}: error: ")
        return lines[0].removeprefix(f"{self.job}: error: ")


def run_main(
    capsys: pytest.CaptureFixture[str], *arguments: str, algorithm: str = "eugkm"
) -> Outcome:
    """Run a job in this process, in the session that the tests hold."""
    capsys.readouterr()
    with connect_url():
        code = main(algorithm, arguments)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err, algorithm)


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


def run_ok(
    capsys: pytest.CaptureFixture[str], output: Path, *arguments: str, algorithm: str = "eugkm"
) -> Outcome:
    """Run a job into ``output``, which must work."""
    outcome = run_main(capsys, "--output", str(output), *arguments, algorithm=algorithm)
    assert outcome.code == 0, outcome.shown
    return outcome


def request_of(*arguments: str, algorithm: str = "eugkm") -> Request:
    """Give the checked request of a command line."""
    chosen = ALGORITHMS[algorithm]
    return make_request(chosen, parse_options(chosen, arguments))


def input_flags(
    path: Path | str, *, k: int = 3, epsilon: str = "1", algorithm: str = "eugkm"
) -> tuple[str, ...]:
    """Give the flags that every run on a table needs, but the bounds."""
    price = ("--epsilon", epsilon) if ALGORITHMS[algorithm].private else ()
    return ("--input", str(path), "--k", str(k), *price)


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
