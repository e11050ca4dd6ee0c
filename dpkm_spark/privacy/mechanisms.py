"""Noise. The only file of the project that draws any.

`SystemNoise` is the one that protects people: OpenDP's discrete Laplace from the operating
system's entropy. `SeededNoise` repeats itself, so it protects nobody; it serves experiments, and
every run that used it says ``private: false``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
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
#: OpenDP before 0.14 knows noisy max by another name, and draws it from Gumbel noise.
_PERMUTE_AND_FLIP = hasattr(dp.m, "make_noisy_max")
SELECTION = f"noisy max ({'permute and flip' if _PERMUTE_AND_FLIP else 'Gumbel'})"
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

    def least(self, costs: IntArray, chosen: int, calibration: Calibration) -> IntArray:
        """Choose indices of low costs, one after the other, without replacement."""


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

    def least(self, costs: IntArray, chosen: int, calibration: Calibration) -> IntArray:
        """Choose indices of low costs by OpenDP's noisy max, each among those not yet chosen.

        Parameters
        ----------
        costs : ndarray of int64, shape (m,)
            Exact costs; a neighbouring table changes all of them in the same direction.
        chosen : int
            Number of selections, at most m.
        calibration : Calibration
            Of one selection, as `calibrate_selection` gives it.

        Returns
        -------
        ndarray of int64, shape (chosen,)
            In the order of selection.
        """
        select = _selection(calibration.scale)
        return _peel(costs, chosen, lambda scores: int(select(scores.tolist())))


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

    def least(self, costs: IntArray, chosen: int, calibration: Calibration) -> IntArray:
        """Choose by exponential noise on each score, which is permute and flip."""

        def select(scores: IntArray) -> int:
            noise = self._random.exponential(calibration.scale, size=len(scores))
            # Differences first: float64 would round large scores.
            return int(np.argmax((scores - scores.max()).astype(np.float64) + noise))

        return _peel(costs, chosen, select)


def _peel(costs: IntArray, chosen: int, select: Callable[[IntArray], int]) -> IntArray:
    """Select again and again among what is left; scores are negated costs."""
    left = np.arange(len(costs))
    result = np.empty(chosen, dtype=np.int64)
    for i in range(chosen):
        at = select(-costs[left])
        result[i] = left[at]
        left = np.delete(left, at)
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
    return _calibrate(_measurement, sensitivity, epsilon)


def calibrate_selection(sensitivity: int, epsilon: Fraction) -> Calibration:
    """Choose the noise scale of one selection, rounding towards more noise.

    Parameters
    ----------
    sensitivity : int
        The most that one privacy unit changes any cost by; it changes all in the same direction.
    epsilon : Fraction
        The share charged for one selection.

    Returns
    -------
    Calibration
        With ``epsilon_used <= epsilon``, asserted on OpenDP's own privacy map.

    Raises
    ------
    InvariantError
        If no float near sensitivity / epsilon satisfies the privacy map.
    """
    return _calibrate(_selection, sensitivity, epsilon)


def _calibrate(
    mechanism: Callable[[float], Any], sensitivity: int, epsilon: Fraction
) -> Calibration:
    if sensitivity < 1:
        raise InvariantError(f"sensitivity: got {sensitivity}; must be a positive integer")
    exact = Fraction(sensitivity) / epsilon
    scale = float(exact)
    for _ in range(_MAX_STEPS):
        if scale > 0 and math.isfinite(scale) and Fraction(scale) >= exact:
            used = float(mechanism(scale).map(sensitivity))
            if math.isfinite(used) and Fraction(used) <= epsilon:
                return Calibration(scale=scale, epsilon_used=used)
        scale = math.nextafter(scale, math.inf)
    raise InvariantError(
        f"no noise scale serves sensitivity {sensitivity} within epsilon {float(epsilon):.6g}"
    )


def _measurement(scale: float) -> Any:
    """Build OpenDP's discrete Laplace; ``Any``, as OpenDP is untyped."""
    _check_scale(scale)
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)


def _selection(scale: float) -> Any:
    """Build OpenDP's noisy max over scores that one unit moves in one direction."""
    _check_scale(scale)
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    metric = dp.linf_distance(T="i64", monotonic=True)
    if _PERMUTE_AND_FLIP:
        return dp.m.make_noisy_max(domain, metric, dp.max_divergence(), scale=scale)
    return dp.m.make_report_noisy_max_gumbel(domain, metric, scale=scale, optimize="max")


def _check_scale(scale: float) -> None:
    """Guard against a scale of 0, which would return the input itself."""
    if not (scale > 0 and math.isfinite(scale)):
        raise InvariantError(f"noise scale: got {scale!r}; must be positive and finite")
    # A global switch of OpenDP's. It stays on: turning it off could race with a user's thread.
    dp.enable_features("contrib")
