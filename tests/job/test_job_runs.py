"""Whole runs in the tests' own session: what is written, shown and returned."""

from __future__ import annotations

import csv
import io
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest
from job_case import (
    SMALL,
    Outcome,
    connect_url,
    input_flags,
    read_part,
    read_run,
    run_main,
    run_ok,
    save,
    save_frame,
)
from pyspark.sql import SparkSession

from dpkm_spark import __version__
from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.job.run import main

pytestmark = pytest.mark.spark

SQUARE = ("--columns", "x,y", "--bounds", "-1:1")
POINTS = {"x": [-0.9, -0.8, 0.9, 0.8], "y": [-0.9, -0.8, 0.9, 0.8]}
CANARY = "314159265.358979"


@pytest.fixture(scope="module")
def points(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table of two columns."""
    return save(spark, tmp_path_factory.mktemp("points") / "points.parquet", POINTS)


def check_result(output: Path, k: int, low: float = -1, high: float = 1) -> None:
    """Check that there are k finite centroids inside the bounds."""
    table = read_part(output)
    assert table["cluster"].to_pylist() == list(range(k))
    values = [table[name].to_numpy() for name in table.column_names[1:-1]]
    assert np.isfinite(values).all()
    assert np.isfinite(table["noisy_size"].to_numpy()).all()
    assert (np.array(values) >= low).all()
    assert (np.array(values) <= high).all()


@dataclass(frozen=True)
class Sample:
    """The run without any option, on the embedded sample."""

    run: Outcome
    output: Path


@pytest.fixture(scope="module")
def sample(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Run the sample once for all tests that look at it."""
    output = tmp_path_factory.mktemp("sample") / "out"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), connect_url():
        code = main("eugkm", ["--output", str(output), "--run-id", "sample-1"])
    return Sample(Outcome(code, out.getvalue(), err.getvalue()), output)


def test_sample_run_it_ends_well(sample: Sample) -> None:
    assert sample.run.code == 0, sample.run.shown


def test_sample_run_centroids_have_the_promised_schema(sample: Sample) -> None:
    schema = read_part(sample.output).schema
    assert schema.names == ["cluster", "x", "y", "noisy_size"]
    assert schema.types == [pa.int32(), pa.float64(), pa.float64(), pa.float64()]


def test_sample_run_there_are_k_centroids_inside_the_bounds(sample: Sample) -> None:
    check_result(sample.output, 15)


