"""EUGkM behind the door: it spends the whole budget, once, and only post-processes after that."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from algorithm_case import DOMAIN, Untouchable, some_rows, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.algorithms.eugkm import ALGORITHM, EUGKMParameters, EUGKMResult, choose_grid, eugkm
from dpkm_spark.domain import Domain, FloatArray, IntArray
from dpkm_spark.errors import BudgetExceededError, EpsilonError, ParameterError
from dpkm_spark.grid import Grid, GridRule, most_cells_per_dimension
from dpkm_spark.kmeans.lloyd import lloyd_on_grid
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable

SMALL = GridRule(max_cells=256)
FIXED = GridRule(name="fixed", cells_per_dimension=6)


def _parameters(k: int = 3, rule: GridRule = SMALL, **options: Any) -> EUGKMParameters:
    return EUGKMParameters(k=k, rule=rule, **{"restarts": 3, **options})


class Added:
    """Noise that is known: the same numbers added to each answer, one list for each query."""

    private = True

    def __init__(self, *amounts: int) -> None:
        self.amounts = list(amounts)

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        return values + self.amounts.pop(0)


# --- budget ---------------------------------------------------------------------------------------

rules = st.sampled_from([GridRule(), GridRule(name="mkm"), FIXED])


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**6), max_value=10**9),
    share=st.one_of(
        st.fractions(min_value=Fraction(1, 10**6), max_value=Fraction(999_999, 10**6)),
        st.floats(min_value=1e-6, max_value=0.999_999),
    ),
    public=st.one_of(st.none(), st.integers(0, 10**12)),
    rule=rules,
)
@settings(max_examples=1000)
def test_the_shares_add_up_to_epsilon_exactly(
    epsilon: Fraction, share: Fraction, public: int | None, rule: GridRule
) -> None:
    parameters = EUGKMParameters(k=3, rule=rule, public_count=public, count_share=share)
    count, histogram = parameters.split(epsilon)
    assert isinstance(count, Fraction)
    assert count + histogram == epsilon
    assert histogram > 0
    assert (count > 0) == parameters.buys_count == (public is None and rule.name != "fixed")


def _spent(table: PrivateTable) -> dict[str, Fraction]:
    return {a.query.name: a.query.epsilon for a in table.transcript.answers}


def test_the_whole_budget_is_spent_on_a_count_and_a_histogram() -> None:
    table = table_of(some_rows(), epsilon=Fraction(1, 3))
    result = eugkm(table, _parameters())
    assert table.remaining == 0
    assert _spent(table) == {"count": Fraction(1, 150), "cell_histogram": Fraction(49, 150)}
    assert result.synopsis.epsilon == "49/150"
    assert result.count == int(table.transcript.answers[0].values[0])
    assert not result.count_is_public


def test_the_share_of_the_count_is_the_one_asked_for() -> None:
    table = table_of(some_rows())
    eugkm(table, _parameters(count_share=Fraction(1, 4)))
    assert _spent(table) == {"count": Fraction(1, 4), "cell_histogram": Fraction(3, 4)}


def test_a_public_count_is_used_and_costs_nothing() -> None:
    table = table_of(some_rows())
    result = eugkm(table, _parameters(public_count=80))
    assert _spent(table) == {"cell_histogram": Fraction(1)}
    # (80 * 1 / 10)^(2 / 4) = 2.8: three cells per dimension, whatever the table holds.
    assert result.synopsis.grid == Grid(2, 3)
    assert (result.count, result.count_is_public) == (80, True)


def test_a_fixed_grid_needs_no_count() -> None:
    table = table_of(some_rows())
    result = eugkm(table, _parameters(rule=FIXED))
    assert _spent(table) == {"cell_histogram": Fraction(1)}
    assert result.synopsis.grid == Grid(2, 6)
    assert result.count is None


def test_the_grid_follows_the_noisy_count_and_not_the_true_one() -> None:
    rule = GridRule(max_cells=1 << 20)
    grids = [
        eugkm(table_of(rows, noise=Added(980, 0)), _parameters(rule=rule)).synopsis.grid
        for rows in (np.zeros((20, 2)), np.zeros((20, 2)))
    ]
    # N~ = 1000: (1000 * 0.98 / 10)^(1/2) = 9.9.
    assert grids == [Grid(2, 10)] * 2


@pytest.mark.parametrize("rule", [SMALL, FIXED])
def test_a_spent_table_is_refused(rule: GridRule) -> None:
    table = table_of(some_rows())
    table.noisy_count(Fraction(1))
    with pytest.raises(BudgetExceededError):
        eugkm(table, _parameters(rule=rule))


def test_a_share_too_small_for_noise_is_refused_before_anything_is_spent() -> None:
    epsilon = Fraction(1, 1 << 40)
    table = table_of(some_rows(), epsilon=epsilon)
    with pytest.raises(EpsilonError, match="epsilon of count"):
        eugkm(table, _parameters())
    assert table.remaining == epsilon


def test_many_centroids_cap_the_grid_where_their_scores_would_not_be_exact() -> None:
    rule = GridRule(name="fixed", cells_per_dimension=1 << 20)
    for k in (2047, 2048, 10_000):
        choice = choose_grid(rule, k, 1, 0, Fraction(1))
        assert choice.capped == (k > 2047)
        assert choice.grid.cells_per_dimension == min(most_cells_per_dimension(1, k), 1 << 20)
        assert choice.wanted == 1 << 20


def test_a_run_asks_for_the_capped_grid_and_a_dry_run_names_it() -> None:
    class StopError(Exception):
        pass

    class Seen:
        private = True

        def add(self, values: IntArray, calibration: Calibration) -> IntArray:
            assert len(values) == most_cells_per_dimension(1, 3000) < 1 << 20
            raise StopError

    domain = Domain.of(["x"], (0.0, 1.0))
    parameters = _parameters(3000, GridRule(name="fixed", cells_per_dimension=1 << 20))
    with pytest.raises(StopError):
        eugkm(table_of(np.zeros((9, 1)), domain=domain, noise=Seen()), parameters)
    outlook = ALGORITHM.outlook(parameters, Fraction(1), 1, 9)
    assert outlook.startswith(f"{most_cells_per_dimension(1, 3000):,} cells a dimension")


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("k", bad) for bad in (0, -1, 1.5, 3.0, True, None, "3", 10_001, 10**30, float("nan"))],
        *[("restarts", bad) for bad in (0, 2.5, True, 10_001)],
        *[("max_iter", bad) for bad in (0, 2.5, True, 1_000_001)],
        *[("public_count", bad) for bad in (-1, 2.5, True, 1 << 63)],
        *[
            ("count_share", bad)
            for bad in (Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(2), float("nan"))
        ],
    ],
)
def test_a_parameter_out_of_range_is_an_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        EUGKMParameters(**{"k": 3, name: value})
    assert str(caught.value).startswith(f"{name}: got ")
    assert "must be" in str(caught.value)


# --- always k centroids ---------------------------------------------------------------------------

TABLES: dict[str, FloatArray] = {
    "empty": np.zeros((0, 2)),
    "one row": np.array([[3.0, 0.5]]),
    "all rows equal": np.full((400, 2), 0.25),
    "constant column": np.column_stack([np.full(400, 7.0), np.linspace(0, 1, 400)]),
    "fewer rows than clusters": np.array([[0.0, 0.0], [20.0, 1.0]]),
    "all NaN": np.full((50, 2), np.nan),
    "all infinite": np.tile([[np.inf, -np.inf]], (50, 1)),
    "all outside": np.full((50, 2), 1e300),
}


def _assert_sound(result: EUGKMResult, k: int, domain: Domain = DOMAIN) -> None:
    assert result.centroids.shape == (k, domain.dimension)
    assert (result.centroids >= domain.lower).all()
    assert (result.centroids <= domain.upper).all()
    assert result.noisy_sizes.shape == (k,)
    assert result.noisy_sizes.sum() == result.synopsis.counts.sum()
    assert (np.diff(result.noisy_sizes) <= 0).all()
    assert np.isfinite(result.objective)


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(10**9)])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES.keys())
def test_every_table_gives_k_finite_centroids_within_the_bounds(
    rows: FloatArray, k: int, epsilon: Fraction
) -> None:
    _assert_sound(eugkm(table_of(rows, epsilon=epsilon), _parameters(k)), k)


@pytest.mark.parametrize("k", [100, 300])
def test_more_clusters_than_cells_or_rows_are_still_all_given(k: int) -> None:
    _assert_sound(eugkm(table_of(some_rows(10)), _parameters(k, FIXED)), k)


@pytest.mark.parametrize("count", [-(10**6), -1, 0])
def test_a_noisy_count_below_one_gives_the_smallest_grid(count: int) -> None:
    result = eugkm(table_of(np.zeros((0, 2)), noise=Added(count, -3)), _parameters())
    assert result.count == count
    assert result.synopsis.grid == Grid(2, 1)
    _assert_sound(result, 3)


def test_an_absurdly_large_noisy_count_meets_the_cap() -> None:
    result = eugkm(table_of(np.zeros((0, 2)), noise=Added(1 << 62, 0)), _parameters())
    assert result.synopsis.grid == Grid(2, 16)
    assert result.grid_choice.capped


def test_one_dimension_and_ten_are_served() -> None:
    for d in (1, 10):
        domain = Domain.of([f"c{i}" for i in range(d)], (-1.0, 1.0))
        rows = np.random.default_rng(1).uniform(-1, 1, size=(300, d))
        rule = GridRule(max_cells=1024)
        _assert_sound(eugkm(table_of(rows, domain=domain), _parameters(4, rule)), 4, domain)


def test_without_noise_one_cluster_is_the_mean_of_the_cell_centres() -> None:
    rows = some_rows(2000)
    rule = GridRule(name="fixed", cells_per_dimension=200)
    result = eugkm(table_of(rows, epsilon=Fraction(10**9)), _parameters(1, rule))
    mean = np.clip(rows, DOMAIN.lower, DOMAIN.upper).mean(axis=0)
    width = np.subtract(DOMAIN.upper, DOMAIN.lower) / 200
    assert (np.abs(result.centroids[0] - mean) < width / 4).all()
    assert result.noisy_sizes.tolist() == [2000]


def test_centroids_and_sizes_are_sorted_together() -> None:
    rows = np.repeat([[-5.0, 0.1], [25.0, 0.9], [10.0, 0.5]], [100, 300, 200], axis=0)
    rule = GridRule(name="fixed", cells_per_dimension=20)
    result = eugkm(table_of(rows, epsilon=Fraction(10**9)), _parameters(3, rule, restarts=10))
    assert result.noisy_sizes.tolist() == [300, 200, 100]
    np.testing.assert_allclose(result.centroids[:, 0], [25, 10, -5], atol=1.5)


# --- a run is its transcript ----------------------------------------------------------------------


def _assert_same(a: EUGKMResult, b: EUGKMResult) -> None:
    np.testing.assert_array_equal(a.centroids, b.centroids)
    np.testing.assert_array_equal(a.noisy_sizes, b.noisy_sizes)
    np.testing.assert_array_equal(a.synopsis.counts, b.synopsis.counts)
    assert (a.count, a.best_restart, a.rounds, a.converged, a.objective) == (
        b.count, b.best_restart, b.rounds, b.converged, b.objective,
    )  # fmt: skip


def test_the_same_transcript_gives_the_same_result_without_the_table() -> None:
    table = table_of(some_rows())
    first = eugkm(table, _parameters())
    stub = Untouchable()
    stub.domain = DOMAIN
    stored = MemoryTranscript("run", table.transcript.answers)
    again = eugkm(PrivateTable(stub, Budget(Fraction(1)), stored, stub), _parameters())
    _assert_same(first, again)


def test_a_driver_that_died_after_the_count_is_continued_by_the_next() -> None:
    first = table_of(some_rows())
    count = eugkm(first, _parameters()).count
    second = table_of(some_rows(), answers=first.transcript.answers[:1])
    assert eugkm(second, _parameters()).count == count
    assert second.remaining == 0
    assert len(second.transcript.answers) == 2


def test_another_run_id_on_the_same_answers_has_the_same_counts_and_other_starts() -> None:
    table = table_of(some_rows())
    first = eugkm(table, _parameters(max_iter=1))
    other = eugkm(
        table_of(some_rows(), run_id="other", answers=table.transcript.answers),
        _parameters(max_iter=1),
    )
    np.testing.assert_array_equal(first.synopsis.counts, other.synopsis.counts)
    assert (first.centroids != other.centroids).any()


def test_seeded_noise_repeats_the_result_and_marks_it_not_private() -> None:
    first, again = (
        eugkm(table_of(some_rows(), noise=SeededNoise(3)), _parameters()) for _ in range(2)
    )
    _assert_same(first, again)
    assert first.synopsis.private is False
    assert eugkm(table_of(some_rows()), _parameters()).synopsis.private is True


# --- nothing but answers is used ------------------------------------------------------------------


class Ordered:
    """Counts as told; notes in which order it was asked."""

    domain = DOMAIN

    def __init__(self, rows: int) -> None:
        self.log: list[str] = []
        self.rows = rows

    def count(self) -> int:
        self.log.append("count")
        return self.rows

    def cell_histogram(self, grid: Grid) -> IntArray:
        self.log.append("cell_histogram")
        return np.arange(grid.size, dtype=np.int64) + self.rows


def test_the_engine_is_asked_once_for_each_answer_and_never_after_the_histogram() -> None:
    engine = Ordered(400)
    said: list[tuple[str, int]] = []
    table = PrivateTable(engine, Budget(Fraction(1)), MemoryTranscript("run"))
    eugkm(
        table,
        _parameters(restarts=7),
        lambda text, *, brief=False: said.append((text, len(engine.log))),
    )
    assert engine.log == ["count", "cell_histogram"]
    # Starts, Lloyd and the choice among restarts came after that.
    assert {asked for text, asked in said if text.startswith(("clustering", "round"))} == {2}


class Constant:
    """Gives the same answers whatever the exact ones were."""

    private = True

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        return np.random.default_rng(len(values)).integers(-20, 60, size=len(values))


def test_tables_with_the_same_noisy_answers_have_the_same_result() -> None:
    # So the choice among restarts, the rounds and the light clusters depend on noisy counts only.
    tables = [np.zeros((0, 2)), some_rows(), np.full((10_000, 2), 0.9), np.full((5, 2), np.nan)]
    parameters = _parameters(k=6, rule=FIXED, restarts=10)
    results = [eugkm(table_of(rows, noise=Constant()), parameters) for rows in tables]
    for other in results[1:]:
        _assert_same(results[0], other)


def test_progress_is_the_same_for_tables_with_the_same_noisy_answers() -> None:
    def said(rows: FloatArray) -> list[str]:
        lines: list[str] = []

        def listen(text: str, *, brief: bool = False) -> None:
            lines.append(f"{brief} {text}")

        eugkm(table_of(rows, noise=Constant()), _parameters(rule=FIXED), listen)
        return lines

    assert said(np.zeros((0, 2))) == said(some_rows())


def test_the_restart_kept_is_the_best_on_the_synopsis() -> None:
    table = table_of(some_rows())
    parameters = _parameters(k=5, restarts=12)
    result = eugkm(table, parameters)
    starts = sphere_packed_starts(12, 5, 2, table.public_random("starts"))
    runs = lloyd_on_grid(result.synopsis.grid, result.synopsis.counts, starts)
    assert result.best_restart == int(np.argmin(runs.objective))
    assert result.objective == runs.objective.min()


# --- utility --------------------------------------------------------------------------------------


def _nicv(points: FloatArray, centroids: FloatArray) -> float:
    squared = sum(
        np.subtract.outer(points[:, i], centroids[:, i]) ** 2 for i in range(points.shape[1])
    )
    return float(np.min(squared, axis=1).mean())


def _plain_lloyd(points: FloatArray, centroids: FloatArray) -> float:
    for _ in range(300):
        squared = ((points[:, np.newaxis] - centroids) ** 2).sum(axis=2)
        nearest = squared.argmin(axis=1)
        moved = np.array(
            [
                points[nearest == j].mean(axis=0) if (nearest == j).any() else centroids[j]
                for j in range(len(centroids))
            ]
        )
        if (moved == centroids).all():
            break
        centroids = moved
    return _nicv(points, centroids)


def _gaussians() -> FloatArray:
    random = np.random.default_rng(20)
    centres = sphere_packed_starts(1, 8, 2, random)[0] * 0.9
    labels = random.integers(0, 8, size=5000)
    return np.clip(centres[labels] + random.normal(0, 0.08, size=(5000, 2)), -1, 1)


def test_with_epsilon_of_a_billion_the_result_is_plain_lloyds() -> None:
    points = _gaussians()
    domain = Domain.of(["x", "y"], (-1.0, 1.0))
    table = table_of(points, domain=domain, epsilon=Fraction(10**9))
    rule = GridRule(max_cells=1 << 14)
    result = eugkm(table, EUGKMParameters(k=8, rule=rule, restarts=30))
    starts = sphere_packed_starts(30, 8, 2, np.random.default_rng(1))
    baseline = min(_plain_lloyd(points, start) for start in starts)
    assert _nicv(points, result.centroids) <= 1.02 * baseline
    assert result.count == 5000
    assert result.synopsis.counts.sum() == 5000


def test_more_epsilon_gives_better_clusters() -> None:
    points = _gaussians()
    domain = Domain.of(["x", "y"], (-1.0, 1.0))

    def mean_nicv(epsilon: Fraction) -> float:
        parameters = EUGKMParameters(k=8, rule=GridRule(max_cells=1 << 12), restarts=10)
        results = [
            eugkm(
                table_of(
                    points, domain=domain, epsilon=epsilon, noise=SeededNoise(i), run_id=str(i)
                ),
                parameters,
            )
            for i in range(4)
        ]
        return float(np.mean([_nicv(points, result.centroids) for result in results]))

    assert mean_nicv(Fraction(1)) < 0.8 * mean_nicv(Fraction(1, 100))
