"""The rows of the table of groups."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpkm_spark.domain import FloatArray
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.noise import DOUBTFUL
from dpkm_spark.report.numbers import coordinate, whole

#: Rows of the table; the rest is in the job's own output.
MOST_ROWS = 500


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
        From 0: the number that the centroids table has.
    size, noise, share : str
        Rows, their expected noise (empty if unknown), and per cent of the whole; all empty where
        sizes are not released.
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


def groups(data: ReportData, noise: FloatArray | None) -> list[Group]:
    """Make the rows of the table, at most `MOST_ROWS`."""
    shown = range(min(data.k, MOST_ROWS))
    if data.noisy_sizes is None:
        return [Group(i, "", "", "", 0.0, doubtful=False, places=places(data, i)) for i in shown]
    sizes = np.maximum(data.noisy_sizes, 0.0)
    total = float(sizes.sum())
    largest = float(sizes.max())
    rows = []
    for i in shown:
        size = float(data.noisy_sizes[i])
        deviation = None if noise is None else float(noise[i])
        rows.append(
            Group(
                number=i,
                size=whole(size),
                noise="" if deviation is None else f"± {whole(math.ceil(deviation))}",
                share=f"{100 * sizes[i] / total:.1f} %" if total > 0 else "–",
                bar=100 * float(sizes[i]) / largest if largest > 0 else 0.0,
                doubtful=not data.exact and size <= DOUBTFUL * (deviation or 0.0),
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
