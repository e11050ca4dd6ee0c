"""Column types: a numeric one gives the integers of its value as a double; others are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError
from dpkm_spark.grid import Grid
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine

pytestmark = pytest.mark.spark


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before or "false")


def typed(spark: SparkSession, kind: str, values: list[Any]) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], f"x {kind}")


def both(frame: DataFrame, values: list[Any], domain: Domain, m: int) -> list[int]:
    """Ask both engines; Python's own conversion to float is the reference."""
    numbers = [[math.nan] if v is None else [float(v)] for v in values]
    local = LocalEngine(numbers, domain).cell_histogram(Grid(1, m)).tolist()
    assert SparkEngine(frame, domain).cell_histogram(Grid(1, m)).tolist() == local
    return local


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("tinyint", [-128, -1, 0, 1, 127, None], (-128, 127)),
        ("smallint", [-32768, 0, 77, 32767, None], (-32768, 32767)),
        ("int", [-(2**31), 0, 2**31 - 1, None], (-(2**31), 2**31)),
        ("bigint", [-(2**63), 0, 2**63 - 1, None], (-(2.0**63), 2.0**63)),
        # Not exact in float32: the engines must widen, not round again.
        ("float", [0.10000000149011612, -0.0, math.inf, math.nan, None], (0.1, 0.2)),
        ("double", [0.1, -0.0, 5e-324, -math.inf, math.nan, None], (-1, 1)),
        ("decimal(5,2)", [Decimal("1.25"), Decimal("-0.07"), None], (-1, 2)),
        ("decimal(38,0)", [Decimal(10**37), Decimal(-(10**37)), None], (-1e37, 1e37)),
    ],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_numeric_types_agree_with_the_local_engine(
    spark: SparkSession, kind: str, values: list[Any], bounds: tuple[float, float], ansi: str
) -> None:
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        counts = both(typed(spark, kind, values), values, Domain.of(["x"], bounds), 1000)
    assert sum(counts) > 0


def test_long_decimals_round_to_the_nearest_double(spark: SparkSession) -> None:
    # Each differs from a cell edge in digits that a double still holds, or no longer does.
    texts = ["0.1250000000", "0.1249999999", "0.1250000001", "1234567890123456789.0123456789"]
    texts += ["-0.0000000001", "0.3333333333", "9999999999999999999999999999.9999999999"]
    values = [Decimal(text) for text in texts]
    both(typed(spark, "decimal(38,10)", values), values, Domain.of(["x"], (0, 1)), 1 << 16)
    huge = Domain.of(["x"], (1234567890123456788, 1234567890123458000))
    both(typed(spark, "decimal(38,10)", values), values, huge, 64)


def test_bigints_beyond_2_to_53_become_the_nearest_double(spark: SparkSession) -> None:
    values = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, 2**53 + 4]
    domain = Domain.of(["x"], (2.0**53, 2.0**53 + 4))
    counts = both(typed(spark, "bigint", values), values, domain, 4)
    # The odd ones tie and go to the even neighbour: 2^53 + 1 -> 2^53, 2^53 + 3 -> 2^53 + 4.
    assert counts == [3, 0, 1, 2]


ROWS_OF_TWO: list[list[float | None] | None] = [
    [1.0, 1.0], [-1.0, 1.0], [5.0, -math.inf],
    None, [], [1.0], [1.0, 1.0, 1.0], [None, 1.0], [1.0, None], [math.nan, 1.0], [1.0, math.nan],
]  # fmt: skip
PAIR = Domain.of_vector("v", [(-1, 1), (-1, 1)])


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_arrays_with_holes_or_another_length_are_dropped(
    spark: SparkSession, kind: str, ansi: str
) -> None:
    frame = spark.createDataFrame([(row,) for row in ROWS_OF_TWO], f"v array<{kind}>")
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        engine = SparkEngine(frame, PAIR)
        assert engine.cell_histogram(Grid(2, 2)).tolist() == [0, 1, 1, 1]
        assert engine.count() == 3


