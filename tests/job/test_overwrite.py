"""An earlier result at the output: kept, replaced as a whole, or refused before paying."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import CONNECT
from job_case import TINY, input_flags, read_part, read_run, run_main, run_ok
from pyspark.sql import SparkSession

from dpkm_spark.errors import QueryError
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.spark.write import OutputFolder

pytestmark = pytest.mark.spark


@pytest.fixture
def flags(spark: SparkSession) -> tuple[str, ...]:
    """Flags of a run on a small table, for any algorithm."""
    spark.sql("SELECT id / 50D - 1 AS x FROM range(100)").createOrReplaceTempView("dpkm_again")
    return (*input_flags("dpkm_again"), "--input-format", "table", "--bounds", "x=-1:1")


@pytest.fixture
def charges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the queries that were asked for."""
    asked: list[str] = []
    for name in ("noisy_count", "noisy_histogram", "noisy_cluster_sums"):

        def ask(self: PrivateTable, *_: object, name: str = name) -> None:
            asked.append(name)
            raise AssertionError(f"{name} was asked for")

        monkeypatch.setattr(PrivateTable, name, ask)
    return asked


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_parts_of_an_earlier_run_that_the_new_one_does_not_write_are_removed(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    run_ok(capsys, output, *flags, *TINY["eugkm"])
    assert names_in(output) == {"centroids", "synopsis", "run.json", "report.html"}
    (output / "notes.txt").write_text("the user's own", encoding="utf-8")

    more = ("--overwrite", "--no-report", "--run-id", "second")
    run_ok(capsys, output, *flags, *TINY["dplloyd"], *more, algorithm="dplloyd")
    # A synopsis and a report of the first run beside the second's centroids would mislead.
    assert names_in(output) == {"centroids", "run.json", "notes.txt"}
    assert read_run(output)["run_id"] == "second"
    assert read_part(output).num_rows == 3


def test_parts_that_the_new_run_writes_are_replaced(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    run_ok(capsys, output, *flags, *TINY["dplloyd"], algorithm="dplloyd")
    more = ("--overwrite", "--run-id", "second")
    run_ok(capsys, output, *flags, *TINY["hybrid"], *more, algorithm="hybrid")
    assert names_in(output) == {"centroids", "synopsis", "run.json", "report.html"}
    assert "second" in (output / "report.html").read_text(encoding="utf-8")
    assert read_part(output, "synopsis").num_rows == 3


def test_a_run_that_fails_leaves_the_earlier_result_as_it_was(
    flags: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "out"
    run_ok(capsys, output, *flags, *TINY["eugkm"])
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        raise QueryError("planted")

    monkeypatch.setattr(PrivateTable, "noisy_cluster_sums", fail)
    more = ("--overwrite", "--output", str(output))
    run_main(capsys, *flags, *TINY["dplloyd"], *more, algorithm="dplloyd").error(6)
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_what_cannot_be_removed_is_refused_before_anything_is_paid_for(
    flags: tuple[str, ...],
    charges: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A folder that Spark sees and the driver does not, as on HDFS or a Connect server's own disk.
    output = tmp_path / "out"
    (output / "synopsis").mkdir(parents=True)
    (output / "report.html").write_text("an earlier one", encoding="utf-8")
    real = OutputFolder.prepare

    def prepare(self: OutputFolder, run_id: str) -> None:
        real(self, run_id)
        self._local = None

    monkeypatch.setattr(OutputFolder, "prepare", prepare)
    more = ("--overwrite", "--no-report", "--output", str(output))
    outcome = run_main(capsys, *flags, *TINY["dplloyd"], *more, algorithm="dplloyd")
    message = outcome.error(4)
    assert "synopsis, report.html of an earlier run" in message
    assert charges == []
    assert names_in(output) >= {"synopsis", "report.html"}
    # A run that writes all of them needs to remove none; here it comes as far as its first query.
    more = ("--overwrite", "--output", str(output))
    outcome = run_main(capsys, *flags, *TINY["eugkm"], *more)
    assert outcome.code == 1
    assert charges == ["noisy_histogram"]


@pytest.mark.skipif(CONNECT, reason="the server runs as the same user; one mode is enough")
def test_a_part_that_is_gone_in_the_meantime_is_no_failure(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = OutputFolder(spark, str(tmp_path / "out"))
    folder.prepare("run-1")
    (tmp_path / "out" / "synopsis").mkdir()
    (tmp_path / "out" / "report.html").write_text("old", encoding="utf-8")
    assert folder.stale({"centroids", "run.json"}) == ["synopsis", "report.html"]
    (tmp_path / "out" / "report.html").unlink()
    folder.discard(["synopsis", "report.html"])
    assert names_in(tmp_path / "out") == set()


def test_nothing_is_stale_in_a_new_folder(spark: SparkSession, tmp_path: Path) -> None:
    folder = OutputFolder(spark, str(tmp_path / "out"))
    folder.prepare("run-1")
    assert folder.stale(set()) == []
    folder.discard([])
