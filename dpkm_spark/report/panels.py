"""Pictures as plain values: a raster, axes in per cent, markers. The template draws them.

Places are in per cent and type is in pixels, so that a picture may have any width without its
letters becoming too small to read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.groups import places
from dpkm_spark.report.numbers import Tick, printable, short, ticks, whole
from dpkm_spark.report.raster import Scale, blocks, colour_scale, picture
from dpkm_spark.synopsis import Synopsis

#: Columns whose pairs are all drawn; of more columns, this many are chosen.
PAIRED_COLUMNS = 4
#: Markers of one picture; more would hide the density.
MOST_MARKERS = 200
#: Numbers in a small picture; the smaller groups get a dot.
_SMALL_NUMBERS = 25
_LARGE, _SMALL = 256, 96
#: Radius of all markers, as a share of the largest, where there are no sizes.
_ALIKE = 0.75


@dataclass(frozen=True)
class Marker:
    """A centroid in a picture: place in per cent, radius in pixels, and its number or nothing."""

    x: float
    y: float
    radius: float
    number: str
    hint: str


@dataclass(frozen=True)
class Legend:
    """The colour scale in words."""

    middle: str
    top: str
    unit: str
    root: bool


@dataclass(frozen=True)
class Panel:
    """One picture.

    Parameters
    ----------
    kind : {"density", "bars"}
        Two columns, or one column and counts.
    alt : str
        What the picture shows, for those who cannot see it.
    x_name, y_name : str
        Axis titles, shortened; ``x_full``, ``y_full`` are complete.
    image, path : str
        Data URI of the raster, or the outline of the bars; empty without a synopsis.
    extent : float
        Size of the raster in per cent of the picture.
    path_width : int
        Cells along the axis: the unit of ``path``.
    """

    kind: str
    alt: str
    x_name: str
    y_name: str
    x_full: str
    y_full: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    markers: list[Marker]
    image: str = ""
    extent: float = 100.0
    path: str = ""
    path_width: int = 1
    legend: Legend | None = None

    @property
    def tick_width(self) -> int:
        """Letters of the longest label of the vertical axis."""
        return max((len(tick.label) for tick in self.y_ticks), default=1)


def panels(data: ReportData) -> list[Panel]:
    """Draw one picture for one or two columns, pairwise projections for more."""
    d = data.domain.dimension
    if d == 1:
        return [_bars(data)]
    if d == 2:
        return [_density(data, 0, 1, large=True)]
    return [_density(data, i, j, large=False) for i, j in combinations(drawn_columns(data), 2)]


def drawn_columns(data: ReportData) -> list[int]:
    """Choose the columns to pair: those in which the centroids differ most, weighted by size."""
    d = data.domain.dimension
    if d <= PAIRED_COLUMNS:
        return list(range(d))
    points = data.domain.to_normalised(data.centroids)
    sizes = np.zeros(data.k) if data.noisy_sizes is None else data.noisy_sizes
    weights = np.maximum(sizes, 0.0) + 1e-9
    weights = weights / weights.sum()
    spread = weights @ (points - weights @ points) ** 2
    best = np.argsort(-spread, kind="stable")[:PAIRED_COLUMNS]
    return sorted(int(i) for i in best)


def _density(data: ReportData, x: int, y: int, *, large: bool) -> Panel:
    domain = data.domain
    names = printable(domain.labels[x]), printable(domain.labels[y])
    image, extent, legend = "", 100.0, None
    if data.synopsis is not None:
        found = blocks(_marginal(data.synopsis, x, y), _LARGE if large else _SMALL)
        scale = colour_scale(found.sums)
        image, extent = picture(found.sums, scale), found.extent
        legend = (
            None
            if scale.top <= 0
            else _legend(scale, found.side, 2, data.synopsis.grid.cells_per_dimension)
        )
    return Panel(
        kind="density",
        alt=_alt(data, names, image != ""),
        x_name=short(names[0]),
        y_name=short(names[1]),
        x_full=names[0],
        y_full=names[1],
        x_ticks=ticks(domain.lower[x], domain.upper[x], 260 if large else 190),
        y_ticks=ticks(domain.lower[y], domain.upper[y], 600, 5 if large else 4),
        markers=_markers(data, x, y, large=large),
        image=image,
        extent=extent,
        legend=legend,
    )


def _bars(data: ReportData) -> Panel:
    domain = data.domain
    name = printable(domain.labels[0])
    path, width, y_ticks, y_name = "", 1, list[Tick](), ""
    if data.synopsis is not None:
        found = blocks(_marginal(data.synopsis, 0), _LARGE)
        heights = np.maximum(found.sums, 0.0)
        top = max(float(heights.max()) * 1.08, 1.0)
        width = data.synopsis.grid.cells_per_dimension
        path = _outline(heights / top * 100, found.side)
        y_ticks = ticks(0.0, top, 600, 4)
        y_name = "rows per bar"
    return Panel(
        kind="bars",
        alt=_alt(data, (name,), path != ""),
        x_name=short(name, 48),
        y_name=y_name,
        x_full=name,
        y_full=y_name,
        x_ticks=ticks(domain.lower[0], domain.upper[0], 260),
        y_ticks=y_ticks,
        markers=_markers(data, 0, None, large=True),
        path=path,
        path_width=width,
    )


def _marginal(synopsis: Synopsis, *dimensions: int) -> IntArray:
    """Sum over the other columns. One cell in all needs no sum, in any number of dimensions."""
    if synopsis.grid.cells_per_dimension == 1:
        return synopsis.counts.reshape((1,) * len(dimensions))
    return synopsis.marginal(*dimensions)


def _outline(heights: FloatArray, side: int) -> str:
    """Draw bars as one closed outline, from the left, 100 high, in units of cells."""
    steps = [f"V{100 - height:.2f}H{(i + 1) * side}" for i, height in enumerate(heights)]
    return f"M0 100{''.join(steps)}V100Z"


def numbers_are_left_out(drawn: Sequence[Panel]) -> bool:
    """Tell whether some picture shows a centroid without its number."""
    return any(not marker.number for panel in drawn for marker in panel.markers)


def _legend(scale: Scale, side: int, dimensions: int, m: int) -> Legend:
    cells = " × ".join([str(side)] * dimensions)
    unit = "rows in a square" if side == 1 else f"rows in a square of {cells} cells"
    if m == 1:
        unit = "rows in the only cell"
    top = whole(scale.top) + (" or more" if scale.cut else "")
    middle = whole(scale.middle) if scale.top >= 4 else ""
    return Legend(middle, top, unit, scale.root)


def _markers(data: ReportData, x: int, y: int | None, *, large: bool) -> list[Marker]:
    """Place the centroids; leave out a number that would cover another one."""
    shown = min(data.k, MOST_MARKERS)
    shares = np.clip((data.domain.to_normalised(data.centroids[:shown]) + 1.0) * 50.0, 0.0, 100.0)
    rows = np.zeros(shown) if y is None else 100.0 - shares[:, y]
    relative = _relative_radii(data, shown)
    largest = _largest_radius(shown, large=large)
    numbered: list[tuple[float, float]] = []
    result = []
    for i in range(shown):
        at = float(shares[i, x]), float(rows[i])
        free = _is_free(at, numbered, 5.0 if large else 8.0)
        free = free and (large or len(numbered) < _SMALL_NUMBERS)
        if free:
            numbered.append(at)
        least, share = ((8.5 if large else 7.5), 1.0) if free else (3.0, 0.6)
        radius = max(float(relative[i]) * largest * share, least)
        result.append(Marker(*at, round(radius, 2), str(i) if free else "", _hint(data, i)))
    # Those without a number lie below the others, and the smaller above the larger.
    return sorted(result, key=lambda marker: bool(marker.number))


def _relative_radii(data: ReportData, shown: int) -> FloatArray:
    """Give radii as shares of the largest: areas follow sizes, or are all alike without any."""
    if data.noisy_sizes is None:
        return np.full(shown, _ALIKE)
    sizes = np.maximum(data.noisy_sizes[:shown], 0.0)
    result: FloatArray = np.sqrt(sizes / max(float(sizes.max()), 1.0))
    return result


def _largest_radius(shown: int, *, large: bool) -> float:
    crowd = max(1.0, math.sqrt(shown / 15))
    return max((14.0 if large else 11.0) / crowd, 8.5 if large else 7.5)


def _is_free(at: tuple[float, float], others: Sequence[tuple[float, float]], gap: float) -> bool:
    return all(math.dist(at, other) >= gap for other in others)


def _hint(data: ReportData, i: int, most: int = 4) -> str:
    """Say what a marker stands for, as a pointer's hint."""
    pairs = list(zip(data.domain.labels, places(data, i), strict=True))
    named = [f"{short(name)} {place.text}" for name, place in pairs[:most]]
    rest = ", …" if len(pairs) > most else ""
    size = ""
    if data.noisy_sizes is not None:
        rough = "" if data.exact else "about "
        size = f"{rough}{whole(float(data.noisy_sizes[i]))} rows; "
    return f"Cluster {i}: {size}{', '.join(named)}{rest}"


def _alt(data: ReportData, names: tuple[str, ...], density: bool) -> str:
    what = "Density of the rows" if density else "Group centres"
    by = f"by {short(names[0])}" + (f" and {short(names[1])}" if len(names) > 1 else "")
    shown = min(data.k, MOST_MARKERS)
    marked = f", with {shown} group centre{'s' * (shown != 1)} marked" if density else ""
    return f"{what} {by}{marked}. {_hint(data, 0)}. All centres are in the table of groups."