@pytest.mark.parametrize(
    ("kind", "one"), [("int", 1), ("bigint", 1), ("tinyint", 1), ("decimal(38,10)", Decimal(1))]
)
def test_arrays_of_any_number_are_read(spark: SparkSession, kind: str, one: Any) -> None:
    rows = [([one, -one],), ([one, None],), ([one],), (None,)]
    frame = spark.createDataFrame(rows, f"v array<{kind}>")
    assert SparkEngine(frame, PAIR).cell_histogram(Grid(2, 2)).tolist() == [0, 0, 1, 0]


def vectors(spark: SparkSession, values: list[Any]) -> DataFrame:
    schema = StructType([StructField("v", VectorUDT())])
    return spark.createDataFrame([(value,) for value in values], schema)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_vectors_with_holes_or_another_length_are_dropped(spark: SparkSession, ansi: str) -> None:
    values = [
        Vectors.dense([1, 1]), Vectors.dense([-1, 1]), Vectors.sparse(2, {1: -5.0}),
        Vectors.sparse(2, {}),
        # Outside the domain: null, another length, NaN.
        None, Vectors.dense([]), Vectors.dense([1]), Vectors.dense([1, 1, 1]),
        Vectors.sparse(3, {0: 1.0}), Vectors.sparse(0, {}), Vectors.sparse(1, {}),
        Vectors.dense([math.nan, 1]), Vectors.sparse(2, {0: math.nan}),
    ]  # fmt: skip
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        engine = SparkEngine(vectors(spark, values), PAIR)
        # Zero is an edge of the grid and belongs to the cell above.
        assert engine.cell_histogram(Grid(2, 2)).tolist() == [0, 1, 1, 2]
        assert engine.count() == 4


def test_sparse_and_dense_vectors_and_arrays_give_the_same_integers(spark: SparkSession) -> None:
    rows = [(0.0, 0.3), (-0.7, 0.0), (0.0, 0.0), (0.9, -0.2)]
    dense = [Vectors.dense(row) for row in rows]
    sparse = [Vectors.sparse(2, {i: v for i, v in enumerate(row) if v}) for row in rows]
    arrays = spark.createDataFrame([(list(row),) for row in rows], "v array<double>")
    grid = Grid(2, 7)
    expected = LocalEngine(rows, PAIR).cell_histogram(grid).tolist()
    for frame in (vectors(spark, dense), vectors(spark, sparse), arrays):
        assert SparkEngine(frame, PAIR).cell_histogram(grid).tolist() == expected


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("'canary'", "try_cast"),
        ("true", "cast it to int"),
        ("date'1999-07-07'", "unix_date"),
        ("timestamp'1999-07-07 07:07:07'", "unix_micros"),
        ("timestamp_ntz'1999-07-07 07:07:07'", "unix_micros"),
        ("named_struct('a', 'canary')", "fields"),
        ("cast('canary' AS binary)", "cast it"),
        ("map('canary', 1.0)", "cast it"),
        ("array(1999.0D)", "one bound per entry"),
        ("interval '1999' year", "cast it"),
        ("void_null", "cast it"),
    ],
)
def test_types_without_numeric_meaning_are_refused_with_a_hint(
    spark: SparkSession, expression: str, hint: str
) -> None:
    frame = spark.range(3).selectExpr(f"{expression.replace('void_null', 'null')} AS x")
    with pytest.raises(ColumnError, match=r"'x' has type .*no numeric meaning") as caught:
        SparkEngine(frame, Domain.of(["x"], (0, 1)))
    assert hint in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "1999" not in str(caught.value)


def test_a_vector_for_scalar_bounds_is_refused_with_a_hint(spark: SparkSession) -> None:
    with pytest.raises(ColumnError, match="one bound per entry"):
        SparkEngine(vectors(spark, [Vectors.dense([1])]), Domain.of(["v"], (0, 1)))


@pytest.mark.parametrize(
    "expression", ["1.5D", "'a'", "array('a')", "array(array(1.0D))", "map('a', 1.0D)", "array()"]
)
def test_packed_bounds_want_an_array_of_numbers_or_a_vector(
    spark: SparkSession, expression: str
) -> None:
    frame = spark.range(1).selectExpr(f"{expression} AS v")
    with pytest.raises(ColumnError, match=r"'v' has type .*array of numbers or an ML vector"):
        SparkEngine(frame, PAIR)
