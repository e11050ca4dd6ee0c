"""Small DataFrame helpers that behave the same on classic, on Connect, and from 3.5 to 4.x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def quote(name: str) -> str:
    """Quote an identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def select_sql(frame: DataFrame, columns: Sequence[str | tuple[str, str]]) -> DataFrame:
    """Select columns by name, or as (name, SQL) pairs, whatever characters a name has."""
    return frame.selectExpr(
        *[
            quote(column) if isinstance(column, str) else f"{column[1]} AS {quote(column[0])}"
            for column in columns
        ]
    )


def table_to_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Make a DataFrame of an Arrow table of public or released values."""
    if table.num_rows and _version(spark) >= (4, 0):
        return spark.createDataFrame(table)
    # Spark 3.5 takes no Arrow table, and Connect none without rows.
    schema = ", ".join(f"{quote(f.name)} {_sql_type(f.type)}" for f in table.schema)
    return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)


def frame_to_table(frame: DataFrame) -> pa.Table:
    """Fetch a small frame of integers as Arrow, without pandas, which would lose int64 to NaN."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    # Spark 3.5 has no public Arrow exit.
    rows = frame.collect()
    # Without a row, Arrow would guess the type null.
    kind = None if rows else pa.int64()
    columns = [pa.array([row[i] for row in rows], kind) for i in range(len(frame.columns))]
    return pa.table(columns, names=frame.columns)


def _version(spark: SparkSession) -> tuple[int, int]:
    major, minor = spark.version.split(".")[:2]
    return int(major), int(minor)


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_sql_type(kind.value_type)}>"
    names = {pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.string(): "string"}
    return names[kind]
