"""CSV as spreadsheets and people write it (CASES 5, and the digits of CASES 4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_case import SMALL, input_flags, read_part, run_main, run_ok
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: At this epsilon the noise is zero, so the nine cells show how every row was read.
EXACT = str(2**49)
SQUARE = ("--columns", "x,y", "--bounds", "-1:1")
CANARY = "314159265.358979"


def counts_of(
    capsys: pytest.CaptureFixture[str], folder: Path, content: bytes, *flags: str
) -> list[int]:
    """Give the rows per cell that a run on this file counts."""
    file = folder / "points.csv"
    file.write_bytes(content)
    run_ok(capsys, folder / "out", *input_flags(file, k=2, epsilon=EXACT), *SQUARE, *SMALL, *flags)
    synopsis = read_part(folder / "out", "synopsis").sort_by("cell")
    counts: list[int] = synopsis["noisy_count"].to_pylist()
    return counts


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        (b"x,y\n-0.9,-0.9\n0.9,0.9\n0.8,0.8\n", []),
        (b"\xef\xbb\xbfx,y\n-0.9,-0.9\n0.9,0.9\n0.8,0.8\n", []),
        (b"x,y\r\n-0.9,-0.9\r\n0.9,0.9\r\n0.8,0.8\r\n", []),
        (b"\xef\xbb\xbfx;y\r\n-0.9;-0.9\r\n0.9;0.9\r\n0.8;0.8\r\n", ["--input-option", "sep=;"]),
        (b'"x","y"\n"-0.9","-0.9"\n"0.9","0.9"\n"0.8","0.8"\n', []),
        (b"x,y\n-0.9 , -0.9\n 9e-1,+.9\n0.8,0.8\n", []),
        (b"name,y,x\nAnn,-0.9,-0.9\nBob,0.9,0.9\n,0.8,0.8\n", []),
        (b"-0.9,-0.9\n0.9,0.9\n0.8,0.8\n", ["--input-schema", "x double, y double"]),
    ],
    ids=["plain", "bom", "crlf", "semicolons", "quotes", "blanks", "other columns", "no header"],
)
def test_a_csv_is_read_whatever_program_wrote_it(
    content: bytes,
    flags: list[str],
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert counts_of(capsys, tmp_path, content, *flags) == [1, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("content", [b"x,y\n", b"x,y"])
def test_a_header_alone_is_an_empty_table(
    content: bytes, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert counts_of(capsys, tmp_path, content) == [0] * 9


def test_an_empty_file_is_one_error(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.csv").write_bytes(b"")
    flags = ("--output", str(tmp_path / "o"), *input_flags(tmp_path / "empty.csv"), *SQUARE)
    message = run_main(capsys, *flags).error(3)
    assert "empty" in message


def test_what_is_no_number_drops_its_row_and_is_not_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["x,y", f"N/A {CANARY},0", ",0", "0", "0,0,0", "NaN,0", '"5,2",0', "0.9,0.9"]
    content = "\n".join(lines).encode()
    # 0,0,0 has one value too many: the row is kept. 5,2 is no number.
    assert counts_of(capsys, tmp_path, content) == [0, 0, 0, 0, 1, 0, 0, 0, 1]


def test_a_decimal_comma_is_read_by_a_declared_schema(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"x;y\n-0,9;-0,9\n0,9;0,9\n0,8;0,8\n"
    schema = ("--input-schema", "x decimal(9,4), y decimal(9,4)", "--input-option", "header=true")
    flags = (*schema, "--input-option", "sep=;", "--input-option", "locale=de-DE")
    assert counts_of(capsys, tmp_path, content, *flags) == [1, 0, 0, 0, 0, 0, 0, 0, 2]


def test_a_declared_text_column_is_one_error_without_a_value(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "points.csv"
    file.write_text(f"x,y\n{CANARY},0\n", encoding="utf-8")
    flags = ("--output", str(tmp_path / "o"), *input_flags(file), *SQUARE)
    message = run_main(capsys, *flags, "--input-schema", "x string, y double").error(3)
    assert "'x' has type string" in message
    assert "--input-schema" in message
    assert CANARY not in message


def test_a_mode_that_fails_on_one_odd_row_is_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "points.csv"
    file.write_text("x,y\n0,0\n", encoding="utf-8")
    flags = ("--output", str(tmp_path / "o"), *input_flags(file), *SQUARE)
    assert "FAILFAST" in run_main(capsys, *flags, "--input-option", "mode=failfast").error(2)


@pytest.mark.parametrize("odd", ["0.5", "N/A", "", "1e400"])
def test_no_single_row_changes_what_a_person_is_told(
    odd: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "points.csv"
    file.write_text(f"x,y\n0.25,0.25\n{odd},0.5\n", encoding="utf-8")
    flags = (*input_flags(file), *SQUARE, *SMALL, "--seed", "1", "--run-id", "same")
    outcome = run_ok(capsys, tmp_path / "out", *flags)
    steps = [line.partition("] ")[2] for line in outcome.err.splitlines() if "[eugkm" in line]
    assert steps == [
        "starting Spark",
        f"opening {file}",
        "asking for a noisy histogram of 9 cells",
        "clustering the histogram from 2 starts",
        f"writing to {tmp_path / 'out'}",
    ]