def test_sample_run_centroids_are_where_the_samples_groups_are(sample: Sample) -> None:
    from dpkm_spark.job.sample import sample_table

    rows = np.column_stack([sample_table()[name].to_numpy() for name in ("x", "y")])
    table = read_part(sample.output)
    centres = np.column_stack([table["x"].to_numpy(), table["y"].to_numpy()])
    nicv = ((rows[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).mean()
    # Twice the variance of a group is 0.0098; one centre for all has 0.6.
    assert nicv < 0.03


def test_sample_run_the_synopsis_has_every_cell_once_with_its_box(sample: Sample) -> None:
    table = read_part(sample.output, "synopsis").sort_by("cell")
    names = ["cell", "x_lower", "x_upper", "y_lower", "y_upper", "noisy_count"]
    assert table.column_names == names
    assert table.schema.field("noisy_count").type == pa.int64()
    m = read_run(sample.output)["result"]["grid"]["cells_per_dimension"]
    assert table["cell"].to_pylist() == list(range(m * m))
    edges = np.linspace(-1, 1, m + 1)
    lower = np.array(list(product(edges[:-1], edges[:-1])))
    upper = np.array(list(product(edges[1:], edges[1:])))
    assert np.allclose(table["x_lower"], lower[:, 0])
    assert np.allclose(table["y_lower"], lower[:, 1])
    assert np.allclose(table["x_upper"], upper[:, 0])
    assert np.allclose(table["y_upper"], upper[:, 1])


def test_sample_run_the_noisy_counts_are_the_rows_of_their_cells(sample: Sample) -> None:
    # 484 cells of noise with scale 1.02: the sum is off by more than 300 once in 10^10 runs.
    total = sum(read_part(sample.output, "synopsis")["noisy_count"].to_pylist())
    assert abs(total - 5000) < 300


def test_sample_run_the_record_names_every_query_and_what_it_cost(sample: Sample) -> None:
    record = read_run(sample.output)
    shares = [Fraction(query["epsilon"]) for query in record["queries"]]
    assert shares == [Fraction(1, 50), Fraction(49, 50)]
    assert sum(shares) == Fraction(record["privacy"]["spent"]) == Fraction(1)
    for query, share in zip(record["queries"], shares, strict=True):
        assert query["sensitivity"] == 1
        assert query["mechanism"] == "discrete Laplace"
        assert Fraction(query["scale"]) >= 1 / share
        assert query["scale"] == pytest.approx(float(1 / share), rel=1e-9)
        assert Fraction(query["epsilon_by_privacy_map"]) <= share
        assert query["private"] is True


def test_sample_run_the_record_says_what_ran_on_what(sample: Sample) -> None:
    record = read_run(sample.output)
    assert record["format_version"] == 2
    assert record["job"] == "eugkm"
    assert record["run_id"] == "sample-1"
    assert record["private"] is True
    assert record["why_not_private"] == []
    assert "evaluation" not in record
    assert record["input"] == {"sample": True}
    assert record["domain"] == {
        "columns": ["x", "y"], "array": False, "lower": [-1, -1], "upper": [1, 1]
    }  # fmt: skip
    assert record["parameters"]["k"] == 15
    grid = record["result"]["grid"]
    assert grid["cells"] == grid["cells_per_dimension"] ** 2
    assert grid["capped"] is False


def test_sample_run_the_record_names_versions_and_commit(sample: Sample) -> None:
    versions = read_run(sample.output)["versions"]
    assert versions["dpkm-spark"] == __version__
    assert {"commit", "python", "pyspark", "spark", "opendp", "numpy"} <= set(versions)
    assert all(versions.values())


def test_sample_run_the_record_has_no_end_time(sample: Sample) -> None:
    # How long a scan takes depends on the rows.
    text = (sample.output / "run.json").read_text(encoding="utf-8").lower()
    assert not any(word in text for word in ("ended", "finished", "duration", "seconds"))


def test_sample_run_the_report_is_there(sample: Sample) -> None:
    page = (sample.output / "report.html").read_text(encoding="utf-8")
    assert "15 private clusters of the embedded sample" in page
    assert "sample-1" in page
    assert "NOT PRIVATE" not in page.upper()


def test_sample_run_the_table_is_shown_with_paths_that_exist(sample: Sample) -> None:
    table = read_part(sample.output)
    for row in table.to_pylist():
        cells = [str(row["cluster"]), f"{row['noisy_size']:,.0f}", f"{row['x']:.3f}"]
        assert any(line.split()[:3] == cells for line in sample.run.out.splitlines())
    for name in ("centroids", "synopsis", "run.json", "report.html"):
        assert str(sample.output / name) in sample.run.out
        assert (sample.output / name).exists()


def test_sample_run_progress_goes_to_stderr_and_results_to_stdout(sample: Sample) -> None:
    assert "[eugkm 00:" in sample.run.err
    assert "noisy histogram" in sample.run.err
    assert "[eugkm" not in sample.run.out


def test_quiet_runs_show_the_result_alone(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = run_ok(capfd, tmp_path / "out", "--quiet", *SMALL)
    assert "[eugkm" not in outcome.shown
    assert "15 clusters" in outcome.out


def test_an_existing_output_is_kept_before_anything_is_charged(
    spark: SparkSession,
    points: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, flags = tmp_path / "out", (*input_flags(points), *SQUARE, *SMALL)
    run_ok(capsys, output, *flags)
    before = (output / "run.json").read_bytes()

    def untouchable(*_: object) -> None:
        raise AssertionError("the input was opened")

    with monkeypatch.context() as patch:
        patch.setattr("dpkm_spark.job.open.open_input", untouchable)
        message = run_main(capsys, "--output", str(output), *flags).error(4)
    assert "--overwrite" in message
    assert (output / "run.json").read_bytes() == before

    run_ok(capsys, output, "--overwrite", *flags, "--run-id", "second")
    assert read_run(output)["run_id"] == "second"


def test_an_output_that_cannot_be_written_is_exit_4(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    flags = (*input_flags(points), *SQUARE, *SMALL)
    outcome = run_main(capsys, "--output", str(tmp_path / "file" / "out"), *flags)
    assert "output: cannot write" in outcome.error(4)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "orc"])
def test_results_are_written_in_the_chosen_format(
    kind: str,
    spark: SparkSession,
    points: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    run_ok(
        capsys,
        output,
        *input_flags(points),
        *SQUARE,
        *SMALL,
        "--output-format",
        kind,
        "--seed",
        "3",
    )
    rows = {name: read_rows(output / name, kind) for name in ("centroids", "synopsis")}
    assert set(rows["centroids"][0]) == {"cluster", "x", "y", "noisy_size"}
    assert [int(row["cluster"]) for row in rows["centroids"]] == [0, 1, 2]
    assert len(rows["synopsis"]) == 9
    assert sorted(int(row["cell"]) for row in rows["synopsis"]) == list(range(9))
    assert all(math.isfinite(float(row["x"])) for row in rows["centroids"])


def read_rows(folder: Path, kind: str) -> list[dict[str, object]]:
    """Read a part of an output by another reader than Spark."""
    (file,) = [path for path in folder.iterdir() if path.name.startswith("part-")]
    if kind == "csv":
        with file.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))
    if kind == "json":
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if kind == "orc":
        return list(pa.orc.read_table(file).to_pylist())
    return list(read_part(folder.parent, folder.name).to_pylist())


@pytest.mark.parametrize("how", ["csv", "json", "orc", "parquet", "table", "tsv"])
def test_every_kind_of_input_gives_the_same_result(
    how: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if how == "table":
        location = (
            f"dpkm_points_{tmp_path.name.replace('-', '_').replace('[', '').replace(']', '')}"
        )
        frame = spark.read.parquet(str(save(spark, tmp_path / "p", POINTS)))
        frame.write.mode("overwrite").saveAsTable(location)
        flags: tuple[str, ...] = ("--input-format", "table")
    elif how == "tsv":
        location, flags = str(tmp_path / "points.tsv"), ()
        lines = ["x\ty", *[f"{x}\t{y}" for x, y in zip(*POINTS.values(), strict=True)]]
        Path(location).write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif how == "csv":
        location, flags = str(tmp_path / "points.csv"), ()
        lines = ["x,y", *[f"{x},{y}" for x, y in zip(*POINTS.values(), strict=True)]]
        Path(location).write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        location, flags = str(save(spark, tmp_path / f"points.{how}", POINTS, how)), ()
    output = tmp_path / "out"
    # With an epsilon of 2^49 the noise is zero, and so the synopsis exact.
    exact = input_flags(location, k=2, epsilon=str(2**49))
    run_ok(capsys, output, *exact, *SQUARE, *SMALL, *flags)
    counts = read_part(output, "synopsis").sort_by("cell")["noisy_count"].to_pylist()
    assert counts == [2, 0, 0, 0, 0, 0, 0, 0, 2]
    record = read_run(output)["input"]
    assert record["location"] == location
    assert record["format"] == ("csv" if how == "tsv" else how)
    if how == "table":
        spark.sql(f"DROP TABLE {location}")


@pytest.mark.parametrize("kind", ["array<double>", "array<float>", "array<int>", "vector"])
def test_a_packed_column_goes_end_to_end(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "SELECT * FROM VALUES (array(0, 0)), (array(3, 8)), (array(3)), (array(1, null)), (null)"
    if kind == "vector":
        from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
        from pyspark.sql.types import StructField, StructType

        vectors = [Vectors.dense(0, 0), Vectors.dense(3, 8), Vectors.dense(3), None]
        vectors += [SparseVector(2, {}), Vectors.dense(1, math.nan), SparseVector(3, {0: 1.0})]
        schema = StructType([StructField("v", VectorUDT())])
        frame = spark.createDataFrame([(vector,) for vector in vectors], schema)
        zeros = 2
    else:
        frame = spark.sql(rows).selectExpr(f"cast(col1 AS {kind}) AS v")
        zeros = 1
    table, output = save_frame(frame, tmp_path / "in.parquet"), tmp_path / "out"
    flags = input_flags(table, k=2, epsilon=str(2**49))
    run_ok(capsys, output, *flags, "--columns", "v", "--bounds", "v=0:4,0:9", *SMALL)

    centroids = read_part(output)
    assert centroids.column_names == ["cluster", "v", "noisy_size"]
    assert centroids["v"].type == pa.list_(pa.float64()) or "list" in str(centroids["v"].type)
    assert all(len(row) == 2 for row in centroids["v"].to_pylist())
    synopsis = read_part(output, "synopsis").sort_by("cell")
    # Rows of another length, or with a null or NaN in them, count nowhere.
    assert synopsis["noisy_count"].to_pylist() == [zeros, 0, 0, 0, 0, 0, 0, 0, 1]
    assert synopsis["v_upper"].to_pylist()[-1] == [4.0, 9.0]
    assert read_run(output)["domain"]["array"] is True


def test_a_missing_column_lists_the_ones_there_are(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--output", str(tmp_path / "o"), *input_flags(points), "--columns", "x,yy")
    message = run_main(capsys, *flags, "--bounds", "-1:1").error(3)
    assert "'yy'" in message
    assert "did you mean 'y'" in message
    assert "'x', 'y'" in message
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("location", "kind", "reason"),
    [
        ("nowhere.parquet", "parquet", "no such path"),
        ("nowhere.csv", "csv", "no such path"),
        ("no_such_table", "table", "no such table"),
        ("x.bin", "martian", "no such format"),
    ],
)
def test_an_input_that_is_not_there_is_exit_3(
    location: str,
    kind: str,
    reason: str,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--output", "nowhere", *input_flags(location), *SQUARE, "--input-format", kind)
    message = run_main(capsys, *flags).error(3)
    assert location in message
    assert reason in message


def test_an_empty_folder_is_exit_3(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    flags = ("--output", str(tmp_path / "o"), *input_flags(tmp_path / "empty"), *SQUARE)
    assert "no schema found" in run_main(capsys, *flags).error(3)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        (f"'{CANARY}'", "try_cast"),
        ("true", "cast it to int"),
        ("date'2020-01-02'", "unix_date"),
        ("timestamp'2020-01-02 03:04:05'", "unix_micros"),
        ("timestamp_ntz'2020-01-02 03:04:05'", "unix_micros"),
        ("named_struct('a', 1.0D)", "fields"),
        ("array(1.0D)", "--dimensions"),
        ("map('a', 1.0D)", "numeric"),
        ("X'00'", "numeric"),
    ],
)  # fmt: skip
def test_a_type_without_numeric_meaning_says_what_to_cast_to(
    sql: str,
    hint: str,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = save_frame(spark.sql(f"SELECT {sql} AS x, 1.0D AS y"), tmp_path / "in.parquet")
    flags = ("--output", str(tmp_path / "o"), *input_flags(table), *SQUARE)
    message = run_main(capsys, *flags).error(3)
    assert "'x'" in message
    assert hint in message
    assert CANARY not in message


@pytest.mark.parametrize(
    "kind", ["tinyint", "smallint", "int", "bigint", "float", "decimal(38,10)"]
)
def test_every_numeric_type_is_taken(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.sql("SELECT * FROM VALUES (1), (1), (5), (null)")
    frame = frame.selectExpr(f"cast(col1 AS {kind}) AS x")
    table = save_frame(frame, tmp_path / "in.parquet")
    flags = (*input_flags(table, k=2, epsilon=str(2**49)), "--bounds", "x=0:6")
    run_ok(capsys, tmp_path / "out", *flags, *SMALL)
    counts = read_part(tmp_path / "out", "synopsis").sort_by("cell")["noisy_count"]
    assert counts.to_pylist() == [2, 0, 1]


def test_big_integers_keep_their_last_bit_where_bounds_allow_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 2^53 + 1 is no double: it becomes 2^53, as documented, in both engines.
    frame = spark.range(2**53 + 1, 2**53 + 3).toDF("x")
    table = save_frame(frame, tmp_path / "in.parquet")
    bounds = f"x={2**53 - 4}:{2**53 + 4}"
    flags = (*input_flags(table, k=1, epsilon=str(2**49)), "--bounds", bounds)
    run_ok(capsys, tmp_path / "out", *flags, *SMALL[2:], "--grid", "fixed",
           "--cells-per-dimension", "4")  # fmt: skip
    counts = read_part(tmp_path / "out", "synopsis").sort_by("cell")["noisy_count"]
    assert counts.to_pylist() == [0, 0, 1, 1]


def test_a_failure_of_spark_is_exit_6_and_quotes_no_row(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = f"if(id = 7, raise_error('row {CANARY}'), 0.5D) AS x"
    spark.range(10).selectExpr(fault, "0.5D AS y").createOrReplaceTempView("dpkm_faulty")
    flags = ("--output", str(tmp_path / "o"), *input_flags("dpkm_faulty"), *SQUARE, *SMALL)
    outcome = run_main(capsys, *flags, "--input-format", "table")
    message = outcome.error(6)
    assert "Spark failed" in message
    assert "stays charged" in message
    assert CANARY not in outcome.shown
    # A retry is worth it, and the first attempt must not stand in its way.
    run_main(capsys, *flags, "--input-format", "table").error(6)


def test_a_seeded_run_says_everywhere_that_it_is_not_private(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    flags = (*input_flags(points), *SQUARE, *SMALL[:-1], "--seed", "1")
    outcome = run_ok(capsys, output, *flags)
    assert "NOT PRIVATE" in outcome.out
    record = read_run(output)
    assert record["private"] is False
    assert [query["private"] for query in record["queries"]] == [False]
    assert "not private" in (output / "report.html").read_text(encoding="utf-8").lower()


def test_the_same_seed_and_run_id_give_the_same_result(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*input_flags(points), *SQUARE, *SMALL, "--seed", "1", "--run-id", "same")
    for name in ("a", "b"):
        run_ok(capsys, tmp_path / name, *flags)
    assert read_part(tmp_path / "a").equals(read_part(tmp_path / "b"))


def test_two_private_runs_of_one_run_id_differ(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Noise comes from the system, never from the run id. Equal by chance: under 10^-18.
    flags = (*input_flags(points, epsilon="0.01"), *SQUARE, *SMALL, "--run-id", "same")
    counts = []
    for name in ("a", "b"):
        run_ok(capsys, tmp_path / name, *flags)
        counts.append(read_part(tmp_path / name, "synopsis").sort_by("cell")["noisy_count"])
    assert not counts[0].equals(counts[1])


def test_no_report_writes_none(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_ok(capsys, tmp_path / "out", *SMALL)
    assert not (tmp_path / "out" / "report.html").exists()
    assert "report.html" not in outcome.out


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), ValueError(f"row {CANARY}")])
def test_interruptions_and_faults_have_codes_of_their_own(
    raised: BaseException,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setitem(ALGORITHMS, "eugkm", replace(ALGORITHMS["eugkm"], run=fail))
    outcome = run_main(capsys, "--output", str(tmp_path / "o"))
    assert CANARY not in outcome.shown
    assert outcome.out == ""
    if isinstance(raised, KeyboardInterrupt):
        assert outcome.code == 130
        assert "is spent" in outcome.err
    else:
        assert outcome.code == 1
        assert "unexpected ValueError" in outcome.err
        assert "test_job_runs" in outcome.err


NAN, INF = math.nan, math.inf
ODD_TABLES = {
    "empty": "SELECT 0.0D AS x, 0.0D AS y WHERE false",
    "one row": "SELECT 0.3D AS x, -0.2D AS y",
    "all rows equal": "SELECT 0.3D AS x, -0.2D AS y FROM range(500)",
    "constant column": "SELECT 0.3D AS x, id / 250.0D - 1 AS y FROM range(500)",
    "all null": "SELECT cast(null AS double) AS x, cast(null AS double) AS y FROM range(9)",
    "all NaN": "SELECT double('NaN') AS x, double('NaN') AS y FROM range(9)",
    "all infinite": "SELECT double('inf') AS x, double('-inf') AS y FROM range(9)",
    "null, NaN and inf mixed": "SELECT * FROM VALUES (double('NaN'), 0D), (0D, double('inf')), "
    "(null, 0D), (double('-inf'), double('NaN')), (-0D, 1e308D), (1e-320D, 0D) AS t(x, y)",
}


@pytest.mark.parametrize("name", ODD_TABLES)
@pytest.mark.parametrize("epsilon", ["1", "1e9"])
def test_every_odd_table_has_k_finite_centroids(
    name: str,
    epsilon: str,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spark.sql(ODD_TABLES[name]).createOrReplaceTempView("dpkm_odd")
    output = tmp_path / "out"
    flags = (*input_flags("dpkm_odd", k=4, epsilon=epsilon), *SQUARE, "--input-format", "table")
    # At the larger epsilon the rule asks for more cells than the cap allows.
    outcome = run_ok(capsys, output, *flags, "--restarts", "2", "--max-cells", "400", "--no-report")
    check_result(output, 4)
    # No line tells how many rows were dropped.
    assert not any(word in outcome.shown.lower() for word in ("drop", "null", "nan"))


@pytest.mark.parametrize("k", [1, 50])
def test_any_k_gives_k_centroids_however_few_rows(
    k: int, spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ok(capsys, tmp_path / "out", *input_flags(points, k=k), *SQUARE, *SMALL)
    check_result(tmp_path / "out", k)


def test_a_huge_epsilon_finds_the_groups(
    spark: SparkSession, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (
        *input_flags(points, k=2, epsilon="1e9"),
        *SQUARE,
        "--public-count",
        "4",
        "--max-cells",
        "10000",
        "--no-report",
    )
    run_ok(capsys, tmp_path / "out", *flags)
    table = read_part(tmp_path / "out")
    assert sorted(table["x"].to_pylist()) == pytest.approx([-0.85, 0.85], abs=0.01)
    assert table["noisy_size"].to_pylist() == [2.0, 2.0]


def test_an_empty_table_is_pure_noise_and_shows_no_negative_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql(ODD_TABLES["empty"]).createOrReplaceTempView("dpkm_none")
    flags = (*input_flags("dpkm_none", epsilon="0.001"), *SQUARE, "--input-format", "table")
    outcome = run_ok(capsys, tmp_path / "out", *flags)
    counts = read_part(tmp_path / "out", "synopsis")["noisy_count"].to_pylist()
    # Noise of scale 1,000: all zero with a probability below 10^-3 for one cell.
    assert read_run(tmp_path / "out")["result"]["count"] is not None
    assert len(counts) == read_run(tmp_path / "out")["result"]["grid"]["cells"]
    assert ", -" not in outcome.out
