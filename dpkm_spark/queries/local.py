"""The numpy engine: rows in memory, the same integers as the Spark engine's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.grid import Grid


class LocalEngine:
    """Exact aggregates over rows in memory.

    Parameters
    ----------
    rows : array-like of float, shape (n, d)
        Values in the table's units; NaN stands for null.
    domain : Domain
        The public domain.
    """

    def __init__(self, rows: npt.ArrayLike, domain: Domain) -> None:
        self._domain = domain
        self._steps = domain.steps(rows)

    @property
    def domain(self) -> Domain:
        """The public domain that rows are mapped to."""
        return self._domain

    def count(self) -> int:
        """Count the rows in the domain."""
        return len(self._steps)

    def cell_histogram(self, grid: Grid) -> IntArray:
        """Count the rows of every cell, shape (grid.size,)."""
        counts: IntArray = np.bincount(grid.cells(self._steps), minlength=grid.size)
        return counts.astype(np.int64, copy=False)
