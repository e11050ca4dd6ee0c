"""Counts as pictures: block sums, a colour scale, and a palette PNG in a data URI.

The pictures hold no text (labels are HTML), so no plotting library and no font is needed, and the
same counts give the same bytes.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from dpkm_spark.domain import FloatArray, IntArray

#: Matplotlib's viridis at 17 even steps: lightness rises evenly, and it is safe for all common
#: kinds of colour blindness.
_VIRIDIS = (
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c "
    "1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725"
)
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
    """Draw block sums, first index to the right and second one upwards, as a data URI."""
    indices = np.floor(scale.share(sums.T[::-1]) * 255 + 0.5).astype(np.uint8)
    # Whole multiples keep cells sharp in viewers that smooth a small picture when they enlarge it.
    times = max(pixels // max(indices.shape), 1)
    png = _png(np.repeat(np.repeat(indices, times, axis=0), times, axis=1))
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _palette() -> bytes:
    anchors = np.array([list(bytes.fromhex(colour)) for colour in _VIRIDIS.split()])
    at, known = np.linspace(0, len(anchors) - 1, 256), np.arange(len(anchors))
    parts = [np.interp(at, known, anchors[:, i]) for i in range(3)]
    return bytes(np.stack(parts, axis=1).round().astype(np.uint8))


def _png(indices: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Encode palette indices as a PNG (ISO/IEC 15948): header, palette, one data chunk."""
    height, width = indices.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row starts with filter type 0
    rows[:, 1:] = indices
    chunks = [(b"IHDR", header), (b"PLTE", _palette())]
    chunks += [(b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    check = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)
