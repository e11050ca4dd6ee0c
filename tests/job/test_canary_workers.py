"""Python on the executors fails in many ways; none of them quotes a row in what a job tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from canary_case import SQUARE, VALUE, Everything, all_logs, run_talkative, value_is_in
from job_case import Outcome, input_flags, run_main
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.queries import blocks, nearest
from dpkm_spark.queries.spark import SparkEngine

pytestmark = pytest.mark.spark

#: Jobs whose first query goes through Python on the executors: name, k, flags.
FIRST: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "dplloyd": ("dplloyd", 334, ("--rounds", "2")),
    "gkm": ("gkm", 2, ("--public-count", "10", "--output-range", "public", "--block-size", "5")),
    "pgkm": ("pgkm", 2, ("--generations", "2")),
}
KERNELS = {
    "dplloyd": (nearest, "cluster_sums"),
    "gkm": (blocks, "block_outputs"),
    "pgkm": (nearest, "candidate_costs"),
}


def mostly_slow(hows: Iterable[str]) -> list[Any]:
    """Pair each job with each way to fail; one way a job is enough for the default suite."""
    ways = list(hows)
    return [
        pytest.param(which, how, marks=[] if j == i % len(ways) else pytest.mark.slow)
        for i, which in enumerate(FIRST)
        for j, how in enumerate(ways)
    ]


@dataclass(frozen=True)
class Listener:
    """What our process tells."""

    everything: Everything
    capsys: pytest.CaptureFixture[str]

    def run(self, which: str, folder: Path) -> Outcome:
        """Run a job on the planted view, from which only logs since now are heard."""
        name, k, more = FIRST[which]
        flags = (*input_flags("dpkm_planted", k=k), *SQUARE, "--input-format", "table", *more)
        self.everything.lines.clear()
        return run_main(self.capsys, *flags, "--output", str(folder / "o"), algorithm=name)

    def heard(self) -> list[str]:
        """Give the lines that tell the planted value."""
        return [line for line in self.everything.lines if value_is_in(line)]


@pytest.fixture
def listener(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Iterator[Listener]:
    """Every line of every logger of this process."""
    with all_logs() as everything:
        yield Listener(everything, capsys)


@pytest.fixture(scope="module")
def strings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine good rows and the planted one, which is no number; the text is in the file alone."""
    path = tmp_path_factory.mktemp("strings") / "strings.parquet"
    pq.write_table(pa.table({"s": ["0.5"] * 9 + [f"row {VALUE}"], "y": [0.5] * 10}), path)
    return path


def raising_python(frame: DataFrame) -> DataFrame:
    """Read the rows by a user's own Python function, which fails and quotes its row."""

    def numbers(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        import pyarrow

        for batch in batches:
            x = [float(text) for text in batch.column(0).to_pylist()]
            yield pyarrow.RecordBatch.from_pydict({"x": x, "y": batch.column(1).to_pylist()})

    return frame.mapInArrow(numbers, "x double, y double")


#: How the source fails; each quotes the row in what Spark says.
SOURCES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "cast in the source": lambda frame: frame.selectExpr("cast(s AS double) AS x", "y"),
    "raise_error in the source": lambda frame: frame.selectExpr(
        "if(s = '0.5', 0.5D, raise_error(s)) AS x", "y"
    ),
    "Python in the source": raising_python,
}


@pytest.mark.parametrize("how", SOURCES)
def test_what_spark_says_does_quote_the_row(how: str, spark: SparkSession, strings: Path) -> None:
    # Or the tests below would find nothing in any case.
    frame = SOURCES[how](spark.read.parquet(str(strings)))
    with pytest.raises(Exception, match=rf"row {VALUE}"):
        frame.collect()


@pytest.mark.parametrize(("which", "how"), mostly_slow(SOURCES))
def test_a_source_that_fails_in_front_of_python_quotes_no_row(
    which: str, how: str, listener: Listener, strings: Path, tmp_path: Path
) -> None:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    SOURCES[how](spark.read.parquet(str(strings))).createOrReplaceTempView("dpkm_planted")
    outcome = listener.run(which, tmp_path)
    message = outcome.error(6)
    assert "Its message is withheld" in message
    assert "stays charged" in message
    assert not value_is_in(outcome.shown)
    assert listener.heard() == []


def raising(how: str) -> Callable[..., Any]:
    """Make a kernel that fails on the rows it sees; it travels to the executors by value."""

    def kernel(coordinates: Any, *_: Any, **__: Any) -> Any:
        import os

        if how == "dies":
            os._exit(3)
        raise ValueError(f"row {coordinates[-1].tolist()}")

    return kernel


@pytest.mark.parametrize(("which", "how"), mostly_slow(["raises", "dies"]))
def test_a_kernel_that_fails_on_an_executor_quotes_no_row(
    which: str, how: str, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    table = tmp_path / "points.parquet"
    pq.write_table(pa.table({"x": [VALUE] * 10, "y": [0.5] * 10}), table)
    spark.read.parquet(str(table)).createOrReplaceTempView("dpkm_planted")
    module, name = KERNELS[which]
    monkeypatch.setattr(module, name, raising(how))
    outcome = listener.run(which, tmp_path)
    assert "Its message is withheld" in outcome.error(6)
    assert not value_is_in(outcome.shown)
    assert listener.heard() == []


def test_a_planted_kernel_does_run_and_quotes_its_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Or the test above would pass for another reason, such as a function that cannot travel.
    from dpkm_spark.domain import Domain
    from dpkm_spark.queries import workers
    from dpkm_spark.spark.frames import frame_to_table

    monkeypatch.setattr(nearest, "cluster_sums", raising("raises"))
    frame = spark.createDataFrame([(VALUE,)], "x double")
    steps = SparkEngine(frame, Domain.of(["x"], (-1, 1)))._steps
    centroids = nearest.to_coordinates([[0.0], [0.5]])
    with pytest.raises(Exception, match=r"ValueError: row \[") as caught:
        frame_to_table(workers.cluster_sums(steps, centroids))
    assert value_is_in(str(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize("which", FIRST)
def test_a_failing_run_of_its_own_process_quotes_no_row(
    which: str, strings: Path, tmp_path: Path
) -> None:
    # Python on the executors shares the standard error of the job, when all run on one machine.
    view = (
        "from pyspark.sql import SparkSession\n"
        "import pyarrow\n"
        "def numbers(batches):\n"
        "    for batch in batches:\n"
        "        x = [float(text) for text in batch.column(0).to_pylist()]\n"
        "        yield pyarrow.RecordBatch.from_pydict(\n"
        "            {'x': x, 'y': batch.column(1).to_pylist()})\n"
        "frame = SparkSession.builder.getOrCreate().read.parquet(sys.argv[-1])\n"
        "frame = frame.mapInArrow(numbers, 'x double, y double')\n"
        "frame.createOrReplaceTempView('dpkm_planted')\n"
        "sys.argv.pop()\n"
    )
    name, k, more = FIRST[which]
    flags = (*input_flags("dpkm_planted", k=k), *SQUARE, "--input-format", "table", *more)
    flags = (*flags, "--output", str(tmp_path / "out"), str(strings))
    run = run_talkative(tmp_path / "run", name, *flags, before=view, level="info")
    assert run.code == 6, run.err[-2000:]
    assert not value_is_in(run.out)
    assert [line for line in run.err.splitlines() if value_is_in(line)] == []
    assert not value_is_in(run.python_log)
    assert value_is_in(run.spark_log)
