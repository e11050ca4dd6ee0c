"""The output folder: frames by Spark, texts as plain files where the driver sees the folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.errors import OutputError
from dpkm_spark.spark.frames import frame_to_table, table_to_frame
from dpkm_spark.spark.write import OutputFolder

pytestmark = pytest.mark.spark

RELEASED = pa.table({"cluster": pa.array([0, 1], pa.int32()), "noisy_size": [1.5, -2.0]})


@pytest.fixture
def released(spark: SparkSession) -> DataFrame:
    return table_to_frame(spark, RELEASED).coalesce(1)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_frames_are_written_and_replaced(
    spark: SparkSession, released: DataFrame, tmp_path: Path, prefix: str
) -> None:
    out = OutputFolder(spark, f"{prefix}{tmp_path}/run 1/")
    assert out.path == f"{prefix}{tmp_path}/run 1"
    for _ in range(2):
        assert out.write_frame("centroids", released, "parquet") == out.child("centroids")
    back = spark.read.parquet(f"{tmp_path}/run 1/centroids")
    assert frame_to_table(back.orderBy("cluster")).to_pylist() == RELEASED.to_pylist()


def test_csv_has_a_header(spark: SparkSession, released: DataFrame, tmp_path: Path) -> None:
    OutputFolder(spark, str(tmp_path)).write_frame("centroids", released, "csv")
    (part,) = (tmp_path / "centroids").glob("part-*.csv")
    assert part.read_text() == "cluster,noisy_size\n0,1.5\n1,-2.0\n"


def test_a_folder_exists_once_a_result_is_there(
    spark: SparkSession, released: DataFrame, tmp_path: Path
) -> None:
    out = OutputFolder(spark, str(tmp_path / "run"))
    assert not out.exists()
    out.prepare("run-1")
    assert not out.exists()
    out.write_frame("centroids", released, "json")
    assert out.exists()
    assert not OutputFolder(spark, str(tmp_path / "ru")).exists()


def test_a_lone_record_of_an_earlier_run_counts_as_existing(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("not ours")
    assert not OutputFolder(spark, str(tmp_path / "run")).exists()
    (tmp_path / "run" / "run.json").write_text("{}")
    assert OutputFolder(spark, str(tmp_path / "run")).exists()


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_text_is_a_plain_file_where_the_driver_sees_the_folder(
    spark: SparkSession, tmp_path: Path, prefix: str
) -> None:
    text = '{"a": "ÄÖ"}\nsecond line\n'
    out = OutputFolder(spark, f"{prefix}{tmp_path}/run")
    out.prepare("run-1")
    # The marker that found this out is gone.
    assert list((tmp_path / "run").iterdir()) == []
    for written in ("an earlier one", text):
        assert out.write_text("run.json", written) == out.child("run.json")
    assert (tmp_path / "run" / "run.json").read_text(encoding="utf-8") == text


def test_text_goes_through_spark_where_the_driver_does_not_see_the_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Not prepared, so not known to be local.
    out = OutputFolder(spark, str(tmp_path))
    text = '{"a": "ÄÖ"}\nsecond line'
    for written in ("an earlier one", text):
        assert out.write_text("run.json", written) == out.child("run.json")
    (part,) = (tmp_path / "run.json").glob("part-*")
    assert part.read_text(encoding="utf-8") == text + "\n"
    # A later run that sees the folder puts a plain file in the folder's place.
    out.prepare("run-2")
    out.write_text("run.json", "{}")
    assert (tmp_path / "run.json").read_text() == "{}"


def test_a_folder_on_another_machine_is_not_taken_for_a_local_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Spark writes is not to be seen from here, as on a Connect server's disk.
    out = OutputFolder(spark, str(tmp_path))
    real = out.write_frame

    def elsewhere(name: str, frame: DataFrame, kind: str) -> str:
        target = real(name, frame, kind)
        (tmp_path / name / "_SUCCESS").unlink()
        return target

    monkeypatch.setattr(out, "write_frame", elsewhere)
    out.prepare("run-1")
    monkeypatch.undo()
    out.write_text("run.json", "{}")
    assert (tmp_path / "run.json").is_dir()


@pytest.mark.parametrize("name", ["run [1]", "a{b}", "50%", "ÄÖ", "a*b", "x=01"])
def test_folder_names_that_bite_are_taken_literally(
    spark: SparkSession, released: DataFrame, tmp_path: Path, name: str
) -> None:
    # Runs beside it, whose names `a*b` and `run [1]` would match as patterns.
    for other in ("aXb", "run 1"):
        (tmp_path / other / "centroids").mkdir(parents=True)
    out = OutputFolder(spark, f"{tmp_path}/{name}")
    assert not out.exists()
    out.prepare("run-1")
    out.write_frame("centroids", released, "parquet")
    out.write_text("run.json", "{}")
    assert (tmp_path / name / "run.json").read_text() == "{}"
    assert (tmp_path / name / "centroids" / "_SUCCESS").exists()
    assert OutputFolder(spark, f"{tmp_path}/{name}").exists()


def test_a_folder_that_cannot_be_written_is_found_out_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        OutputFolder(spark, str(tmp_path / "file")).prepare("run-1")


def test_an_output_that_cannot_be_written_is_one_error(
    spark: SparkSession, released: DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    out = OutputFolder(spark, str(tmp_path / "file"))
    with pytest.raises(OutputError, match=r"cannot write .*centroids.* as parquet") as caught:
        out.write_frame("centroids", released, "parquet")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_unknown_output_format_is_one_error(
    spark: SparkSession, released: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match="as nosuch"):
        OutputFolder(spark, str(tmp_path)).write_frame("centroids", released, "nosuch")
