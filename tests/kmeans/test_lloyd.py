"""Weighted Lloyd on a grid, against a reference in exact rational arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import Grid, most_cells_per_dimension
from dpkm_spark.kmeans import lloyd
from dpkm_spark.kmeans.lloyd import GridClustering, lloyd_on_grid
from dpkm_spark.kmeans.starts import sphere_packed_starts

Point = tuple[Fraction, ...]


# --- reference -----------------------------------------------------------------------------------


@dataclass
class Round:
    """One set of centroids, and what its clusters hold."""

    centroids: list[Point]
    weights: list[int]
    objective: Fraction
    following: list[Point]


def _reference_round(
    grid: Grid, weights: IntArray, centroids: list[Point], unit: int
) -> Round:  # in half-cell units: a cell's centre is an odd or even integer, the domain is [-m, m]
    m, d, k = grid.cells_per_dimension, grid.dimension, len(centroids)
    mass, sums, objective = [0] * k, [[Fraction(0)] * d for _ in range(k)], Fraction(0)
    for index, weight in zip(grid.indices().tolist(), weights.tolist(), strict=True):
        x = [2 * i + 1 - m for i in index]
        far = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centroids]
        nearest = far.index(min(far))  # the lowest index of equals
        mass[nearest] += weight
        sums[nearest] = [s + weight * a for s, a in zip(sums[nearest], x, strict=True)]
        objective += weight * far[nearest]
    following = [
        tuple(min(max(_on_grid(s / w, unit), Fraction(-m)), Fraction(m)) for s in total)
        if w >= 1
        else centroid
        for total, w, centroid in zip(sums, mass, centroids, strict=True)
    ]
    return Round(centroids, mass, objective / m**2, following)


def _on_grid(value: Fraction, unit: int) -> Fraction:
    return Fraction(round(value * unit), unit)


def _reference(grid: Grid, weights: IntArray, starts: FloatArray, rounds: int) -> list[Round]:
    m, unit = grid.cells_per_dimension, _unit(grid, len(starts))
    centroids = [tuple(_on_grid(Fraction(c) * m, unit) for c in row) for row in starts.tolist()]
    trajectory = []
    for _ in range(rounds):
        trajectory.append(_reference_round(grid, weights, centroids, unit))
        centroids = trajectory[-1].following
    return trajectory


def _unit(grid: Grid, k: int) -> int:
    """2^b, the largest with 4 d m^2 k 4^b < 2^53: the documented grain of the centroids."""
    bits = 0
    while 4 * grid.dimension * grid.cells_per_dimension**2 * k * 4 ** (bits + 1) < 2**53:
        bits += 1
    return 2**bits


def _half_cells(grid: Grid, centroids: FloatArray, unit: int) -> list[Point]:
    m = grid.cells_per_dimension
    return [tuple(_on_grid(Fraction(c) * m, unit) for c in row) for row in centroids.tolist()]


def _assert_same(grid: Grid, weights: IntArray, starts: FloatArray, got: GridClustering) -> None:
    """Every restart is the best point of the reference's own path, and its numbers are right."""
    for r in range(len(starts)):
        path = _reference(grid, weights, starts[r], int(got.rounds[r]))
        slack = 1e-9 * (1 + max(abs(float(p.objective)) for p in path))
        least = float(min(p.objective for p in path))
        assert got.objective[r] == pytest.approx(least, abs=slack)
        mine = _half_cells(grid, got.centroids[r], _unit(grid, len(starts[r])))
        visited = [p for p in path if p.centroids == mine]
        assert visited, "these centroids are not on the path of Lloyd's algorithm"
        assert float(visited[0].objective) == pytest.approx(least, abs=slack)
        assert got.weights[r].tolist() == visited[0].weights


