"""Every job of the registry on a small table: what it writes, records, shows and returns."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_case import (
    PRIVATE,
    TINY,
    Outcome,
    connect_url,
    input_flags,
    read_part,
    read_run,
    request_of,
    run_main,
    run_ok,
)
from pyspark.sql import SparkSession

from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.domain import SCALE
from dpkm_spark.errors import QueryError
from dpkm_spark.job.release import EVALUATED, EXACT, SEEDED
from dpkm_spark.job.run import main

pytestmark = pytest.mark.spark

#: Methods that release no sizes.
WITHOUT_SIZES = ("gkm", "pgkm")
OPEN = [name for name in ALGORITHMS if name not in PRIVATE]
LOW, HIGH = np.array([0.0, 18.0]), np.array([100_000.0, 90.0])
BOUNDS = ("--bounds", "yearly income=0:1e5", "--bounds", "age=18:90")
ROWS = 600


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three groups in two columns with units of their own, beside one that nobody asked for."""
    random = np.random.default_rng(4)
    centres = np.array([[20_000.0, 25.0], [45_000.0, 60.0], [80_000.0, 40.0]])
    rows = centres[np.arange(ROWS) % 3] + random.normal(0, [4000.0, 3.0], size=(ROWS, 2))
    path = tmp_path_factory.mktemp("people") / "people.parquet"
    columns = {"who": [None] * ROWS, "age": rows[:, 1], "yearly income": rows[:, 0]}
    pq.write_table(pa.table(columns), path)
    return path


def rows_of(people: Path) -> npt.NDArray[np.float64]:
    table = pq.read_table(people)
    return np.column_stack([table["yearly income"].to_numpy(), table["age"].to_numpy()])


def flags_for(name: str, people: Path) -> tuple[str, ...]:
    return (*input_flags(people, epsilon="3/2", algorithm=name), *BOUNDS, *TINY[name])


@dataclass(frozen=True)
class Run:
    """A job that was run once for all tests that look at it."""

    name: str
    outcome: Outcome
    output: Path
    people: Path

    @property
    def record(self) -> dict[str, Any]:
        return read_run(self.output)

    @property
    def centroids(self) -> npt.NDArray[np.float64]:
        table = read_part(self.output)
        return np.column_stack([table[name].to_numpy() for name in table.column_names[1:3]])

    @property
    def page(self) -> str:
        return (self.output / "report.html").read_text(encoding="utf-8")


def run_once(name: str, people: Path, output: Path, *more: str) -> Run:
    out, err = io.StringIO(), io.StringIO()
    flags = (*flags_for(name, people), "--run-id", f"{name}-1", "--output", str(output), *more)
    with redirect_stdout(out), redirect_stderr(err), connect_url():
        code = main(name, flags)
    return Run(name, Outcome(code, out.getvalue(), err.getvalue(), name), output, people)


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession, people: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Run]:
    """Run each job once as a user would, when it is first asked for."""

    @cache
    def run(name: str) -> Run:
        return run_once(name, people, tmp_path_factory.mktemp(name) / "out")

    return run


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: Callable[[str], Run]) -> Run:
    """Give the run of one job."""
    return runs(request.param)


every_job = pytest.mark.parametrize("run", list(ALGORITHMS), indirect=True)
private_jobs = pytest.mark.parametrize("run", PRIVATE, indirect=True)
open_jobs = pytest.mark.parametrize("run", OPEN, indirect=True)


def test_there_are_tiny_settings_for_every_algorithm() -> None:
    assert list(TINY) == list(ALGORITHMS)


@every_job
def test_it_ends_well_and_writes_what_it_promises(run: Run) -> None:
    assert run.outcome.code == 0, run.outcome.shown
    promised = {"centroids", "run.json", "report.html"}
    promised |= {"synopsis"} if ALGORITHMS[run.name].synopsis else set()
    assert {path.name for path in run.output.iterdir()} == promised
    for part in promised:
        assert str(run.output / part) in run.outcome.out


