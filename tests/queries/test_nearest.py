"""Nearest centroids on integers: the kernels give what Python's own integers give, to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.queries.nearest import (
    MOST_DIMENSIONS,
    SCALE_BITS,
    candidate_costs,
    cluster_sums,
    code_rows,
    stride,
    to_coordinates,
)

EXACT = 1 << 53
#: Sums and differences of two codes must be exact as well.
MOST = EXACT // 2
LARGEST_K = 10_000

# Small numbers make ties, the rest make large ones; the bounds and their neighbours bite most.
coordinate = st.one_of(
    st.integers(-2, 2),
    st.sampled_from([-SCALE, 1 - SCALE, SCALE - 1, SCALE, SCALE // 2, -SCALE // 2]),
    st.integers(-SCALE, SCALE),
)


@st.composite
def points(draw: st.DrawFn, d: int, least: int, most: int) -> IntArray:
    row = st.tuples(*[coordinate] * d)
    drawn = draw(st.lists(row, min_size=least, max_size=most))
    return np.array(drawn, dtype=np.int64).reshape(-1, d)


def squared(x: Any, c: Any) -> int:
    """Exact squared distance by Python's integers."""
    return sum((int(a) - int(b)) ** 2 for a, b in zip(x, c, strict=True))


def nearest_index(x: Any, centroids: Any) -> int:
    return min(range(len(centroids)), key=lambda j: (squared(x, centroids[j]), j))


def slow_sums(rows: IntArray, centroids: IntArray) -> list[list[int]]:
    k, d = centroids.shape
    sums = [[0] * (d + 1) for _ in range(k)]
    for x in rows:
        j = nearest_index(x, centroids)
        sums[j] = [*(s + int(a) for s, a in zip(sums[j][:d], x, strict=True)), sums[j][d] + 1]
    return sums


# --- sums of clusters -----------------------------------------------------------------------------


@given(st.data(), st.integers(1, 4))
def test_sums_are_those_of_exact_integers_with_ties_to_the_lowest_index(
    data: st.DataObject, d: int
) -> None:
    rows, centroids = data.draw(points(d, 0, 12)), data.draw(points(d, 1, 7))
    assert cluster_sums(rows, centroids).tolist() == slow_sums(rows, centroids)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, 9])
def test_of_equal_centroids_the_first_gets_every_row(k: int) -> None:
    rows = np.random.default_rng(1).integers(-SCALE, SCALE, size=(50, 3), endpoint=True)
    found = cluster_sums(rows, np.tile([[5, -SCALE, 7]], (k, 1)))
    assert found[0].tolist() == [*rows.sum(axis=0).tolist(), 50]
    assert not found[1:].any()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_row_between_centroids_goes_to_the_first_of_the_nearest(order: tuple[int, ...]) -> None:
    corners = np.array([[-SCALE, -SCALE], [-SCALE, SCALE], [SCALE, -SCALE], [SCALE, SCALE]])
    centroids, rows = corners[list(order)], np.array([[0, 0], [1, 0], [1, 1]])
    found = cluster_sums(rows, centroids)
    assert found[0, 2] >= 1
    assert found.tolist() == slow_sums(rows, centroids)


def test_one_unit_decides_between_centroids_a_whole_column_apart() -> None:
    centroids = np.array([[-SCALE], [SCALE]])
    assert cluster_sums(np.array([[0], [1]]), centroids).tolist() == [[0, 1], [1, 1]]


@given(st.data(), st.integers(2, 4), st.integers(2, 9))
def test_a_single_unit_decides_between_far_centroids_at_the_same_distance(
    data: st.DataObject, d: int, k: int
) -> None:
    # Around any row, signed permutations of one offset are equally far: the first must win. Any
    # one of them that comes a unit nearer must win instead, though distances are near 2^40.
    half = SCALE // 2
    far = st.one_of(st.integers(1, half), st.integers(half - 3, half))
    row = np.array(data.draw(st.tuples(*[st.integers(-half, half)] * d)))
    offset = data.draw(st.tuples(*[far] * d))
    around = []
    for _ in range(k):
        signs = data.draw(st.tuples(*[st.sampled_from([-1, 1])] * d))
        around.append(np.multiply(signs, data.draw(st.permutations(offset))).tolist())
    centroids = row + np.array(around)
    assert cluster_sums(row[None], centroids)[:, d].tolist() == [1] + [0] * (k - 1)
    j, i = data.draw(st.integers(0, k - 1)), data.draw(st.integers(0, d - 1))
    centroids[j, i] -= np.sign(around[j][i])
    assert cluster_sums(row[None], centroids)[:, d].argmax() == j


@given(st.data(), st.integers(1, 3))
def test_sums_add_up_over_parts_of_the_rows_in_any_order(data: st.DataObject, d: int) -> None:
    rows, centroids = data.draw(points(d, 0, 12)), data.draw(points(d, 1, 5))
    cut = data.draw(st.integers(0, len(rows)))
    shuffled = rows[data.draw(st.permutations(range(len(rows))))]
    parts = cluster_sums(shuffled[:cut], centroids) + cluster_sums(shuffled[cut:], centroids)
    np.testing.assert_array_equal(parts, cluster_sums(rows, centroids))


