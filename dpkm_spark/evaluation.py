"""Exact answers on raw data, to evaluate with. NOTHING HERE IS PRIVATE.

Whatever this file gives is un-noised and can reveal single rows. It serves experiments, the
baselines `lloyd` and `gene`, and ``--evaluate``; no private algorithm may import it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpkm_spark.algorithms.exact_table import ExactSums
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.privacy.transcript import public_seed
from dpkm_spark.queries import nearest
from dpkm_spark.queries.engine import QueryEngine


class OpenTable:
    """A table without a door: exact answers, NOT private. It is an `ExactTable`.

    Parameters
    ----------
    engine : QueryEngine
        Exact aggregates.
    run_id : str
        Name of the run; public randomness is seeded from it, as a `PrivateTable`'s is.
    """

    def __init__(self, engine: QueryEngine, run_id: str = "") -> None:
        self._engine = engine
        self._run_id = run_id

    @property
    def domain(self) -> Domain:
        """The public domain."""
        return self._engine.domain

    def public_random(self, purpose: str) -> np.random.Generator:
        """Give a generator of public randomness, the same for each attempt of the run."""
        return np.random.default_rng(public_seed(self._run_id, purpose))

    def count(self) -> int:
        """Count the rows in the domain, exactly. Not private."""
        return self._engine.count()

    def cluster_sums(self, centroids: FloatArray) -> ExactSums:
        """Sum and count the rows nearest to each centroid, exactly. Not private.

        Parameters
        ----------
        centroids : ndarray of float64, shape (k, d)
            Normalised, in [-1, 1]; rounded to integer coordinates first.

        Returns
        -------
        ExactSums
        """
        points = nearest.to_coordinates(centroids)
        k, d = points.shape
        self._engine.prepare_sums(k)
        sums = self._engine.cluster_sums(points)
        return ExactSums(sums[:, :d] / SCALE, sums[:, d].astype(np.float64))

    def candidate_costs(self, candidates: FloatArray) -> FloatArray:
        """Sum squared distances to the nearest centroid, for m sets of centroids. Not private.

        Parameters
        ----------
        candidates : ndarray of float64, shape (m, k, d)
            Normalised, in [-1, 1]; rounded to integer coordinates first.

        Returns
        -------
        ndarray of float64, shape (m,)
            In normalised units: exact integers, divided once.
        """
        whole = _squared_distances(self._engine, nearest.to_coordinates(candidates))
        return np.array([cost / SCALE**2 for cost in whole], dtype=np.float64)


def exact_nicv(engine: QueryEngine, centroids: npt.ArrayLike) -> float:
    """Give the exact mean squared distance of rows to their nearest centroid. NOT private.

    Rows and centroids are clipped to the domain, normalised to [-1, 1] and rounded to integer
    coordinates, as in every query; then all is exact, and divided once.

    Parameters
    ----------
    engine : QueryEngine
        The rows.
    centroids : array-like of float, shape (k, d)
        In the table's own units.

    Returns
    -------
    float
        In squared normalised units, 0 to 4 d; NaN for a table without rows.

    Raises
    ------
    ParameterError
        If the centroids are not k points of d finite numbers.
    QueryError
        If Spark fails.

    References
    ----------
    Su et al., 2016, Section 2.2: the normalised intra-cluster variance.
    """
    points = np.asarray(centroids, dtype=np.float64)
    d = engine.domain.dimension
    if points.ndim != 2 or not len(points) or points.shape[1] != d:
        raise ParameterError(f"centroids: got shape {points.shape}; must be (k, {d}), k at least 1")
    if not np.isfinite(points).all():
        raise ParameterError("centroids: got NaN or an infinite number; must be finite")
    candidate = nearest.to_coordinates(engine.domain.to_normalised(points))[None]
    count = engine.count()
    if not count:
        return float("nan")
    return _squared_distances(engine, candidate)[0] / (count * SCALE**2)


def _squared_distances(engine: QueryEngine, candidates: IntArray) -> list[int]:
    """Give exact sums in units of 1 / SCALE^2, as Python's integers: they outgrow int64."""
    m, k, d = candidates.shape
    if d > nearest.MOST_DIMENSIONS:
        raise ParameterError(
            f"columns: got {d}; exact distances are there for at most {nearest.MOST_DIMENSIONS}"
        )
    # One candidate needs no more of the executors than the sums of its clusters do.
    if m == 1:
        engine.prepare_sums(k)
    else:
        engine.prepare_heavy()
    costs = engine.candidate_costs(candidates)
    return [int(high) * SCALE + int(low) for high, low in costs]
