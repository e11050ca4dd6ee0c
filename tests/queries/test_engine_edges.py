"""Tables with little in them: nothing, one row, one value. Each has a defined answer."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame

DOMAIN = Domain.of(["x", "y"], (-1, 1))
EMPTY = ("no partitions", "empty partitions", "nothing left by a filter", "nulls and NaN only")


def empty_frame(spark: SparkSession, kind: str) -> DataFrame:
    schema = "x double, y double"
    if kind == "no partitions":
        return spark.createDataFrame([], schema)
    if kind == "empty partitions":
        return spark.createDataFrame([], schema).repartition(5)
    if kind == "nothing left by a filter":
        rows = spark.range(0, 50, 1, 5).where("id * id < 0")
        return rows.selectExpr("cast(id AS double) AS x", "cast(id AS double) AS y")
    return spark.createDataFrame([(None, 1.0), (0.0, math.nan), (None, None)], schema)


@pytest.mark.spark
@pytest.mark.parametrize("kind", EMPTY)
# One size for each number of counters per key.
@pytest.mark.parametrize("m", [3, 100, 400])
def test_an_empty_table_is_all_zeros(spark: SparkSession, kind: str, m: int) -> None:
    engine = SparkEngine(empty_frame(spark, kind), DOMAIN)
    assert engine.count() == 0
    histogram = engine.cell_histogram(Grid(2, m))
    assert histogram.shape == (m * m,)
    assert histogram.dtype == np.int64
    assert not histogram.any()


def test_an_empty_table_in_memory_is_all_zeros() -> None:
    for rows in ([], np.empty((0, 2)), [(math.nan, 0.0)]):
        engine = LocalEngine(rows, DOMAIN)
        assert engine.count() == 0
        histogram = engine.cell_histogram(Grid(2, 3))
        assert histogram.tolist() == [0] * 9
        assert histogram.dtype == np.int64


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "cells"),
    [
        ([(0.0, -1.0)], {2: 1}),
        ([(1.0, 1.0)] * 300, {3: 300}),
        # A constant column.
        ([(-1.0, 0.5), (1.0, 0.5), (0.9, 0.5)], {1: 1, 3: 2}),
        # Infinities are clipped, so they count like any value.
        ([(math.inf, -math.inf), (-math.inf, math.inf)], {2: 1, 1: 1}),
        ([(math.inf, math.nan), (None, math.inf), (-0.0, 0.0)], {3: 1}),
    ],
    ids=["one row", "all rows equal", "a constant column", "infinities", "beside NaN and null"],
)
def test_small_tables_are_counted(
    spark: SparkSession, rows: list[tuple[float | None, float]], cells: dict[int, int]
) -> None:
    frame = spark.createDataFrame(rows, "x double, y double")
    engine = SparkEngine(frame, DOMAIN)
    expected = [cells.get(cell, 0) for cell in range(4)]
    assert engine.cell_histogram(Grid(2, 2)).tolist() == expected
    assert engine.count() == sum(expected)
    assert type(engine.count()) is int


@pytest.mark.spark
def test_mostly_empty_partitions_change_nothing(spark: SparkSession) -> None:
    table = pa.table({"x": [0.5, -0.5, 0.25], "y": [0.5, -0.5, -0.25]})
    spread = table_to_frame(spark, table).repartition(40)
    assert SparkEngine(spread, DOMAIN).cell_histogram(Grid(2, 2)).tolist() == [1, 0, 1, 1]


@pytest.mark.spark
def test_one_cell_holds_every_row(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(5.0, -7.0), (math.inf, 0.0)], "x double, y double")
    assert SparkEngine(frame, DOMAIN).cell_histogram(Grid(2, 1)).tolist() == [2]


@pytest.mark.spark
def test_repeated_questions_have_the_same_answer(spark: SparkSession) -> None:
    engine = SparkEngine(spark.createDataFrame([(0.1, 0.2)], "x double, y double"), DOMAIN)
    assert [engine.count() for _ in range(2)] == [1, 1]
    first, second = (engine.cell_histogram(Grid(2, 4)) for _ in range(2))
    assert np.array_equal(first, second)
    assert engine.domain == DOMAIN
