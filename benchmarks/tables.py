"""The tables that benchmarks read, and the scan they are measured against."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("x0", "x1", "x2", "x3")


def session() -> SparkSession:
    """Start a local session on all cores, with this Python for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("dpkm-benchmarks")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def uniform_table(spark: SparkSession, rows: int) -> DataFrame:
    """Give ``rows`` x 4 uniform doubles in [-1, 1] as parquet; written once, then kept."""
    path = Path(tempfile.gettempdir()) / f"dpkm-benchmark-{rows}"
    if not (path / "_SUCCESS").exists():
        values = [f"rand({i}) * 2 - 1 AS {name}" for i, name in enumerate(COLUMNS)]
        spark.range(rows).selectExpr(*values).write.mode("overwrite").parquet(str(path))
    return spark.read.parquet(str(path))


def scan(frame: DataFrame) -> None:
    """Read every value of the table and do next to nothing with it."""
    frame.selectExpr(f"sum({' + '.join(COLUMNS)})").collect()


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratio(
    frame: DataFrame, action: Callable[[], object], repeats: int = 5
) -> tuple[float, float, float]:
    """Time an action against a scan of the same table, by turns.

    Returns
    -------
    tuple of float
        Median seconds of the action, median seconds of the scan, and their ratio. A first,
        untimed turn compiles the code and warms the page cache for both.
    """
    scan(frame)
    action()
    scans, actions = [], []
    for _ in range(repeats):
        scans.append(seconds(lambda: scan(frame)))
        actions.append(seconds(action))
    ours, base = statistics.median(actions), statistics.median(scans)
    return ours, base, ours / base
