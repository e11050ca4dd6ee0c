"""The other two curves of the paper's Figure 3: not private, so out of reach of any private job.

`sag` is GkM without noise: what is lost by averaging k-means over blocks. `noise_only` is GkM's
noise on the best centroids that are known: what is lost by noise alone.
"""

from __future__ import annotations

import numpy as np

from dpkm_spark.domain import FloatArray
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.private_table import BlockPlan
from dpkm_spark.queries.engine import QueryEngine


def sag(engine: QueryEngine, *, k: int, blocks: int, method: str, seed: int) -> FloatArray:
    """Average the centroids of all blocks, clamped to nothing but the domain, without noise.

    Parameters
    ----------
    engine : QueryEngine
        Exact aggregates over the table.
    k, blocks : int
        Number of clusters, and of blocks l.
    method : str
        As in `BlockPlan`.
    seed : int
        Of the starts and of the blocks.

    Returns
    -------
    ndarray of float64, shape (k, d)
        Normalised.
    """
    random = np.random.default_rng(seed)
    d = engine.domain.dimension
    plan = BlockPlan.of(
        blocks=blocks,
        key=int(random.integers(1 << 62)),
        starts=sphere_packed_starts(1, k, d, random)[0],
        low=-np.ones(d),
        high=np.ones(d),
        method=method,
    )
    return plan.means(engine.block_sums(plan))


def noise_only(best: FloatArray, *, blocks: int, epsilon: float, seed: int) -> FloatArray:
    """Add the noise of Equation 3, Lap(2 (max - min) k d / (l epsilon)), to known centroids.

    Parameters
    ----------
    best : ndarray of float64, shape (k, d)
        Normalised; the range is the domain's, 2 per column.
    blocks : int
        l.
    epsilon : float
        The whole budget, half of which went to the range.
    seed : int
        Of the noise.

    Returns
    -------
    ndarray of float64, shape (k, d)
        Clipped to [-1, 1].
    """
    scale = 2.0 * 2.0 * best.size / (blocks * epsilon)
    noise = np.random.default_rng(seed).laplace(0.0, scale, best.shape)
    result: FloatArray = np.clip(best + noise, -1.0, 1.0)
    return result
