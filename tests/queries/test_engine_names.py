"""Column names that bite, and the columns a table does not have."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError
from dpkm_spark.grid import Grid
from dpkm_spark.queries.spark import SparkEngine

pytestmark = pytest.mark.spark

NAMES = [
    "a.b", "a b", "a`b", "`", "ÄÖ", "order", "X", "x", "l" * 200, "<script>alert(1)</script>",
    "a'b", 'a"b', "c0", "v0", "cell", "n", "*", "a.b.*", "日本", "-1", "${x}",
]  # fmt: skip


def test_names_that_bite_are_found(spark: SparkSession) -> None:
    # Column i holds the value i in every row, so that a mix-up would show in the cell.
    frame = spark.createDataFrame([tuple(map(float, range(len(NAMES))))], NAMES)
    grid = Grid(1, len(NAMES))
    found = []
    for name in NAMES:
        engine = SparkEngine(frame, Domain.of([name], (-0.5, len(NAMES) - 0.5)))
        found.append(int(engine.cell_histogram(grid).argmax()))
    assert found == list(range(len(NAMES)))


def test_many_names_that_bite_work_together(spark: SparkSession) -> None:
    names = ["a.b", "a`b", "X", "x", "order"]
    frame = spark.createDataFrame([(0.0, 1.0, 0.0, 1.0, 1.0)], names)
    # In another order than the table's: the domain decides.
    wanted = ["x", "order", "X", "a`b", "a.b"]
    histogram = SparkEngine(frame, Domain.of(wanted, (0, 1))).cell_histogram(Grid(5, 2))
    assert int(histogram.argmax()) == 0b11010


def test_packed_names_that_bite_are_found(spark: SparkSession) -> None:
    for name in ("a.b", "a`b", "order"):
        frame = spark.createDataFrame([([0.0, 1.0], 7.0)], [name, "other"])
        assert SparkEngine(frame, Domain.of_vector(name, [(0, 1)] * 2)).count() == 1


def test_case_is_ignored_where_only_one_column_fits(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0.0, 1.0)], ["Speed", "HÖHE"])
    histogram = SparkEngine(frame, Domain.of(["höhe", "sPEED"], (0, 1))).cell_histogram(Grid(2, 2))
    assert histogram.tolist() == [0, 0, 1, 0]


def test_an_ambiguous_name_is_an_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0.0, 1.0)], ["Ab", "aB"])
    with pytest.raises(ColumnError, match="'ab' is ambiguous: the table has it 2 times"):
        SparkEngine(frame, Domain.of(["ab"], (0, 1)))


def test_a_name_the_table_has_twice_is_an_error_only_when_asked_for(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("0.0D AS x", "1.0D AS x", "1.0D AS y")
    assert SparkEngine(frame, Domain.of(["y"], (0, 1))).count() == 1
    with pytest.raises(ColumnError, match="'x' is ambiguous"):
        SparkEngine(frame, Domain.of(["x"], (0, 1)))


def test_a_missing_column_suggests_the_nearest_and_lists_the_others(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(31337.5, 1.0)], ["height", "weight"])
    with pytest.raises(ColumnError) as caught:
        SparkEngine(frame, Domain.of(["heigth"], (0, 1)))
    assert str(caught.value) == (
        "columns: no 'heigth' in the table; did you mean 'height'? It has: 'height', 'weight'"
    )


def test_a_missing_column_unlike_any_other_lists_what_there_is(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, 2.0)], ["height", "weight"])
    with pytest.raises(ColumnError) as caught:
        SparkEngine(frame, Domain.of(["q"], (0, 1)))
    assert str(caught.value) == "columns: no 'q' in the table. It has: 'height', 'weight'"


def test_a_long_list_of_columns_is_cut(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr(*[f"1.0D AS c{i}" for i in range(40)])
    with pytest.raises(ColumnError, match=r"'c29', \.\.\.$"):
        SparkEngine(frame, Domain.of(["q"], (0, 1)))


def test_a_field_of_a_struct_is_not_a_column(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("named_struct('b', 1.0D) AS a")
    with pytest.raises(ColumnError, match=r"no 'a\.b' in the table"):
        SparkEngine(frame, Domain.of(["a.b"], (0, 1)))
