"""Files and tables: formats, layouts, partitions and what cannot be opened."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError, DPKMeansError, InputError, QueryError
from dpkm_spark.grid import Grid
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.read import read_input
from dpkm_spark.spark.source import InputSource

DOMAIN = Domain.of(["x", "y"], (-10, 10))
#: A value that only a row holds: no error may show it.
CANARY = 3.4711


def quadrants(spark: SparkSession, source: InputSource, domain: Domain = DOMAIN) -> list[int]:
    engine = SparkEngine(read_input(spark, source, domain), domain)
    return engine.cell_histogram(Grid(2, 2)).tolist()


def part(folder: Path, name: str, x: pa.Array, **more: pa.Array) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": x, "y": pa.array([CANARY] * len(x)), **more}), folder / name)


def says_nothing_of_a_row(error: DPKMeansError) -> bool:
    told = str(error) + repr(error) + "".join(traceback.format_exception(error))
    private = error.__cause__ is None and error.__context__ is None and "4711" not in told
    # Spark's own text and its Java trace stay away as well.
    return private and not any(word in told for word in ("org.apache", "java.lang", "at scala"))


@pytest.mark.parametrize(
    ("location", "given", "kind"),
    [
        ("a/b.parquet", "", "parquet"),
        ("a/B.CSV", "", "csv"),
        ("b.csv.gz", "", "csv"),
        ("b.tsv", "", "csv"),
        ("b.json", "", "json"),
        ("b.jsonl/", "", "json"),
        ("b.ndjson", "", "json"),
        ("b.json.gz", "", "json"),
        ("s3a://bucket/key.orc", "", "orc"),
        ("b.avro", "", "avro"),
        ("folder", "", "parquet"),
        ("folder.d/", "", "parquet"),
        ("b.csv", "Parquet", "parquet"),
        ("db.points", "TABLE", "table"),
    ],
)
def test_the_format_is_the_one_given_or_the_endings(location: str, given: str, kind: str) -> None:
    assert InputSource(location, given).resolved_format == kind


@pytest.mark.spark
@pytest.mark.parametrize("ending", ["parquet", "orc"])
def test_files_with_a_schema_are_read_by_it(
    spark: SparkSession, tmp_path: Path, ending: str
) -> None:
    table = pa.table({"x": [1.0, -3.0, None], "y": [2, 4, 6]})
    path = tmp_path / f"points.{ending}"
    pq.write_table(table, path) if ending == "parquet" else orc.write_table(table, path)
    assert quadrants(spark, InputSource(str(path))) == [0, 1, 0, 1]


@pytest.mark.spark
def test_many_files_of_one_row_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    values = np.linspace(-9, 9, 200)
    for i, value in enumerate(values):
        part(tmp_path, f"{i}.parquet", pa.array([value]))
    one = tmp_path / "one" / "all.parquet"
    part(one.parent, one.name, pa.array(values))
    many = quadrants(spark, InputSource(str(tmp_path), options={"pathGlobFilter": "*.parquet"}))
    assert many == quadrants(spark, InputSource(str(one))) == [0, 100, 0, 100]


@pytest.mark.spark
def test_one_file_of_many_row_groups_is_one_table(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"x": np.linspace(-9, 9, 200), "y": np.full(200, 1.0)})
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=3)
    assert quadrants(spark, InputSource(str(tmp_path / "groups.parquet"))) == [0, 100, 0, 100]


@pytest.mark.spark
def test_int32_parts_widen_where_the_schema_says_bigint(
    spark: SparkSession, tmp_path: Path
) -> None:
    # The later file decides Spark's schema here, or the first: declared, neither does.
    for first, second in ((pa.int32(), pa.int64()), (pa.int64(), pa.int32())):
        folder = tmp_path / str(first)
        part(folder, "a.parquet", pa.array([1, 2], first))
        part(folder, "b.parquet", pa.array([-3, 4], second))
        source = InputSource(str(folder), schema="x bigint, y double")
        assert quadrants(spark, source) == [0, 1, 0, 3]


@pytest.mark.spark
@pytest.mark.parametrize("merge", ["true", "false"])
@pytest.mark.parametrize("kinds", [(pa.int32(), pa.int64()), (pa.int64(), pa.int32())])
def test_parts_of_two_types_give_the_same_integers_or_a_readable_error(
    spark: SparkSession, tmp_path: Path, merge: str, kinds: tuple[pa.DataType, pa.DataType]
) -> None:
    for name, kind, value in zip("ab", kinds, (1, -3), strict=True):
        part(tmp_path, f"{name}.parquet", pa.array([value], kind))
    source = InputSource(str(tmp_path), "parquet", {"mergeSchema": merge})
    failure: DPKMeansError | None = None
    try:
        counts = quadrants(spark, source)
    except (InputError, QueryError) as error:
        failure = error
    if failure is None:
        assert counts == [0, 1, 0, 1]
    else:
        assert says_nothing_of_a_row(failure)
        # Spark's condition says what is wrong: both are about types, not about rows.
        assert "CANNOT_MERGE_SCHEMAS" in str(failure) or "DATA_TYPE_MISMATCH" in str(failure)


@pytest.mark.spark
def test_a_column_added_in_half_the_files_is_null_in_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    part(tmp_path, "a.parquet", pa.array([1.0, 2.0]))
    part(tmp_path, "b.parquet", pa.array([-3.0, 4.0]), z=pa.array([1.0, None]))
    source = InputSource(str(tmp_path), "parquet", {"mergeSchema": "true"})
    # Columns that all files have are as before; rows without the new one are outside its domain.
    assert quadrants(spark, source) == [0, 1, 0, 3]
    assert quadrants(spark, InputSource(str(tmp_path), "parquet")) == [0, 1, 0, 3]
    assert quadrants(spark, source, Domain.of(["x", "z"], (-10, 10))) == [0, 1, 0, 0]


@pytest.mark.spark
def test_folders_named_01_and_1_stay_two_strings(spark: SparkSession, tmp_path: Path) -> None:
    for zone in ("01", "1", "1e0"):
        part(tmp_path / f"zone={zone}", "a.parquet", pa.array([1.0]))
    frame = read_input(spark, InputSource(str(tmp_path), "parquet"), DOMAIN)
    assert dict(frame.dtypes)["zone"] == "string"
    assert sorted(row.zone for row in frame.select("zone").collect()) == ["01", "1", "1e0"]
    with pytest.raises(ColumnError, match="'zone' has type string"):
        SparkEngine(frame, Domain.of(["zone"], (0, 1)))


@pytest.mark.spark
def test_ids_of_digits_keep_their_zeros_in_csv(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("id,x,y\n000123,1,2\n123,1,2\n")
    frame = read_input(spark, InputSource(str(path)), DOMAIN)
    assert sorted(row.id for row in frame.select("id").collect()) == ["000123", "123"]


@pytest.mark.spark
def test_temporary_views_and_saved_tables_are_read_by_name(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1.0, 2.0), (-3.0, 4.0)], "x double, y double")
    frame.createOrReplaceTempView("dpkm_view")
    frame.write.mode("overwrite").saveAsTable("default.dpkm_saved")
    try:
        for name in ("dpkm_view", "dpkm_saved", "default.dpkm_saved", "`dpkm_view`"):
            assert quadrants(spark, InputSource(name, "table")) == [0, 1, 0, 1]
    finally:
        spark.catalog.dropTempView("dpkm_view")
        spark.sql("DROP TABLE default.dpkm_saved").collect()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("location", "given", "message"),
    [
        ("nowhere/points.parquet", "", "there is no such path"),
        ("nowhere/points.csv", "", "there is no such path"),
        ("nowhere/points.json", "", "there is no such path"),
        ("no_such_table", "table", "there is no such table"),
        ("no_such_schema.no_such_table", "table", "there is no such table"),
        ("nowhere/points.parquet", "nosuch", "no such format"),
        ("no such table", "table", "cannot open it"),
        ("nosuch://bucket/points", "parquet", "cannot open it"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_error(
    spark: SparkSession, location: str, given: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_input(spark, InputSource(location, given), DOMAIN)
    assert repr(location) in str(caught.value)
    assert says_nothing_of_a_row(caught.value)


@pytest.mark.spark
def test_a_file_of_another_format_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    path.write_text(f"x,y\n{CANARY},1\n")
    with pytest.raises(InputError, match="cannot open it") as caught:
        quadrants(spark, InputSource(str(path)))
    assert says_nothing_of_a_row(caught.value)


@pytest.mark.spark
def test_a_folder_without_files_asks_for_a_format(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no schema found"):
        quadrants(spark, InputSource(str(tmp_path), "parquet"))


@pytest.mark.spark
def test_files_that_break_while_they_are_read_tell_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    part(tmp_path, "a.parquet", pa.array([1.0]))
    frame = read_input(spark, InputSource(str(tmp_path), "parquet"), DOMAIN)
    engine = SparkEngine(frame, DOMAIN)
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(b"4711" * (len(content) // 4))
    with pytest.raises(QueryError) as caught:
        engine.count()
    assert says_nothing_of_a_row(caught.value)
