"""What the methods without privacy hold instead of a `PrivateTable`: exact answers.

Nothing here protects anybody. These methods are the baselines that private ones are measured
against; their results say ``private: false``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpkm_spark.domain import Domain, FloatArray


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Exact sums and sizes of clusters, in normalised units. Not private.

    Parameters
    ----------
    sums : ndarray of float64, shape (k, d)
        Sums of the coordinates in [-1, 1] of each cluster's rows.
    sizes : ndarray of float64, shape (k,)
        Number of rows, whole numbers.
    """

    sums: FloatArray
    sizes: FloatArray


class ExactTable(Protocol):
    """Exact answers about one table. Not private."""

    @property
    def domain(self) -> Domain:
        """The public domain."""

    def public_random(self, purpose: str) -> np.random.Generator:
        """Give a generator of public randomness, the same for each attempt of the run."""

    def count(self) -> int:
        """Count the rows in the domain."""

    def cluster_sums(self, centroids: FloatArray) -> ExactSums:
        """Sum and count the rows nearest to each centroid; normalised, shape (k, d)."""

    def candidate_costs(self, candidates: FloatArray) -> FloatArray:
        """Sum squared distances to the nearest centroid, shape (m,), for m sets (m, k, d)."""


def nicv_of(cost: float, count: int) -> float:
    """Give the mean squared distance; NaN for an empty table."""
    return cost / count if count else float("nan")


def number_or_none(value: float) -> float | None:
    """Give None for NaN, which JSON has not."""
    return None if math.isnan(value) else value
