"""Peak memory of the driver's Python for growing N: it must stay flat.

Each N runs in a process of its own, since a process's peak never falls.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from fractions import Fraction

from benchmarks.tables import COLUMNS, session, uniform_table
from dpkm_spark.algorithms.eugkm import EUGKMParameters, eugkm
from dpkm_spark.domain import Domain
from dpkm_spark.grid import GridRule
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.spark import SparkEngine

ROWS = (200_000, 2_000_000, 20_000_000)
CELLS_PER_DIMENSION = 16


def main() -> None:
    """Print the peak for each N at the same grid."""
    print(f"peak memory of the driver's Python, grid of {CELLS_PER_DIMENSION**4:,} cells")
    for rows in ROWS:
        command = [sys.executable, "-m", "benchmarks.memory", str(rows)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"  N = {rows:>11,}   {result.stdout.strip()} MiB", flush=True)


def measure(rows: int) -> float:
    """Run EUGkM once and give the peak resident size in MiB."""
    frame = uniform_table(session(), rows)
    table = PrivateTable(SparkEngine(frame, Domain.of(COLUMNS, (-1.0, 1.0))), Budget(Fraction(1)))
    rule = GridRule("fixed", cells_per_dimension=CELLS_PER_DIMENSION)
    eugkm(table, EUGKMParameters(k=15, rule=rule))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(f"{measure(int(sys.argv[1])):.0f}")
