"""Questions to the door: each with its sensitivity, checked before anything is paid.

One row, added or removed, changes an answer by at most the sensitivity stated here; the privacy
model in docs/ lists them with the reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.errors import EpsilonError, ParameterError
from dpkm_spark.privacy.budget import parse_epsilon
from dpkm_spark.privacy.transcript import Query

#: Noise of this scale exceeds 2^62 with probability exp(-2^20); more could overflow int64.
_LARGEST_SCALE = 1 << 42
_LARGEST_WEIGHT = 1 << 24
#: Weighted counts saturate here, as the noise does.
_LARGEST_COUNT = 1 << 62


def make_query(
    name: str,
    parameters: Mapping[str, int],
    sensitivity: int,
    epsilon: Fraction,
) -> Query:
    """Make a query of the very epsilon that the budget will charge.

    A caller may pass a float in spite of the types. The budget reads 0.1 as 1/10, so the noise
    must be drawn for 1/10 too, not for the slightly larger binary number.

    Raises
    ------
    EpsilonError
        If the noise for so small a share could overflow int64.
    """
    exact = parse_epsilon(epsilon, f"epsilon of {name}")
    if sensitivity > _LARGEST_SCALE * exact:
        raise EpsilonError(
            f"epsilon of {name}: got {float(exact):.6g}; must be at least "
            f"{sensitivity / _LARGEST_SCALE:.6g}, or the noise could overflow 64-bit integers"
        )
    return Query(name, parameters, sensitivity, exact)


def sums_query(d: int, weight: int, epsilon: Fraction, **parameters: int) -> Query:
    """Ask for sums of d coordinates in units of 1 / SCALE, and counts times ``weight``.

    A row is in one cluster, so it changes d sums by at most SCALE each and one count by 1.
    """
    if not 1 <= weight <= _LARGEST_WEIGHT:
        raise ParameterError(f"count_weight: got {weight}; must be between 1 and 2^24")
    named = {**parameters, "count_weight": weight}
    return make_query("cluster_sums", named, d * SCALE + weight, epsilon)


def weighted(counts: IntArray, weight: int) -> IntArray:
    """Multiply counts by a weight; what would overflow saturates, so a row changes no more."""
    result: IntArray = np.minimum(counts, _LARGEST_COUNT // weight) * weight
    return result


def blocks_query(k: int, d: int, epsilon: Fraction, **parameters: int) -> Query:
    """Ask for the sum of k d outputs in [0, SCALE] over blocks; a row is in one block."""
    return make_query("block_sums", {**parameters, "clusters": k}, k * d * SCALE, epsilon)


def selection_query(largest_cost: int, chosen: int, epsilon: Fraction, **parameters: int) -> Query:
    """Ask for ``chosen`` selections; a row adds at most ``largest_cost`` to any cost."""
    name = "private_select"
    exact = parse_epsilon(epsilon, f"epsilon of {name}")
    # Each selection has its part of the share. What it gives is an index, so no noise can overflow.
    parse_epsilon(exact / chosen, f"epsilon of one choice of {name}")
    return Query(name, {**parameters, "chosen": chosen}, largest_cost, exact)


def largest_cost(candidates: IntArray) -> int:
    """Bound what one row can add to any candidate's cost, in units of 1 / SCALE, rounded up.

    The row farthest from a centroid is the corner opposite to it, at sum_i (|c_i| + SCALE)^2; and a
    row's cost is its distance to the nearest centroid, at most the least of these.

    Parameters
    ----------
    candidates : ndarray of int64, shape (m, k, d)
        Coordinates in [-SCALE, SCALE].
    """
    corners = ((np.abs(candidates) + SCALE) ** 2).sum(axis=2)
    most = int(corners.min(axis=1).max())
    return -(-most // SCALE)


def digest(points: IntArray) -> int:
    """Name an array of public points by a number, so that a replayed query can be compared."""
    found = hashlib.sha256(str(points.shape).encode() + points.astype("<i8").tobytes()).digest()
    return int.from_bytes(found[:8], "big") >> 1