@st.composite
def problems(draw: st.DrawFn, least_weight: int = -5) -> tuple[Grid, IntArray, FloatArray]:
    d = draw(st.integers(1, 3))
    m = draw(st.integers(1, {1: 12, 2: 5, 3: 3}[d]))
    k, r = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    grid = Grid(d, m)
    weights = draw(
        st.lists(st.integers(least_weight, 9), min_size=grid.size, max_size=grid.size).map(np.array)
    )
    # Coarse starts make ties, equal centroids and centroids on cell centres common.
    flat = draw(st.lists(st.integers(-8, 8), min_size=r * k * d, max_size=r * k * d))
    return grid, weights.astype(np.int64), np.array(flat).reshape(r, k, d) / 8.0


# --- against the reference ------------------------------------------------------------------------


@given(problems())
def test_one_round_assigns_every_cell_to_its_nearest_centroid(
    problem: tuple[Grid, IntArray, FloatArray],
) -> None:
    grid, weights, starts = problem
    got = lloyd_on_grid(grid, weights, starts, max_iter=1)
    assert got.rounds.tolist() == [1] * len(starts)
    _assert_same(grid, weights, starts, got)


@given(problems())
@settings(max_examples=60)
def test_lloyd_follows_the_reference_with_negative_weights_kept(
    problem: tuple[Grid, IntArray, FloatArray],
) -> None:
    grid, weights, starts = problem
    _assert_same(grid, weights, starts, lloyd_on_grid(grid, weights, starts))


@given(problems(least_weight=1))
@settings(max_examples=60)
def test_with_positive_weights_the_end_is_a_fixed_point(
    problem: tuple[Grid, IntArray, FloatArray],
) -> None:
    grid, weights, starts = problem
    got = lloyd_on_grid(grid, weights, starts)
    assert got.converged.all()
    for r in range(len(starts)):
        again = lloyd_on_grid(grid, weights, got.centroids[r : r + 1], max_iter=2)
        # Lloyd cannot improve it by more than the tolerance.
        gain = got.objective[r] - again.objective[0]
        assert abs(gain) <= 4e-6 * (abs(got.objective[r]) + 1e-6)
        assert got.weights[r].sum() == weights.sum()


@given(problems())
def test_centroids_stay_in_the_domain_and_the_objective_is_their_sum_of_squares(
    problem: tuple[Grid, IntArray, FloatArray],
) -> None:
    grid, weights, starts = problem
    got = lloyd_on_grid(grid, weights, starts)
    assert (np.abs(got.centroids) <= 1).all()
    centres = grid.centres()
    for r in range(len(starts)):
        squared = ((centres[:, np.newaxis] - got.centroids[r]) ** 2).sum(axis=2).min(axis=1)
        direct = (weights * squared).sum()
        size = np.abs(weights).sum() * 4 * grid.dimension
        assert got.objective[r] == pytest.approx(direct, abs=1e-9 * (1 + size))
    assert got.best == int(np.argmin(got.objective))


# --- rules, one by one ----------------------------------------------------------------------------


def _line(weights: list[int], starts: list[float], **options: int) -> GridClustering:
    """Restart on a grid of one dimension, from one set of starts."""
    grid = Grid(1, len(weights))
    return lloyd_on_grid(
        grid, np.array(weights, np.int64), np.array(starts).reshape(1, -1, 1), **options
    )


def test_ties_go_to_the_lowest_index() -> None:
    # The middle cell of five is as far from either centroid.
    assert _line([1, 1, 10, 1, 1], [-0.5, 0.5], max_iter=1).weights.tolist() == [[12, 2]]
    assert _line([1, 1, 10, 1, 1], [0.5, -0.5], max_iter=1).weights.tolist() == [[12, 2]]
    assert _line([1, 2, 3, 4], [0.1, 0.1, 0.1], max_iter=1).weights.tolist() == [[10, 0, 0]]


def test_a_negative_cell_pulls_its_centroid_away() -> None:
    # Rounded up to 0, the centroid would be at 0.5; kept, at (4 * 0.5 + 1 * 0.5) / 3.
    got = _line([-1, 4], [0.0])
    assert got.weights.tolist() == [[3]]
    assert got.centroids[0, 0, 0] == pytest.approx(2.5 / 3, abs=1e-6)