def test_rows_beyond_one_block_are_all_counted() -> None:
    # With k = 2 a block has 131,072 rows.
    rows = np.arange(-150_000, 150_001)[:, None]
    found = cluster_sums(rows, np.array([[-1], [1]]))
    assert found[:, 1].tolist() == [150_001, 150_000]
    assert found[1, 0] == -found[0, 0] == 150_000 * 150_001 // 2


def test_sums_at_the_bounds_are_exact_for_many_rows() -> None:
    found = cluster_sums(np.full((400_000, 1), SCALE), np.array([[SCALE]]))
    assert found.tolist() == [[400_000 * SCALE, 400_000]]


def test_no_rows_give_zeros_of_the_right_shape() -> None:
    assert (
        cluster_sums(np.zeros((0, 3), np.int64), np.zeros((4, 3), np.int64)).tolist()
        == [[0, 0, 0, 0]] * 4
    )


# --- codes ----------------------------------------------------------------------------------------


def largest_partial_sum(rows: IntArray) -> int:
    """Bound every partial sum of any code, in any order, over all rows in the domain."""
    wide = np.abs(rows)
    # int64 holds this as long as the bound that is tested holds.
    assert int(wide[:, :-1].max(initial=0)) < EXACT
    return max(
        int(a) * SCALE + int(b) for a, b in zip(wide[:, :-1].sum(axis=1), wide[:, -1], strict=True)
    )


