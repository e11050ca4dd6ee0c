"""Two engines, one answer: the same rows give the same integers, however they are laid out."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame

pytestmark = pytest.mark.spark

Row = tuple[float | None, ...]
LAYOUTS = (1, 2, 7, 64)


def frame_of(spark: SparkSession, rows: list[Row], d: int, partitions: int) -> DataFrame:
    columns = [pa.array([row[i] for row in rows], pa.float64()) for i in range(d)]
    table = pa.table(columns, names=[f"x{i}" for i in range(d)])
    return table_to_frame(spark, table).repartition(partitions)


def domain_of(d: int) -> Domain:
    """Bounds of every kind: symmetric, offset, tiny, huge, and with a width that is no power."""
    kinds = [(-1.0, 1.0), (0.1, 0.7), (-1e300, 1e300), (1e15, 1e15 + 1), (0.0, 1e-300), (-3.0, 0.0)]
    return Domain.of([f"x{i}" for i in range(d)], {f"x{i}": kinds[i] for i in range(d)})


def biting_values(low: float, high: float, m: int) -> list[float | None]:
    """Give the values where engines could part: bounds, cell edges, neighbours, odd numbers."""
    edges = [low + (high - low) * (j / m) for j in (0, 1, m // 2, m - 1, m)]
    near = [math.nextafter(e, way) for e in edges for way in (-math.inf, math.inf)]
    odd = [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1.7e308, -1.7e308, math.inf, -math.inf]
    # floor(x + 0.5) turns half a step below each cell edge: there a row changes its cell.
    half = (high - low) * 2.0**-22
    turns = [e - half for e in edges] + [low + half, low + 3 * half]
    turns += [math.nextafter(t, way) for t in turns for way in (-math.inf, math.inf)]
    return [None, math.nan, *edges, *near, *odd, *turns]


def biting_rows(domain: Domain, m: int, count: int, seed: int) -> list[Row]:
    chosen = random.Random(seed)
    pools = [
        biting_values(low, high, m) + [low + (high - low) * chosen.random() for _ in range(40)]
        for low, high in zip(domain.lower, domain.upper, strict=True)
    ]
    return [tuple(chosen.choice(pool) for pool in pools) for _ in range(count)]


def local_of(rows: list[Row], domain: Domain) -> LocalEngine:
    numbers = [[math.nan if v is None else v for v in row] for row in rows]
    return LocalEngine(np.array(numbers, dtype=np.float64).reshape(-1, domain.dimension), domain)


# One grid for each number of counters per key, with sizes that the number does and does not
# divide: 2^13 is the last with 1, 2^17 the last with 4.
GRIDS = [
    (1, 8192), (1, 8193), (1, 131_072), (1, 131_073), (1, 1 << 20),
    (2, 22), (2, 90), (2, 91), (2, 361), (2, 363),
    (3, 26), (3, 51),
    (6, 1), (6, 3), (6, 5), (6, 8),
]  # fmt: skip


@pytest.mark.parametrize(("d", "m"), GRIDS)
def test_engines_agree_for_every_width_of_counters(spark: SparkSession, d: int, m: int) -> None:
    domain, grid = domain_of(d), Grid(d, m)
    rows = biting_rows(domain, m, 400, seed=m)
    expected = local_of(rows, domain).cell_histogram(grid)
    found = SparkEngine(frame_of(spark, rows, d, 2), domain).cell_histogram(grid)
    assert expected.sum() > 0
    assert found.dtype == np.int64
    assert found.shape == (grid.size,)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("partitions", LAYOUTS)
@pytest.mark.parametrize("d", [2, 6])
def test_layout_and_order_do_not_matter(spark: SparkSession, d: int, partitions: int) -> None:
    domain, grid = domain_of(d), Grid(d, 5)
    rows = biting_rows(domain, 5, 500, seed=d)
    local = local_of(rows, domain)
    shuffled = random.Random(partitions).sample(rows, len(rows))
    engine = SparkEngine(frame_of(spark, shuffled, d, partitions), domain)
    assert engine.count() == local.count() > 0
    assert np.array_equal(engine.cell_histogram(grid), local.cell_histogram(grid))


@settings(max_examples=12)
@given(data=st.data())
def test_engines_agree_on_any_rows(spark: SparkSession, data: st.DataObject) -> None:
    d = data.draw(st.sampled_from([1, 2, 3]), label="d")
    ends = st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=2, unique=True).map(sorted)
    wide = ends.filter(lambda pair: pair[1] - pair[0] > 1e-300)
    bounds = data.draw(st.lists(wide, min_size=d, max_size=d), label="bounds")
    names = [f"x{i}" for i in range(d)]
    domain = Domain.of(names, {n: (b[0], b[1]) for n, b in zip(names, bounds, strict=True)})
    m = data.draw(st.sampled_from([1, 2, 3, 7, 50]), label="m")
    value = [
        st.one_of(
            st.floats(low, high),
            st.floats(),
            st.sampled_from(biting_values(low, high, m)),
        )
        for low, high in bounds
    ]
    rows = data.draw(st.lists(st.tuples(*value), max_size=60), label="rows")
    partitions = data.draw(st.sampled_from(LAYOUTS[:3]), label="partitions")
    local, grid = local_of(rows, domain), Grid(d, m)
    engine = SparkEngine(frame_of(spark, rows, d, partitions), domain)
    histogram = engine.cell_histogram(grid)
    assert np.array_equal(histogram, local.cell_histogram(grid))
    assert histogram.sum() == local.count()


@pytest.mark.parametrize("d", [1, 2])
def test_every_cell_edge_of_a_grid_is_counted_alike(spark: SparkSession, d: int) -> None:
    m = 49 if d == 1 else 13
    domain, grid = Domain.of([f"x{i}" for i in range(d)], (0.1, 0.7)), Grid(d, m)
    edges = [0.1 + 0.6 * (j / m) for j in range(m + 1)]
    sides = [math.nextafter(e, way) for e in edges for way in (0.0, 1.0)] + edges
    rows: list[Row] = list(itertools.product(sides, repeat=d))
    found = SparkEngine(frame_of(spark, rows, d, 3), domain).cell_histogram(grid)
    assert np.array_equal(found, local_of(rows, domain).cell_histogram(grid))
    assert found.sum() == len(rows)


def test_the_whole_of_a_large_grid_is_read_back_in_place(spark: SparkSession) -> None:
    # Every cell once and some twice: a block or counter in the wrong place would show.
    m = 8195
    centres = (np.arange(m) + 0.5) / m
    values = np.concatenate([centres, centres[::3]])
    domain = Domain.of(["x0"], (0, 1))
    frame = table_to_frame(spark, pa.table({"x0": values}))
    found = SparkEngine(frame, domain).cell_histogram(Grid(1, m))
    expected = np.ones(m, dtype=np.int64)
    expected[::3] += 1
    assert np.array_equal(found, expected)
