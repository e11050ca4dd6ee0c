"""The rows of the table of groups, and how much of each size is noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpkm_spark.domain import FloatArray
from dpkm_spark.grid import Grid
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.numbers import coordinate, whole

#: Rows of the table; the rest is in the job's own output.
MOST_ROWS = 500
#: Cells times centroids, beyond which the noise of a group's size is not worked out.
_MOST_DISTANCES = 1 << 28
_CHUNK = 1 << 22
#: A size below this many standard deviations of its noise says little.
_DOUBTFUL = 2.0


@dataclass(frozen=True)
class Place:
    """A coordinate as text, and where it lies between the bounds (0 to 1)."""

    text: str
    share: float


@dataclass(frozen=True)
class Group:
    """One row of the table.

    Parameters
    ----------
    number : int
        From 0, largest first: the number that the centroids table has.
    size, noise, share : str
        Noisy rows, their expected noise (empty if unknown), and per cent of the whole.
    bar : float
        The share in per cent of the largest share.
    doubtful : bool
        Whether the size is no larger than noise makes it.
    places : tuple of Place
        The centroid.
    """

    number: int
    size: str
    noise: str
    share: str
    bar: float
    doubtful: bool
    places: tuple[Place, ...]


def noise_deviation(scale: float) -> float:
    """Give the standard deviation of discrete Laplace noise, sqrt(2 q) / (1 - q), q = e^(-1/b)."""
    return math.sqrt(2.0) * math.exp(-0.5 / scale) / -math.expm1(-1.0 / scale)


def total_noise(data: ReportData) -> float | None:
    """Give the standard deviation of the sum of all counts, if there is a synopsis."""
    scale = data.histogram_scale()
    if scale is None or data.synopsis is None:
        return None
    return noise_deviation(scale) * math.sqrt(data.synopsis.grid.size)


def size_noise(data: ReportData) -> FloatArray | None:
    """Give the standard deviation of each size's noise, shape (k,).

    A size is the sum of the noisy counts of the cells nearest to its centroid, so its noise has
    the variance of one count times the number of these cells.
    """
    scale = data.histogram_scale()
    if scale is None or data.synopsis is None:
        return None
    grid = data.synopsis.grid
    if grid.size * data.k > _MOST_DISTANCES:
        return None
    cells = _cells_by_centroid(grid, data.domain.to_normalised(data.centroids))
    result: FloatArray = noise_deviation(scale) * np.sqrt(cells)
    return result


def groups(data: ReportData, noise: FloatArray | None) -> list[Group]:
    """Make the rows of the table, at most `MOST_ROWS`."""
    sizes = np.maximum(data.noisy_sizes, 0.0)
    total = float(sizes.sum())
    largest = float(sizes.max())
    rows = []
    for i in range(min(data.k, MOST_ROWS)):
        size = float(data.noisy_sizes[i])
        deviation = None if noise is None else float(noise[i])
        rows.append(
            Group(
                number=i,
                size=whole(size),
                noise="" if deviation is None else f"± {whole(math.ceil(deviation))}",
                share=f"{100 * sizes[i] / total:.1f} %" if total > 0 else "–",
                bar=100 * float(sizes[i]) / largest if largest > 0 else 0.0,
                doubtful=size <= _DOUBTFUL * (deviation or 0.0),
                places=places(data, i),
            )
        )
    return rows


def places(data: ReportData, i: int) -> tuple[Place, ...]:
    """Give the coordinates of a centroid as text."""
    domain = data.domain
    shares = (domain.to_normalised(data.centroids[i]) + 1.0) / 2.0
    return tuple(
        Place(coordinate(float(value), low, high), min(max(float(share), 0.0), 1.0))
        for value, share, low, high in zip(
            data.centroids[i], shares, domain.lower, domain.upper, strict=True
        )
    )


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
