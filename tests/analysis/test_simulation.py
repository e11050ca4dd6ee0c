"""The formulas against the real code: noisy rounds and noisy grids on clusters that are cubes.

A formula agrees if it is within 5 % of what was measured. The same measurements reject formulas
that are 20 % off, or wrong in a way that would be easy to get wrong, and noise that is 10 % too
wide. Noise is seeded, so nothing here can fail by chance.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpkm_spark.algorithms.dplloyd import moved
from dpkm_spark.analysis import (
    count_weight,
    dplloyd_mse,
    grid_variance,
    optimal_mse,
    optimal_ratio,
    squared_norm,
)
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.grid import Grid
from dpkm_spark.kmeans.lloyd import lloyd_on_grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, NoiseSource, SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

#: How far a formula may be from a measurement.
TOLERANCE = 0.05


class Wider(SeededNoise):
    """A planted fault: noise a tenth too wide, so squared errors a fifth too large."""

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        return super().add(values, Calibration(calibration.scale * 1.1, calibration.epsilon_used))


def table_of(rows: FloatArray, noise: NoiseSource) -> PrivateTable:
    domain = Domain.of([f"x{i}" for i in range(rows.shape[1])], (-1.0, 1.0))
    return PrivateTable(LocalEngine(rows, domain), Budget(Fraction(10**6)),
                        MemoryTranscript("simulation"), noise)  # fmt: skip


def cube_centres(d: int, side: int) -> FloatArray:
    """Centres of side^d cubes that tile [-1, 1]^d."""
    line = (2 * np.arange(side) + 1) / side - 1
    return np.array(list(itertools.product(line, repeat=d)))


def agrees(measured: float, formula: float) -> bool:
    return abs(measured / formula - 1) < TOLERANCE


# --- Eq. 7: a round of DPLloyd --------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """One round out of five on k = side^d cubes: what is measured, and how often.

    ``spread`` shrinks the cubes towards the middle; at 0.9, with two of them a side, their centres
    are at +-0.45 and sum o^2 is what `squared_norm` assumes.
    """

    d: int
    side: int
    times: int
    spread: float = 1.0
    optimal: bool = False

    #: epsilon of all five rounds; a count of noise is then far below a cluster's size.
    epsilon = 20
    rows_each = 100

    @property
    def k(self) -> int:
        return int(self.side**self.d)

    @property
    def n(self) -> int:
        return self.k * self.rows_each

    @property
    def centres(self) -> FloatArray:
        return self.spread * cube_centres(self.d, self.side)

    @property
    def norm(self) -> float:
        """sum_i o_i^2, the mean over the clusters."""
        return float((self.centres**2).sum(axis=1).mean())

    def measure(self, noise: NoiseSource) -> float:
        """Mean squared error of a centroid over ``times`` rounds on the same rows."""
        centres = self.centres
        inside = np.random.default_rng(1).uniform(-0.99, 0.99, (self.k, self.rows_each, self.d))
        # Each row has its mirror image, so that the mean of a cluster is the centre of its cube.
        inside[:, self.rows_each // 2 :] = -inside[:, : self.rows_each // 2]
        rows = centres[:, None] + inside * self.spread / self.side
        table = table_of(rows.reshape(-1, self.d), noise)
        weight = count_weight(self.d) if self.optimal else SCALE
        share = Fraction(self.epsilon, 5)
        errors = [
            ((moved(centres, table.noisy_cluster_sums(centres, share, weight)) - centres) ** 2)
            .sum(axis=1)
            .mean()
            for _ in range(self.times)
        ]
        return float(np.mean(errors))

    def formula(self) -> float:
        return dplloyd_mse(
            n=self.n, d=self.d, k=self.k, epsilon=self.epsilon, rounds=5, norm=self.norm
        )


ROUNDS = [Round(2, 2, 700), Round(2, 4, 400), Round(3, 2, 500), Round(6, 2, 30)]
SPLIT = [Round(2, 2, 700, 0.9, optimal=True), Round(6, 2, 30, 0.9, optimal=True)]


@cache
def measured_round(case: Round) -> float:
    return case.measure(SeededNoise(11))


@pytest.mark.parametrize("case", ROUNDS, ids=lambda c: f"d={c.d} k={c.k}")
def test_equation_7_agrees_with_rounds_of_dplloyd(case: Round) -> None:
    assert agrees(measured_round(case), case.formula())


@pytest.mark.parametrize("case", ROUNDS, ids=lambda c: f"d={c.d} k={c.k}")
def test_the_same_rounds_reject_a_formula_a_fifth_off(case: Round) -> None:
    for factor in (1.2, 1 / 1.2):
        assert not agrees(measured_round(case), case.formula() * factor)


def test_the_same_rounds_reject_likely_mistakes() -> None:
    case = ROUNDS[0]
    measured, formula = measured_round(case), case.formula()
    d = case.d
    mistakes = {
        "variance b^2": 1 / 2,
        "sensitivity d": (d / (d + 1)) ** 2,
        "count without noise": d / (d + case.norm),
        "four rounds": (4 / 5) ** 2,
    }
    assert all(not agrees(measured, formula * factor) for factor in mistakes.values())


def test_equation_7_rejects_noise_a_tenth_too_wide() -> None:
    case = ROUNDS[0]
    assert not agrees(case.measure(Wider(11)), case.formula())


# --- the optimal split ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", SPLIT, ids=lambda c: f"d={c.d} k={c.k}")
def test_the_error_of_the_optimal_split_agrees_with_rounds_of_dplloyd(case: Round) -> None:
    assert case.norm == pytest.approx(squared_norm(case.d))
    formula = optimal_mse(n=case.n, d=case.d, k=case.k, epsilon=case.epsilon, rounds=5)
    assert agrees(measured_round(case), formula)


def test_the_same_rounds_reject_the_split_the_wrong_way_round() -> None:
    # The count with a coordinate's share and each coordinate with the count's, as in diffprivlib.
    case = SPLIT[0]
    d, c = case.d, optimal_ratio(case.d)
    formula = optimal_mse(n=case.n, d=d, k=case.k, epsilon=case.epsilon, rounds=5)
    swapped = formula / (d + c) ** 3 * (1 + d * c) ** 2 * (d / c**2 + c**3)
    assert swapped > 1.2 * formula
    assert not agrees(measured_round(case), swapped)


# --- Eq. 9: a noisy grid --------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """A grid of (side per_side)^d cells on k = side^d cubes, and how often it is asked for."""

    d: int
    side: int
    per_side: int
    rows_each: int
    times: int

    #: Noise of scale 5, whose variance is within 0.4 % of the continuous one's.
    epsilon = Fraction(1, 5)

    @property
    def k(self) -> int:
        return int(self.side**self.d)

    @property
    def grid(self) -> Grid:
        return Grid(self.d, self.side * self.per_side)

    def measure(self, noise: NoiseSource) -> float:
        """Mean squared error of a centroid after one round of Lloyd on the noisy cells."""
        centres = cube_centres(self.d, self.side)
        rows = np.repeat(self.grid.centres(), self.rows_each, axis=0)
        table = table_of(rows, noise)
        errors = []
        for _ in range(self.times):
            counts = table.noisy_histogram(self.grid, self.epsilon)
            # The first round scores the starts, the second the means they moved to.
            after = lloyd_on_grid(self.grid, counts, centres[None], max_iter=2).centroids[0]
            assert (after != centres).any()
            errors.append(((after - centres) ** 2).sum(axis=1).mean())
        return float(np.mean(errors))

    def formula(self, *, finite: bool = True) -> float:
        return grid_variance(
            n=self.grid.size * self.rows_each,
            d=self.d,
            k=self.k,
            epsilon=float(self.epsilon),
            cells=self.grid.size,
            finite=finite,
        )


GRIDS = [
    Cells(2, 3, 5, 200, 200),
    Cells(2, 4, 2, 300, 250),
    Cells(3, 2, 3, 150, 200),
    Cells(6, 2, 2, 30, 20),
]


@cache
def measured_cells(case: Cells) -> float:
    return case.measure(SeededNoise(12))


@pytest.mark.parametrize("case", GRIDS, ids=lambda c: f"d={c.d} k={c.k} M={c.grid.size}")
def test_equation_9_with_the_finite_grid_factor_agrees_with_noisy_grids(case: Cells) -> None:
    assert agrees(measured_cells(case), case.formula())


@pytest.mark.parametrize("case", GRIDS, ids=lambda c: f"d={c.d} k={c.k} M={c.grid.size}")
def test_the_same_grids_reject_a_formula_a_fifth_off(case: Cells) -> None:
    for factor in (1.2, 1 / 1.2):
        assert not agrees(measured_cells(case), case.formula() * factor)


@pytest.mark.parametrize("case", GRIDS[1:], ids=lambda c: f"d={c.d} k={c.k} M={c.grid.size}")
def test_cells_this_large_need_the_finite_grid_factor(case: Cells) -> None:
    assert measured_cells(case) < (1 - TOLERANCE) * case.formula(finite=False)


def test_equation_9_rejects_noise_a_tenth_too_wide() -> None:
    case = GRIDS[1]
    assert not agrees(case.measure(Wider(12)), case.formula())
