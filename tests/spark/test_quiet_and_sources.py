"""Silenced loggers, published locations, and sources that Spark would type by their rows."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import OutputError, ParameterError
from dpkm_spark.spark.quiet import wire_logs_off
from dpkm_spark.spark.read import read_input
from dpkm_spark.spark.source import InputSource, redact_uri
from dpkm_spark.spark.write import OutputFolder

DOMAIN = Domain.of(["x"], (-1.0, 1.0))


def test_loggers_stay_silent_until_the_last_thread_has_left() -> None:
    logger = logging.getLogger("py4j")
    before = logger.level
    first, second = wire_logs_off(), wire_logs_off()
    with first:
        second.__enter__()
    # The first has left while the second still fetches.
    assert not logger.isEnabledFor(logging.CRITICAL)
    second.__exit__(None, None, None)
    assert logger.level == before


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("s3a://key:secret@bucket/points", "s3a://bucket/points"),
        ("abfss://data@account.dfs.example/p", "abfss://data@account.dfs.example/p"),
        ("https://host/p.csv?sig=abc", "https://host/p.csv"),
        ("folder/a?b.parquet", "folder/a?b.parquet"),
        ("db.table", "db.table"),
    ],
)
def test_a_published_location_keeps_the_place_and_drops_secrets(location: str, shown: str) -> None:
    assert redact_uri(location) == shown
    assert InputSource(location).shown == shown


@pytest.mark.spark
def test_xml_needs_a_schema(spark: SparkSession) -> None:
    with pytest.raises(ParameterError, match="input-schema"):
        read_input(spark, InputSource("rows.xml", "xml"), DOMAIN)


@pytest.mark.spark
def test_a_catalog_table_takes_no_schema(spark: SparkSession) -> None:
    with pytest.raises(ParameterError, match="input-schema"):
        read_input(spark, InputSource("points", "table", schema="x double"), DOMAIN)


@pytest.mark.spark
def test_an_output_that_cannot_be_found_again_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OutputFolder(spark, str(tmp_path / "out"))
    # As on a cluster whose workers write to disks of their own: success, but no file to see.
    monkeypatch.setattr(
        OutputFolder,
        "write_frame",
        lambda self, name, frame, kind: str((tmp_path / name).mkdir() or tmp_path / name),
    )
    with pytest.raises(OutputError, match="share"):
        folder.prepare("run")
