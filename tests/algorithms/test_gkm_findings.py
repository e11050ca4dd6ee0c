"""The paper's findings on GkM and GkM-3K, on its own data sets where we have them.

Rows are scaled to [-1, 1], N is public, and an error is the mean NICV of ten runs. Noise and keys
are seeded, so nothing here can fail by chance; the comments give what this release measured.

Of one finding only a part comes out: that the error of sample-and-aggregate without noise (SAG)
falls as blocks shrink to about k. With k-means started and sorted as GUPT does, it falls by half on
the substitute for Gowalla. On the four other sets, and with our starts on all five, it rises. What
falls everywhere is the error of GkM as a whole, because the noise falls faster. See
docs/algorithms/gkm.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from figure3 import noise_only, sag

from dpkm_spark.algorithms.dplloyd import DPLloydParameters, dplloyd
from dpkm_spark.algorithms.eugkm import EUGKMParameters, eugkm
from dpkm_spark.algorithms.gkm import GKMParameters, gkm
from dpkm_spark.domain import SCALE, Domain, FloatArray
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.blocks import BlockPlan
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.nearest import cluster_sums, to_coordinates

pytestmark = pytest.mark.slow

K = {"s1": 15, "house_8bit": 3, "adult_num": 5, "lifesci": 3}
GOWALLA = "gowalla_poi"
RUNS = 10


@dataclass(frozen=True, eq=False)
class Points:
    """A data set in [-1, 1]."""

    k: int
    rows: FloatArray
    engine: LocalEngine

    def nicv(self, centroids: FloatArray) -> float:
        least = np.full(len(self.rows), np.inf)
        for centroid in centroids:
            least = np.minimum(least, ((self.rows - centroid) ** 2).sum(axis=1))
        return float(least.mean())

    def mean(self, error: Callable[[int], float]) -> float:
        return float(np.mean([error(seed) for seed in range(RUNS)]))

    def private(self, run: Callable[..., Any], parameters: Any, epsilon: Fraction) -> float:
        """Mean NICV of a private method."""

        def error(seed: int) -> float:
            transcript = MemoryTranscript(f"run-{seed}")
            table = PrivateTable(self.engine, Budget(epsilon), transcript, SeededNoise(seed))
            return self.nicv(run(table, parameters).centroids)

        return self.mean(error)

    def blocks(self, size: float) -> int:
        return max(int(len(self.rows) / size), 1)

    def gkm(self, size: float | str, epsilon: Fraction, **options: Any) -> float:
        n = len(self.rows)
        # The size that gives the same number of blocks.
        given = size if isinstance(size, str) else n // self.blocks(size)
        return self.private(gkm, GKMParameters(self.k, given, public_count=n, **options), epsilon)


@cache
def read_points(folder: Path, name: str) -> Points:
    table = pq.read_table(folder / f"{name}.parquet")
    names = [column for column in table.column_names if column.startswith("x")]
    raw = np.column_stack([table[column].to_numpy().astype(np.float64) for column in names])
    lower, upper = raw.min(axis=0), raw.max(axis=0)
    rows = (raw - lower) / (upper - lower) * 2.0 - 1.0
    return Points(K.get(name, 5), rows, LocalEngine(rows, Domain.of(names, (-1.0, 1.0))))


@cache
def best_known(folder: Path, name: str) -> FloatArray:
    """Plain Lloyd from ten sets of starts: the best."""
    points = read_points(folder, name)
    found = []
    coordinates = to_coordinates(points.rows)
    d = points.rows.shape[1]
    for start in sphere_packed_starts(10, points.k, d, np.random.default_rng(0)):
        centroids = start
        for _ in range(60):
            sums = cluster_sums(coordinates, to_coordinates(centroids))
            size = sums[:, d:]
            centroids = np.where(size > 0, sums[:, :d] / np.maximum(size, 1) / SCALE, centroids)
        found.append(centroids)
    return min(found, key=points.nicv)


EPSILONS = [Fraction(1, 10), Fraction(1)]


@pytest.mark.parametrize("epsilon", EPSILONS, ids=["eps=0.1", "eps=1"])
@pytest.mark.parametrize("name", K)
def test_gkm_is_worse_than_all_and_gkm_3k_beats_it(
    shared_data: Path, name: str, epsilon: Fraction
) -> None:
    points = read_points(shared_data, name)
    n, k = len(points.rows), points.k
    grid = points.private(eugkm, EUGKMParameters(k, public_count=n, restarts=10), epsilon)
    rounds = points.private(dplloyd, DPLloydParameters(k), epsilon)
    paper, small = points.gkm("paper", epsilon), points.gkm("3k", epsilon)
    print(f"{name}: EUGkM {grid:.4f} DPLloyd {rounds:.4f} GkM {paper:.4f} GkM-3K {small:.4f}")
    assert paper > 1.25 * max(grid, rounds)
    assert small < 0.9 * paper


@pytest.mark.parametrize("name", K)
def test_figure_3(shared_data: Path, name: str) -> None:
    points, best = read_points(shared_data, name), best_known(shared_data, name)
    n, k, least = len(points.rows), points.k, points.nicv(best)
    sizes = [3.0 * k, n**0.6, n**0.8, float(n)]
    # GkM falls as blocks shrink to 3 k ...
    whole = [points.gkm(size, Fraction(1)) for size in sizes]
    assert whole[0] < 0.8 * whole[1] < 0.8 * whole[2]
    # ... and its noise with it ...
    noise = [_noise(points, best, size) for size in [float(k), *sizes]]
    print(name, "GkM", whole, "Noise", noise)
    assert all(a < b for a, b in itertools.pairwise(noise))
    assert noise[2] - least > 1.5 * (noise[1] - least)


def _noise(points: Points, best: FloatArray, size: float) -> float:
    blocks = points.blocks(size)
    return points.mean(
        lambda seed: points.nicv(noise_only(best, blocks=blocks, epsilon=1.0, seed=seed))
    )


def _sag(points: Points, method: str, sizes: list[float]) -> list[float]:
    def error(seed: int, blocks: int) -> float:
        return points.nicv(sag(points.engine, k=points.k, blocks=blocks, method=method, seed=seed))

    found = [points.mean(partial(error, blocks=points.blocks(size))) for size in sizes]
    print(method, found)
    return found


def test_on_gowalla_averaging_alone_is_best_in_blocks_of_about_k(shared_data: Path) -> None:
    points = read_points(shared_data, GOWALLA)
    n, k = len(points.rows), points.k
    # 0.026, 0.0166, 0.033, 0.032; standard errors 0.0002, 0.0001, 0.001, 0.002. Large blocks end in
    # optima that differ, and their j-th centroids do not belong together.
    tiny, small, middle, large = _sag(points, "gupt", [float(k), 3.0 * k, n**0.6, n**0.8])
    assert small < 0.7 * min(tiny, middle, large)


@pytest.mark.parametrize("method", BlockPlan.METHODS)
@pytest.mark.parametrize("name", K)
def test_elsewhere_averaging_alone_gets_no_better_in_small_blocks(
    shared_data: Path, name: str, method: str
) -> None:
    """Contrary to the paper: SAG in blocks of k, 3 k and N^0.8 rows."""
    points, best = read_points(shared_data, name), best_known(shared_data, name)
    n, k, least = len(points.rows), points.k, points.nicv(best)
    tiny, small, large = _sag(points, method, [float(k), 3.0 * k, n**0.8])
    assert tiny > small > large > 0.99 * least
    # Yet it loses less than the noise that it saves.
    assert small - large < _noise(points, best, n**0.8) - _noise(points, best, 3.0 * k)
