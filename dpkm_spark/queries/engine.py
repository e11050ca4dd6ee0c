"""What an engine answers: exact integers over the rows in the domain.

The numbers are un-noised. Only `dpkm_spark.private_table` may ask for them.
"""

from __future__ import annotations

from typing import Protocol

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.grid import Grid


class QueryEngine(Protocol):
    """Exact aggregates over one table, restricted to one domain."""

    @property
    def domain(self) -> Domain:
        """The public domain that rows are mapped to."""

    def count(self) -> int:
        """Count the rows in the domain."""

    def cell_histogram(self, grid: Grid) -> IntArray:
        """Count the rows of every cell, shape (grid.size,)."""
