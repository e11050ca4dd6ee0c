"""GkM-3K on 10 million rows and PGkM on one million, whole runs, as multiples of a scan."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.tables import COLUMNS, scan, seconds, session, uniform_table
from dpkm_spark.algorithms.gkm import GKMParameters, gkm
from dpkm_spark.algorithms.pgkm import PGKMParameters, pgkm
from dpkm_spark.domain import Domain
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.spark import SparkEngine

K = 8


def main() -> None:
    """Print one line per method."""
    spark = session()
    for rows, name in ((10_000_000, "GkM-3K"), (10_000_000, "GkM"), (1_000_000, "PGkM")):
        frame = uniform_table(spark, rows)
        engine = SparkEngine(frame, Domain.of(COLUMNS, (-1.0, 1.0)))
        table = PrivateTable(engine, Budget(Fraction(1)))
        scan(frame)
        base = min(seconds(lambda f=frame: scan(f)) for _ in range(3))
        ours = seconds(lambda t=table, n=name: _run(n, t))
        queries = len(table.transcript.answers)
        print(
            f"  {name:<7} {rows:>11,} rows x {len(COLUMNS)}, k = {K}: {ours:6.1f} s in "
            f"{queries} queries   scan {base:5.2f} s   {ours / base:6.1f} x",
            flush=True,
        )


def _run(name: str, table: PrivateTable) -> None:
    if name == "PGkM":
        # Without a given number it would be 100 here, at N epsilon / 8,000 and the cap.
        pgkm(table, PGKMParameters(k=K, generations=8))
    else:
        size = "3k" if name == "GkM-3K" else "paper"
        gkm(table, GKMParameters(k=K, block_size=size))


if __name__ == "__main__":
    main()
