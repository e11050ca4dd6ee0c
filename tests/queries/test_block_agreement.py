"""Blocks on Spark: the same integers as in numpy, however the rows are laid out."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dpkm_spark.domain import SCALE, Domain, IntArray
from dpkm_spark.queries import blocks
from dpkm_spark.queries.blocks import BlockPlan, spread_copies, xxhash64
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.queries.spark_blocks import tasks
from dpkm_spark.spark.frames import frame_to_table, table_to_frame

D = 3
DOMAIN = Domain.of([f"x{i}" for i in range(D)], (-2.0, 5.0))
#: What a plan must expect so that Spark runs as many tasks as it can.
MANY = 1 << 40

on_spark = pytest.mark.spark


def plan_of(k: int, count: int, **options: Any) -> BlockPlan:
    random = np.random.default_rng(count)
    return BlockPlan.of(
        blocks=count,
        key=(1 << 63) - 12_345,
        starts=random.uniform(-1, 1, (k, D)),
        low=-np.ones(D) / 2,
        high=np.array([0.3, 0.8, 1.0]),
        **options,
    )


def rows_with_copies(n: int, seed: int = 1) -> IntArray:
    """Steps: a third are copies of one row, a third of a few rows, the rest anywhere."""
    random = np.random.default_rng(seed)
    rows = random.integers(0, 2 * SCALE, (n, D), endpoint=True)
    kind = random.integers(0, 3, n)
    rows[kind == 0] = rows[:1]
    rows[kind == 1] = rows[random.integers(0, min(n, 9), n)][kind == 1]
    return rows


def engines(
    spark: SparkSession, steps: IntArray, partitions: int, seed: int = 0
) -> tuple[LocalEngine, SparkEngine]:
    # The middle of a step, so that it is found again whatever the rounding.
    values = -2.0 + steps * (7.0 / (2 * SCALE))
    shuffled = values[np.random.default_rng(seed).permutation(len(values))]
    table = pa.table({f"x{i}": pa.array(shuffled[:, i]) for i in range(D)})
    frame = table_to_frame(spark, table).repartition(partitions)
    return LocalEngine(values, DOMAIN), SparkEngine(frame, DOMAIN)


# --- agreement ------------------------------------------------------------------------------------


@on_spark
@pytest.mark.parametrize("method", BlockPlan.METHODS)
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_layout_and_order_do_not_matter(spark: SparkSession, method: str, partitions: int) -> None:
    plan = plan_of(3, 40, method=method, expected_rows=450_000 * partitions)
    local, engine = engines(spark, rows_with_copies(1500), partitions, seed=partitions)
    expected, found = local.block_sums(plan), engine.block_sums(plan)
    assert found.dtype == np.int64
    assert found.shape == (3, D)
    assert np.array_equal(found, expected)
    # Neither all at one end of the box, nor where they started.
    assert np.unique(expected).size > 2
    assert not np.array_equal(expected, local_of_nothing().block_sums(plan))


def local_of_nothing() -> LocalEngine:
    return LocalEngine(np.zeros((0, D)), DOMAIN)


@on_spark
@pytest.mark.parametrize("method", BlockPlan.METHODS)
@pytest.mark.parametrize(
    ("n", "k", "count"),
    [(0, 4, 7), (0, 1, 1), (1, 4, 3), (3, 5, 1), (400, 2, 1), (50, 3, 100_000), (300, 1, 1 << 40)],
    ids=["no row", "none in one", "a row", "n < k", "one block", "l > n", "most blocks"],
)
def test_edges(spark: SparkSession, n: int, k: int, count: int, method: str) -> None:
    plan = plan_of(k, count, method=method)
    local, engine = engines(spark, rows_with_copies(n, seed=n) if n else np.zeros((0, D)), 2)
    assert np.array_equal(engine.block_sums(plan), local.block_sums(plan))


@on_spark
def test_many_tasks_over_few_rows(spark: SparkSession) -> None:
    # Most tasks get no row; some engines never call the function for those.
    plan = plan_of(2, 15, expected_rows=MANY)
    assert tasks(plan) == 15
    local, engine = engines(spark, rows_with_copies(6), 3)
    assert np.array_equal(engine.block_sums(plan), local.block_sums(plan))


@on_spark
@pytest.mark.parametrize(("count", "method"), [(1, "public"), (9, "gupt"), (5000, "public")])
def test_a_million_equal_rows(spark: SparkSession, count: int, method: str) -> None:
    n = 1_000_000
    plan = plan_of(2, count, method=method)
    same = spark.range(n).selectExpr("1.5D AS x0", "-1D AS x1", "id % 2 + 2.25D AS x2")
    found = SparkEngine(same, DOMAIN).block_sums(plan)
    rows = np.tile([[1.5, -1.0, 2.25], [1.5, -1.0, 3.25]], (n // 2, 1))
    assert np.array_equal(found, LocalEngine(rows, DOMAIN).block_sums(plan))


# --- the twins of Spark's expressions -------------------------------------------------------------


@on_spark
def test_the_hash_is_sparks(spark: SparkSession) -> None:
    ends = [0, 1, -1, 42, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]
    random = np.random.default_rng(5)
    wild = random.integers(-(1 << 63), (1 << 63) - 1, (300, 4), endpoint=True)
    pairs = np.array([(a, b, a, b) for a in ends for b in ends], dtype=np.int64)
    rows = np.concatenate([wild, pairs])
    frame = table_to_frame(spark, pa.table({f"a{i}": rows[:, i] for i in range(4)}))
    for width in (1, 2, 4):
        names = [f"a{i}" for i in range(width)]
        table = frame_to_table(frame.selectExpr(*names, f"xxhash64({', '.join(names)}) AS h"))
        columns = [table.column(name).to_numpy() for name in names]
        assert np.array_equal(xxhash64(columns), table.column("h").to_numpy())


def test_the_hash_is_the_published_one() -> None:
    # Of Spark 4.1 itself, so that the twin is pinned where no Spark runs.
    rows = [[0], [1], [-1], [(1 << 63) - 1], [-(1 << 63)], [5, -7, 1 << 40]]
    expected = [
        -5252525462095825812,
        -7001672635703045582,
        3858142552250413010,
        -3246596055638297850,
        -8619748838626508300,
        7329455358891638922,
    ]
    found = [int(xxhash64([np.array([v]) for v in row])[0]) for row in rows]
    assert found == expected


# --- the way to the executors ---------------------------------------------------------------------

_STRANGER = """
import pickle, sys
assert not any("dpkm" in name for name in sys.modules)
kernel, arguments = pickle.loads(sys.stdin.buffer.read())
sys.stdout.write(str(kernel(*arguments).tolist()))
assert not any("dpkm" in name for name in sys.modules), "the kernel imported our package"
try:
    import dpkm_spark
except ImportError:
    sys.exit()
sys.exit("our package is on the path, so this test proves nothing")
"""


@pytest.mark.parametrize("method", BlockPlan.METHODS)
def test_the_kernel_travels_without_our_package(method: str, tmp_path: Path) -> None:
    plan = plan_of(3, 20, method=method)
    steps, ordinal, weight = spread_copies(rows_with_copies(200), plan.ordinals)
    block = blocks.place(plan.key, steps, ordinal, plan.blocks)
    arguments = ((steps - SCALE).astype(np.int32), block, weight)
    cloudpickle.register_pickle_by_value(blocks)
    try:
        package = cloudpickle.dumps((plan.kernel(), arguments))
    finally:
        cloudpickle.unregister_pickle_by_value(blocks)
    assert package != pickle.dumps((plan.kernel(), arguments))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", _STRANGER],
        input=package,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == str(plan.kernel()(*arguments).tolist())


def test_the_number_of_tasks_follows_public_numbers() -> None:
    assert [tasks(plan_of(2, 10**9, expected_rows=n)) for n in (0, 10**4, 10**7, 10**15)] == [
        1, 1, 23, 4096,
    ]  # fmt: skip
    assert tasks(plan_of(2, 5, expected_rows=MANY)) == 5