@every_job
def test_centroids_have_the_tables_own_columns_in_its_own_units(run: Run) -> None:
    table = read_part(run.output)
    assert table.column_names == ["cluster", "yearly income", "age", "noisy_size"]
    assert table.schema.types == [pa.int32(), *[pa.float64()] * 3]
    assert table["cluster"].to_pylist() == [0, 1, 2]
    assert np.isfinite(run.centroids).all()
    assert (run.centroids >= LOW).all()
    assert (run.centroids <= HIGH).all()


@every_job
def test_sizes_are_null_where_the_method_has_none(run: Run) -> None:
    sizes = read_part(run.output)["noisy_size"]
    if run.name in WITHOUT_SIZES:
        assert sizes.null_count == 3
        assert header_of(run) == ["cluster", "yearly", "income", "age"]
        return
    assert sizes.null_count == 0
    # Noise of scale below 50 on each; the largest cluster comes first.
    assert abs(sum(sizes.to_pylist()) - ROWS) < 1000
    assert sizes.to_pylist() == sorted(sizes.to_pylist(), reverse=True)
    word = ["noisy", "size"] if run.name in PRIVATE else ["size"]
    assert header_of(run) == ["cluster", *word, "yearly", "income", "age"]


def header_of(run: Run) -> list[str]:
    (line,) = [x for x in run.outcome.out.splitlines() if x.split()[:1] == ["cluster"]]
    return line.split()


@open_jobs
def test_without_privacy_sizes_are_exact(run: Run) -> None:
    nearest = squared_distances(run).argmin(axis=1)
    counts = np.bincount(nearest, minlength=3).tolist()
    assert read_part(run.output)["noisy_size"].to_pylist() == counts


@every_job
def test_the_record_says_which_job_ran_and_whether_it_is_private(run: Run) -> None:
    record = run.record
    assert record["format_version"] == 2
    assert (record["job"], record["run_id"]) == (run.name, f"{run.name}-1")
    assert record["private"] is (run.name in PRIVATE)
    assert record["why_not_private"] == ([] if run.name in PRIVATE else [EXACT])
    assert record["input"]["location"] == str(run.people)
    assert record["domain"]["columns"] == ["yearly income", "age"]
    assert record["parameters"]["k"] == 3
    assert "evaluation" not in record


@private_jobs
def test_epsilon_is_spent_to_the_last_bit(run: Run) -> None:
    record = run.record
    assert record["privacy"] | {"epsilon": "", "spent": ""} == {
        "epsilon": "", "spent": "", "delta": "0", "neighbours": "one row added or removed"
    }  # fmt: skip
    assert record["privacy"]["epsilon"] == record["privacy"]["spent"] == "3/2"
    assert sum(Fraction(query["epsilon"]) for query in record["queries"]) == Fraction(3, 2)


@private_jobs
def test_the_queries_are_those_of_the_plan(run: Run) -> None:
    parameters = request_of(*flags_for(run.name, run.people), algorithm=run.name).parameters
    plan = parameters.plan(Fraction(3, 2), 2, run.record["result"]["count"] or 0)
    planned = [query for query in plan for _ in range(query.times)]
    asked = run.record["queries"]
    assert [q["query"] for q in asked] == [q.name for q in planned]
    assert [Fraction(q["epsilon"]) for q in asked] == [q.epsilon for q in planned]
    for query, expected in zip(asked, planned, strict=True):
        assert query["private"] is True
        assert 0 < Fraction(query["epsilon_by_privacy_map"]) <= Fraction(query["epsilon"])
        whole = query["query"] in ("count", "cell_histogram", "marginals")
        sensitivity = Fraction(query["sensitivity"], 1 if whole else SCALE)
        if query["query"] == "private_select":
            # That of its candidates; planned is the most it can be.
            assert 0 < sensitivity <= expected.sensitivity
            assert query["mechanism"].startswith("noisy max")
            continue
        assert sensitivity == expected.sensitivity
        # The scale is rounded up, never down.
        assert Fraction(query["scale"]) >= query["sensitivity"] / Fraction(query["epsilon"])
        assert query["mechanism"] == "discrete Laplace"


