"""Blocks: one row changes one block, and every block's k-means is what Python's integers give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.domain import SCALE, Domain, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.privacy.questions import blocks_query
from dpkm_spark.queries import blocks
from dpkm_spark.queries.blocks import BlockPlan, place, spread_copies
from dpkm_spark.queries.local import LocalEngine

Row = tuple[int, ...]


def sensitivity_of(plan: BlockPlan) -> int:
    """What the door takes one row to change."""
    k, d = plan.starts.shape
    return blocks_query(k, d, Fraction(1)).sensitivity


# Few values make equal rows, ties and empty clusters; the ends of the domain bite most.
coordinate = st.one_of(
    st.integers(-2, 2), st.sampled_from([-SCALE, SCALE, SCALE // 2]), st.integers(-SCALE, SCALE)
)
methods = st.sampled_from(BlockPlan.METHODS)


def rows_of(d: int, most: int = 14) -> st.SearchStrategy[list[Row]]:
    """Rows, most of them several times."""
    row = st.tuples(*[coordinate] * d)
    copies = st.tuples(row, st.integers(1, 9))
    return st.lists(copies, max_size=most).map(lambda many: [r for r, n in many for _ in range(n)])


def plan_of(
    draw: st.DrawFn, d: int, largest: int = 12, method: st.SearchStrategy[str] = methods
) -> BlockPlan:
    k = draw(st.integers(1, 4))
    points = draw(st.lists(st.tuples(*[coordinate] * d), min_size=k, max_size=k))
    ends = st.lists(st.integers(-SCALE, SCALE), min_size=2, max_size=2, unique=True).map(sorted)
    box = draw(st.lists(ends, min_size=d, max_size=d))
    return BlockPlan(
        blocks=draw(st.integers(1, largest)),
        key=draw(st.integers(0, (1 << 63) - 1)),
        starts=np.array(points, dtype=np.int64).reshape(k, d),
        low=np.array([b[0] for b in box], dtype=np.int64),
        high=np.array([b[1] for b in box], dtype=np.int64),
        method=draw(method),
        rounds=draw(st.integers(1, 5)),
    )


def steps_of(rows: list[Row], d: int) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, d) + SCALE


def answer(plan: BlockPlan, rows: list[Row]) -> IntArray:
    """What the local engine gives, for rows that are coordinates."""
    d = plan.starts.shape[1]
    domain = Domain.of([f"x{i}" for i in range(d)], (float(-SCALE), float(SCALE)))
    return LocalEngine(np.array(rows, dtype=np.float64).reshape(-1, d), domain).block_sums(plan)


def simple_plan(k: int = 2, d: int = 2, **options: Any) -> BlockPlan:
    random = np.random.default_rng(8)
    given = {
        "blocks": 5,
        "key": 77,
        "starts": random.uniform(-1, 1, (k, d)),
        "low": -np.ones(d),
        "high": np.ones(d),
    }
    return BlockPlan.of(**{**given, **options})


# --- the slow twin: Python's integers, one block after the other ----------------------------------

_MASK = (1 << 64) - 1


def _slow_hash(values: list[int]) -> int:
    """XXH64 of longs one after the other, each seeded by the hash before; written for scalars."""
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5 = 9650029242287828579, 2870177450012600261

    def rotate(x: int, r: int) -> int:
        return ((x << r) | (x >> (64 - r))) & _MASK

    state = 42
    for value in values:
        state = (state + p5 + 8) & _MASK
        state ^= rotate((value & _MASK) * p2 & _MASK, 31) * p1 & _MASK
        state = (rotate(state, 27) * p1 + p4) & _MASK
        state = (state ^ (state >> 33)) * p2 & _MASK
        state = (state ^ (state >> 29)) * p3 & _MASK
        state ^= state >> 32
    return state - (1 << 64) if state >> 63 else state


def _slow_blocks(plan: BlockPlan, rows: list[Row]) -> dict[int, Counter[Row]]:
    """Rows of each block and their weights."""
    seen: Counter[Row] = Counter()
    found: dict[int, Counter[Row]] = defaultdict(Counter)
    for row in rows:
        first = _slow_hash([plan.key, *(x + SCALE for x in row)])
        found[(first + seen[row] % plan.ordinals) % plan.blocks][row] += 1
        seen[row] += 1
    return found


def _slow_kmeans(plan: BlockPlan, block: int, members: Counter[Row]) -> list[list[int]]:
    centroids = plan.starts.tolist()
    if plan.method == "gupt" and members:
        own = sorted(members, key=lambda row: (_slow_hash([plan.key, block, *row]), row))
        centroids = [list(own[j % len(own)]) for j in range(len(centroids))]
    for _ in range(plan.rounds):
        cluster = defaultdict(list)
        for row, weight in members.items():
            cost = [sum((a - b) ** 2 for a, b in zip(row, c, strict=True)) for c in centroids]
            cluster[cost.index(min(cost))].append((row, weight))
        for j, inside in cluster.items():
            n = sum(w for _, w in inside)
            sums = [sum(row[i] * w for row, w in inside) for i in range(len(centroids[0]))]
            centroids[j] = [(2 * s + n) // (2 * n) for s in sums]
    return sorted(centroids, key=lambda c: c[:2][-1]) if plan.method == "gupt" else centroids


def slow_answer(plan: BlockPlan, rows: list[Row]) -> list[list[int]]:
    members = _slow_blocks(plan, rows)
    k, d = plan.starts.shape
    total = [[0] * d for _ in range(k)]
    for b in range(plan.blocks):
        for j, centroid in enumerate(_slow_kmeans(plan, b, members[b])):
            for i, c in enumerate(centroid):
                low, high = int(plan.low[i]), int(plan.high[i])
                total[j][i] += (min(max(c, low), high) - low) * SCALE // (high - low)
    return total


@settings(max_examples=200)
@given(st.data(), st.integers(1, 3))
def test_the_kernel_gives_what_pythons_integers_give(data: st.DataObject, d: int) -> None:
    plan = data.draw(st.composite(plan_of)(d))
    rows = data.draw(rows_of(d))
    assert answer(plan, rows).tolist() == slow_answer(plan, rows)


# --- one row, one block ---------------------------------------------------------------------------


@given(st.lists(st.tuples(coordinate, st.integers(0, 1)), max_size=60), st.integers(1, 20))
def test_copies_are_spread_evenly_and_none_is_lost(rows: list[Row], ordinals: int) -> None:
    steps, ordinal, weight = spread_copies(steps_of(rows, 2), ordinals)
    keys = [(*row, o) for row, o in zip(steps.tolist(), ordinal.tolist(), strict=True)]
    assert len(set(keys)) == len(keys)
    assert (weight >= 1).all()
    assert ((ordinal >= 0) & (ordinal < ordinals)).all()
    back: Counter[Row] = Counter()
    for (a, b, _), w in zip(keys, weight.tolist(), strict=True):
        back[a - SCALE, b - SCALE] += w
    assert back == Counter(rows)
    for row in set(rows):
        mine = [
            w
            for key, w in zip(keys, weight, strict=True)
            if key[:2] == tuple(steps_of([row], 2)[0])
        ]
        assert max(mine) - min(mine) <= 1
        assert len(mine) == min(Counter(rows)[row], ordinals)


def _weights(rows: list[Row], ordinals: int) -> Counter[Row]:
    steps, ordinal, weight = spread_copies(steps_of(rows, 2), ordinals)
    keys = np.column_stack([steps, ordinal]).tolist()
    return Counter({tuple(key): int(w) for key, w in zip(keys, weight, strict=True)})


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=60),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_one_more_row_adds_one_to_one_weight(rows: list[Row], ordinals: int, random: Any) -> None:
    without = rows[1:]
    random.shuffle(without)
    more, fewer = _weights(rows, ordinals), _weights(without, ordinals)
    assert not fewer - more
    assert sum((more - fewer).values()) == 1


Answer = Callable[[BlockPlan, list[Row]], IntArray]


def _largest_change(found: Answer, plan: BlockPlan, rows: list[Row], extra: Row) -> int:
    more, fewer = found(plan, [*rows, extra]), found(plan, rows)
    return int(np.abs(more - fewer).sum())


@settings(max_examples=300)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_one_row_changes_the_answer_by_at_most_the_sensitivity(
    data: st.DataObject, d: int, again: bool
) -> None:
    plan = data.draw(st.composite(plan_of)(d))
    rows = data.draw(rows_of(d))
    # One more copy of a row that is there, or any row.
    known = st.sampled_from(rows) if again and rows else st.tuples(*[coordinate] * d)
    change = _largest_change(answer, plan, rows, data.draw(known))
    assert change <= sensitivity_of(plan) == plan.starts.size * SCALE


def test_the_sensitivity_is_reached() -> None:
    # One block and one centroid, which a single row carries from one end to the other.
    plan = BlockPlan(
        blocks=1,
        key=1,
        starts=np.array([[-SCALE]]),
        low=np.array([-SCALE]),
        high=np.array([SCALE]),
    )
    assert _largest_change(answer, plan, [], (SCALE,)) == sensitivity_of(plan)


def _in_two_blocks(plan: BlockPlan, rows: list[Row]) -> IntArray:
    """A planted fault: a row is in its block and in the next one."""
    steps, ordinal, weight = spread_copies(steps_of(rows, 2), plan.ordinals)
    both = [place(plan.key, steps, ordinal + i, plan.blocks) for i in (0, 1)]
    twice = np.concatenate([steps, steps]) - SCALE
    return plan.total(plan.kernel()(twice, np.concatenate(both), np.tile(weight, 2)))


def _unclamped(plan: BlockPlan, rows: list[Row]) -> IntArray:
    """A planted fault: there is a box, but nobody clamps to it."""
    wide = BlockPlan(
        blocks=plan.blocks, key=plan.key, starts=plan.starts,
        low=-np.full(2, SCALE), high=np.full(2, SCALE),
    )  # fmt: skip
    return answer(wide, rows) * (2 * SCALE // int((plan.high - plan.low)[0]))


LEFT = (-SCALE, SCALE)


@pytest.mark.parametrize("faulty", [_in_two_blocks, _unclamped])
def test_planted_faults_break_the_sensitivity(faulty: Answer) -> None:
    # By the comparison of the test above, on rows where the honest engine keeps the bound.
    plan = BlockPlan(
        blocks=6,
        key=5,
        starts=np.array([[SCALE, -SCALE]]),
        low=np.array([-SCALE // 4] * 2),
        high=np.array([SCALE // 4] * 2),
    )
    assert _largest_change(answer, plan, [], LEFT) <= sensitivity_of(plan)
    assert _largest_change(faulty, plan, [], LEFT) >= 2 * sensitivity_of(plan)


# --- the answer depends on the multiset alone -----------------------------------------------------


def _many_rows(n: int = 3000, d: int = 3, seed: int = 1) -> list[Row]:
    random = np.random.default_rng(seed)
    spread = random.integers(-SCALE, SCALE, (n, d), endpoint=True)
    few = spread[random.integers(0, 20, n)]
    return [tuple(row) for row in np.where(random.random((n, 1)) < 0.5, spread, few).tolist()]


@pytest.mark.parametrize("method", BlockPlan.METHODS)
@pytest.mark.parametrize("count", [1, 7, 300, 100_000])
def test_neither_order_nor_chunks_matter(
    method: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = simple_plan(4, 3, blocks=count, method=method)
    rows = _many_rows()
    expected = answer(plan, rows)
    shuffled = [rows[i] for i in np.random.default_rng(2).permutation(len(rows))]
    assert np.array_equal(answer(plan, shuffled), expected)
    # Chunks of one block, and slices of 64 rows of it.
    monkeypatch.setattr(blocks, "_CHUNK_SCORES", 1)
    assert np.array_equal(answer(plan, shuffled), expected)


@pytest.mark.parametrize("method", BlockPlan.METHODS)
def test_partitions_of_whole_blocks_add_up(method: str) -> None:
    plan = simple_plan(3, 3, blocks=40, method=method)
    steps, ordinal, weight = spread_copies(steps_of(_many_rows(), 3), plan.ordinals)
    block, kernel = place(plan.key, steps, ordinal, plan.blocks), plan.kernel()
    part = block % 7
    # Executors hold coordinates in 32 bits.
    small = (steps - SCALE).astype(np.int32)
    parts = [kernel(small[part == p], block[part == p], weight[part == p]) for p in range(7)]
    assert np.array_equal(np.sum(parts, axis=0), kernel(steps - SCALE, block, weight))
    assert np.sum(parts, axis=0)[-1] == len(np.unique(block))


def test_a_block_beside_a_thousand_small_ones_may_hold_most_rows() -> None:
    # All rows of one block, next to blocks of a row each: padding all to one size would need 8 GB.
    random = np.random.default_rng(3)
    n, plan = 200_000, simple_plan(3, 2, blocks=5000)
    block = np.where(np.arange(n) < n - 1000, 7, random.integers(0, 5000, n))
    coordinates = random.integers(-SCALE, SCALE, (n, 2))
    weight = np.ones(n, dtype=np.int64)
    whole = plan.kernel()(coordinates, block, weight)
    alone = [plan.kernel()(coordinates[b], block[b], weight[b]) for b in (block == 7, block != 7)]
    assert np.array_equal(whole, alone[0] + alone[1])


def test_weights_far_beyond_float64_stay_exact() -> None:
    plan = simple_plan(1, 1, blocks=1, rounds=1)
    weight = np.array([(1 << 40) - 1, 1 << 40], dtype=np.int64)
    found = plan.kernel()(np.array([[SCALE], [-SCALE]]), np.zeros(2, dtype=np.int64), weight)
    n, sums = int(weight.sum()), (int(weight[0]) - int(weight[1])) * SCALE
    mean = (2 * sums + n) // (2 * n)
    assert found.tolist() == [(mean + SCALE) * SCALE // (2 * SCALE), 1]


# --- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BlockPlan.METHODS)
@pytest.mark.parametrize("count", [1, 3, BlockPlan.MOST_BLOCKS])
def test_without_rows_every_block_gives_its_starts(method: str, count: int) -> None:
    starts = np.array([[-0.25, 1.0], [0.5, -1.0]])
    plan = simple_plan(starts=starts, blocks=count, method=method)
    expected = starts if method == "public" else starts[::-1]
    assert answer(plan, []).tolist() == ((expected + 1) / 2 * SCALE * count).astype(int).tolist()
    assert np.allclose(plan.means(answer(plan, [])), expected, atol=2 / SCALE)


@pytest.mark.parametrize("method", BlockPlan.METHODS)
def test_fewer_rows_than_centroids(method: str) -> None:
    plan = simple_plan(5, 2, blocks=1, method=method)
    row = (SCALE // 2, -SCALE // 2)
    found = plan.means(answer(plan, [row]))
    at_row = (np.abs(found - [0.5, -0.5]) < 2 / SCALE).all(axis=1)
    # All start at the only row, or one of the public starts moves there.
    assert at_row.sum() == (5 if method == "gupt" else 1)


@pytest.mark.parametrize("method", BlockPlan.METHODS)
def test_equal_rows_reach_every_block(method: str) -> None:
    # Without ordinals all of them would share one block, and the others would be empty.
    plan = simple_plan(1, 2, blocks=50, method=method)
    found = plan.means(answer(plan, [(SCALE, 0)] * 20_000))
    assert np.abs(found - [[1.0, 0.0]]).max() < 2 / SCALE


def test_copies_are_dealt_out_in_turn() -> None:
    plan = simple_plan(blocks=100)
    where, ordinal, weight = spread_copies(steps_of([(1, 2)] * 12_345, 2), plan.ordinals)
    size = np.bincount(place(plan.key, where, ordinal, 100), weight, 100)
    assert sorted(set(size.tolist())) == [123, 124]


def test_blocks_are_of_about_equal_size() -> None:
    steps = np.random.default_rng(4).integers(0, 2 * SCALE, (60_000, 2))
    size = np.bincount(place(77, steps, np.zeros(60_000, dtype=np.int64), 100), minlength=100)
    # Chi-squared with 99 degrees of freedom: mean 99, standard deviation 14.
    assert 50 < ((size - 600) ** 2 / 600).sum() < 170


def test_another_key_puts_rows_into_other_blocks() -> None:
    steps = np.arange(2000).reshape(-1, 2)
    ordinal = np.zeros(1000, dtype=np.int64)
    one, other = (place(key, steps, ordinal, 100) for key in (1, 2))
    assert 0 < np.count_nonzero(one == other) < 40


@given(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5)))
def test_the_hash_is_that_of_scalars(rows: list[list[int]]) -> None:
    for row in rows:
        columns = [np.array([value], dtype=np.int64) for value in row]
        assert blocks.xxhash64(columns).tolist() == [_slow_hash(row)]


@given(st.data())
def test_outputs_lie_in_the_range_and_read_back_within_the_box(data: st.DataObject) -> None:
    plan = data.draw(st.composite(plan_of)(2))
    sums = answer(plan, data.draw(rows_of(2)))
    assert ((sums >= 0) & (sums <= plan.blocks * SCALE)).all()
    # Noise may carry a sum far out of its range.
    for noisy in (sums, sums + (1 << 61), sums - (1 << 61)):
        means = plan.means(noisy)
        assert ((means >= plan.low / SCALE) & (means <= plan.high / SCALE)).all()


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blocks", 0),
        ("blocks", BlockPlan.MOST_BLOCKS + 1),
        ("blocks", True),
        ("key", -1),
        ("key", 1 << 63),
        ("rounds", 0),
        ("method", "best"),
        ("low", np.zeros(3)),
        ("low", np.array([-1.0, 1.0])),
        ("low", np.array([-1.0])),
    ],
)
def test_a_plan_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        simple_plan(**{name: value})


def test_coordinates_out_of_range_are_refused() -> None:
    with pytest.raises(ParameterError, match="high"):
        BlockPlan(
            blocks=1, key=1, starts=np.zeros((1, 1), dtype=np.int64),
            low=np.array([0]), high=np.array([SCALE + 1]),
        )  # fmt: skip


CHANGES: dict[str, Any] = {
    "blocks": 6,
    "key": 78,
    "starts": np.zeros((2, 2)),
    "low": -np.ones(2) / 2,
    "high": np.ones(2) / 2,
    "method": "gupt",
    "rounds": 3,
}


@pytest.mark.parametrize("name", CHANGES)
def test_plans_that_answer_differently_have_different_numbers(name: str) -> None:
    one, other = simple_plan(), simple_plan(**{name: CHANGES[name]})
    assert not np.array_equal(one.numbers(), other.numbers())


def test_the_expected_rows_are_no_part_of_the_answer() -> None:
    one, other = simple_plan(), simple_plan(expected_rows=10**9)
    assert np.array_equal(one.numbers(), other.numbers())
    assert np.array_equal(answer(one, _many_rows(d=2)), answer(other, _many_rows(d=2)))
