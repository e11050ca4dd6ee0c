"""CSV as spreadsheets write it; its schema never depends on what a row holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError, InputError, ParameterError
from dpkm_spark.grid import Grid
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.read import read_input
from dpkm_spark.spark.source import InputSource

pytestmark = pytest.mark.spark

DOMAIN = Domain.of(["x", "y"], (-10, 10))
#: Cells of the quadrants (x, y): -- -+ +- ++.
GRID = Grid(2, 2)


def quadrants(
    spark: SparkSession,
    path: Path,
    options: Mapping[str, str] | None = None,
    schema: str | None = None,
    domain: Domain = DOMAIN,
) -> list[int]:
    source = InputSource(str(path), options=options or {}, schema=schema)
    engine = SparkEngine(read_input(spark, source, domain), domain)
    return engine.cell_histogram(GRID).tolist()


def write(folder: Path, content: bytes | str, name: str = "points.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


SHEETS = {
    "plain": (b"x,y\n1,2\n-3,4\n", {}),
    "byte order mark": (b"\xef\xbb\xbfx,y\n1,2\n-3,4\n", {}),
    "semicolons and CRLF": (b"x;y\r\n1;2\r\n-3;4\r\n", {"sep": ";"}),
    "quotes": (b'"x","y"\n"1","2"\n"-3","4"\n', {}),
    "all at once": (b'\xef\xbb\xbf"x";"y"\r\n"1";"2"\r\n-3;"4"\r\n', {"sep": ";"}),
    "a column of text beside": ("name,x,y\nÄÖ,1,2\n'q',-3,4\n".encode(), {}),
    "another order, names in another case": (b"Y,X\n2,1\n4,-3\n", {}),
    "blanks around numbers": (b"x,y\n 1 , 2 \n-3 ,4\n", {}),
    "exponents": (b"x,y\n1e0,2E0\n-.3e1,4.\n", {}),
    "no newline at the end, blank lines": (b"x,y\n\n1,2\n\n-3,4", {}),
    "latin-1": ("x,y,größe\n1,2,ä\n-3,4,ö\n".encode("latin-1"), {"encoding": "ISO-8859-1"}),
    "more cells than the header": (b"x,y\n1,2,99\n-3,4\n", {}),
    "inferred": (b"x,y\n1,2\n-3,4\n", {"inferSchema": "true"}),
    "inferred, the option in lower case": (b"x,y\n1,2\n-3,4.0\n", {"inferschema": "TRUE"}),
}


@pytest.mark.parametrize("sheet", SHEETS)
def test_sheets_are_read_as_they_come(spark: SparkSession, tmp_path: Path, sheet: str) -> None:
    content, options = SHEETS[sheet]
    assert quadrants(spark, write(tmp_path, content), options) == [0, 1, 0, 1]


def test_tsv_is_told_by_its_ending(spark: SparkSession, tmp_path: Path) -> None:
    assert quadrants(spark, write(tmp_path, "x\ty\n1\t2\n", "points.tsv")) == [0, 0, 0, 1]


@pytest.mark.parametrize("header", ["true", "false"])
def test_decimal_commas_need_a_decimal_schema_and_a_locale(
    spark: SparkSession, tmp_path: Path, header: str
) -> None:
    # Without header=true the header is one more line of text: null, hence dropped.
    path = write(tmp_path, "x;y\r\n1,5;2,25\r\n-3,125;4\r\n1.000,5;-0,5\r\n")
    options = {"sep": ";", "locale": "de-DE", "header": header}
    schema = "x decimal(10,4), y decimal(10,4)"
    assert quadrants(spark, path, options, schema) == [0, 1, 1, 1]


def test_decimal_commas_without_a_schema_are_null_and_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert quadrants(spark, write(tmp_path, "x;y\n1,5;2\n1;2\n"), {"sep": ";"}) == [0, 0, 0, 1]


@pytest.mark.parametrize("content", [b"x,y\n", b"x,y", b"\xef\xbb\xbfx,y\r\n"])
def test_a_header_alone_is_an_empty_table(
    spark: SparkSession, tmp_path: Path, content: bytes
) -> None:
    assert quadrants(spark, write(tmp_path, content)) == [0, 0, 0, 0]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file_is_one_clear_error(
    spark: SparkSession, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(InputError, match="x"):
        quadrants(spark, write(tmp_path, content))


def test_what_is_no_number_is_null_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    lines = ["x,y", "1,2", "canary,2", ",2", "1", "NaN,1", "1,n/a", "0x10,1", '"1,5",2', "--1,1"]
    assert quadrants(spark, write(tmp_path, "\n".join(lines))) == [0, 0, 0, 1]


def test_infinities_are_clipped(spark: SparkSession, tmp_path: Path) -> None:
    content = "x,y\nInfinity,-Infinity\n-inf,inf\n1e999,-1e999\n"
    assert quadrants(spark, write(tmp_path, content)) == [0, 1, 2, 0]


def test_one_odd_row_changes_no_type(spark: SparkSession, tmp_path: Path) -> None:
    """With types inferred from rows, one more row could turn a run into an error."""
    tame = write(tmp_path, "x,y\n1,2\n", "tame.csv")
    odd = write(tmp_path, "x,y\n1,2\n1999-01-01,true\n", "odd.csv")
    schemas = [read_input(spark, InputSource(str(path)), DOMAIN).dtypes for path in (tame, odd)]
    assert schemas[0] == schemas[1] == [("x", "double"), ("y", "double")]


def test_a_text_column_under_inference_names_column_and_type_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path, "x,y\n1,2\ncanary,3\n")
    with pytest.raises(ColumnError, match="'x' has type string") as caught:
        quadrants(spark, path, {"inferSchema": "true"})
    assert "canary" not in str(caught.value)


def test_a_date_column_under_inference_is_one_clear_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write(tmp_path, "x,y\n1999-07-07,2\n1999-07-08,3\n")
    for option in ("inferSchema", "INFERSCHEMA"):
        with pytest.raises(ColumnError, match=r"'x' has type date.*unix_date") as caught:
            quadrants(spark, path, {option: "true"})
        assert "1999" not in str(caught.value)


def test_a_file_without_a_header_does_not_show_its_first_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    # What Spark takes for names is a row; the error must not list them.
    path = write(tmp_path, "31337.5,Smith\n3,Jones\n")
    with pytest.raises(ColumnError, match=r"header=false.*--input-schema") as caught:
        quadrants(spark, path)
    assert "31337" not in str(caught.value)
    assert "Smith" not in str(caught.value)


def test_a_misspelt_column_of_a_true_header_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "x,why\n1,2\n")
    with pytest.raises(ColumnError, match=r"no 'y' in the table.*'x', 'why'"):
        quadrants(spark, path)


def test_a_file_without_a_header_is_read_by_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "1,2\n-3,4\n")
    assert quadrants(spark, path, schema="x double, y double") == [0, 1, 0, 1]
    renamed = Domain.of(["_c0", "_c1"], (-10, 10))
    assert quadrants(spark, path, {"header": "false"}, domain=renamed) == [0, 1, 0, 1]


@pytest.mark.parametrize(("key", "value"), [("mode", "FAILFAST"), ("Mode", "failfast")])
def test_failfast_is_refused_before_spark_is_asked(
    spark: SparkSession, key: str, value: str
) -> None:
    source = InputSource("nowhere.csv", options={key: value})
    with pytest.raises(ParameterError, match="mode=FAILFAST"):
        read_input(spark, source, DOMAIN)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_other_modes_are_passed_on(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    assert quadrants(spark, write(tmp_path, "x,y\n1,2\n"), {"mode": mode}) == [0, 0, 0, 1]


def test_a_folder_of_files_is_one_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "x,y\n1,2\n", "a.csv")
    write(tmp_path, "x,y\n-3,4\n", "b.csv")
    write(tmp_path, "x,y\n", "c.csv")
    source = InputSource(str(tmp_path), format="csv")
    engine = SparkEngine(read_input(spark, source, DOMAIN), DOMAIN)
    assert engine.cell_histogram(GRID).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("names", [("a.b", "a b"), ("a`b", "order"), ("ÄÖ", "<script>")])
def test_names_that_bite_are_read(
    spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    path = write(tmp_path, f"\ufeff{names[0]},{names[1]},text\n1,2,z\n")
    assert quadrants(spark, path, domain=Domain.of(names, (-10, 10))) == [0, 0, 0, 1]


def test_x_beside_capital_x_are_two_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "x,X\n1,-2\n")
    assert quadrants(spark, path, domain=Domain.of(["x", "X"], (-10, 10))) == [0, 0, 1, 0]


def test_a_bad_schema_is_an_input_error(spark: SparkSession, tmp_path: Path) -> None:
    for schema in ("x dooble", "x double y"):
        with pytest.raises(InputError, match=r"points\.csv"):
            quadrants(spark, write(tmp_path, "x,y\n1,2\n"), schema=schema)