@every_job
def test_the_result_is_finite_json(run: Run) -> None:
    text = (run.output / "run.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert run.record["result"]


@every_job
def test_the_terminal_shows_the_centroids_and_the_steps(run: Run) -> None:
    assert f"3 clusters of {run.people}" in run.outcome.out
    for j, centroid in enumerate(run.centroids):
        (line,) = [x for x in run.outcome.out.splitlines() if x.split()[:1] == [str(j)]]
        shown = [float(text.replace(",", "")) for text in line.split()[-2:]]
        assert shown == pytest.approx(centroid, rel=0.01, abs=30)
    steps = run.outcome.steps
    assert steps[:2] == ["starting Spark", f"opening {run.people}"]
    assert steps[-1] == f"writing to {run.output}"
    assert len(steps) > 3 or run.name == "lloyd"


@every_job
def test_what_is_not_private_says_so_everywhere(run: Run) -> None:
    told = [run.outcome.out, run.page]
    for text in told:
        assert ("not private" in text.lower()) is (run.name not in PRIVATE)


@every_job
def test_the_report_names_the_method_and_every_column(run: Run) -> None:
    title = ALGORITHMS[run.name].title.partition(" (")[0]
    assert title in run.page
    assert "yearly income" in run.page
    assert "<script" not in run.page.lower()
    assert f"{run.name}-1" in run.page


def squared_distances(run: Run) -> npt.NDArray[np.float64]:
    """Squared distances of all rows to all centroids, columns scaled to [-1, 1]."""
    rows, centroids = (
        np.clip((points - LOW) / (HIGH - LOW) * 2 - 1, -1, 1)
        for points in (rows_of(run.people), run.centroids)
    )
    result: npt.NDArray[np.float64] = ((rows[:, None] - centroids[None]) ** 2).sum(axis=2)
    return result


@open_jobs
def test_without_privacy_the_nicv_is_the_one_that_numpy_gives(run: Run) -> None:
    expected = squared_distances(run).min(axis=1).mean()
    assert run.record["result"]["exact_nicv"] == pytest.approx(expected, abs=1e-5)
    assert run.record["privacy"] is None
    assert run.record["queries"] == []


@pytest.mark.parametrize("run", ["gene"], indirect=True)
def test_without_privacy_the_run_id_decides_the_result(run: Run, tmp_path: Path) -> None:
    # The baselines share their source of public randomness: one is enough.
    again = run_once(run.name, run.people, tmp_path / "out", "--no-report")
    assert read_part(again.output).equals(read_part(run.output))
    assert again.record["result"] == run.record["result"]


# --- seeded and evaluated -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evaluations(
    spark: SparkSession, people: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Run]:
    """Run each private job once with seeded noise, and evaluate it."""

    @cache
    def run(name: str) -> Run:
        output = tmp_path_factory.mktemp(f"evaluated-{name}") / "out"
        return run_once(name, people, output, "--seed", "7", "--evaluate")

    return run


@pytest.fixture
def evaluated(request: pytest.FixtureRequest, evaluations: Callable[[str], Run]) -> Run:
    """Give the evaluated run of one job."""
    return evaluations(request.param)


evaluated_jobs = pytest.mark.parametrize("evaluated", PRIVATE, indirect=True)


@evaluated_jobs
def test_evaluated_runs_give_the_nicv_that_numpy_gives(evaluated: Run) -> None:
    assert evaluated.outcome.code == 0, evaluated.outcome.shown
    nicv = evaluated.record["evaluation"]["nicv"]
    expected = squared_distances(evaluated).min(axis=1).mean()
    # Coordinates are rounded to 2^-20.
    assert nicv == pytest.approx(expected, abs=1e-5)
    assert 0 < nicv < 8
    assert f"exact mean squared distance (NOT PRIVATE): {nicv:.6g}" in evaluated.outcome.out
    assert f"{nicv:.6g}" in evaluated.page


