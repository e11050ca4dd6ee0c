"""All of EUGkM on one table as a multiple of a scan, phase by phase."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.tables import COLUMNS, ratio, seconds, session, uniform_table
from dpkm_spark.algorithms.eugkm import EUGKMParameters, eugkm
from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.kmeans.lloyd import lloyd_on_grid
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SystemNoise, calibrate
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.spark import SparkEngine

ROWS = 20_000_000
K = 15


def main() -> None:
    """Print the whole and its parts for two dimensions and four."""
    spark = session()
    frame = uniform_table(spark, ROWS)
    for columns in (COLUMNS[:2], COLUMNS):
        engine = SparkEngine(frame, Domain.of(columns, (-1.0, 1.0)))

        def whole(engine: SparkEngine = engine) -> None:
            eugkm(PrivateTable(engine, Budget(Fraction(1))), EUGKMParameters(k=K))

        ours, base, times = ratio(frame, whole, repeats=2)
        print(f"EUGkM, {ROWS:,} rows, d = {len(columns)}, k = {K}, epsilon = 1")
        print(f"  whole {ours:6.2f} s   scan {base:5.2f} s   {times:5.1f} x", flush=True)
        _phases(engine, len(columns), base)


def _phases(engine: SparkEngine, dimension: int, base: float) -> None:
    m = 1024 if dimension == 2 else 32
    grid = Grid(dimension, m)
    counts = engine.cell_histogram(grid)
    starts = sphere_packed_starts(30, K, dimension, np.random.default_rng(1))
    calibration = calibrate(1, Fraction(49, 50))
    noisy = SystemNoise().add(counts, calibration)
    for name, action in (
        ("noisy count", engine.count),
        (f"histogram, {grid.size:,} cells", lambda: engine.cell_histogram(grid)),
        ("noise", lambda: SystemNoise().add(counts, calibration)),
        ("30 restarts of Lloyd", lambda: lloyd_on_grid(grid, noisy, starts)),
    ):
        taken = seconds(action)
        print(f"    {name:<28} {taken:6.2f} s   {taken / base:5.1f} x", flush=True)


if __name__ == "__main__":
    main()
