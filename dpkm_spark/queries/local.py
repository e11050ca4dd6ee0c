"""The numpy engine: rows in memory, the same integers as the Spark engine's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import SCALE, Domain, IntArray
from dpkm_spark.grid import Grid
from dpkm_spark.queries import blocks, nearest
from dpkm_spark.queries.blocks import BlockPlan


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

    def prepare_heavy(self) -> None:
        """Nothing to check: everything runs here."""

    def prepare_sums(self, k: int) -> None:
        """Nothing to check: everything runs here."""

    def marginals(self, bins: int) -> IntArray:
        """Count the rows of every bin of every dimension, shape (d, bins)."""
        line = Grid(1, bins)
        counts = [
            np.bincount(line.cells(column[:, None]), minlength=bins) for column in self._steps.T
        ]
        return np.stack(counts).astype(np.int64)

    def cluster_sums(self, centroids: IntArray) -> IntArray:
        """Sum the coordinates of the rows nearest to each centroid, then count them."""
        return nearest.cluster_sums(self._steps - SCALE, centroids)

    def candidate_costs(self, candidates: IntArray) -> IntArray:
        """Sum squared distances to the nearest centroid for m sets of centroids."""
        return nearest.candidate_costs(self._steps - SCALE, candidates)

    def block_sums(self, plan: BlockPlan) -> IntArray:
        """Sum the outputs of k-means on every block, shape (k, d)."""
        steps, ordinal, weight = blocks.spread_copies(self._steps, plan.ordinals)
        block = blocks.place(plan.key, steps, ordinal, plan.blocks)
        return plan.total(plan.kernel()(steps - SCALE, block, weight))