@given(st.data(), st.integers(1, LARGEST_K))
@settings(max_examples=60)
def test_codes_of_the_largest_centroids_are_exact_in_float64(data: st.DataObject, k: int) -> None:
    # Larger d for large k is tested below, once.
    d = data.draw(st.integers(1, min(MOST_DIMENSIONS, (1 << 18) // k)))
    sign = data.draw(st.sampled_from([-1, 1]))
    assert largest_partial_sum(code_rows(np.full((k, d), sign * SCALE))) <= MOST


@pytest.mark.parametrize(("k", "d"), [(10_000, 1000), (10_000, 1), (300, 2048), (8192, 100)])
def test_codes_at_the_extremes_are_exact_and_name_the_nearest_coarse_centroid(
    k: int, d: int
) -> None:
    random = np.random.default_rng(k + d)
    centroids = random.choice([-SCALE, SCALE, 0, 12_345, -7], size=(k, d))
    rows = code_rows(centroids)
    assert largest_partial_sum(rows) <= MOST
    assert rows.dtype == np.int64
    # Rows at the corners, one opposite to a centroid, make the largest codes.
    opposite = np.where(centroids[-1] >= 0, -SCALE, SCALE)
    xs = np.stack([opposite, -opposite, random.integers(-SCALE, SCALE, d, endpoint=True)])
    scores = rows[:, :d].astype(np.float64) @ xs.T.astype(np.float64) + rows[:, d:]
    for i, x in enumerate(xs):
        # int64 is exact here, as every partial sum is below 2^53.
        exact = rows[:, :d] @ x + rows[:, d]
        assert (scores[:, i] == exact).all()
        assert (exact % stride(k) == np.arange(k)).all()
    found = cluster_sums(xs, centroids)
    coarse = coarsened(centroids)
    labels = [nearest_index_by_matrix(x, coarse) for x in xs]
    assert found[:, d].tolist() == np.bincount(labels, minlength=k).tolist()


def dropped_bits(k: int, d: int) -> int:
    """The fewest low bits to drop that leave 3 d SCALE^2 K below 2^52, by counting up."""
    drop = 0
    while 3 * d * SCALE**2 * stride(k) >= 1 << (52 + drop):
        drop += 1
    return drop


def coarsened(centroids: IntArray) -> IntArray:
    """Round centroids to multiples of 2^s, halves up: what a code stands for."""
    step = 1 << dropped_bits(*centroids.shape)
    return (centroids + step // 2) // step * step


def nearest_index_by_matrix(x: IntArray, centroids: IntArray) -> int:
    # Squared distances are at most 4 d SCALE^2 <= 2^53, so int64 is exact.
    return int(((centroids - x) ** 2).sum(axis=1).argmin())


@given(st.data())
@settings(max_examples=30)
def test_coarse_centroids_attract_exactly_the_rows_nearest_to_them(data: st.DataObject) -> None:
    # 64 * 80 numbers are beyond what exact codes can serve: two bits are dropped.
    seed = data.draw(st.integers(0, 1 << 30))
    random = np.random.default_rng(seed)
    centroids = random.integers(-3, 3, size=(64, 80), endpoint=True)
    rows = random.integers(-6, 6, size=(20, 80), endpoint=True)
    assert dropped_bits(64, 80) == 2
    coarse = coarsened(centroids)
    labels = [nearest_index_by_matrix(x, coarse) for x in rows]
    found = cluster_sums(rows, centroids)
    expected = np.zeros((64, 81), dtype=np.int64)
    for x, j in zip(rows, labels, strict=True):
        expected[j] += [*x, 1]
    np.testing.assert_array_equal(found, expected)


def test_coarsening_costs_at_most_half_a_step_a_coordinate() -> None:
    k, d = 300, 100
    random = np.random.default_rng(3)
    centroids = random.integers(-SCALE, SCALE, size=(k, d), endpoint=True)
    step = 1 << dropped_bits(k, d)
    assert step > 1
    assert np.abs(coarsened(centroids) - centroids).max() <= step // 2
    assert np.abs(coarsened(centroids)).max() <= SCALE


def test_no_bit_is_dropped_for_a_thousand_numbers() -> None:
    # README-sized problems: k = 100 in d = 10 (128 * 10 numbers with the stride).
    for k, d in [(1, 1), (15, 2), (100, 10), (1000, 1), (128, 10), (1, 1365)]:
        assert dropped_bits(k, d) == 0
        centroids = np.full((k, d), 1)
        assert (code_rows(centroids)[:, :d] == -2 * stride(k)).all()


@given(st.integers(1, 1 << 20))
def test_the_stride_is_the_least_power_of_two_that_holds_k(k: int) -> None:
    size = stride(k)
    assert size & (size - 1) == 0
    assert size >= k > size // 2


# --- costs of candidates --------------------------------------------------------------------------


def slow_costs(rows: IntArray, candidates: IntArray) -> list[list[int]]:
    costs = []
    for candidate in candidates:
        least = [min(squared(x, c) for c in candidate) for x in rows]
        costs.append([sum(v >> SCALE_BITS for v in least), sum(v % SCALE for v in least)])
    return costs


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_costs_are_those_of_exact_integers(data: st.DataObject, m: int, k: int, d: int) -> None:
    rows = data.draw(points(d, 0, 8))
    candidates = data.draw(points(d, m * k, m * k)).reshape(m, k, d)
    found = candidate_costs(rows, candidates)
    assert found.tolist() == slow_costs(rows, candidates)
    totals = [sum(min(squared(x, c) for c in candidate) for x in rows) for candidate in candidates]
    assert [int(high) * SCALE + int(low) for high, low in found] == totals


def test_the_farthest_row_in_the_most_dimensions_costs_exactly_2_to_the_53() -> None:
    row = np.full((1, MOST_DIMENSIONS), SCALE)
    assert candidate_costs(row, -row[None]).tolist() == [[EXACT >> SCALE_BITS, 0]]


@pytest.mark.parametrize("d", [MOST_DIMENSIONS - 1, MOST_DIMENSIONS])
def test_costs_in_the_most_dimensions_are_exact_to_the_unit(d: int) -> None:
    # Odd numbers near the bounds: one lost bit would show in the low part.
    random = np.random.default_rng(d)
    rows = random.choice([-1, 1], size=(4, d)) * (SCALE - random.integers(0, 3, size=(4, d)))
    candidates = -rows[random.integers(0, 4, size=(3, 2))] + random.integers(0, 2, size=(3, 2, d))
    candidates = np.clip(candidates, -SCALE, SCALE)
    assert candidate_costs(rows, candidates).tolist() == slow_costs(rows, candidates)


def test_the_low_part_would_show_a_single_unit_that_is_lost() -> None:
    row = np.full((1, MOST_DIMENSIONS), SCALE)
    nearly = -row[None].copy()
    nearly[0, 0, 0] += 1
    high, low = candidate_costs(row, nearly)[0]
    assert int(high) * SCALE + int(low) == EXACT - 4 * SCALE + 1


def test_costs_of_rows_beyond_one_block_add_up() -> None:
    rows = np.arange(-100_000, 100_001)[:, None]
    candidates = np.zeros((2, 2, 1), dtype=np.int64)
    n = 100_000
    total = 2 * (n * (n + 1) * (2 * n + 1) // 6)
    found = candidate_costs(rows, candidates)
    assert [int(high) * SCALE + int(low) for high, low in found] == [total, total]


# --- rounding -------------------------------------------------------------------------------------


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_points_are_clipped_and_rounded_to_the_nearest_coordinate(values: list[float]) -> None:
    found = to_coordinates([values])
    assert found.shape == (1, len(values))
    assert found.dtype == np.int64
    clipped = np.clip(values, -1.0, 1.0)
    assert (np.abs(found[0] - clipped * SCALE) <= 0.5).all()


def test_infinite_points_are_clipped_and_shapes_are_kept() -> None:
    points_ = np.full((2, 3, 4), np.inf)
    points_[0] = -np.inf
    found = to_coordinates(points_)
    assert found.shape == (2, 3, 4)
    assert (found[0] == -SCALE).all()
    assert (found[1] == SCALE).all()
