"""The baselines without privacy: exact, repeatable, and honest about it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.algorithms import gene as gene_room
from dpkm_spark.algorithms import lloyd as lloyd_room
from dpkm_spark.algorithms.algorithm import Clustering
from dpkm_spark.algorithms.exact_table import ExactSums
from dpkm_spark.algorithms.gene import GeneParameters, gene
from dpkm_spark.algorithms.lloyd import LloydParameters, LloydResult, lloyd
from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.evaluation import OpenTable, exact_nicv
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.queries.local import LocalEngine

DOMAIN = Domain.of(["x", "y"], {"x": (-10.0, 30.0), "y": (0.0, 1.0)})
#: What rounding rows to 2^-20 can change of a mean squared distance of at most 8.
ROUNDING = 1e-5


def _rows(n: int = 400, seed: int = 5) -> FloatArray:
    random = np.random.default_rng(seed)
    return np.column_stack([random.normal(10, 8, n), random.beta(2, 5, n)])


def _table(rows: npt.ArrayLike, run_id: str = "run") -> OpenTable:
    return OpenTable(LocalEngine(rows, DOMAIN), run_id)


def _normalised(rows: FloatArray) -> FloatArray:
    return DOMAIN.to_normalised(np.clip(rows, DOMAIN.lower, DOMAIN.upper))


def _squared(rows: FloatArray, centroids: FloatArray) -> FloatArray:
    return np.asarray(((rows[:, None] - centroids) ** 2).sum(axis=2))


def _plain_lloyd(rows: FloatArray, centroids: FloatArray) -> tuple[FloatArray, list[float]]:
    """Lloyd in floating point, written anew; centroids at the end, and NICV on the way."""
    trail = [float(_squared(rows, centroids).min(axis=1).mean())]
    for _ in range(300):
        labels = _squared(rows, centroids).argmin(axis=1)
        moved = np.array(
            [
                rows[labels == j].mean(axis=0) if (labels == j).any() else centroids[j]
                for j in range(len(centroids))
            ]
        )
        if np.abs(moved - centroids).max() < 1e-12:
            break
        centroids = moved
        trail.append(float(_squared(rows, centroids).min(axis=1).mean()))
    return centroids, trail


# --- Lloyd ----------------------------------------------------------------------------------------


def test_lloyd_is_the_best_of_all_starts_by_a_lloyd_written_anew() -> None:
    rows = _rows()
    result = lloyd(_table(rows), LloydParameters(k=4, restarts=8))
    starts = sphere_packed_starts(8, 4, 2, _table(rows).public_random("starts"))
    runs = [_plain_lloyd(_normalised(rows), start) for start in starts]
    found = [trail[-1] for _, trail in runs]
    np.testing.assert_allclose(result.nicvs, found, atol=ROUNDING)
    assert max(found) > min(found) + 0.005  # or there would be nothing to choose
    assert result.best_restart == int(np.argmin(found))
    centroids, trail = runs[result.best_restart]
    least = _squared(_normalised(result.centroids), centroids).min(axis=1)
    assert least.max() < ROUNDING
    # The last round changes nothing, and is one more.
    assert result.rounds == len(trail)
    np.testing.assert_allclose(result.trail[:-1], trail, atol=ROUNDING)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 6))
def test_the_outcome_is_a_fixed_point_with_exact_sizes(seed: int, n: int, k: int) -> None:
    rows = _rows(n, seed)
    result = lloyd(_table(rows), LloydParameters(k=k, restarts=2))
    assert result.converged
    assert result.noisy_sizes is not None
    assert result.noisy_sizes.sum() == n
    assert (np.diff(result.noisy_sizes) <= 0).all()
    labels = _squared(_normalised(rows), _normalised(result.centroids)).argmin(axis=1)
    np.testing.assert_array_equal(np.bincount(labels, minlength=k), result.noisy_sizes)
    for j in np.flatnonzero(result.noisy_sizes):
        mean = _normalised(rows)[labels == j].mean(axis=0)
        np.testing.assert_allclose(_normalised(result.centroids)[j], mean, atol=ROUNDING)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_no_round_makes_it_worse_and_the_last_is_the_outcome(seed: int, k: int) -> None:
    rows = _rows(50, seed)
    result = lloyd(_table(rows), LloydParameters(k=k, restarts=2))
    assert (np.diff(result.trail) <= ROUNDING).all()
    assert result.trail[-1] == min(result.nicvs) == result.nicvs[result.best_restart]
    assert exact_nicv(LocalEngine(rows, DOMAIN), result.centroids) == pytest.approx(
        result.trail[-1], abs=1e-9
    )


def test_the_order_of_rows_changes_no_bit() -> None:
    rows = _rows()
    one, other = (lloyd(_table(r), LloydParameters(k=5, restarts=3)) for r in (rows, rows[::-1]))
    np.testing.assert_array_equal(one.centroids, other.centroids)
    assert one.record() == other.record()


def test_the_limit_on_rounds_is_kept_and_told() -> None:
    result = lloyd(_table(_rows()), LloydParameters(k=5, restarts=3, max_iter=2))
    assert (result.rounds, result.converged, len(result.trail)) == (2, False, 3)
    # Sizes are those of the clusters around the centroids that are given.
    labels = _squared(_normalised(_rows()), _normalised(result.centroids)).argmin(axis=1)
    np.testing.assert_array_equal(np.bincount(labels, minlength=5), result.noisy_sizes)


class Counting(OpenTable):
    """Counts how often the table is read."""

    def __init__(self, rows: FloatArray) -> None:
        super().__init__(LocalEngine(rows, DOMAIN))
        self.sums = self.costs = 0

    def cluster_sums(self, centroids: FloatArray) -> ExactSums:
        self.sums += 1
        return super().cluster_sums(centroids)

    def candidate_costs(self, candidates: FloatArray) -> FloatArray:
        self.costs += 1
        return super().candidate_costs(candidates)


def test_lloyd_reads_the_table_once_a_round_and_start_and_little_besides() -> None:
    table = Counting(_rows())
    lloyd(table, LloydParameters(k=5, restarts=7, max_iter=3))
    # One score for each start, and three for the trail of the best.
    assert (table.sums, table.costs) == (7 * 3 + 1, 7 + 3)


# --- Gene -----------------------------------------------------------------------------------------


def test_gene_reads_the_table_once_a_generation_and_breeds_from_the_best_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = _rows(100)
    asked: list[tuple[FloatArray, int, Any]] = []
    search = gene_room.genetic_search

    def spied(*, select: Any, **options: Any) -> FloatArray:
        def kept(candidates: FloatArray, chosen: int, generation: int) -> Any:
            found = select(candidates, chosen, generation)
            asked.append((candidates, chosen, found))
            return found

        return search(select=kept, **options)

    monkeypatch.setattr(gene_room, "genetic_search", spied)
    table = Counting(rows)
    result = gene(table, GeneParameters(k=3, generations=5))
    assert (table.costs, len(asked), len(result.trail)) == (5, 5, 5)
    for i, (candidates, chosen, found) in enumerate(asked):
        assert (len(candidates), chosen) == (200, 1 if i == 4 else 10)
        means = [float(_squared(_normalised(rows), c).min(axis=1).mean()) for c in candidates]
        np.testing.assert_allclose([means[j] for j in found], sorted(means)[:chosen], atol=ROUNDING)
        assert result.trail[i] == pytest.approx(min(means), abs=ROUNDING)


def test_the_last_of_genes_trail_is_its_outcome() -> None:
    rows = _rows()
    result = gene(_table(rows), GeneParameters(k=3, generations=12))
    assert exact_nicv(LocalEngine(rows, DOMAIN), result.centroids) == pytest.approx(
        result.trail[-1], abs=1e-9
    )
    labels = _squared(_normalised(rows), _normalised(result.centroids)).argmin(axis=1)
    np.testing.assert_array_equal(np.bincount(labels, minlength=3), result.noisy_sizes)
    assert (np.diff(result.noisy_sizes) <= 0).all()


def test_gene_comes_near_the_best_of_lloyd() -> None:
    rows = _rows()
    best = lloyd(_table(rows), LloydParameters(k=3)).trail[-1]
    found = [gene(_table(rows, f"{i}"), GeneParameters(k=3)).trail for i in range(5)]
    assert all(trail[0] > 1.1 * best for trail in found)
    assert np.median([trail[-1] for trail in found]) < 1.02 * best
    assert min(trail[-1] for trail in found) >= best - ROUNDING


# --- both -----------------------------------------------------------------------------------------


def _lloyd(table: OpenTable, k: int = 3) -> Clustering:
    return lloyd(table, LloydParameters(k=k, restarts=3))


def _gene(table: OpenTable, k: int = 3) -> Clustering:
    return gene(table, GeneParameters(k=k, generations=3))


each = pytest.mark.parametrize("method", [_lloyd, _gene])


@each
def test_a_result_says_that_it_is_not_private(method: Any) -> None:
    result = method(_table(_rows()))
    assert result.private is False
    assert "without privacy" in result.how
    assert result.record()["exact_nicv"] == result.trail[-1]
    assert "Exact NICV" in result.facts()


@pytest.mark.parametrize("room", [lloyd_room, gene_room])
def test_the_algorithm_says_that_it_is_not_private_and_plans_no_price(room: Any) -> None:
    assert room.ALGORITHM.private is False
    assert "not private" in room.ALGORITHM.title
    assert "WITHOUT privacy" in room.ALGORITHM.about
    values = {setting.key: setting.default for setting in room.ALGORITHM.settings}
    parameters = room.ALGORITHM.configure({**values, "k": 4})
    assert parameters.plan(1, 2, 100) == ()
    assert parameters.public_count is None
    assert parameters.buys_count is False
    assert parameters.record()["k"] == 4


def test_defaults_are_the_papers() -> None:
    assert LloydParameters(k=4).record() == {"k": 4, "restarts": 30, "max_iter": 300}
    assert GeneParameters(k=4).record() == {"k": 4, "generations": 30}


@each
def test_a_run_is_repeated_by_its_name(method: Any) -> None:
    one, same = (method(_table(_rows(), "a")) for _ in range(2))
    np.testing.assert_array_equal(one.centroids, same.centroids)
    assert one.record() == same.record()


@each
def test_an_empty_table_gives_centroids_and_no_mean(method: Any) -> None:
    result = method(_table(np.zeros((0, 2))))
    assert result.centroids.shape == (3, 2)
    assert all(math.isnan(value) for value in result.trail)
    np.testing.assert_array_equal(result.noisy_sizes, np.zeros(3))


@each
def test_equal_rows_and_more_clusters_than_rows(method: Any) -> None:
    result = method(_table(np.full((5, 2), 0.25)), k=7)
    assert result.centroids.shape == (7, 2)
    assert result.noisy_sizes.sum() == 5
    if isinstance(result, LloydResult):
        assert result.trail[-1] == pytest.approx(0.0, abs=ROUNDING)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: LloydParameters(k=0), "k"),
        (lambda: LloydParameters(k=2, restarts=0), "restarts"),
        (lambda: LloydParameters(k=2, max_iter=0), "max_iter"),
        (lambda: GeneParameters(k=0), "k"),
        (lambda: GeneParameters(k=2, generations=0), "generations"),
    ],
)
def test_parameters_out_of_range_are_named(make: Any, name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: got"):
        make()
