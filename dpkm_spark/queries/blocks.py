"""Sample-and-aggregate: rows in blocks by a keyed hash, and k-means on every block.

**Every row is in exactly one block, and no other row decides where it goes.** A row's first block
is the keyed hash of its steps, modulo l. Equal rows would all share it, and real tables have many,
so they are told apart by an ordinal: the n copies of a row get the ordinals 0, 1, ..., n - 1 modulo
R <= l, and the copy with ordinal i is in block (hash + i) modulo l. Copies do not differ, so it
does not matter which of them gets which ordinal: a table, as a multiset of rows, fixes the *weight*
of each (steps, ordinal), the number of copies that have it. One more row makes n copies n + 1; the
weight of ordinal n modulo R grows by one, and all other weights stay. So neighbouring tables differ
by one row in one block.

**The answer is exact.** Centroids within a block are integers, means are integer divisions, and
scores are integers that float64 holds exactly (see `nearest`). What is computed for a block is a
function of the multiset of its rows, so neither order, batches, partitions nor a task that runs
twice can change it. Blocks without rows count as well: they give what the starts give.

A block's output is k centroids in an order that makes the j-th ones of all blocks comparable. They
are clamped to a public box and written as k d integers in [0, SCALE]; a block, and so a row,
changes their sum over all blocks by at most k d SCALE.

Executors get the functions by value and need numpy and pyarrow, but no package of ours. So none of
them may refer to `BlockPlan`, whose checks use our own errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import SCALE
from dpkm_spark.errors import ParameterError
from dpkm_spark.queries.nearest import MOST_DIMENSIONS, to_coordinates

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
AnyInts = npt.NDArray[np.signedinteger[Any]]

#: Most blocks that the copies of one row are spread over: Spark lists them, 8 MiB of longs.
_MOST_ORDINALS = 1 << 20
#: Scores computed at a time, 2 MiB of them: they stay in a core's cache.
_CHUNK_SCORES = 1 << 18
#: The primes of XXH64, and the seed that Spark gives it.
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED = 42


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """How rows fall into blocks and what is computed on each: all of it public.

    Parameters
    ----------
    blocks : int
        Number of blocks l, empty ones included, 1 to 2^40.
    key : int
        Key of the hash, 0 to 2^63 - 1; drawn from public randomness.
    starts : ndarray of int64, shape (k, d)
        Starting coordinates in [-SCALE, SCALE]; also where an empty block stays.
    low, high : ndarray of int64, shape (d,)
        Box that outputs are clamped to, in [-SCALE, SCALE], ``low < high``.
    method : {"public", "gupt"}
        ``public``: every block starts from ``starts``, and the order is theirs. ``gupt``: a block
        starts from k of its own rows, those of the least hash, and its centroids are sorted by one
        coordinate, the second (the first where d = 1), as the authors of GUPT do.
    rounds : int
        Rounds of k-means in each block, 1 to 1000.
    expected_rows : int
        N as released or declared. It sizes the work, and never changes the answer.

    Raises
    ------
    ParameterError
        If one of them is out of range.
    """

    blocks: int
    key: int
    starts: IntArray
    low: IntArray
    high: IntArray
    method: str = "public"
    rounds: int = 10
    expected_rows: int = 0

    METHODS: ClassVar = ("public", "gupt")
    #: More than a table has rows. With so many, sums stay below 2^60; a noisy N that is all noise
    #: could ask for more. Nothing of this size is ever held in memory.
    MOST_BLOCKS: ClassVar = 1 << 40

    def __post_init__(self) -> None:
        """Check the ranges; the bounds on the answer rely on them."""
        _check("blocks", self.blocks, 1, self.MOST_BLOCKS)
        _check("key", self.key, 0, (1 << 63) - 1)
        _check("rounds", self.rounds, 1, 1000)
        if self.method not in self.METHODS:
            allowed = ", ".join(self.METHODS)
            raise ParameterError(f"method: got {self.method!r}; must be one of {allowed}")
        _check("dimensions", self.starts.shape[1], 1, MOST_DIMENSIONS)
        for name, array in (("starts", self.starts), ("low", self.low), ("high", self.high)):
            # Not by the absolute value, which int64's least number has not.
            if array.dtype != np.int64 or (array < -SCALE).any() or (array > SCALE).any():
                raise ParameterError(f"{name}: must be coordinates in [-1, 1]")
        if self.low.shape != self.high.shape or self.low.shape != self.starts.shape[1:]:
            raise ParameterError("low, high: one number per dimension is needed")
        if not (self.low < self.high).all():
            raise ParameterError("low, high: low must be below high in every dimension")

    @classmethod
    def of(cls, *, starts: FloatArray, low: FloatArray, high: FloatArray, **rest: Any) -> BlockPlan:
        """Make a plan of normalised starts and bounds in [-1, 1]."""
        return cls(
            starts=to_coordinates(starts),
            low=to_coordinates(low),
            high=to_coordinates(high),
            **rest,
        )

    @property
    def ordinals(self) -> int:
        """R, the most blocks that the copies of one row are spread over."""
        return min(self.blocks, _MOST_ORDINALS)

    def numbers(self) -> IntArray:
        """Give every number that the answer depends on, to compare plans by."""
        method = self.METHODS.index(self.method)
        alone = [self.blocks, self.key, self.rounds, method, *self.starts.shape]
        arrays = (self.starts.reshape(-1), self.low, self.high)
        return np.concatenate([np.array(alone, dtype=np.int64), *arrays])

    def kernel(self) -> Callable[[AnyInts, IntArray, IntArray], IntArray]:
        """Give `block_outputs` for this plan; it travels to executors without our package."""
        return partial(
            block_outputs,
            key=self.key,
            starts=self.starts,
            low=self.low,
            high=self.high,
            method=self.method,
            rounds=self.rounds,
        )

    def total(self, outputs: IntArray) -> IntArray:
        """Add the outputs of empty blocks to summed `block_outputs`; shape (k, d)."""
        empty = self.blocks - int(outputs[-1])
        start = arranged(self.starts[None], self.method)
        default = to_range(start, self.low, self.high)[0]
        result: IntArray = outputs[:-1].reshape(self.starts.shape) + empty * default
        return result

    def means(self, sums: IntArray) -> FloatArray:
        """Turn noisy sums, shape (k, d), into normalised centroids within the box."""
        share = np.clip(sums / (self.blocks * float(SCALE)), 0.0, 1.0)
        low, high = self.low / SCALE, self.high / SCALE
        result: FloatArray = np.clip(low * (1.0 - share) + high * share, low, high)
        return result


def _check(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name}: got {value!r}; must be a whole number from {low} to {high}")


def spread_copies(steps: IntArray, ordinals: int) -> tuple[IntArray, IntArray, IntArray]:
    """Tell equal rows apart by ordinals.

    Parameters
    ----------
    steps : ndarray of int64, shape (n, d)
        Rows in any order.
    ordinals : int
        R.

    Returns
    -------
    steps : ndarray of int64, shape (n', d)
        Each distinct row min(copies, R) times.
    ordinal : ndarray of int64, shape (n',)
        In [0, R).
    weight : ndarray of int64, shape (n',)
        Number of copies with this ordinal; the weights add up to n.
    """
    ordered = steps[np.lexsort(steps.T[::-1])] if len(steps) else steps
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    copies = np.diff(first, append=len(ordered))
    kept = np.minimum(copies, ordinals)
    which = np.repeat(np.arange(len(first)), kept)
    ordinal = np.arange(len(which)) - np.repeat(np.cumsum(kept) - kept, kept)
    weight = copies[which] // ordinals + (ordinal < copies[which] % ordinals)
    return ordered[first][which], ordinal, weight


def place(key: int, steps: IntArray, ordinal: IntArray, blocks: int) -> IntArray:
    """Give the block of each (steps, ordinal), in [0, blocks)."""
    first = xxhash64([np.full(len(steps), key, dtype=np.int64), *steps.T]) % blocks
    result: IntArray = (first + ordinal) % blocks
    return result


def xxhash64(columns: Sequence[IntArray]) -> IntArray:
    """Hash rows of longs, the numpy twin of Spark's ``xxhash64``.

    Parameters
    ----------
    columns : sequence of ndarray of int64, shape (n,)
        At least one. Spark chains them: a column's hash is the seed of the next.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    state = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column in columns:
        value = np.ascontiguousarray(column, dtype=np.int64).view(np.uint64)
        state = state + (_P5 + np.uint64(8)) ^ _rotate(value * _P2, 31) * _P1
        state = _rotate(state, 27) * _P1 + _P4
        state = (state ^ state >> np.uint64(33)) * _P2
        state = (state ^ state >> np.uint64(29)) * _P3
        state = state ^ state >> np.uint64(32)
    result: IntArray = state.view(np.int64)
    return result


def _rotate(value: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    result: npt.NDArray[np.uint64] = value << np.uint64(bits) | value >> np.uint64(64 - bits)
    return result


def block_outputs(
    coordinates: AnyInts,
    block: IntArray,
    weights: IntArray,
    *,
    key: int,
    starts: IntArray,
    low: IntArray,
    high: IntArray,
    method: str,
    rounds: int,
) -> IntArray:
    """Sum the outputs of the blocks that have rows; each block must be here as a whole.

    Parameters
    ----------
    coordinates : ndarray of int, shape (n, d)
        In [-SCALE, SCALE].
    block, weights : ndarray of int64, shape (n,)
        Of `place` and `spread_copies`. Equal rows of one block come as one row with their weight.
    key, starts, low, high, method, rounds
        As in `BlockPlan`.

    Returns
    -------
    ndarray of int64, shape (k d + 1,)
        Sums of the k d outputs, and the number of blocks that have rows.
    """
    sums = np.zeros(starts.size + 1, dtype=np.int64)
    if not len(block):
        return sums
    order = np.argsort(block, kind="stable")
    if method == "gupt":
        # Which rows a block starts from must not depend on the order they came in.
        chance = xxhash64([np.full(len(block), key), block, *coordinates.T])
        order = np.lexsort((*coordinates.T, chance, block))
    first = np.flatnonzero(np.diff(block[order], prepend=-1))
    sizes = np.diff(first, append=len(order))
    by_size = np.argsort(sizes, kind="stable")
    for few in _chunks(sizes[by_size], starts.shape):
        which = by_size[few]
        size = sizes[which, None]
        # Blocks of a chunk are padded to the largest of them by rows of weight 0.
        place = np.arange(size[-1, 0])
        row = order[first[which, None] + np.minimum(place, size - 1)]
        points, weight = coordinates[row], np.where(place < size, weights[row], 0)
        begin = _own_starts(points, size, starts) if method == "gupt" else starts
        begin = np.broadcast_to(begin, (len(which), *starts.shape))
        found = arranged(_lloyd(points, weight, begin, rounds), method)
        sums[:-1] += to_range(found, low, high).sum(axis=0).reshape(-1)
    sums[-1] = len(sizes)
    return sums


def _own_starts(points: AnyInts, size: IntArray, starts: IntArray) -> IntArray:
    """Give the first k rows of each block, from the first again where it has fewer."""
    row = np.arange(len(starts)) % size
    result: IntArray = np.take_along_axis(points, row[:, :, None], axis=1).astype(np.int64)
    return result


def _chunks(sizes: IntArray, shape: tuple[int, ...]) -> Iterator[slice]:
    """Cut blocks of ascending size into runs that fit a core's cache when padded."""
    k, d = shape
    start = 0
    while start < len(sizes):
        # What blocks start..j cost, padded to the size of block j: ascending in j.
        most = _CHUNK_SCORES // k
        reach = sizes[start : start + most + 1]
        cost = np.maximum(reach, d + 1) * np.arange(1, len(reach) + 1)
        stop = start + max(int(np.searchsorted(cost, most, side="right")), 1)
        yield slice(start, stop)
        start = stop


def _lloyd(points: AnyInts, weights: IntArray, starts: IntArray, rounds: int) -> IntArray:
    """Run k-means on b blocks at once; a centroid without rows stays.

    Points have shape (b, m, d), weights (b, m), starts and the answer (b, k, d).
    """
    centroids: IntArray = starts.copy()
    moving = np.arange(len(points))
    for _ in range(rounds):
        now = centroids[moving]
        sums = _cluster_sums(points, weights, now)
        # The mean, rounded half up, in integers.
        count = np.maximum(sums[:, :, -1:], 1)
        mean = (2 * sums[:, :, :-1] + count) // (2 * count)
        moved = np.where(sums[:, :, -1:] > 0, mean, now)
        centroids[moving] = moved
        # A block that stood still in one round does so in all that follow.
        on = (moved != now).any(axis=(1, 2))
        if not on.any():
            break
        if not on.all():
            moving, points, weights = moving[on], points[on], weights[on]
    return centroids


def _cluster_sums(points: AnyInts, weights: IntArray, centroids: IntArray) -> IntArray:
    """Sum the coordinates and weights of the rows nearest to each centroid, shape (b, k, d + 1)."""
    b, m, d = points.shape
    k = centroids.shape[1]
    turned = -2.0 * centroids.transpose(0, 2, 1)
    square = (centroids**2).sum(axis=2)[:, None, :]
    sums = np.zeros((d + 1, b * k), dtype=np.int64)
    offset = np.arange(b)[:, None] * k
    width = max(_CHUNK_SCORES // (b * k), 64)
    for i in range(0, m, width):
        part = points[:, i : i + width].astype(np.float64)
        scores = part @ turned
        # Integers below 3 d SCALE^2 <= 2^53, so equal distances are equal scores; the first wins.
        scores += square
        label = (scores.argmin(axis=2) + offset).reshape(-1)
        weight = weights[:, i : i + width]
        for j in range(d):
            np.add.at(sums[j], label, (points[:, i : i + width, j] * weight).reshape(-1))
        np.add.at(sums[d], label, weight.reshape(-1))
    result: IntArray = sums.reshape(d + 1, b, k).transpose(1, 2, 0)
    return result


def arranged(centroids: IntArray, method: str) -> IntArray:
    """Put the centroids of each block, shape (b, k, d), in the order of the method."""
    if method == "public":
        return centroids
    # By the second coordinate, where there is one.
    column = centroids[:, :, :2][:, :, -1]
    order = np.argsort(column, axis=1, kind="stable")
    result: IntArray = np.take_along_axis(centroids, order[:, :, None], axis=1)
    return result


def to_range(centroids: IntArray, low: IntArray, high: IntArray) -> IntArray:
    """Clamp centroids to a box and write each coordinate as an integer in [0, SCALE]."""
    result: IntArray = (np.clip(centroids, low, high) - low) * SCALE // (high - low)
    return result
