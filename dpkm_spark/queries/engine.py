"""What an engine answers: exact integers over the rows in the domain.

The numbers are un-noised. Only `dpkm_spark.private_table` may ask for them, and
`dpkm_spark.evaluation`, whose results are marked as not private.
"""

from __future__ import annotations

from typing import Protocol

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.grid import Grid
from dpkm_spark.queries.blocks import BlockPlan


class QueryEngine(Protocol):
    """Exact aggregates over one table, restricted to one domain.

    A row is its integer coordinates, in [-SCALE, SCALE]; so are centroids.
    """

    @property
    def domain(self) -> Domain:
        """The public domain that rows are mapped to."""

    def prepare_heavy(self) -> None:
        """Check, before anything is paid for, that block and candidate queries can be served.

        Raises
        ------
        ExecutorError
            If they cannot. No row is read.
        """

    def prepare_sums(self, k: int) -> None:
        """Check, before anything is paid for, that sums of k clusters can be served."""

    def count(self) -> int:
        """Count the rows in the domain."""

    def cell_histogram(self, grid: Grid) -> IntArray:
        """Count the rows of every cell, shape (grid.size,)."""

    def marginals(self, bins: int) -> IntArray:
        """Count the rows of every bin of every dimension, shape (d, bins)."""

    def cluster_sums(self, centroids: IntArray) -> IntArray:
        """Sum the coordinates of the rows nearest to each centroid, then count them.

        Centroids have shape (k, d), the answer (k, d + 1).
        """

    def candidate_costs(self, candidates: IntArray) -> IntArray:
        """Sum squared distances to the nearest centroid for m sets of centroids.

        Candidates have shape (m, k, d), the answer (m, 2): see `nearest.candidate_costs`.
        """

    def block_sums(self, plan: BlockPlan) -> IntArray:
        """Sum the outputs of k-means on every block, shape (k, d): see `blocks`."""
