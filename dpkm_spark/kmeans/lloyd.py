"""Lloyd's algorithm on the weighted cells of a grid, all restarts together.

Weights are noisy counts, so they may be negative; they are kept, because rounding them up would
bias every centroid. With negative weights a round of Lloyd can make the objective worse, so a
restart keeps the best centroids it has met and ends once rounds stop improving them.

The results are the same to the last bit on every machine: cell centres are odd integers in
half-cell units, and centroids are rounded to a dyadic grid, far finer than a cell, on which every
product and sum of a score is an integer below 2^53. Float64 holds those exactly, whatever the
order of summation, the number of threads or the BLAS.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import Grid

#: Float64 holds every integer of so many binary digits.
_EXACT_BITS = 53
#: Scores computed at a time, 512 KiB of them: they stay in a core's own cache.
_BLOCK_SCORES = 1 << 16
#: Below this many scores a round is over before a second thread has started.
_WORTH_A_THREAD = 1 << 21
#: A cluster whose noisy weight is below this keeps its centroid.
_MIN_WEIGHT = 1.0
#: A round improves a restart if it lowers the objective by more than this share of it.
_TOLERANCE = 1e-5
#: Rounds in a row without improvement after which a restart ends.
_PATIENCE = 3


@dataclass(frozen=True)
class GridClustering:
    """Outcome of every restart, in the order of the starts.

    Parameters
    ----------
    centroids : ndarray of float64, shape (R, k, d)
        Normalised centroids.
    weights : ndarray of float64, shape (R, k)
        Sum of the noisy counts of the cells nearest to each centroid; may be negative.
    objective : ndarray of float64, shape (R,)
        Weighted sum of squared distances of cell centres; may be negative, serves to rank.
    rounds : ndarray of int64, shape (R,)
        Rounds taken.
    converged : ndarray of bool, shape (R,)
        Whether the restart ended before the limit on rounds.
    """

    centroids: FloatArray
    weights: FloatArray
    objective: FloatArray
    rounds: IntArray
    converged: npt.NDArray[np.bool_]

    @property
    def best(self) -> int:
        """Index of the restart with the lowest objective, the first of equals."""
        return int(np.argmin(self.objective))


def lloyd_on_grid(
    grid: Grid,
    weights: IntArray,
    starts: FloatArray,
    *,
    max_iter: int = 300,
    notify: Callable[[int, int], None] = lambda _rounds, _active: None,
) -> GridClustering:
    """Run weighted Lloyd from every start until it no longer improves.

    A centroid becomes the weighted mean of its cells' centres, clipped to the domain; it stays
    where its cluster's weight is below 1. Ties go to the centroid with the lowest index.

    Parameters
    ----------
    grid : Grid
        The cells.
    weights : ndarray of int64, shape (grid.size,)
        Noisy counts, negative ones included.
    starts : ndarray of float64, shape (R, k, d)
        Starting centroids in [-1, 1]^d.
    max_iter : int
        Limit on the rounds of a restart, at least 1; each scores where the one before moved to,
        so the first scores the starts.
    notify : callable
        Told after each round: rounds so far, and restarts still running.

    Returns
    -------
    GridClustering

    Raises
    ------
    ParameterError
        If scores of so many centroids on so fine a grid would not be exact.
    """
    cells = _Cells.of(grid, weights, k=starts.shape[1])
    state = _Restarts(cells.round(np.asarray(starts, dtype=np.float64) * cells.m))
    workers = os.cpu_count() or 1
    # Our threads are the parallelism; BLAS threads on top would fight them for the cores.
    with threadpool_limits(1), ThreadPoolExecutor(max_workers=workers) as pool:
        for rounds in range(1, max_iter + 1):
            active = state.active
            centroids = state.centroids[active]
            sums = _cluster_sums(cells, centroids, pool, workers)
            moved = cells.round(_means(cells.m, sums, centroids))
            state.record(active, sums, _objective(cells, sums, centroids), moved, rounds)
            notify(rounds, len(state.active))
            if not len(state.active):
                break
    return state.outcome(cells.m)


def _fraction_bits(grid: Grid, k: int) -> int:
    """Binary digits that a centroid may have after the point, in half-cell units."""
    m, d = grid.cells_per_dimension, grid.dimension
    # Codes (|c|^2 - 2 c.x) k + j of `_codes`, in units of 1 / unit^2, are below
    # 4 d m^2 k unit^2 < 2^53.
    bits = (_EXACT_BITS - (4 * d * m * m * k).bit_length()) // 2
    if bits < 0:
        raise ParameterError(
            f"k: {k} centroids on {m} cells per dimension are too many; lower k or max_cells"
        )
    return bits


def _summable(weights: IntArray, m: int) -> FloatArray:
    """Give the weights as float64 whose sums, and sums times centres, are exact in any order.

    They are the weights themselves while sum |weight| m <= 2^52: 2^42 rows on 1,024 cells per
    dimension. Beyond, that is with enormous tables or enormous noise, low bits are rounded away.
    """
    values = weights.astype(np.float64)
    excess = math.frexp(float(np.abs(values).sum()) * m)[1] - 52
    unit = 2.0 ** max(excess, 0)
    result: FloatArray = np.rint(values / unit) * unit
    return result


@dataclass(frozen=True)
class _Cells:
    """The grid as exact integers held in float64, in half-cell units.

    ``centres`` has shape (d + 1, M): cell centres 2 j + 1 - m, and a row of ones. ``moments`` has
    shape (M, d + 1): weight times centre, and the weight itself. Centroids are multiples of
    ``1 / unit``.
    """

    m: int
    centres: FloatArray
    moments: FloatArray
    second_moment: float
    unit: float

    @classmethod
    def of(cls, grid: Grid, weights: IntArray, k: int) -> _Cells:
        m, d = grid.cells_per_dimension, grid.dimension
        bits = _fraction_bits(grid, k)
        centres = np.ones((d + 1, grid.size))
        centres[:d] = (2 * grid.indices() + 1 - m).T
        moments = np.ascontiguousarray((centres * _summable(weights, m)).T)
        second = float((moments[:, :d].T * centres[:d]).sum())
        return cls(m, centres, moments, second, float(1 << bits))

    def round(self, centroids: FloatArray) -> FloatArray:
        """Round centroids in half-cell units to the dyadic grid."""
        result: FloatArray = np.rint(centroids * self.unit) / self.unit
        return result


class _Restarts:
    """Where every restart stands, and the best it has met."""

    def __init__(self, centroids: FloatArray) -> None:
        r, k, _ = centroids.shape
        self.centroids = centroids
        self.active = np.arange(r)
        self._best = centroids.copy()
        self._weights = np.zeros((r, k))
        self._objective = np.full(r, np.inf)
        self._rounds = np.zeros(r, dtype=np.int64)
        self._waited = np.zeros(r, dtype=np.int64)

    def record(
        self,
        active: IntArray,
        sums: FloatArray,
        objective: FloatArray,
        moved: FloatArray,
        rounds: int,
    ) -> None:
        """Take in one round of the active restarts and retire those that are done."""
        before = self._objective[active]
        gain = before - objective
        better = gain > 0
        # inf - finite on the first round is inf: an improvement.
        improved = gain > _TOLERANCE * np.abs(np.where(np.isinf(before), 0.0, before))
        which = active[better]
        self._best[which] = self.centroids[which]
        self._weights[which] = sums[better, :, -1]
        self._objective[which] = objective[better]
        self._rounds[active] = rounds
        self._waited[active] = np.where(improved, 0, self._waited[active] + 1)
        still = (moved == self.centroids[active]).all(axis=(1, 2))
        self.centroids[active] = moved
        self.active = active[~still & (self._waited[active] < _PATIENCE)]

    def outcome(self, m: int) -> GridClustering:
        """Give the best of each restart, in normalised units."""
        converged = np.ones(len(self._rounds), dtype=bool)
        converged[self.active] = False
        return GridClustering(
            centroids=self._best / m,
            weights=self._weights,
            objective=self._objective / m**2,
            rounds=self._rounds,
            converged=converged,
        )


def _cluster_sums(
    cells: _Cells, centroids: FloatArray, pool: ThreadPoolExecutor, workers: int
) -> FloatArray:
    """Sum the moments of each cluster's cells for a batch of restarts, shape (R, k, d + 1)."""
    r, k, _ = centroids.shape
    size = len(cells.moments)
    codes = _codes(centroids, cells.unit)
    if r * k * size < _WORTH_A_THREAD:
        return _sums_of_range(cells, codes, 0, size)
    edges = np.linspace(0, size, workers + 1).astype(np.int64)
    parts = [
        pool.submit(_sums_of_range, cells, codes, int(a), int(b))
        for a, b in itertools.pairwise(edges)
    ]
    # The sums are exact, so their order does not matter.
    total: FloatArray = np.sum([part.result() for part in parts], axis=0)
    return total


