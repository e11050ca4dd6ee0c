"""The Spark engine: native SQL where it can be, so that executors need no Python.

Every aggregate is a sum over integers computed row by row, so it does not depend on the
order of rows, their partitioning, or tasks that run twice.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.errors import ExecutorError, QueryError
from dpkm_spark.grid import Grid
from dpkm_spark.queries import native, spark_blocks, workers
from dpkm_spark.queries.blocks import BlockPlan
from dpkm_spark.spark.columns import InputColumn, resolve_columns
from dpkm_spark.spark.failures import error_condition
from dpkm_spark.spark.frames import frame_to_table
from dpkm_spark.spark.quiet import wire_logs_off

#: (most cells, counters per key): a key per cell thrashes the hash map of Spark's aggregate once
#: it outgrows a core's cache, so large grids count several neighbouring cells under one key.
#: Measured by benchmarks/histogram.py; more than 16 counters make the generated code too slow.
_COUNTERS = ((1 << 13, 1), (1 << 17, 4))
_MOST_COUNTERS = 16
#: The steps of more columns than this outgrow the 8,000 bytes of code that the JVM compiles.
_MOST_FUSED = 20


class SparkEngine:
    """Exact aggregates over a DataFrame.

    Parameters
    ----------
    frame : DataFrame
        A pinned, deterministic source: each query reads it anew.
    domain : Domain
        The public domain.

    Raises
    ------
    ColumnError
        If a column is missing, ambiguous or not numeric. Only the schema is looked at.
    """

    def __init__(self, frame: DataFrame, domain: Domain) -> None:
        self._domain = domain
        self._rows = _values(frame, resolve_columns(frame, domain), domain)
        self._steps = _steps(self._rows, domain)
        self._python_works = False

    @property
    def domain(self) -> Domain:
        """The public domain that rows are mapped to."""
        return self._domain

    def count(self) -> int:
        """Count the rows in the domain."""
        # Not DataFrame.count(): its answer would pass through py4j's debug log as text.
        table = _fetch(self._rows.selectExpr("count(1) AS n"), "count")
        return int(table.column("n")[0].as_py())

    def cell_histogram(self, grid: Grid) -> IntArray:
        """Count the rows of every cell, shape (grid.size,)."""
        width = _counters(grid.size)
        cell = grid.cell_sql(self._steps.columns)
        keyed = self._steps.selectExpr(f"{cell} AS cell").selectExpr(
            f"shiftright(cell, {width.bit_length() - 1}) AS block", f"cell & {width - 1}L AS offset"
        )
        sums = [F.expr(f"count_if(offset = {i}L)").alias(f"n{i}") for i in range(width)]
        table = _fetch(keyed.groupBy("block").agg(*sums), "cell_histogram")
        return _scattered(table, -(-grid.size // width)).reshape(-1)[: grid.size]

    def marginals(self, bins: int) -> IntArray:
        """Count the rows of every bin of every dimension, shape (d, bins)."""
        line, d = Grid(1, bins), self._domain.dimension
        # One pass: a row becomes d keys, those of dimension i beginning at i * bins.
        keys = [f"{line.cell_sql([f's{i}'])} + {i * bins}L" for i in range(d)]
        keyed = self._steps.selectExpr(f"explode(array({', '.join(keys)})) AS bin")
        table = _fetch(keyed.groupBy("bin").agg(F.expr("count(1) AS n")), "marginals")
        return _scattered(table, d * bins).reshape(d, bins)

    def prepare_heavy(self) -> None:
        """Check that executors can run Python, before anything is paid for; no row is read.

        Raises
        ------
        ExecutorError
            If they cannot.
        """
        if self._python_works:
            return
        with wire_logs_off(), contextlib.suppress(Exception):
            probe = workers.probe(self._rows.sparkSession)
            self._python_works = probe.collect()[0][0] == 1
        if not self._python_works:
            raise ExecutorError(
                "this method, or so many centroids, needs Python with numpy and pyarrow on the "
                "executors (and pandas beside pyspark), and a probe of that failed, before any row "
                "was read"
            )

    def prepare_sums(self, k: int) -> None:
        """Check that sums of k clusters can be served, before anything is paid for."""
        if not native.fits(k, self._domain.dimension):
            self.prepare_heavy()

    def cluster_sums(self, centroids: IntArray) -> IntArray:
        """Sum the coordinates of the rows nearest to each centroid, then count them."""
        k, d = centroids.shape
        if native.fits(k, d):
            sums = native.cluster_sums(self._steps, centroids)
        else:
            sums = workers.cluster_sums(self._steps, centroids)
        return _scattered(_fetch(sums, "cluster_sums"), k)

    def candidate_costs(self, candidates: IntArray) -> IntArray:
        """Sum squared distances to the nearest centroid for m sets of centroids."""
        m, k, d = candidates.shape
        if m == 1 and native.fits(k, d):
            costs = native.costs(self._steps, candidates[0])
        else:
            costs = workers.candidate_costs(self._steps, candidates)
        return _scattered(_fetch(costs, "candidate_costs"), m)

    def block_sums(self, plan: BlockPlan) -> IntArray:
        """Sum the outputs of k-means on every block, shape (k, d)."""
        sums = spark_blocks.block_sums(self._steps, plan, self._domain.dimension)
        return spark_blocks.from_table(_fetch(sums, "block_sums"), plan)


def _names(domain: Domain) -> list[str]:
    return [f"v{i}" for i in range(domain.dimension)]


def _steps(rows: DataFrame, domain: Domain) -> DataFrame:
    """Select the steps of v0, v1, ... as columns s0, s1, ...: bigint in [0, 2 SCALE]."""
    names = _names(domain)
    steps = domain.steps_sql(names)
    if len(steps) > _MOST_FUSED:
        # Spark fuses a projection with all around it into one method, which the JVM would interpret
        # at this size; a projection with a lambda it compiles apart, in small methods.
        (inner, *_) = domain.steps_sql(["v", *names[1:]])
        steps[0] = f"coalesce(element_at(transform(array(v0), v -> {inner}), 1), 0L)"
    return rows.selectExpr(*[f"{sql} AS s{i}" for i, sql in enumerate(steps)])


def _counters(cells: int) -> int:
    """Choose how many neighbouring cells share a key: a power of two."""
    return next((width for most, width in _COUNTERS if cells <= most), _MOST_COUNTERS)


def _values(frame: DataFrame, columns: list[InputColumn], domain: Domain) -> DataFrame:
    """Select the rows in the domain as double columns v0, v1, ... in the table's units."""
    # Renaming by position is immune to dots, back-ticks and names that differ only by case.
    safe = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
    names = _names(domain)
    if domain.packed:
        source = columns[0]
        safe = safe.select(source.array(f"c{source.position}").alias("a"))
        safe = safe.where(f"size(a) = {domain.dimension}")
        values = [f"cast(get(a, {i}) AS double) AS {name}" for i, name in enumerate(names)]
    else:
        values = [
            f"cast(c{column.position} AS double) AS {name}"
            for column, name in zip(columns, names, strict=True)
        ]
    return safe.selectExpr(*values).where(domain.valid_sql(names))


def _scattered(table: pa.Table, size: int) -> IntArray:
    """Put each row at the place that its first column names, shape (size, columns - 1)."""
    places, *columns = (column.to_numpy() for column in table.columns)
    result = np.zeros((size, len(columns)), dtype=np.int64)
    for i, column in enumerate(columns):
        result[places, i] = column
    return result


def _fetch(frame: DataFrame, name: str) -> pa.Table:
    """Run an aggregate; what goes wrong is told without a word that Spark said of the data."""
    try:
        with wire_logs_off():
            return frame_to_table(frame)
    except Exception as error:
        failure = _describe(error)
    # Outside the handler, so that no traceback carries Spark's own text, which may quote a row.
    raise QueryError(
        f"{name}: Spark failed with {failure}. Its message is withheld, since it could quote "
        "a row; see Spark's own log. The share of the budget stays charged"
    )


def _describe(error: Exception) -> str:
    """Name a Spark failure by class and error condition, which quote no value of a row."""
    condition = error_condition(error)
    return type(error).__name__ + (f" ({condition})" if condition else "")
