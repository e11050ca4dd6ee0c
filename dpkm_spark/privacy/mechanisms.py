"""Noise. The only file of the project that draws any.

`SystemNoise` is the one that protects people: OpenDP's discrete Laplace from the operating
system's entropy. `SeededNoise` repeats itself, so it protects nobody; it serves experiments, and
every run that used it says ``private: false``.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import opendp.prelude as dp

from dpkm_spark.errors import InvariantError

IntArray = npt.NDArray[np.int64]

MECHANISM = "discrete Laplace"
#: Counts of one call to OpenDP; a large histogram is spread over threads piece by piece.
_PIECE = 1 << 15
_MAX_STEPS = 64


@dataclass(frozen=True)
class Calibration:
    """A noise scale and the proof that it is large enough.

    Parameters
    ----------
    scale : float
        Scale b of the discrete Laplace, P(z) proportional to exp(-|z| / b).
    epsilon_used : float
        What OpenDP's privacy map says the mechanism costs, rounded up; at most the share charged.
    """

    scale: float
    epsilon_used: float


class NoiseSource(Protocol):
    """Where noise comes from."""

    @property
    def private(self) -> bool:
        """Whether the noise protects anybody."""

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        """Give ``values`` plus independent discrete Laplace noise, shape as given."""


class SystemNoise:
    """OpenDP's discrete Laplace, from the operating system's entropy."""

    private = True

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        """Add noise to every value, empty cells included.

        Parameters
        ----------
        values : ndarray of int64, shape (n,)
            Exact integers.
        calibration : Calibration
            As `calibrate` gives it.

        Returns
        -------
        ndarray of int64, shape (n,)
            A new array. A sum outside int64 saturates.
        """
        # A copy, since OpenDP takes no read-only array and none with strides.
        values = np.array(values, dtype=np.int64)
        pieces = [values[i : i + _PIECE] for i in range(0, len(values), _PIECE)]
        # Noise is independent per value, so pieces may be served by separate measurements of one
        # scale; the sensitivity that fixed the scale is that of the whole vector.
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            noisy = pool.map(_measurement(calibration.scale), pieces)
            # The empty array first, so that no values give no values.
            return np.concatenate([np.zeros(0, dtype=np.int64), *map(_int64, noisy)])


class SeededNoise:
    """Repeatable discrete Laplace noise for experiments. Not private.

    Parameters
    ----------
    seed : int
        Seed of numpy's generator.
    """

    private = False

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        """Add the difference of two geometric variables, which is discrete Laplace."""
        success = -math.expm1(-1.0 / calibration.scale)
        plus, minus = self._random.geometric(success, size=(2, *values.shape))
        result: IntArray = values + plus - minus
        return result


def _int64(piece: Any) -> IntArray:
    return np.asarray(piece, dtype=np.int64)


def calibrate(sensitivity: int, epsilon: Fraction) -> Calibration:
    """Choose the noise scale for a query, rounding towards more noise.

    Parameters
    ----------
    sensitivity : int
        L1 sensitivity of the whole answer under adding or removing one privacy unit, at least 1.
    epsilon : Fraction
        The share charged for the query.

    Returns
    -------
    Calibration
        With ``epsilon_used <= epsilon``, asserted on OpenDP's own privacy map.

    Raises
    ------
    InvariantError
        If no float near sensitivity / epsilon satisfies the privacy map.
    """
    if sensitivity < 1:
        raise InvariantError(f"sensitivity: got {sensitivity}; must be a positive integer")
    exact = Fraction(sensitivity) / epsilon
    scale = float(exact)
    for _ in range(_MAX_STEPS):
        if scale > 0 and math.isfinite(scale) and Fraction(scale) >= exact:
            used = float(_measurement(scale).map(sensitivity))
            if math.isfinite(used) and Fraction(used) <= epsilon:
                return Calibration(scale=scale, epsilon_used=used)
        scale = math.nextafter(scale, math.inf)
    raise InvariantError(
        f"no noise scale serves sensitivity {sensitivity} within epsilon {float(epsilon):.6g}"
    )


def _measurement(scale: float) -> Any:
    """Build OpenDP's measurement; ``Any``, as OpenDP is untyped.

    A scale of 0 would return the input itself, hence the guard, although `calibrate` never
    gives one.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise InvariantError(f"noise scale: got {scale!r}; must be positive and finite")
    # A global switch of OpenDP's. It stays on: turning it off could race with a user's thread.
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
