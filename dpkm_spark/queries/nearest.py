"""Nearest centroids on exact integers: numpy kernels that the driver and the executors share.

A row is its coordinates x, integers in [-SCALE, SCALE]. Centroids are rounded to integers as well,
so every score below is an integer that float64 holds exactly, whatever the order of summation, the
BLAS or its threads; and the SQL of the Spark engine computes the same integers. Equally
near centroids are told apart by their index, so engines cannot disagree on a row.

Executors get these functions by value and need numpy and pyarrow, but no package of ours. So this
module imports nothing of ours but constants.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import SCALE

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Binary digits of a coordinate.
SCALE_BITS = SCALE.bit_length() - 1
#: Float64 holds every integer up to 2^53. Squared distances 4 d SCALE^2 must stay below.
MOST_DIMENSIONS = 1 << (53 - 2 - 2 * SCALE_BITS)
#: Codes stay below half of that, so that sums and differences of two are exact as well.
_CODE_BITS = 52
#: Costs of a selection are sums of up to 4 d SCALE a row, which must fit int64: for 2^34 rows.
MOST_SELECTION_DIMENSIONS = 128
#: Scores computed at a time, 2 MiB of them: they stay in a core's cache.
_BLOCK_SCORES = 1 << 18
#: The same for `candidate_costs`, which keeps two scores at a time for each candidate and row.
_BLOCK_LEAST = 1 << 15


def to_coordinates(points: npt.ArrayLike) -> IntArray:
    """Round normalised points in [-1, 1]^d to integer coordinates, shape as given.

    Raises
    ------
    ParameterError
        If a number is NaN: as an integer it would lie outside the domain.
    """
    clipped = np.clip(np.asarray(points, dtype=np.float64), -1.0, 1.0)
    if np.isnan(clipped).any():
        # This module travels to executors with all that stands at its top.
        from dpkm_spark.errors import ParameterError  # noqa: PLC0415

        raise ParameterError("points: got NaN; must be numbers in [-1, 1]")
    result: IntArray = np.rint(clipped * SCALE).astype(np.int64)
    return result


def stride(k: int) -> int:
    """Give the power of two that codes of k centroids are multiplied by."""
    return 1 << max(k - 1, 0).bit_length()


def code_rows(centroids: IntArray) -> IntArray:
    """Give the rows that turn a row (x, 1) into codes; the least code names the nearest centroid.

    The code of centroid j is (|c_j|^2 - 2 c_j.x) K + j, with K = `stride`, so that ``code % K`` is
    j and equal distances go to the lowest index. With x and c in [-SCALE, SCALE] it is below
    3 d SCALE^2 K; where that exceeds 2^52, beyond some 1,365 numbers d K, c is rounded to a coarser
    power of two c' = c / 2^s first, and the code is (|c'|^2 2^s - 2 c'.x) K + j.

    Parameters
    ----------
    centroids : ndarray of int64, shape (k, d)
        Coordinates in [-SCALE, SCALE].

    Returns
    -------
    ndarray of int64, shape (k, d + 1)
    """
    k, d = centroids.shape
    size = stride(k)
    drop = _dropped_bits(k, d)
    # Round half up, in integers; the same on every machine.
    coarse = (centroids + ((1 << drop) >> 1)) >> drop
    rows = np.empty((k, d + 1), dtype=np.int64)
    rows[:, :d] = -2 * coarse * size
    rows[:, d] = ((coarse**2).sum(axis=1) << drop) * size + np.arange(k)
    return rows


def _dropped_bits(k: int, d: int) -> int:
    """Give the low bits s that centroids lose, so that codes stay below 2^52."""
    # c' may be as large as SCALE / 2^s, so |code| < (3 d SCALE^2 / 2^s + 1) K, whose first part is
    # a multiple of a larger power of two than K.
    whole = (3 * d * SCALE**2 * stride(k)).bit_length()
    return max(whole - _CODE_BITS, 0)


def cluster_sums(coordinates: IntArray, centroids: IntArray) -> IntArray:
    """Sum the coordinates of the rows nearest to each centroid.

    Parameters
    ----------
    coordinates : ndarray of int, shape (n, d)
        In [-SCALE, SCALE].
    centroids : ndarray of int64, shape (k, d)
        In [-SCALE, SCALE].

    Returns
    -------
    ndarray of int64, shape (k, d + 1)
        Sums, and the number of rows in the last column.
    """
    rows = code_rows(centroids).astype(np.float64)
    k, d = centroids.shape
    sums = np.zeros((k, d + 1), dtype=np.int64)
    for block in _blocks(coordinates, k):
        codes = rows[:, :d] @ block.T
        codes += rows[:, d:]
        # The least code says whose it is; to look for its place would take ten times as long.
        label = codes.min(axis=0).astype(np.int64) & (stride(k) - 1)
        sums += _sums_by_label(block, label, k)
    return sums


def _sums_by_label(block: FloatArray, label: IntArray, k: int) -> IntArray:
    """Sum by label; a block's sums stay far below 2^53, so float64 is exact."""
    columns = [np.bincount(label, column, k) for column in block.T]
    columns.append(np.bincount(label, minlength=k).astype(np.float64))
    return np.stack(columns, axis=1).astype(np.int64)


def candidate_costs(coordinates: IntArray, candidates: IntArray) -> IntArray:
    """Sum the squared distance to the nearest centroid, for many sets of centroids at once.

    A row's squared distance v, in units of 1 / SCALE^2, is below 4 d SCALE^2 and summed as two
    numbers: ``v >> SCALE_BITS`` and the rest. So the sums are below 4 d SCALE n and SCALE n, and
    both fit int64 while n d < 2^41: 2^38 rows of 7 dimensions.

    Parameters
    ----------
    coordinates : ndarray of int, shape (n, d)
        In [-SCALE, SCALE].
    candidates : ndarray of int64, shape (m, k, d)
        Sets of centroids, in [-SCALE, SCALE].

    Returns
    -------
    ndarray of int64, shape (m, 2)
        Sums of the high and of the low part.
    """
    m, k, d = candidates.shape
    # Centroid j of every candidate, as the rows that turn a point (x, 1) into |c|^2 - 2 c.x.
    rows = np.empty((k, m, d + 1))
    rows[:, :, :d] = -2.0 * candidates.transpose(1, 0, 2)
    rows[:, :, d] = (candidates.astype(np.float64) ** 2).sum(axis=2).T
    costs = np.zeros((m, 2), dtype=np.int64)
    for block in _blocks(coordinates, m, _BLOCK_LEAST):
        points = np.ones((d + 1, len(block)))
        points[:d] = block.T
        # A running minimum over j: it never leaves the cache, as all scores at once would.
        least, other = rows[0] @ points, np.empty((m, len(block)))
        for row in rows[1:]:
            np.matmul(row, points, out=other)
            np.minimum(least, other, out=least)
        least += (block**2).sum(axis=1)
        # All integers below 2^53, and a block's sums as well, so float64 splits them exactly.
        high = np.floor(np.multiply(least, 1.0 / SCALE, out=other), out=other)
        costs[:, 0] += high.sum(axis=1).astype(np.int64)
        high *= SCALE
        least -= high
        costs[:, 1] += least.sum(axis=1).astype(np.int64)
    return costs


def _blocks(coordinates: IntArray, width: int, scores: int = _BLOCK_SCORES) -> Iterator[FloatArray]:
    """Cut rows into blocks of float64 whose scores fit a core's cache."""
    size = max(scores // width, 64)
    for start in range(0, len(coordinates), size):
        yield coordinates[start : start + size].astype(np.float64)
