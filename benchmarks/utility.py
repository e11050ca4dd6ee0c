"""NICV of EUGkM on the shared point sets: the mean over 10 synopses, beside plain Lloyd.

NICV is computed on the raw rows, scaled to [-1, 1], so these numbers are not private.
"""

from __future__ import annotations

import statistics
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dpkm_spark.algorithms.eugkm import EUGKMParameters, eugkm
from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CASES = (
    ("s1", 15, "1"),
    ("adult_num", 5, "1/20"),
    ("adult_num", 5, "1"),
    ("lifesci", 3, "1"),
    ("house_8bit", 3, "1"),
)
SYNOPSES = 10
STARTS = 30
ROUNDS = 100


def main() -> None:
    """Print one line per data set and epsilon."""
    if not DATA.is_dir():
        print("utility: the shared point sets are not beside this checkout; left out")
        return
    print(f"NICV, mean +- deviation over {SYNOPSES} synopses; Lloyd is the best of {STARTS}")
    for name, k, epsilon in CASES:
        rows = load(name)
        domain = Domain(
            tuple(f"x{i}" for i in range(rows.shape[1])),
            tuple(rows.min(axis=0)),
            tuple(rows.max(axis=0)),
        )
        scaled = domain.to_normalised(rows)
        values, sides = [], set()
        for _ in range(SYNOPSES):
            table = PrivateTable(LocalEngine(rows, domain), Budget(Fraction(epsilon)))
            result = eugkm(table, EUGKMParameters(k=k))
            values.append(nicv(scaled, domain.to_normalised(result.centroids)))
            sides.add(result.grid_choice.grid.cells_per_dimension)
        spread = statistics.stdev(values)
        print(
            f"  {name:<11} k = {k:<3} epsilon = {epsilon:<5} m = {sorted(sides)}  "
            f"EUGkM {statistics.mean(values):.5f} +- {spread:.5f}   "
            f"Lloyd {best_lloyd(scaled, k):.5f}",
            flush=True,
        )


def load(name: str) -> FloatArray:
    """Read a point set, shape (N, d)."""
    table = pq.read_table(DATA / f"{name}.parquet")
    columns = [column for column in table.column_names if column.startswith("x")]
    return np.stack([table.column(c).to_numpy() for c in columns], axis=1).astype(np.float64)


def nicv(rows: FloatArray, centroids: FloatArray) -> float:
    """Mean squared distance to the nearest centroid."""
    return float(_squared(rows, centroids).min(axis=1).mean())


def best_lloyd(rows: FloatArray, k: int) -> float:
    """Give the lowest NICV of plain Lloyd over the same kind of starts."""
    starts = sphere_packed_starts(STARTS, k, rows.shape[1], np.random.default_rng(1))
    return min(_lloyd(rows, start) for start in starts)


def _lloyd(rows: FloatArray, centroids: FloatArray) -> float:
    for _ in range(ROUNDS):
        labels = _squared(rows, centroids).argmin(axis=1)
        sizes = np.bincount(labels, minlength=len(centroids))
        sums = [np.bincount(labels, column, len(centroids)) for column in rows.T]
        means = np.stack(sums, axis=1) / np.maximum(sizes, 1)[:, None]
        moved = np.where(sizes[:, None] > 0, means, centroids)
        if (moved == centroids).all():
            break
        centroids = moved
    return nicv(rows, centroids)


def _squared(rows: FloatArray, centroids: FloatArray) -> FloatArray:
    products = rows @ centroids.T
    result: FloatArray = (rows**2).sum(axis=1)[:, None] - 2 * products + (centroids**2).sum(axis=1)
    return result


if __name__ == "__main__":
    main()
