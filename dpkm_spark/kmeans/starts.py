"""Starting centroids that ignore the data: sphere packing in [-1, 1]^d (the paper, 4.1.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import FloatArray

#: Rejected draws in a row after which a radius counts as too large.
_PATIENCE = 100
#: Bisection steps on the radius: the last step changes it by 2^-15.
_BISECTIONS = 15


def sphere_packed_starts(
    restarts: int, k: int, dimension: int, random: np.random.Generator
) -> FloatArray:
    """Draw sets of well separated centroids, independent of any data.

    Within a set every centroid keeps a distance of at least a to the faces of the domain and 2a to
    every other; bisection finds the largest radius a at which rejection sampling still succeeds.

    Parameters
    ----------
    restarts : int
        Number of sets R.
    k : int
        Centroids per set.
    dimension : int
        d.
    random : numpy.random.Generator
        Public randomness.

    Returns
    -------
    ndarray of float64, shape (R, k, d)
        Normalised centroids.
    """
    return np.stack([_packed_set(k, dimension, random) for _ in range(restarts)])


def _packed_set(k: int, dimension: int, random: np.random.Generator) -> FloatArray:
    """Bisect on the radius and keep the set of the largest radius that succeeded."""
    low, high = 0.0, 1.0
    best = random.uniform(-1.0, 1.0, size=(k, dimension))
    for _ in range(_BISECTIONS):
        radius = (low + high) / 2
        found = _try_radius(radius, k, dimension, random)
        if found is None:
            high = radius
        else:
            low, best = radius, found
    return best


def _try_radius(
    radius: float, k: int, dimension: int, random: np.random.Generator
) -> FloatArray | None:
    """Place k centroids by rejection sampling, or give up after `_PATIENCE` rejections in a row."""
    placed = np.empty((k, dimension))
    n = 0
    side = 1.0 - radius
    while n < k:
        draws = random.uniform(-side, side, size=(_PATIENCE, dimension))
        free = _apart(draws, placed[:n], radius)
        if not free.any():
            return None
        while n < k and free.any():
            placed[n] = draws[int(np.argmax(free))]
            free &= _apart(draws, placed[n : n + 1], radius)
            n += 1
    return placed


def _apart(draws: FloatArray, others: FloatArray, radius: float) -> npt.NDArray[np.bool_]:
    """Tell which draws keep a distance of 2 radius to all ``others``; radius is above 0."""
    squared = np.zeros((len(draws), len(others)))
    for i in range(draws.shape[1]):
        squared += np.subtract.outer(draws[:, i], others[:, i]) ** 2
    result: npt.NDArray[np.bool_] = np.all(squared >= 4 * radius**2, axis=1)
    return result
