"""Python on the executors, for what Spark's generated code cannot serve.

Functions travel by value: executors need Python with numpy and pyarrow, but no package of ours.
A function gets the integer coordinates of a partition's rows and gives integers that Spark then
sums, so an answer does not depend on partitions, their order, or tasks that run twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.queries import nearest

Function = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
#: Gives integers for rows, shape (n, d), and points; see `nearest`.
Kernel = Callable[[IntArray, IntArray], IntArray]


def map_batches(
    frame: DataFrame, function: Function, schema: str, modules: tuple[ModuleType, ...] = ()
) -> DataFrame:
    """Apply a function to each partition's Arrow batches.

    Parameters
    ----------
    frame : DataFrame
        Columns of int or bigint.
    function : callable
        Takes and gives record batches. It may use ``modules``, numpy and pyarrow.
    schema : str
        Of the batches it gives, as DDL.
    modules : tuple of module
        Modules of ours that the function uses besides this one and `nearest`; sent by value.
    """
    for module in (sys.modules[__name__], nearest, *modules):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return frame.mapInArrow(function, schema)


def to_matrix(batch: pa.RecordBatch) -> IntArray:
    """Give the columns of a batch as an int64 matrix, shape (n, columns)."""
    matrix = np.empty((batch.num_rows, batch.num_columns), dtype=np.int64)
    for i, column in enumerate(batch.columns):
        matrix[:, i] = column.to_numpy(zero_copy_only=False)
    return matrix


def probe(spark: SparkSession) -> DataFrame:
    """Give a frame of one number, 1, that a Python worker computes: no data is read.

    It ships an array and functions of ours, as the queries do: an executor whose numpy cannot take
    the driver's arrays fails here, and not after something is paid for.
    """
    centroid = np.ones((1, 1), dtype=np.int64)

    def square(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            # Of the centroid 1, at the row 0.
            code = to_matrix(batch) + nearest.code_rows(centroid)[:, -1]
            yield pa.RecordBatch.from_pydict({"n": code[:, 0]})

    return map_batches(spark.range(0, 1, 1, 1), square, "n bigint")


def cluster_sums(steps: DataFrame, centroids: IntArray) -> DataFrame:
    """Sum steps by nearest centroid; columns ``cluster``, the sums ``n0``.. and the count last."""
    _, d = centroids.shape
    names = ["cluster", *[f"n{i}" for i in range(d + 1)]]
    return _summed(steps, names, nearest.cluster_sums, centroids)


def candidate_costs(steps: DataFrame, candidates: IntArray) -> DataFrame:
    """Sum the squared distance for each candidate; columns ``candidate``, ``high``, ``low``."""
    names = ["candidate", "high", "low"]
    return _summed(steps, names, nearest.candidate_costs, candidates)


def _summed(steps: DataFrame, names: list[str], kernel: Kernel, points: IntArray) -> DataFrame:
    """Sum a kernel's rows over all batches; the first of ``names`` is the number of the row."""
    _, *values = names

    def partial(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        sums = np.zeros((len(points), len(values)), dtype=np.int64)
        for batch in batches:
            sums += kernel(to_matrix(batch) - SCALE, points)
        told = np.flatnonzero(sums.any(axis=1))
        columns = [told, *sums[told].T]
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], names)

    # A step fits 32 bits, which halves what travels to Python.
    narrow = steps.selectExpr(*[f"cast({name} AS int) AS {name}" for name in steps.columns])
    parts = map_batches(narrow, partial, ", ".join(f"{name} bigint" for name in names))
    return parts.groupBy(names[0]).agg(*[F.sum(name).alias(name) for name in values])
