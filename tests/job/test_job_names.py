"""Column names that bite (CASES 12), from the table to every output."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from job_case import SMALL, input_flags, read_part, read_run, run_main, run_ok, save
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCRIPT = "<script>alert(1)</script>"
NAMES = ["a.b", "a b", "a`b", "ÄÖ", "order", "X", "x", SCRIPT, "n" * 200, "prediction", "a=b:c,d"]


def toml_of(folder: Path, names: list[str]) -> str:
    """Write bounds for any names, the way a user would."""
    lines = [f"{toml_key(name)} = [-1, {i + 1}]" for i, name in enumerate(names)]
    file = folder / "names.toml"
    file.write_text("[bounds]\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def toml_key(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_any_name_goes_end_to_end(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = save(spark, tmp_path / "in", {name: [0.0, 0.5, 0.25] for name in NAMES})
    output = tmp_path / "out"
    flags = (*input_flags(table), "--config", toml_of(tmp_path, NAMES))
    small = ("--grid", "fixed", "--cells-per-dimension", "2", "--restarts", "2")
    outcome = run_ok(capsys, output, *flags, *small)

    centroids, synopsis = read_part(output), read_part(output, "synopsis")
    assert centroids.column_names == ["cluster", *NAMES, "noisy_size"]
    sides = [f"{name}_{side}" for name in NAMES for side in ("lower", "upper")]
    assert synopsis.column_names == ["cell", *sides, "noisy_count"]
    assert synopsis.num_rows == 2 ** len(NAMES)
    assert read_run(output)["domain"]["columns"] == NAMES
    for i, name in enumerate(NAMES):
        values = centroids.column(centroids.column_names.index(name)).to_pylist()
        assert all(-1 <= value <= i + 1 for value in values)
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page.lower()
    assert html.escape(SCRIPT) in page or "&lt;script&gt;" in page
    assert "n" * 200 in page
    assert "ÄÖ" in outcome.out


@pytest.mark.parametrize("kind", ["json", "orc"])
def test_names_survive_other_output_formats(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.b", "a b", "ÄÖ", SCRIPT]
    table = save(spark, tmp_path / "in", {name: [0.0, 0.5] for name in names})
    output = tmp_path / "out"
    flags = (*input_flags(table), "--config", toml_of(tmp_path, names), "--output-format", kind)
    run_ok(capsys, output, *flags, *SMALL)
    columns = set(spark.read.format(kind).load(str(output / "centroids")).columns)
    assert columns == {"cluster", *names, "noisy_size"}


def test_columns_that_differ_by_case_are_two(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = save(spark, tmp_path / "in", {"X": [0.9] * 50, "x": [-0.9] * 50})
    flags = (*input_flags(table, k=1, epsilon="1e9"), "--columns", "x,X", "--bounds", "-1:1")
    run_ok(capsys, tmp_path / "out", *flags, *SMALL)
    centroids = read_part(tmp_path / "out")
    # The centre of the outermost of three cells.
    assert centroids["x"].to_pylist() == [pytest.approx(-2 / 3)]
    assert centroids["X"].to_pylist() == [pytest.approx(2 / 3)]


def test_a_name_in_another_case_is_found_and_kept_as_asked(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = save(spark, tmp_path / "in", {"Age": [30.0]})
    run_ok(capsys, tmp_path / "out", *input_flags(table), "--bounds", "age=0:120", *SMALL)
    assert read_part(tmp_path / "out").column_names == ["cluster", "age", "noisy_size"]


def test_a_name_that_two_columns_match_is_ambiguous(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = save(spark, tmp_path / "in", {"AGE": [30.0], "Age": [30.0]})
    flags = ("--output", str(tmp_path / "out"), *input_flags(table), "--bounds", "age=0:120")
    assert "ambiguous" in run_main(capsys, *flags, *SMALL).error(3)


@pytest.mark.parametrize("column", ["cluster", "Cluster", "noisy_size"])
def test_a_clash_with_our_own_columns_is_solved_by_renaming(
    column: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = save(spark, tmp_path / "in", {column: [0.1, 0.2]})
    flags = (*input_flags(table), "--bounds", f"{column}=0:1", *SMALL)
    run_main(capsys, "--output", str(tmp_path / "no"), *flags).error(2)
    assert not (tmp_path / "no").exists()
    names = ("--cluster-column", "group", "--size-column", "size")
    run_ok(capsys, tmp_path / "out", *flags, *names)
    assert read_part(tmp_path / "out").column_names == ["group", column, "size"]


def test_a_run_id_of_a_scheduler_names_the_output(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = "scheduled__2026-01-01T00:00:00+00:00"
    output = tmp_path / "dpkm-out" / run_id
    outcome = run_ok(capsys, output, "--run-id", run_id, *SMALL)
    assert read_run(output)["run_id"] == run_id
    assert str(output) in outcome.out