def test_a_light_cluster_keeps_its_centroid() -> None:
    got = _line([0, 0, 50, 60], [-0.9, 0.5])
    assert got.centroids[0, 0, 0] == pytest.approx(-0.9, abs=1e-6)
    assert got.weights.tolist() == [[0, 110]]
    got = _line([3, -3, 50, 60], [-0.7, 0.5])
    assert got.centroids[0, 0, 0] == pytest.approx(-0.7, abs=1e-6)


def test_a_cluster_of_weight_one_moves() -> None:
    assert _line([1, 0, 50, 60], [-0.3, 0.6]).centroids[0, 0, 0] == -0.75


def test_a_mean_thrown_out_by_negative_weights_is_clipped() -> None:
    # (10 * 0.75 - 9 * -0.75) / 1 = 14.25, and the domain ends at 1.
    got = _line([-9, 0, 0, 10], [0.0], max_iter=2)
    assert got.centroids[0, 0, 0] in (0.0, 1.0)
    grid, weights = Grid(1, 4), np.array([-9, 0, 0, 10])
    round_two = _reference(grid, weights, np.array([[0.0]]), 2)[1]
    assert round_two.centroids == [(Fraction(4),)]
    assert got.objective[0] == pytest.approx(min(0.75**2, 10 * 0.25**2 - 9 * 1.75**2), abs=1e-9)


def test_a_run_cut_short_says_that_it_did_not_converge() -> None:
    weights = np.arange(400) % 7
    starts = sphere_packed_starts(2, 4, 2, np.random.default_rng(1))
    short = lloyd_on_grid(Grid(2, 20), weights, starts, max_iter=2)
    assert short.rounds.tolist() == [2, 2]
    assert not short.converged.any()
    full = lloyd_on_grid(Grid(2, 20), weights, starts)
    assert full.converged.all()
    assert (full.objective < short.objective).all()


def test_progress_tells_rounds_and_restarts_that_still_run() -> None:
    told: list[tuple[int, int]] = []
    starts = sphere_packed_starts(5, 3, 2, np.random.default_rng(1))
    got = lloyd_on_grid(
        Grid(2, 8), np.arange(64) % 5, starts, notify=lambda *state: told.append(state)
    )
    assert [rounds for rounds, _ in told] == list(range(1, int(got.rounds.max()) + 1))
    assert told[-1][1] == 0


# --- degenerate inputs: always k finite centroids -------------------------------------------------

