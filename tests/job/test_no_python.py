"""Where executors cannot run Python, jobs that need it end before they pay; the others run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from job_case import TINY, input_flags, run_main, run_ok
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries import workers

pytestmark = pytest.mark.spark

FLAGS = ("--input-format", "table", "--columns", "x,y", "--bounds", "-1:1")


@pytest.fixture
def flags(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Flags of a run on a small table, where Python on the executors lacks a package."""

    def probe(session: SparkSession) -> DataFrame:
        def fail(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            raise ModuleNotFoundError("No module named 'numpy'")

        return session.range(0, 1, 1, 1).mapInArrow(fail, "n bigint")

    monkeypatch.setattr(workers, "probe", probe)
    frame = spark.sql("SELECT id / 50D - 1 AS x, 0.5D AS y FROM range(100)")
    frame.createOrReplaceTempView("dpkm_small")
    return FLAGS


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the queries that the door was asked."""
    asked: list[str] = []
    real = PrivateTable._ask_next

    def ask(self: PrivateTable, query, *rest):  # type: ignore[no-untyped-def]
        asked.append(query.name)
        return real(self, query, *rest)

    monkeypatch.setattr(PrivateTable, "_ask_next", ask)
    return asked


# GkM buys N and a range before it comes to its blocks, PGkM N, the hybrid a grid: all for nothing.
NEED = {
    "gkm": (3, ()),
    "gkm, public": (3, ("--public-count", "100", "--output-range", "public")),
    "pgkm": (3, ()),
    "dplloyd": (334, ()),
    "hybrid, if it pays": (334, ()),
}


@pytest.mark.parametrize("which", NEED)
def test_a_job_that_needs_python_ends_before_it_pays(
    which: str,
    flags: tuple[str, ...],
    charged: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = which.partition(",")[0]
    k, more = NEED[which]
    flags = (*flags, *input_flags("dpkm_small", k=k), *more, "--output", str(tmp_path / "out"))
    outcome = run_main(capsys, *flags, algorithm=name)
    message = outcome.error(69)
    assert "needs Python with numpy and pyarrow on the executors" in message
    assert "before any row was read" in message
    assert charged == []
    assert outcome.steps[-1] == "opening dpkm_small"
    assert not (tmp_path / "out").exists()


SERVED = {
    "dplloyd": (3, TINY["dplloyd"]),
    "hybrid": (3, TINY["hybrid"]),
    "hybrid that never ends with a round": (334, ("--hybrid-rule", "never", *TINY["eugkm"])),
}


@pytest.mark.parametrize("which", SERVED)
def test_a_job_that_needs_no_python_runs_without(
    which: str,
    flags: tuple[str, ...],
    charged: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    k, more = SERVED[which]
    flags = (*flags, *input_flags("dpkm_small", k=k), *more, "--no-report")
    run_ok(capsys, tmp_path / "out", *flags, algorithm=which.partition(" ")[0])
    assert charged
