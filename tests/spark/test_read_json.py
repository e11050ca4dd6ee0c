"""JSON is read by the domain's own schema, so that no row decides a type."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import Grid
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.read import read_input
from dpkm_spark.spark.source import InputSource

pytestmark = pytest.mark.spark

SCALAR = Domain.of(["x", "y"], (-10, 10))
PACKED = Domain.of_vector("v", [(-10, 10)] * 2)


def quadrants(
    spark: SparkSession, path: Path, domain: Domain, schema: str | None = None
) -> list[int]:
    frame = read_input(spark, InputSource(str(path), schema=schema), domain)
    return SparkEngine(frame, domain).cell_histogram(Grid(2, 2)).tolist()


def test_lines_become_rows_and_all_else_becomes_null(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    lines = [
        '{"x": 1, "y": 2}',
        '{"y": 2.5, "x": -1e0, "more": {"z": [1]}}',
        '{"x": 1, "y": "Infinity"}',
        # Dropped: a key is missing, null, of another type, or the line is none.
        '{"x": 1}',
        '{"x": null, "y": 2}',
        '{"x": "canary", "y": 2}',
        '{"x": true, "y": 2}',
        '{"x": [1], "y": 2}',
        '{"x": "NaN", "y": 2}',
        '{"x": 1, "y": ',
        "canary",
        "",
        "[]",
        "{}",
    ]
    path.write_text("\n".join(lines) + "\n")
    assert quadrants(spark, path, SCALAR) == [0, 1, 0, 2]


def test_an_array_column_serves_a_packed_domain(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    lines = [
        '{"v": [1, 2.5]}',
        '{"v": [-1, 2]}',
        # Dropped.
        '{"v": [1]}', '{"v": [1, 2, 3]}', '{"v": []}', '{"v": null}', '{"v": [1, null]}',
        '{"v": 1}', '{"w": [1, 2]}', '{"v": ["canary", 1]}', '{"v": {"0": 1, "1": 2}}',
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    assert quadrants(spark, path, PACKED) == [0, 1, 0, 1]


@pytest.mark.parametrize("content", ["", "\n", "{}\n", "canary\n"])
def test_no_usable_line_is_an_empty_table(
    spark: SparkSession, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "points.ndjson"
    path.write_text(content)
    assert quadrants(spark, path, SCALAR) == [0, 0, 0, 0]


def test_a_given_schema_wins(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    # As a bigint, a number with a fraction is null, where the domain's own double would take it.
    path.write_text('{"x": 1.25, "y": 2}\n{"x": 1.25, "y": 2.5}\n')
    assert quadrants(spark, path, SCALAR, "x decimal(3,2), y bigint") == [0, 0, 0, 1]
    assert quadrants(spark, path, SCALAR) == [0, 0, 0, 2]


def test_names_that_bite_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    path.write_text('{"a.b": 1, "a`b": -2, "X": 3, "x": 4}\n', encoding="utf-8")
    assert quadrants(spark, path, Domain.of(["a.b", "a`b"], (-10, 10))) == [0, 0, 1, 0]


def test_failfast_is_refused(spark: SparkSession) -> None:
    source = InputSource("nowhere.json", options={"mode": "FAILFAST"})
    with pytest.raises(ParameterError, match="FAILFAST"):
        read_input(spark, source, SCALAR)