SHAPES = {
    "one cell": (Grid(2, 1), 3),
    "one cell and one centroid": (Grid(1, 1), 1),
    "more centroids than cells": (Grid(1, 3), 12),
    "ten dimensions": (Grid(10, 2), 4),
    "plain": (Grid(2, 6), 4),
}
WEIGHTS = {
    "none": 0,
    "all negative": -7,
    "one each": 1,
    "huge": 1 << 50,
    "huge negative": -(1 << 50),
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_there_are_always_k_finite_centroids(shape: tuple[Grid, int], weight: int) -> None:
    grid, k = shape
    starts = sphere_packed_starts(3, k, grid.dimension, np.random.default_rng(1))
    got = lloyd_on_grid(grid, np.full(grid.size, weight, dtype=np.int64), starts)
    assert got.centroids.shape == (3, k, grid.dimension)
    assert (np.abs(got.centroids) <= 1).all()
    assert np.isfinite(got.objective).all()
    assert (got.weights.sum(axis=1) == float(weight * grid.size)).all()
    assert got.converged.all()


def test_weights_at_the_ends_of_int64_are_served() -> None:
    ends = np.iinfo(np.int64)
    got = lloyd_on_grid(
        Grid(1, 4), np.array([ends.max, ends.min, ends.max, 0]), np.array([[[-0.5], [0.5]]])
    )
    assert np.isfinite(got.centroids).all()
    assert (np.abs(got.centroids) <= 1).all()


def test_without_weight_the_starts_remain() -> None:
    starts = np.array([[[-0.5], [0.25]]])
    got = lloyd_on_grid(Grid(1, 8), np.zeros(8, np.int64), starts)
    np.testing.assert_array_equal(got.centroids, starts)


@pytest.mark.parametrize("k", [2048, 2049, 10_000])
def test_more_centroids_than_exact_scores_allow_are_refused(k: int) -> None:
    with pytest.raises(ParameterError, match=r"k: .*lower k or max_cells"):
        lloyd_on_grid(Grid(1, 1 << 20), np.zeros(1 << 20, np.int64), np.zeros((1, k, 1)))


@given(st.integers(1, 200), st.integers(1, 10_000))
def test_the_finest_grid_for_k_is_the_last_with_exact_scores(d: int, k: int) -> None:
    most = most_cells_per_dimension(d, k)
    assert 4 * d * most**2 * k < 2**53 <= 4 * d * (most + 1) ** 2 * k


@pytest.mark.parametrize("k", [2048, 10_000])
def test_the_finest_grid_for_k_can_be_clustered(k: int) -> None:
    grid = Grid(1, most_cells_per_dimension(1, k))
    starts = np.linspace(-1, 1, k).reshape(1, k, 1)
    got = lloyd_on_grid(grid, np.ones(grid.size, np.int64), starts, max_iter=1)
    assert got.weights.sum() == grid.size
    assert np.isfinite(got.centroids).all()


# --- one answer, however it is computed -----------------------------------------------------------


def _assert_identical(a: GridClustering, b: GridClustering) -> None:
    for name in ("centroids", "weights", "objective", "rounds", "converged"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def _noisy_problem(d: int, m: int, k: int, magnitude: int) -> tuple[Grid, IntArray, FloatArray]:
    random = np.random.default_rng(d)
    weights = random.integers(-magnitude, 3 * magnitude, size=m**d)
    return Grid(d, m), weights, sphere_packed_starts(6, k, d, random)


PROBLEMS = {
    "line": (1, 997, 9, 100),
    "plane": (2, 40, 15, 100),
    "ten dimensions": (10, 2, 5, 100),
    "counts of a large table": (2, 40, 7, 1 << 30),
    # Sums of these outgrow 2^53: epsilon near its least, or a table of 10^15 rows.
    "counts beyond exact sums": (2, 40, 7, 1 << 50),
    "line beyond exact sums": (1, 997, 9, 1 << 55),
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("block", [64, 1000, 1 << 15])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_threads_and_blocks_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, problem: tuple[int, int, int, int], threads: int, block: int
) -> None:
    grid, weights, starts = _noisy_problem(*problem)
    plain = lloyd_on_grid(grid, weights, starts)
    monkeypatch.setattr(lloyd, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(lloyd, "_BLOCK_SCORES", block)
    monkeypatch.setattr(lloyd.os, "cpu_count", lambda: threads)
    _assert_identical(lloyd_on_grid(grid, weights, starts), plain)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_restart_alone_comes_to_the_same_end(problem: tuple[int, int, int, int]) -> None:
    grid, weights, starts = _noisy_problem(*problem)
    together = lloyd_on_grid(grid, weights, starts)
    alone = [lloyd_on_grid(grid, weights, start[np.newaxis]) for start in starts]
    for name in ("centroids", "weights", "objective", "rounds", "converged"):
        joined = np.concatenate([getattr(run, name) for run in alone])
        np.testing.assert_array_equal(joined, getattr(together, name), err_msg=name)


def test_a_machine_that_does_not_know_its_cores_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lloyd.os, "cpu_count", lambda: None)
    assert lloyd_on_grid(Grid(1, 4), np.ones(4, np.int64), np.zeros((1, 1, 1))).converged.all()
