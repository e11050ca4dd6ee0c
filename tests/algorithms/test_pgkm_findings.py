"""The paper's findings on PGkM and Gene, on its own data sets where we have them.

As in the paper, N is public, bounds are the least and greatest values, and an error is a mean NICV
of rows scaled to [-1, 1]: over 30 sets of starts with two runs each for DPLloyd, over the runs
named below for PGkM. Noise is seeded; beside each figure in the comments stands its standard error
over seeds, so that margins can be judged.

Two of the paper's findings hold here but for a part; the tests at the end say for which, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpkm_spark.algorithms.dplloyd import DPLloydParameters, dplloyd
from dpkm_spark.algorithms.gene import GeneParameters, gene
from dpkm_spark.algorithms.lloyd import LloydParameters, lloyd
from dpkm_spark.algorithms.pgkm import PGKMParameters, pgkm
from dpkm_spark.domain import Domain
from dpkm_spark.evaluation import OpenTable, exact_nicv
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

pytestmark = pytest.mark.slow

K = {"s1": 15, "lifesci": 3, "adult_num": 5, "house_8bit": 3}
#: Runs of PGkM: fewer where a run takes long and its error is far from DPLloyd's.
RUNS = {"s1": 40, "lifesci": 12, "adult_num": 12, "house_8bit": 40}


@dataclass(frozen=True, eq=False)
class Points:
    """A data set, ready for many runs."""

    k: int
    runs: int
    engine: LocalEngine

    def table(self, epsilon: Fraction, run: str, seed: int) -> PrivateTable:
        return PrivateTable(self.engine, Budget(epsilon), MemoryTranscript(run), SeededNoise(seed))

    @cache  # noqa: B019 - as many as there are tests
    def of_dplloyd(self, epsilon: Fraction, rounds: int = 5) -> float:
        """Mean NICV of 30 sets of starts with two runs each."""
        parameters = DPLloydParameters(self.k, rounds=rounds)
        return _mean(
            exact_nicv(
                self.engine,
                dplloyd(self.table(epsilon, f"starts-{i % 30}", i), parameters).centroids,
            )
            for i in range(60)
        )

    @cache  # noqa: B019
    def of_pgkm(self, epsilon: Fraction) -> float:
        parameters = PGKMParameters(self.k, public_count=self.engine.count())
        return _mean(
            exact_nicv(self.engine, pgkm(self.table(epsilon, f"run-{i}", i), parameters).centroids)
            for i in range(self.runs)
        )


def _mean(found: Iterable[float]) -> float:
    values = list(found)
    print(f"{np.mean(values):.5f} +- {np.std(values, ddof=1) / len(values) ** 0.5:.5f}")
    return float(np.mean(values))


@cache
def read_points(folder: Path, name: str) -> Points:
    table = pq.read_table(folder / f"{name}.parquet")
    names = [column for column in table.column_names if column.startswith("x")]
    rows = np.column_stack([table[column].to_numpy().astype(np.float64) for column in names])
    lower, upper = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
    domain = Domain(tuple(names), tuple(lower), tuple(upper))
    return Points(K[name], RUNS[name], LocalEngine(rows, domain))


# --- DPLloyd beats PGkM, except on S1 at a small epsilon ------------------------------------------

#: Data set, epsilon, and the most that DPLloyd's error may be of PGkM's.
DPLLOYD_WINS = [
    ("adult_num", "1/10", 0.80),  # 0.296 +- 0.007 and 0.462 +- 0.014
    ("adult_num", "1", 0.80),  # 0.243 +- 0.005 and 0.346 +- 0.011
    ("lifesci", "1/10", 0.70),  # 0.806 +- 0.005 and 1.485 +- 0.040
    ("lifesci", "1", 0.85),  # 0.718 +- 0.001 and 0.944 +- 0.014
    ("house_8bit", "1/20", 0.70),  # 0.129 +- 0.004 and 0.246 +- 0.010
    ("house_8bit", "1/10", 0.75),  # 0.118 +- 0.003 and 0.205 +- 0.007
    ("house_8bit", "1/2", 0.97),  # 0.1151 +- 0.0033 and 0.1280 +- 0.0019
    ("s1", "1/4", 0.97),  # 0.0720 +- 0.0016 and 0.0787 +- 0.0020
    ("s1", "1/2", 0.75),  # 0.0429 +- 0.0008 and 0.0705 +- 0.0021
    ("s1", "1", 0.50),  # 0.0233 +- 0.0006 and 0.0591 +- 0.0016
]


@pytest.mark.parametrize(("name", "epsilon", "most"), DPLLOYD_WINS)
def test_dplloyd_beats_pgkm(shared_data: Path, name: str, epsilon: str, most: float) -> None:
    points = read_points(shared_data, name)
    rounds, bred = points.of_dplloyd(Fraction(epsilon)), points.of_pgkm(Fraction(epsilon))
    assert rounds < most * bred


# 0.0816 +- 0.0026 and 0.132 +- 0.004; 0.0825 +- 0.0024 and 0.108 +- 0.003.
@pytest.mark.parametrize(("epsilon", "most"), [("1/20", 0.75), ("1/10", 0.85)])
def test_pgkm_beats_dplloyd_on_s1_at_a_small_epsilon(
    shared_data: Path, epsilon: str, most: float
) -> None:
    points = read_points(shared_data, "s1")
    assert points.of_pgkm(Fraction(epsilon)) < most * points.of_dplloyd(Fraction(epsilon))


# --- Lloyd reaches the optimum in a few rounds, Gene needs more than ten generations --------------


def _first_within(trail: Sequence[float], least: float, share: float) -> int:
    """Number of the first entry that exceeds ``least`` by at most ``share`` of it."""
    return next((i for i, value in enumerate(trail) if value <= least * (1 + share)), len(trail))


def _lloyd_trails(points: Points, starts: int) -> list[tuple[float, ...]]:
    """NICV before the first round and after each, from every start."""
    tables = [OpenTable(points.engine, f"starts-{i}") for i in range(starts)]
    return [lloyd(table, LloydParameters(points.k, restarts=1)).trail for table in tables]


#: How near to the optimum, and what then is a few rounds and what many generations.
NEAR = [(0.005, 5, 10), (0.001, 6, 18)]


def test_lloyd_reaches_the_optimum_of_house_8bit_in_a_few_rounds_and_gene_after_ten(
    shared_data: Path,
) -> None:
    # Medians of 30 starts and of 10 runs, for a distance to the optimum of 1 %, 0.5 %, 0.2 % and
    # 0.1 %: 4, 4.5, 5 and 6 rounds; 10.5, 12, 17.5 and 24.5 generations, the first being random.
    points = read_points(shared_data, "house_8bit")
    trails = _lloyd_trails(points, 30)
    best = min(trail[-1] for trail in trails)
    bred = [
        gene(OpenTable(points.engine, f"run-{i}"), GeneParameters(points.k)).trail
        for i in range(10)
    ]
    for share, few, many in NEAR:
        rounds = [_first_within(trail, best, share) for trail in trails]
        generations = [_first_within(trail, best, share) + 1 for trail in bred]
        assert np.median(rounds) <= few
        assert np.median(generations) > many
        assert min(generations) >= many


# --- where the paper's findings hold in part only -------------------------------------------------


def test_the_methods_change_places_on_s1_somewhat_later_than_in_the_paper(
    shared_data: Path,
) -> None:
    # The paper has PGkM ahead below 0.15; here it is below about 0.21. At 0.15: 0.0791 +- 0.0022
    # and 0.0891 +- 0.0022; at 0.25: 0.0787 +- 0.0020 and 0.0720 +- 0.0016. Even candidates chosen
    # at random, 0.089, would beat DPLloyd up to 0.15; how far beyond depends on how good the
    # selection is, and ours has less noise than the exponential mechanism of the paper.
    points = read_points(shared_data, "s1")
    assert points.of_pgkm(Fraction(3, 20)) < 0.95 * points.of_dplloyd(Fraction(3, 20))
    assert points.of_dplloyd(Fraction(1, 4)) < 0.97 * points.of_pgkm(Fraction(1, 4))


def test_on_house_8bit_at_epsilon_1_starts_decide_and_more_rounds_bring_dplloyd_ahead(
    shared_data: Path,
) -> None:
    # Five rounds are too few for a fifth of the starts, noise or not: 0.1150 +- 0.0032 with noise,
    # 0.1145 without, and over 200 other sets 0.1207 +- 0.0020. PGkM has 0.1165 +- 0.0012, so who
    # is ahead after five rounds depends on the 30 sets. Ten rounds have 0.1099 +- 0.0024.
    points = read_points(shared_data, "house_8bit")
    exact = float(np.mean([trail[:6][-1] for trail in _lloyd_trails(points, 30)]))
    noisy, bred = points.of_dplloyd(Fraction(1)), points.of_pgkm(Fraction(1))
    assert noisy == pytest.approx(exact, rel=0.03)
    assert noisy == pytest.approx(bred, rel=0.10)
    assert points.of_dplloyd(Fraction(1), rounds=10) < 0.97 * bred
