"""The Spark side of sample-and-aggregate: blocks by native SQL, k-means on them in Python.

Spark counts equal rows, tells them apart by ordinals, hashes, and brings each block together; its
``xxhash64`` is the very function of `blocks.xxhash64`. Every expression is deterministic, so a
task that runs twice puts each row into the same block. Python then runs k-means on the many blocks
of a partition, and gives k d sums that Spark adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.queries import blocks
from dpkm_spark.queries.blocks import AnyInts, BlockPlan
from dpkm_spark.queries.workers import Function, map_batches

#: Numbers that one Python task takes in, if N is what the plan expects: 16 MiB of them.
_TASK_NUMBERS = 1 << 21
#: An N that is all noise must not start a million tasks.
_MOST_TASKS = 4096

Kernel = Callable[[AnyInts, IntArray, IntArray], IntArray]


def block_sums(rows: DataFrame, plan: BlockPlan, dimension: int) -> DataFrame:
    """Sum the outputs of the blocks that have rows.

    Parameters
    ----------
    rows : DataFrame
        Columns s0, s1, ... of bigint: steps in [0, 2 SCALE].
    plan : BlockPlan
        The blocks.
    dimension : int
        d.

    Returns
    -------
    DataFrame
        Columns ``i`` (int) and ``v`` (bigint): at most k d + 1 rows, see `from_table`.
    """
    names = [f"s{i}" for i in range(dimension)]
    most, size = f"{plan.ordinals}L", f"{plan.blocks}L"
    # The twins of `blocks.spread_copies` and `blocks.place`.
    longs = rows.selectExpr(*[f"cast({name} AS bigint) AS {name}" for name in names])
    counted = longs.groupBy(*names).agg(F.expr("count(1)").alias("n"))
    spread = counted.selectExpr(*names, "n", f"explode(sequence(0L, least(n, {most}) - 1L)) AS o")
    placed = spread.selectExpr(
        *[f"cast({name} AS int) AS {name}" for name in names],
        f"(pmod(xxhash64({plan.key}L, {', '.join(names)}), {size}) + o) % {size} AS b",
        f"n div {most} + if(o < n % {most}, 1L, 0L) AS w",
    )
    whole = placed.repartition(tasks(plan), "b")
    summed = map_batches(whole, _task(plan.kernel()), "i int, v bigint", (blocks,))
    return summed.groupBy("i").agg(F.expr("sum(v)").alias("v"))


def from_table(table: pa.Table, plan: BlockPlan) -> IntArray:
    """Give the sum over all blocks, shape (k, d), from what `block_sums` gave; empty ones too."""
    outputs = np.zeros(plan.starts.size + 1, dtype=np.int64)
    outputs[table.column("i").to_numpy()] = table.column("v").to_numpy()
    return plan.total(outputs)


def tasks(plan: BlockPlan) -> int:
    """Choose the number of Python tasks from public numbers alone."""
    numbers = plan.expected_rows * (len(plan.low) + 2)
    return min(max(numbers // _TASK_NUMBERS, 1), plan.blocks, _MOST_TASKS)


def _task(kernel: Kernel) -> Function:
    """Make the function of a partition; it refers to nothing of ours but the kernel."""
    scale = SCALE

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        if not parts:
            return
        table = pa.Table.from_batches(parts)
        del parts
        *steps, block, weights = table.columns
        coordinates = np.empty((table.num_rows, len(steps)), dtype=np.int32)
        for i, column in enumerate(steps):
            coordinates[:, i] = column.to_numpy()
        coordinates -= scale
        sums = kernel(coordinates, block.to_numpy(), weights.to_numpy())
        index = pa.array(np.arange(len(sums), dtype=np.int32))
        yield pa.RecordBatch.from_arrays([index, pa.array(sums)], names=["i", "v"])

    return run
