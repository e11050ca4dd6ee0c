"""Arrow in and out of Spark, with and without what only Spark 4 offers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.queries import spark as engine_module
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark import frames
from dpkm_spark.spark.frames import frame_to_table, quote, select_sql, table_to_frame

TABLE = pa.table(
    {
        "whole": pa.array([0, 1, 2], pa.int32()),
        "a.b": pa.array([2**53 + 1, -(2**63), 2**63 - 1], pa.int64()),
        "a`b": pa.array([0.1, -0.0, 5e-324], pa.float64()),
        "ÄÖ": pa.array(["", "<b>", "'\"`"], pa.string()),
        "list": pa.array([[0.5], [], [1.0, 2.0]], pa.list_(pa.float64())),
    }
)


class WithoutArrow:
    """A DataFrame as Spark 3.5 has it: collect() and columns, and no toArrow()."""

    def __init__(self, frame: DataFrame) -> None:
        self.columns = frame.columns
        self.collect = frame.collect


@pytest.fixture(params=["as installed", "as on 3.5"])
def version(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pa.Table]:
    if request.param == "as installed":
        return frame_to_table
    monkeypatch.setattr(frames, "_version", lambda _: (3, 5))
    return lambda frame: frame_to_table(WithoutArrow(frame))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "quoted"), [("x", "`x`"), ("a`b", "`a``b`"), ("`", "````"), ("a b", "`a b`")]
)
def test_identifiers_are_quoted(name: str, quoted: str) -> None:
    assert quote(name) == quoted


@pytest.mark.spark
def test_a_table_survives_the_way_to_spark_and_back(
    spark: SparkSession, version: Callable[..., pa.Table]
) -> None:
    back = version(table_to_frame(spark, TABLE))
    assert back.column_names == TABLE.column_names
    assert back.to_pylist() == TABLE.to_pylist()


@pytest.mark.spark
def test_types_are_the_same_on_every_version(
    spark: SparkSession, version: Callable[..., pa.Table]
) -> None:
    kinds = [kind for _, kind in table_to_frame(spark, TABLE).dtypes]
    assert kinds == ["int", "bigint", "double", "string", "array<double>"]


@pytest.mark.spark
def test_a_table_without_rows_keeps_its_columns(
    spark: SparkSession, version: Callable[..., pa.Table]
) -> None:
    back = version(table_to_frame(spark, TABLE.slice(0, 0)))
    assert back.num_rows == 0
    assert back.column_names == TABLE.column_names


@pytest.mark.spark
@pytest.mark.parametrize("condition", ["x >= 0", "id * id < 0"])
@pytest.mark.parametrize("m", [4, 200, 400])
def test_engines_need_no_arrow_exit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, condition: str, m: int
) -> None:
    frame = spark.range(-20, 20, 1, 3).selectExpr("id", "id / 20.0D AS x", "0.5D AS y")
    engine = SparkEngine(frame.where(condition), Domain.of(["x", "y"], (-1, 1)))
    expected = engine.count(), engine.cell_histogram(Grid(2, m)).tolist()
    real = frame_to_table
    monkeypatch.setattr(engine_module, "frame_to_table", lambda asked: real(WithoutArrow(asked)))
    assert (engine.count(), engine.cell_histogram(Grid(2, m)).tolist()) == expected


@pytest.mark.spark
@pytest.mark.parametrize("empty", [pa.array([], pa.int64()), pa.array([1], pa.int64())])
def test_an_empty_table_needs_no_arrow_exit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, empty: pa.Array
) -> None:
    frame = table_to_frame(spark, pa.table({"x": empty}))
    engine = SparkEngine(frame, Domain.of(["x"], (0, 4)))
    monkeypatch.setattr(
        engine_module, "frame_to_table", lambda asked: frame_to_table(WithoutArrow(asked))
    )
    assert engine.count() == len(empty)
    assert engine.cell_histogram(Grid(1, 4)).tolist() == [0, len(empty), 0, 0]


@pytest.mark.spark
def test_columns_are_selected_by_any_name_or_by_sql(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2)], ["a.b", "a`b"])
    row = select_sql(frame, ["a`b", ("x y", "`a.b` + 40")]).collect()[0]
    assert row.asDict() == {"a`b": 2, "x y": 41}
