"""A DPLloyd round as a multiple of a scan: native SQL and Python workers, by number of clusters."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from pyspark.sql import DataFrame

from benchmarks.tables import COLUMNS, ratio, session, uniform_table
from dpkm_spark.domain import Domain
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.queries import native, nearest
from dpkm_spark.queries.spark import SparkEngine

ROWS = 20_000_000
BY_SQL = (1, 2, 8, 16, 32, 64, 100, 200)
BY_WORKERS = (1, 100, 200)


def main() -> None:
    """Print one line per number of clusters."""
    spark = session()
    frame = uniform_table(spark, ROWS)
    engine = SparkEngine(frame, Domain.of(COLUMNS, (-1.0, 1.0)))
    print(f"exact sums of a DPLloyd round, {ROWS:,} rows x {len(COLUMNS)} doubles")
    for path, clusters in (("SQL", BY_SQL), ("Python workers", BY_WORKERS)):
        with patch.object(native, "fits", return_value=path == "SQL"):
            for k in clusters:
                _measure(frame, engine, path, k)


def _measure(frame: DataFrame, engine: SparkEngine, path: str, k: int) -> None:
    # Other centroids each time, as in the rounds of a run: their SQL is compiled anew.
    rounds = iter(sphere_packed_starts(4, k, len(COLUMNS), np.random.default_rng(1)))
    ours, base, times = ratio(
        frame, lambda: engine.cluster_sums(nearest.to_coordinates(next(rounds))), repeats=3
    )
    print(
        f"  k = {k:>4}  {path:<15} {ours:6.2f} s   scan {base:5.2f} s   {times:5.1f} x", flush=True
    )


if __name__ == "__main__":
    main()