def _codes(centroids: FloatArray, unit: float) -> FloatArray:
    """Give the rows that turn a cell (x, 1) into codes, shape (R, k, d + 1).

    The code of centroid j is (|c_j|^2 - 2 c_j.x) unit^2 k + j, an integer: the least code names
    the nearest centroid, and of equally near ones the one with the lowest index.
    """
    k = centroids.shape[1]
    square = (centroids**2).sum(axis=2, keepdims=True)
    codes = np.concatenate([-2.0 * centroids, square], axis=2) * (unit * unit * k)
    codes[:, :, -1] += np.arange(k)
    result: FloatArray = codes
    return result


def _sums_of_range(cells: _Cells, codes: FloatArray, first: int, last: int) -> FloatArray:
    """Sum the moments of cells first..last by nearest centroid, block by block."""
    r, k, width = codes.shape
    together = max(1, min(r, _BLOCK_SCORES // k))
    block = max(64, _BLOCK_SCORES // (together * k))
    sums = np.zeros((r, k, width))
    buffer = np.empty(together * k * block)
    for i in range(0, r, together):
        rows = codes[i : i + together]
        flat = rows.reshape(-1, width)
        for start in range(first, last, block):
            stop = min(start + block, last)
            shape = (len(rows), k, stop - start)
            scores = buffer[: shape[0] * shape[1] * shape[2]].reshape(shape)
            np.matmul(flat, cells.centres[:, start:stop], out=scores.reshape(len(flat), -1))
            nearest = scores.min(axis=1, keepdims=True)
            # Codes are distinct, so exactly one entry per cell and restart becomes 1.
            np.equal(scores, nearest, out=scores)
            part = scores.reshape(len(flat), -1) @ cells.moments[start:stop]
            sums[i : i + together] += part.reshape(len(rows), k, width)
    return sums


def _means(m: int, sums: FloatArray, centroids: FloatArray) -> FloatArray:
    """Weighted means of the clusters, clipped to the domain; light clusters stay."""
    weight = sums[:, :, -1:]
    heavy = weight >= _MIN_WEIGHT
    means = sums[:, :, :-1] / np.where(heavy, weight, 1.0)
    result: FloatArray = np.where(heavy, np.clip(means, -m, m), centroids)
    return result


def _objective(cells: _Cells, sums: FloatArray, centroids: FloatArray) -> FloatArray:
    """Weighted sum of squared distances per restart, from the clusters' moments alone."""
    cross = (centroids * sums[:, :, :-1]).sum(axis=(1, 2))
    own = (sums[:, :, -1] * (centroids**2).sum(axis=2)).sum(axis=1)
    result: FloatArray = cells.second_moment + own - 2.0 * cross
    return result
