"""The door: debit, reserve, compute, add noise, store, in this order and no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.errors import (
    BudgetExceededError,
    EpsilonError,
    InvariantError,
    ParameterError,
    QueryError,
    TranscriptError,
)
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.questions import weighted
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript, Query, public_seed
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.engine import QueryEngine
from dpkm_spark.queries.local import LocalEngine

DOMAIN = Domain.of(["x", "y"], (-1.0, 1.0))
GRID = Grid(2, 3)
HALF = Fraction(1, 2)


class LoggedTranscript(MemoryTranscript):
    def __init__(self, log: list[str], answers: tuple[Answer, ...] = ()) -> None:
        super().__init__("run", answers)
        self.log = log

    def reserve(self, position: int, query: Query) -> None:
        self.log.append(f"reserve {position} {query.name}")
        super().reserve(position, query)

    def release(self, position: int, answer: Answer) -> None:
        self.log.append(f"release {position} {answer.query.name}")
        super().release(position, answer)


class LoggedEngine:
    """Answers 100 everywhere; notes what had been spent when it was asked."""

    domain = DOMAIN

    def __init__(self, log: list[str], budget: Budget) -> None:
        self.log, self.budget = log, budget

    def count(self) -> int:
        self.log.append(f"count, spent {self.budget.spent}")
        return 100

    def cell_histogram(self, grid: Grid) -> IntArray:
        self.log.append(f"cell_histogram of {grid.size}, spent {self.budget.spent}")
        return np.full(grid.size, 100, dtype=np.int64)


class LoggedNoise:
    """Adds 1 to everything."""

    private = True

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        self.log.append(f"noise of scale {calibration.scale}")
        return values + 1


class Untouchable:
    """An engine and a noise source that must not be asked."""

    domain = DOMAIN
    private = True

    def count(self) -> int:
        pytest.fail("the engine was asked for a count")

    def cell_histogram(self, grid: Grid) -> IntArray:
        pytest.fail("the engine was asked for a histogram")

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        pytest.fail("noise was drawn")


def _logged(
    epsilon: Fraction = Fraction(1), answers: tuple[Answer, ...] = ()
) -> tuple[PrivateTable, list[str]]:
    log: list[str] = []
    budget = Budget(epsilon)
    table = PrivateTable(
        LoggedEngine(log, budget), budget, LoggedTranscript(log, answers), LoggedNoise(log)
    )
    return table, log


def _first_run() -> tuple[Answer, ...]:
    table, _ = _logged()
    table.noisy_count(HALF)
    table.noisy_histogram(GRID, HALF)
    return table.transcript.answers


def test_two_queries_debit_reserve_compute_perturb_and_store_in_order() -> None:
    table, log = _logged()
    assert table.noisy_count(Fraction(1, 4)) == 101
    np.testing.assert_array_equal(table.noisy_histogram(GRID, HALF), np.full(9, 101))
    assert log == [
        "reserve 0 count",
        "count, spent 1/4",
        "noise of scale 4.0",
        "release 0 count",
        "reserve 1 cell_histogram",
        "cell_histogram of 9, spent 3/4",
        "noise of scale 2.0",
        "release 1 cell_histogram",
    ]
    assert table.remaining == Fraction(1, 4)


def test_answers_state_query_mechanism_scale_and_cost() -> None:
    count, histogram = _first_run()
    assert count.query == Query("count", {}, sensitivity=1, epsilon=HALF)
    shape = {"dimension": 2, "cells_per_dimension": 3}
    assert histogram.query == Query("cell_histogram", shape, sensitivity=1, epsilon=HALF)
    for answer in (count, histogram):
        assert answer.mechanism == "discrete Laplace"
        assert answer.scale == 2.0
        assert 0 < Fraction(answer.epsilon_used) <= answer.query.epsilon


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(1, 10), Fraction(1, 10**9)])
def test_the_cost_by_the_mechanisms_own_map_is_within_the_charge(epsilon: Fraction) -> None:
    table, _ = _logged()
    table.noisy_count(epsilon)
    answer = table.transcript.answers[0]
    assert Fraction(answer.epsilon_used) <= epsilon
    assert Fraction(answer.scale) >= 1 / epsilon


def test_a_float_epsilon_is_charged_and_served_as_the_same_rational() -> None:
    # 0.1 in binary is above 1/10: noise for the one and a charge for the other would overspend.
    table, _ = _logged()
    table.noisy_count(0.1)  # type: ignore[arg-type]
    answer = table.transcript.answers[0]
    assert answer.query.epsilon == 1 - table.remaining == Fraction(1, 10)
    assert Fraction(answer.epsilon_used) <= Fraction(1, 10)


@pytest.mark.parametrize(
    "ask",
    [lambda t, e: t.noisy_count(e), lambda t, e: t.noisy_histogram(GRID, e)],
    ids=["count", "histogram"],
)
@pytest.mark.parametrize(
    ("epsilon", "error"),
    [
        (Fraction(1) + Fraction(1, 10**12), BudgetExceededError),
        (Fraction(10**6), BudgetExceededError),
        (Fraction(0), EpsilonError),
        (Fraction(-1), EpsilonError),
        (float("nan"), EpsilonError),
        (float("inf"), EpsilonError),
    ],
)
def test_a_query_over_budget_or_without_epsilon_touches_nothing(
    ask: Callable[[PrivateTable, Fraction], object], epsilon: Fraction, error: type[Exception]
) -> None:
    stub = Untouchable()
    table = PrivateTable(stub, Budget(Fraction(1)), MemoryTranscript("run"), stub)
    with pytest.raises(error):
        ask(table, epsilon)
    assert table.remaining == 1
    assert table.transcript.answers == ()


def test_a_budget_serves_once_though_two_tables_share_it() -> None:
    budget, log = Budget(Fraction(1)), []
    tables = [
        PrivateTable(LoggedEngine(log, budget), budget, noise=LoggedNoise(log)) for _ in range(2)
    ]
    tables[0].noisy_count(Fraction(3, 4))
    with pytest.raises(BudgetExceededError):
        tables[1].noisy_count(HALF)
    assert len(log) == 2


class Broken(Untouchable):
    def count(self) -> int:
        raise QueryError("spark: lost")


def test_a_failed_query_stays_charged_and_releases_nothing() -> None:
    # The failure itself might tell something, and a retry for free would tell it again and again.
    table = PrivateTable(Broken(), Budget(Fraction(1)), MemoryTranscript("run"), Untouchable())
    with pytest.raises(QueryError):
        table.noisy_count(HALF)
    assert table.remaining == HALF
    assert table.transcript.answers == ()


def test_after_a_failed_query_the_next_one_is_charged_and_answered() -> None:
    class Flaky(LocalEngine):
        broken = True

        def count(self) -> int:
            if self.broken:
                raise QueryError("count: lost")
            return super().count()

    engine = Flaky(np.zeros((3, 2)), DOMAIN)
    table = PrivateTable(engine, Budget(Fraction(1)), MemoryTranscript("run"))
    with pytest.raises(QueryError):
        table.noisy_count(Fraction(1, 4))
    engine.broken = False
    table.noisy_count(Fraction(1, 4))
    assert table.remaining == HALF
    assert [answer.query.name for answer in table.transcript.answers] == ["count"]


def test_a_replay_gives_the_stored_answers_and_debits_the_same_without_engine_or_noise() -> None:
    stored, stub = _first_run(), Untouchable()
    table = PrivateTable(stub, Budget(Fraction(1)), MemoryTranscript("run", stored), stub)
    assert table.noisy_count(HALF) == 101
    assert table.remaining == HALF
    np.testing.assert_array_equal(table.noisy_histogram(GRID, HALF), stored[1].values)
    assert table.remaining == 0
    assert table.transcript.answers == stored


def test_a_replay_is_no_way_round_the_budget() -> None:
    stub = Untouchable()
    table = PrivateTable(stub, Budget(Fraction(3, 4)), MemoryTranscript("run", _first_run()), stub)
    table.noisy_count(HALF)
    with pytest.raises(BudgetExceededError):
        table.noisy_histogram(GRID, HALF)


def test_a_replay_that_ends_early_goes_on_with_the_engine() -> None:
    stored = _first_run()[:1]
    table, log = _logged(answers=stored)
    table.noisy_count(HALF)
    assert log == []
    table.noisy_histogram(GRID, HALF)
    assert log[0] == "reserve 1 cell_histogram"
    assert [a.query.name for a in table.transcript.answers] == ["count", "cell_histogram"]
    assert table.transcript.answers[0] is stored[0]
    assert table.remaining == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.noisy_count(Fraction(1, 3)),
        lambda table: table.noisy_histogram(GRID, HALF),
    ],
    ids=["another epsilon", "another query"],
)
def test_stored_answers_do_not_serve_another_configuration(
    ask: Callable[[PrivateTable], object],
) -> None:
    stub = Untouchable()
    table = PrivateTable(stub, Budget(Fraction(1)), MemoryTranscript("run", _first_run()), stub)
    with pytest.raises(TranscriptError, match=r"'run'.*use another run id"):
        ask(table)
    assert table.remaining == 1


def test_stored_answers_do_not_serve_another_grid() -> None:
    stub = Untouchable()
    table = PrivateTable(stub, Budget(Fraction(1)), MemoryTranscript("run", _first_run()), stub)
    table.noisy_count(HALF)
    with pytest.raises(TranscriptError):
        table.noisy_histogram(Grid(2, 4), HALF)
    assert table.remaining == HALF


def test_a_released_answer_cannot_be_changed() -> None:
    table, _ = _logged()
    values = table.noisy_histogram(GRID, HALF)
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        table.transcript.answers[0].values[0] = 0
    with pytest.raises(AttributeError):
        table.transcript.answers[0].scale = 0.0  # type: ignore[misc]


def test_seeded_noise_marks_its_answers_as_not_private() -> None:
    log: list[str] = []
    budget = Budget(Fraction(1))
    table = PrivateTable(LoggedEngine(log, budget), budget, noise=SeededNoise(1))
    table.noisy_count(HALF)
    assert table.transcript.answers[0].private is False
    assert _first_run()[0].private is True


def test_the_system_noise_is_the_default() -> None:
    log: list[str] = []
    budget = Budget(Fraction(1))
    table = PrivateTable(LoggedEngine(log, budget), budget)
    table.noisy_count(HALF)
    assert table.transcript.answers[0].private is True


def test_nothing_public_about_the_door_leads_to_the_engine() -> None:
    engine = LocalEngine(np.zeros((3, 2)), DOMAIN)
    table = PrivateTable(engine, Budget(Fraction(1)))
    names = [name for name in dir(table) if not name.startswith("_")]
    assert set(names) == {
        "domain", "public_random", "remaining", "transcript",
        "noisy_count", "noisy_histogram", "noisy_marginals", "noisy_cluster_sums",
        "noisy_block_mean", "private_select",
        "require_cluster_sums", "require_block_mean", "require_selection",
    }  # fmt: skip
    for name in names:
        value = getattr(table, name)
        assert value is not engine
        assert engine not in getattr(value, "__dict__", {}).values()


# --- transcript ----------------------------------------------------------------------------------


def test_a_transcript_takes_only_the_answer_it_reserved() -> None:
    first, second = _first_run()
    transcript = MemoryTranscript("run")
    with pytest.raises(InvariantError):
        transcript.release(0, first)
    with pytest.raises(InvariantError):
        transcript.reserve(1, first.query)
    transcript.reserve(0, first.query)
    with pytest.raises(InvariantError):
        transcript.release(0, second)
    transcript.release(0, first)
    with pytest.raises(InvariantError):
        transcript.release(0, first)
    with pytest.raises(InvariantError):
        transcript.reserve(0, first.query)
    assert transcript.answers == (first,)


def test_an_answer_freezes_its_values() -> None:
    answer = replace(_first_run()[0], values=np.zeros(2, dtype=np.int64))
    assert not answer.values.flags.writeable


def test_public_seeds_are_the_same_in_another_process_and_differ_by_run_and_purpose() -> None:
    code = (
        "from dpkm_spark.privacy.transcript import public_seed; print(public_seed('r', 'starts'))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert seen == {str(public_seed("r", "starts"))}
    # A separator between the two, or ("r", "xs") and ("rx", "s") would be one.
    pairs = [("r", "starts"), ("r", "labels"), ("q", "starts"), ("r", "xs"), ("rx", "s"), ("", "")]
    assert len({public_seed(*pair) for pair in pairs}) == len(pairs)


def test_public_randomness_follows_the_run_id() -> None:
    def draw(run_id: str, purpose: str = "starts") -> float:
        stub = Untouchable()
        table = PrivateTable(stub, Budget(Fraction(1)), MemoryTranscript(run_id), stub)
        return float(table.public_random(purpose).random())

    assert draw("a") == draw("a")
    assert len({draw("a"), draw("b"), draw("a", "other")}) == 3


# --- sensitivity, on the exact engine -------------------------------------------------------------

values = st.one_of(
    st.floats(-2, 2), st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 1.0, 0.0, 1e308, -0.0])
)
tables = hnp.arrays(np.float64, st.tuples(st.integers(0, 12), st.just(2)), elements=values)


class Spy:
    """Stands in for noise: keeps what the door is about to perturb."""

    private = False

    def __init__(self) -> None:
        self.exact: list[IntArray] = []

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        self.exact.append(values.copy())
        return values.copy()


def _exact(engine: QueryEngine, grid: Grid) -> tuple[list[IntArray], list[int]]:
    spy = Spy()
    table = PrivateTable(engine, Budget(Fraction(2)), MemoryTranscript("run"), spy)
    table.noisy_count(Fraction(1))
    table.noisy_histogram(grid, Fraction(1))
    return spy.exact, [answer.query.sensitivity for answer in table.transcript.answers]


@given(
    tables,
    hnp.arrays(np.float64, (1, 2), elements=values),
    st.integers(0, 12),
    st.integers(1, 9),
)
def test_one_row_more_changes_no_aggregate_by_more_than_its_sensitivity(
    rows: np.ndarray, row: np.ndarray, place: int, m: int
) -> None:
    more = np.insert(rows, min(place, len(rows)), row, axis=0)
    before, sensitivities = _exact(LocalEngine(rows, DOMAIN), Grid(2, m))
    after, _ = _exact(LocalEngine(more, DOMAIN), Grid(2, m))
    changes = [int(np.abs(a - b).sum()) for a, b in zip(before, after, strict=True)]
    assert all(c <= s for c, s in zip(changes, sensitivities, strict=True))
    # A row is dropped by both or by none, and the histogram holds every row that is counted.
    assert changes == [0 if np.isnan(row).any() else 1] * 2
    assert before[1].sum() == before[0][0]


# --- points that a door must not take ------------------------------------------------------------

SQUARE = Domain.of(["x", "y"], (-1.0, 1.0))
NAN = float("nan")


class Closed(LocalEngine):
    """An engine that fails the test if it is asked for anything."""

    def __init__(self) -> None:
        super().__init__(np.zeros((0, 2)), SQUARE)

    def _refuse(self, *_: object) -> IntArray:
        pytest.fail("the engine was asked")

    cell_histogram = cluster_sums = candidate_costs = _refuse


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda t: t.noisy_histogram(Grid(1, 4), HALF), "grid"),
        (lambda t: t.noisy_histogram(Grid(3, 4), HALF), "grid"),
        (lambda t: t.noisy_cluster_sums(np.zeros((2, 1)), HALF), "centroids"),
        (lambda t: t.noisy_cluster_sums(np.zeros((0, 2)), HALF), "centroids"),
        (lambda t: t.noisy_cluster_sums(np.zeros(2), HALF), "centroids"),
        (lambda t: t.noisy_cluster_sums(np.array([[0.0, NAN]]), HALF), "points"),
        (lambda t: t.noisy_cluster_sums(np.zeros((1, 2)), HALF, 1 << 25), "count_weight"),
        (lambda t: t.private_select(np.zeros((3, 2, 1)), 1, HALF), "candidates"),
        (lambda t: t.private_select(np.zeros((3, 0, 2)), 1, HALF), "candidates"),
        (lambda t: t.private_select(np.array([[[NAN, 0.0]]]), 1, HALF), "points"),
        (lambda t: t.private_select(np.zeros((3, 2, 2)), 4, HALF), "chosen"),
    ],
)
def test_points_that_do_not_fit_are_refused_before_anything_is_paid_for(
    ask: Callable[[PrivateTable], object], name: str
) -> None:
    # Found among the rows instead, each would tell by its error, or by its answer's length, that
    # a row is there.
    table = PrivateTable(Closed(), Budget(Fraction(1)))
    with pytest.raises(ParameterError, match=f"^{name}"):
        ask(table)
    assert table.remaining == 1


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 24))
def test_a_weighted_count_changes_by_no_more_than_its_weight(count: int, weight: int) -> None:
    two = weighted(np.array([count, count + 1]), weight)
    assert 0 <= two[1] - two[0] <= weight
    assert two[0] == min(count * weight, (1 << 62) // weight * weight)
