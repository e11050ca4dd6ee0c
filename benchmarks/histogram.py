"""The cell histogram as a multiple of a scan, beside a plain groupBy on the cell id."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.tables import COLUMNS, ratio, session, uniform_table
from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.queries.spark import SparkEngine

ROWS = 20_000_000


def main() -> None:
    """Print one line per grid and method."""
    spark = session()
    frame = uniform_table(spark, ROWS)
    domain = Domain.of(COLUMNS, (-1.0, 1.0))
    engine = SparkEngine(frame, domain)
    print(f"cell histogram, {ROWS:,} rows x {len(COLUMNS)} doubles")
    for m in (8, 16, 32):
        grid = Grid(len(COLUMNS), m)
        _line(f"M = {grid.size:>9,}  ours", *ratio(frame, lambda g=grid: engine.cell_histogram(g)))
        _line(
            f"M = {grid.size:>9,}  groupBy", *ratio(frame, lambda g=grid: _plain(frame, domain, g))
        )
    _line("count", *ratio(frame, engine.count))


def _plain(frame: DataFrame, domain: Domain, grid: Grid) -> pa.Table:
    """Count by cell id; built anew each time, or Spark would reuse the last run's shuffle."""
    cell = grid.cell_sql(domain.steps_sql(COLUMNS))
    keyed = frame.where(domain.valid_sql(COLUMNS)).selectExpr(f"{cell} AS cell")
    return keyed.groupBy("cell").count().toArrow()


def _line(name: str, ours: float, base: float, times: float) -> None:
    print(f"  {name:<24} {ours:6.2f} s   scan {base:5.2f} s   {times:5.1f} x", flush=True)


if __name__ == "__main__":
    main()
