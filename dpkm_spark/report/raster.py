"""Counts as pictures: block sums, a colour scale, and a PNG by matplotlib in a data URI.

The pictures hold no text: labels are HTML, so they stay readable at any width, in any script and
in the dark.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.errors import ParameterError

#: Lightness rises evenly, and it is safe for all common kinds of colour blindness.
_COLOURS = "viridis"
#: The brightest colour starts at this percentile of the positive sums, so that one outlier does
#: not darken all the rest.
_TOP_PERCENTILE = 99.5
#: Above this ratio of the brightest sum to a busy one, colours follow the square root. Pure noise
#: stays below it: the quantiles of an exponential at 99.5 and 90 per cent have the ratio 2.3.
_SKEWED = 4.0
_BUSY_PERCENTILE = 90.0


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sums of blocks of neighbouring cells.

    Parameters
    ----------
    sums : ndarray of float64
        One sum a block; a block cut off by the edge is scaled up to a whole one.
    side : int
        Cells along one side of a block.
    extent : float
        Width of all blocks in per cent of the axis: over 100 if the last one is cut off.
    """

    sums: FloatArray
    side: int
    extent: float


@dataclass(frozen=True)
class Scale:
    """A colour scale from 0 to ``top``; by square roots if ``root``, cut if ``cut``."""

    top: float
    root: bool
    cut: bool = False

    def share(self, values: FloatArray) -> FloatArray:
        """Map counts to [0, 1]; negative ones to 0."""
        if self.top <= 0:
            return np.zeros_like(values)
        share: FloatArray = np.clip(values / self.top, 0.0, 1.0)
        return np.sqrt(share) if self.root else share

    @property
    def middle(self) -> float:
        """The count in the middle of the scale."""
        return self.top / 4 if self.root else self.top / 2


def blocks(counts: IntArray, most: int) -> Blocks:
    """Sum counts over blocks, so that no axis has more than ``most`` of them.

    Parameters
    ----------
    counts : ndarray of int64, shape (m,) or (m, m)
        Noisy counts.
    most : int
        Largest number of blocks along an axis.
    """
    m = counts.shape[0]
    side = -(-m // most)
    starts = np.arange(0, m, side)
    weight = side / np.diff(np.append(starts, m))
    sums = counts.astype(np.float64)
    for axis in range(counts.ndim):
        sums = np.add.reduceat(sums, starts, axis=axis)
        sums = sums * (weight if axis == counts.ndim - 1 else weight[:, None])
    return Blocks(sums, side, 100.0 * len(starts) * side / m)


def colour_scale(sums: FloatArray) -> Scale:
    """Choose the colour scale for block sums."""
    positive = sums[sums > 0]
    if positive.size == 0:
        return Scale(0.0, root=False)
    top = float(np.percentile(positive, _TOP_PERCENTILE, method="higher"))
    busy = float(np.percentile(positive, _BUSY_PERCENTILE))
    return Scale(top, root=top > _SKEWED * busy, cut=top < float(sums.max()))


def picture(sums: FloatArray, scale: Scale, pixels: int = 256) -> str:
    """Draw block sums, first index to the right and second one upwards, as a data URI.

    Raises
    ------
    ParameterError
        If the ``report`` extra is not installed.
    """
    try:
        from matplotlib.image import imsave  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise missing_extra() from None
    shares = scale.share(sums.T[::-1])
    # Whole multiples keep cells sharp in viewers that smooth a small picture when they enlarge it.
    times = max(pixels // max(shares.shape), 1)
    enlarged = np.repeat(np.repeat(shares, times, axis=0), times, axis=1)
    png = io.BytesIO()
    # Matplotlib writes its version into the file, unless told not to: the same counts shall give
    # the same bytes.
    metadata: dict[str, Any] = {"Software": None}
    imsave(png, enlarged, vmin=0.0, vmax=1.0, cmap=_COLOURS, format="png", metadata=metadata)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode("ascii")


def missing_extra() -> ParameterError:
    """Say which extra brings the libraries of the report."""
    return ParameterError(
        'report: the HTML report needs more packages: pip install "dpkm-spark[report]"'
    )
