"""How much of a size, and of the number of rows, is noise: worked out from the transcript."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpkm_spark.domain import FloatArray
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.numbers import about, printable, whole

#: A number of rows below this many standard deviations of its noise says little.
DOUBTFUL = 2.0
#: Cells times centroids, beyond which the noise of a group's size is not worked out.
_MOST_DISTANCES = 1 << 28
_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class SizeNoise:
    """Standard deviations of the noise in the sizes.

    Parameters
    ----------
    total : float
        That of the sum of all sizes.
    each : ndarray of float64, shape (k,), or None
        That of each size; None where it is too much work.
    of_last_round : bool
        Whether sizes were counted around the centroids before the last move.
    """

    total: float
    each: FloatArray | None
    of_last_round: bool


@dataclass(frozen=True)
class RowCount:
    """How many rows there are, as far as the report may know.

    Parameters
    ----------
    text, rough : str
        The number as it is, and as a headline says it.
    note : str
        Where it comes from and how much of it is noise.
    noisy : bool
        Whether it is a noisy number.
    says_little : bool
        Whether noise alone could make it as large.
    """

    text: str
    rough: str
    note: str
    noisy: bool
    says_little: bool


def noise_deviation(scale: float) -> float:
    """Give the standard deviation of discrete Laplace noise, sqrt(2 q) / (1 - q), q = e^(-1/b)."""
    return math.sqrt(2.0) * math.exp(-0.5 / scale) / -math.expm1(-1.0 / scale)


def size_noise(data: ReportData) -> SizeNoise | None:
    """Give the noise of the sizes, by the last answer that holds sizes.

    Either each size is a count of its own, out of the noisy sums of a round, or it is the sum of
    the noisy counts of the cells nearest to its centroid.
    """
    if data.noisy_sizes is None:
        return None
    for answer in reversed(data.answers):
        if answer.query.name == "cluster_sums" and _counts_clusters(answer, data):
            # The noise was drawn on counts times this weight.
            weight = max(answer.query.parameters.get("count_weight", 1), 1)
            deviation = noise_deviation(answer.scale) / weight
            return SizeNoise(deviation * math.sqrt(data.k), np.full(data.k, deviation), True)
        if answer.query.name == "cell_histogram" and _counts_cells(answer, data):
            return _noise_of_cells(data, noise_deviation(answer.scale))
    return None


def row_count(data: ReportData, noise: SizeNoise | None) -> RowCount | None:
    """Give the number of rows: by the sizes, by a noisy count, or as declared; or None."""
    if data.noisy_sizes is not None:
        total = float(data.noisy_sizes.sum())
        if data.exact:
            return RowCount(whole(total), whole(total), "counted without noise", False, total <= 0)
        return _noisy_count(total, None if noise is None else noise.total)
    for answer in reversed(data.answers):
        if answer.query.name == "count" and answer.values.size == 1:
            return _noisy_count(float(answer.values.flat[0]), noise_deviation(answer.scale))
    if data.count:
        declared = printable(data.count)
        return RowCount(declared, declared, "as declared", noisy=False, says_little=False)
    return None


def _noisy_count(value: float, deviation: float | None) -> RowCount:
    if deviation is None:
        note = "by noisy counts"
    else:
        note = f"give or take {whole(math.ceil(deviation))} from noise"
    little = value <= DOUBTFUL * (deviation or 0.0)
    return RowCount(whole(value), f"about {about(value)}", note, noisy=True, says_little=little)


def _counts_clusters(answer: Answer, data: ReportData) -> bool:
    return answer.values.size == data.k * (data.domain.dimension + 1)


def _counts_cells(answer: Answer, data: ReportData) -> bool:
    return data.synopsis is not None and answer.values.shape == data.synopsis.counts.shape


def _noise_of_cells(data: ReportData, deviation: float) -> SizeNoise | None:
    if data.synopsis is None:
        return None
    grid, each = data.synopsis.grid, None
    if grid.size * data.k <= _MOST_DISTANCES:
        cells = _cells_by_centroid(grid, data.domain.to_normalised(data.centroids))
        each = deviation * np.sqrt(cells)
    return SizeNoise(deviation * math.sqrt(grid.size), each, of_last_round=False)


def _cells_by_centroid(grid: Grid, centroids: FloatArray) -> FloatArray:
    """Count the cells nearest to each centroid; distances in single precision are enough here."""
    k = len(centroids)
    points = centroids.astype(np.float32)
    half = (points * points).sum(axis=1) / 2
    step = max(_CHUNK // k, 1)
    cells = np.zeros(k)
    for first in range(0, grid.size, step):
        ids = np.arange(first, min(first + step, grid.size))
        nearness = grid.centres(ids).astype(np.float32) @ points.T - half
        cells += np.bincount(nearness.argmax(axis=1), minlength=k)
    return cells
