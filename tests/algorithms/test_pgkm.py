"""PGkM behind the door: what it asks, what it pays, and that all else is post-processing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from algorithm_case import DOMAIN, Untouchable, table_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dpkm_spark.algorithms.algorithm import in_order
from dpkm_spark.algorithms.pgkm import ALGORITHM, PGKMParameters, PGKMResult, pgkm
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import BudgetExceededError, EpsilonError, ParameterError, QueryError
from dpkm_spark.evaluation import exact_nicv
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame


def _rows(n: int = 300) -> FloatArray:
    random = np.random.default_rng(5)
    return np.column_stack([random.normal(10, 8, n), random.beta(2, 5, n)])


class Counted(SeededNoise):
    """Seeded noise, but for the count, which is replaced."""

    def __init__(self, count: int) -> None:
        super().__init__(1)
        self.count = count

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        return np.array([self.count])


# --- budget and queries ---------------------------------------------------------------------------

parameter_sets = st.builds(
    PGKMParameters,
    k=st.just(3),
    generations=st.one_of(st.none(), st.integers(1, 10_000)),
    max_generations=st.integers(8, 10_000),
    public_count=st.one_of(st.none(), st.integers(0, 10**12)),
    count_share=st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(999, 1000)),
)


@settings(max_examples=100)
@given(
    parameter_sets,
    st.fractions(min_value=Fraction(1, 10**6), max_value=10**6),
    st.integers(-(10**9), 10**12),
)
def test_the_shares_add_up_to_epsilon_exactly(
    parameters: PGKMParameters, epsilon: Fraction, count: int
) -> None:
    plan = parameters.plan(epsilon, 4, count)
    assert sum(query.epsilon * query.times for query in plan) == epsilon
    assert all(isinstance(query.epsilon, Fraction) and query.epsilon > 0 for query in plan)
    assert parameters.buys_count == (parameters.public_count is parameters.generations is None)
    names = ["count"] * parameters.buys_count + ["private_select"]
    assert [query.name for query in plan] == names
    if parameters.generations is None:
        assert 8 <= plan[-1].times <= parameters.max_generations
    else:
        assert plan[-1].times == parameters.generations


@pytest.mark.parametrize(
    ("count", "epsilon", "generations"),
    [
        # The paper's data sets at epsilon 1: 13 for Gowalla and 8 for all others.
        (107_091, 1, 13),
        (48_841, 1, 8),
        (34_112, 1, 8),
        (26_733, 1, 8),
        (5_000, 1, 8),
        (107_091, Fraction(1, 2), 8),
        (71_999, 1, 8),
        (72_000, 1, 9),
        (10**6, Fraction(1, 2), 62),
        (10**9, 1, 100),
        (0, 1, 8),
        (-500, 10**6, 8),
    ],
)
def test_generations_by_the_rule(count: int, epsilon: Fraction, generations: int) -> None:
    assert PGKMParameters(k=3).generations_for(Fraction(epsilon), count) == generations


def test_a_run_asks_for_a_count_and_ten_of_200_a_generation_and_one_at_the_end() -> None:
    table = table_of(_rows(), epsilon=Fraction(1, 3))
    result = pgkm(table, PGKMParameters(k=3))
    assert table.remaining == 0
    count, *selections = table.transcript.answers
    assert (count.query.name, count.query.epsilon) == ("count", Fraction(1, 150))
    assert result.generations == len(selections) == 8
    assert [a.query.name for a in selections] == ["private_select"] * 8
    assert {a.query.epsilon for a in selections} == {Fraction(49, 150) / 8}
    assert [a.query.parameters["chosen"] for a in selections] == [10] * 7 + [1]
    assert {a.query.parameters["candidates"] for a in selections} == {200}
    # At most the square of the diagonal, and of the last generation's own candidates.
    assert all(2 * SCALE <= a.query.sensitivity <= 8 * SCALE for a in selections)
    assert result.last_sensitivity == selections[-1].query.sensitivity / SCALE
    assert result.private


def test_a_run_is_charged_as_its_plan_says() -> None:
    for parameters in (
        PGKMParameters(k=2),
        PGKMParameters(k=2, public_count=300),
        PGKMParameters(k=2, generations=3),
        PGKMParameters(k=2, generations=1),
    ):
        table = table_of(_rows(), epsilon=Fraction(1, 7))
        pgkm(table, parameters)
        plan = parameters.plan(Fraction(1, 7), 2, 300)
        planned = [(q.name, q.epsilon) for q in plan for _ in range(q.times)]
        assert [(a.query.name, a.query.epsilon) for a in table.transcript.answers] == planned
        assert all(
            answer.query.sensitivity <= query.sensitivity * SCALE
            for query in plan
            for answer in table.transcript.answers
            if answer.query.name == query.name
        )
        assert table.remaining == 0


def test_generations_follow_the_noisy_count_and_not_the_true_one() -> None:
    found = [
        pgkm(table_of(rows, noise=Counted(114_000)), PGKMParameters(k=1)).generations
        for rows in (np.zeros((0, 2)), np.zeros((40, 2)))
    ]
    # 114,000 * 0.98 / 8,000 = 13.97; without the share for the count it would be 14.25.
    assert found == [13, 13]


def test_a_public_count_is_used_and_costs_nothing() -> None:
    table = table_of(_rows(), noise=SeededNoise(1))
    result = pgkm(table, PGKMParameters(k=1, public_count=80_000))
    assert {a.query.name for a in table.transcript.answers} == {"private_select"}
    assert (result.generations, result.count, result.count_is_public) == (10, 80_000, True)


def test_given_generations_need_no_count() -> None:
    table = table_of(_rows(), noise=SeededNoise(1))
    result = pgkm(table, PGKMParameters(k=1, generations=2))
    assert (result.generations, result.count, result.count_is_public) == (2, None, False)
    assert len(table.transcript.answers) == 2


def test_a_spent_table_is_refused() -> None:
    table = table_of(_rows(), noise=SeededNoise(1))
    pgkm(table, PGKMParameters(k=1, generations=1))
    with pytest.raises(BudgetExceededError):
        pgkm(table, PGKMParameters(k=1, generations=1))
    assert len(table.transcript.answers) == 1


def test_what_is_left_of_a_budget_is_spent_and_no_more() -> None:
    table = table_of(_rows(), noise=SeededNoise(1))
    table.noisy_count(Fraction(1, 4))
    pgkm(table, PGKMParameters(k=1))
    assert table.remaining == 0
    assert table.transcript.answers[1].query.epsilon == Fraction(3, 4) / 50


# --- post-processing ------------------------------------------------------------------------------


def test_a_replay_gives_the_same_centroids_without_engine_or_noise() -> None:
    table = table_of(_rows())
    first = pgkm(table, PGKMParameters(k=3))
    stub: Any = Untouchable()
    replay = PrivateTable(
        stub, Budget(Fraction(1)), MemoryTranscript("run", table.transcript.answers), stub
    )
    again = pgkm(replay, PGKMParameters(k=3))
    np.testing.assert_array_equal(again.centroids, first.centroids)
    assert again.record() == first.record()
    assert replay.remaining == 0


def test_a_run_that_was_cut_off_goes_on_where_it_stopped() -> None:
    table = table_of(_rows())
    first = pgkm(table, PGKMParameters(k=3))
    cut = table.transcript.answers[:4]
    resumed = table_of(_rows(), answers=cut)
    again = pgkm(resumed, PGKMParameters(k=3))
    assert resumed.transcript.answers[:4] == cut
    assert len(resumed.transcript.answers) == 9
    assert resumed.remaining == 0
    assert again.generations == first.generations


def test_seeded_runs_repeat_and_say_that_they_are_not_private() -> None:
    def run(seed: int, run_id: str) -> PGKMResult:
        return pgkm(table_of(_rows(), noise=SeededNoise(seed), run_id=run_id), PGKMParameters(k=3))

    one, same, other_noise, other_run = run(1, "a"), run(1, "a"), run(2, "a"), run(1, "b")
    np.testing.assert_array_equal(one.centroids, same.centroids)
    assert (one.centroids != other_noise.centroids).any()
    assert (one.centroids != other_run.centroids).any()
    assert not one.private


def test_the_release_has_k_centroids_in_order_within_the_bounds_and_no_sizes() -> None:
    result = pgkm(table_of(_rows(), noise=SeededNoise(3)), PGKMParameters(k=6))
    assert result.centroids.shape == (6, 2)
    assert result.noisy_sizes is None
    assert result.synopsis is None
    assert (np.diff(result.centroids[:, 0]) >= 0).all()
    assert (result.centroids >= DOMAIN.lower).all()
    assert (result.centroids <= DOMAIN.upper).all()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6))
def test_the_order_is_lexicographic(points: list[tuple[int, int]]) -> None:
    ordered = in_order(np.array(points, dtype=np.float64))
    assert [tuple(row) for row in ordered.tolist()] == sorted(points)


@pytest.mark.parametrize("rows", [np.zeros((0, 2)), np.full((1, 2), 0.5), np.full((9, 2), 1e300)])
@pytest.mark.parametrize("k", [1, 4])
def test_few_or_equal_rows_give_k_centroids_like_any_others(rows: FloatArray, k: int) -> None:
    table = table_of(rows)
    assert pgkm(table, PGKMParameters(k=k)).centroids.shape == (k, 2)
    assert table.remaining == 0


def test_progress_names_generations_and_nothing_else() -> None:
    said: list[str] = []

    def notify(text: str, *, brief: bool = False) -> None:
        said.append(text)

    pgkm(table_of(_rows(), noise=SeededNoise(1)), PGKMParameters(k=2, generations=2), notify)
    assert said == [
        "generation 1 of 2: choosing 10 of 200 candidates privately",
        "generation 2 of 2: choosing 1 of 200 candidates privately",
    ]


@pytest.mark.spark
def test_both_engines_lead_to_the_same_release(spark: SparkSession) -> None:
    rows = _rows(200)
    table = pa.table({name: rows[:, i] for i, name in enumerate(DOMAIN.columns)})
    frame = table_to_frame(spark, table).repartition(3)
    releases = []
    for engine in (SparkEngine(frame, DOMAIN), LocalEngine(rows, DOMAIN)):
        door = PrivateTable(engine, Budget(Fraction(1)), MemoryTranscript("run"), SeededNoise(1))
        result = pgkm(door, PGKMParameters(k=3, generations=3))
        releases.append((result, door.transcript.answers))
    (one, answers), (other, same) = releases
    np.testing.assert_array_equal(one.centroids, other.centroids)
    assert one.record() == other.record()
    assert [a.query for a in answers] == [a.query for a in same]


# --- utility --------------------------------------------------------------------------------------


def _two_heaps(n: int) -> FloatArray:
    random = np.random.default_rng(1)
    heaps = np.array([[-0.6, -0.5], [0.6, 0.4]])
    return np.clip(heaps[random.integers(0, 2, n)] + random.normal(0, 0.05, (n, 2)), -1, 1)


SQUARE = Domain.of(["x", "y"], (-1.0, 1.0))


def test_with_an_epsilon_beyond_privacy_it_finds_the_heaps() -> None:
    table = table_of(_two_heaps(4000), domain=SQUARE, epsilon=Fraction(10**6), noise=SeededNoise(1))
    found = pgkm(table, PGKMParameters(k=2, generations=40)).centroids
    np.testing.assert_allclose(found, [[-0.6, -0.5], [0.6, 0.4]], atol=0.02)


def test_more_epsilon_and_more_rows_give_less_error() -> None:
    def error(n: int, epsilon: Fraction) -> float:
        rows = _two_heaps(n)
        engine = LocalEngine(rows, SQUARE)
        found = [
            exact_nicv(
                engine,
                pgkm(
                    table_of(
                        rows, domain=SQUARE, epsilon=epsilon, noise=SeededNoise(i), run_id=f"{i}"
                    ),
                    PGKMParameters(k=2, generations=8),
                ).centroids,
            )
            for i in range(10)
        ]
        return float(np.mean(found))

    # Seeded: 0.85, 0.052 and 0.0074; the heaps' own spread is 0.0049.
    little, more, many = (
        error(200, Fraction(1, 10)),
        error(200, Fraction(10)),
        error(4000, Fraction(10)),
    )
    assert little > 4 * more > 12 * many


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"k": 0}, "k"),
        ({"k": 10_001}, "k"),
        ({"k": 2, "generations": 0}, "generations"),
        ({"k": 2, "generations": 10_001}, "generations"),
        ({"k": 2, "max_generations": 7}, "max_generations"),
        ({"k": 2, "public_count": -1}, "public_count"),
        ({"k": 2, "count_share": Fraction(1)}, "count_share"),
    ],
)
def test_parameters_out_of_range_are_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: got"):
        PGKMParameters(**options)


def test_settings_make_the_parameters_and_defaults_are_the_papers() -> None:
    values = {setting.key: setting.default for setting in ALGORITHM.settings}
    assert ALGORITHM.configure({**values, "k": 4}) == PGKMParameters(k=4)
    assert ALGORITHM.private
    assert PGKMParameters(k=4).record() == {
        "k": 4,
        "max_generations": 100,
        "candidates": 200,
        "selected": 10,
        "count_share": "1/50",
    }


class NoPython(LocalEngine):
    """An engine that cannot score candidates."""

    def prepare_heavy(self) -> None:
        raise QueryError("no Python")


def test_what_cannot_be_served_is_refused_before_a_count_is_paid_for() -> None:
    rows = np.zeros((4, 2))
    domain = Domain.of(["x", "y"], (-1.0, 1.0))
    table = PrivateTable(NoPython(rows, domain), Budget(Fraction(1)))
    with pytest.raises(QueryError, match="no Python"):
        pgkm(table, PGKMParameters(k=2))
    assert table.remaining == 1
    # Enough for the noise of a count, not for ten choices in each of 100 generations.
    small = Fraction(1, 10**10)
    table = PrivateTable(LocalEngine(rows, domain), Budget(small))
    with pytest.raises(EpsilonError, match="private_select"):
        pgkm(table, PGKMParameters(k=2))
    assert table.remaining == small