@evaluated_jobs
def test_evaluated_runs_warn_and_are_marked(evaluated: Run) -> None:
    record = evaluated.record
    assert record["private"] is False
    assert record["why_not_private"] == [SEEDED, EVALUATED]
    assert record["evaluation"]["private"] is False
    assert record["evaluation"]["failure"] is None
    assert [query["private"] for query in record["queries"]] == [False] * len(record["queries"])
    # The exact number is marked where it stands, and nowhere else.
    assert "nicv" not in json.dumps({**record, "evaluation": None})
    assert "NOT PRIVATE" in evaluated.outcome.steps[-2]
    for text in (evaluated.outcome.out, evaluated.page):
        for reason in (SEEDED, EVALUATED):
            assert reason[1:] in text.replace("&#39;", "'")


@evaluated_jobs
def test_evaluated_runs_spend_no_more(evaluated: Run) -> None:
    assert evaluated.record["privacy"]["spent"] == "3/2"


@pytest.mark.parametrize("evaluated", ["gkm"], indirect=True)
def test_the_same_seed_and_run_id_give_the_same_centroids(evaluated: Run, tmp_path: Path) -> None:
    # test_job_runs has this for EUGkM, and the cluster's tests for all.
    again = run_once(evaluated.name, evaluated.people, tmp_path / "out", "--seed", "7",
                     "--no-report")  # fmt: skip
    assert again.outcome.code == 0
    assert read_part(again.output).equals(read_part(evaluated.output))
    # Seeded alone, it says why, and has no exact number.
    assert again.record["why_not_private"] == [SEEDED]
    assert "evaluation" not in again.record
    assert "exact mean" not in again.outcome.out
    assert not (again.output / "report.html").exists()


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("flag", ["--epsilon=1", "--seed=1", "--evaluate"])
def test_methods_without_privacy_know_no_budget(
    name: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, flag, algorithm=name).error(2)
    assert "unknown option" in message


# --- an evaluation that fails ---------------------------------------------------------------------


def failing_evaluation(error: BaseException) -> Any:
    def fail(*_: object) -> float:
        raise error

    return fail


def test_an_evaluation_that_fails_does_not_lose_what_is_paid_for(
    spark: SparkSession,
    people: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = QueryError("candidate_costs: Spark failed")
    monkeypatch.setattr("dpkm_spark.job.open.exact_nicv", failing_evaluation(error))
    outcome = run_ok(capsys, tmp_path / "out", *flags_for("eugkm", people), "--evaluate")
    record = read_run(tmp_path / "out")
    assert record["evaluation"] == {"private": False, "nicv": None, "failure": str(error)}
    # Whether it failed depends on the rows.
    assert record["private"] is False
    assert record["why_not_private"] == [EVALUATED]
    assert f"not evaluated: {error}" in outcome.out
    assert read_part(tmp_path / "out").num_rows == 3


def test_an_interrupted_evaluation_shows_what_is_paid_for(
    spark: SparkSession,
    people: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail = failing_evaluation(KeyboardInterrupt())
    monkeypatch.setattr("dpkm_spark.job.open.exact_nicv", fail)
    flags = (*flags_for("eugkm", people), "--evaluate", "--output", str(tmp_path / "out"))
    outcome = run_main(capsys, *flags)
    assert outcome.code == 130
    assert f"3 clusters of {people}" in outcome.out
    assert EVALUATED in outcome.out


def test_an_empty_table_has_no_nicv(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql("SELECT 0.0D AS x WHERE false").createOrReplaceTempView("dpkm_nothing")
    flags = (*input_flags("dpkm_nothing"), "--input-format", "table", "--bounds", "x=0:1")
    outcome = run_ok(capsys, tmp_path / "out", *flags, *TINY["eugkm"], "--evaluate")
    assert math.isnan(float(outcome.out.partition("(NOT PRIVATE): ")[2].split()[0]))
    assert read_run(tmp_path / "out")["evaluation"]["nicv"] is None
