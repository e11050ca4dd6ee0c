"""Does the noise follow the discrete Laplace at its scale? With the power of each test shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import (
    Calibration,
    NoiseSource,
    SeededNoise,
    SystemNoise,
    calibrate,
)
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

SAMPLES = 20_000
SCALES = [0.3, 1.0, 7.5, 50.0]
#: All of these tests together fail by chance once in a million runs.
FALSE_ALARM = 1e-6 / (2 * len(SCALES) + 4)
#: The chi-square approximation is good from about 10 expected in a bin on; this is well beyond.
MIN_EXPECTED = 40


def _draw(scale: float, source: NoiseSource) -> IntArray:
    return source.add(np.zeros(SAMPLES, np.int64), Calibration(scale, epsilon_used=1 / scale))


def _probabilities(scale: float, reach: int) -> npt.NDArray[np.float64]:
    """P(Z = z) for |z| < reach, and both tails lumped at the ends."""
    q = math.exp(-1 / scale)
    z = np.arange(-reach, reach + 1)
    mass = (1 - q) / (1 + q) * q ** np.abs(z)
    mass[[0, -1]] = q**reach / (1 + q)
    return mass


def _p_value(noise: IntArray, scale: float) -> float:
    """Chi-square goodness of fit to the discrete Laplace of a scale."""
    reach = 1
    while _probabilities(scale, reach + 1)[0] * len(noise) >= MIN_EXPECTED and reach < 10_000:
        reach += 1
    expected = _probabilities(scale, reach) * len(noise)
    observed = np.bincount(np.clip(noise, -reach, reach) + reach, minlength=2 * reach + 1)
    # Bins are merged from the left until each is expected often enough.
    group = np.minimum(np.cumsum(expected) // MIN_EXPECTED, expected.sum() // MIN_EXPECTED - 1)
    merged = np.unique(group, return_inverse=True)[1]
    return float(stats.chisquare(np.bincount(merged, observed), np.bincount(merged, expected))[1])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("source", [SystemNoise(), SeededNoise(7)], ids=["system", "seeded"])
def test_noise_is_discrete_laplace_at_the_stated_scale(source: NoiseSource, scale: float) -> None:
    assert _p_value(_draw(scale, source), scale) > FALSE_ALARM


@pytest.mark.parametrize("factor", [1.2, 1 / 1.2])
@pytest.mark.parametrize("scale", SCALES)
def test_the_same_test_rejects_a_scale_a_fifth_off(scale: float, factor: float) -> None:
    assert _p_value(_draw(scale * factor, SystemNoise()), scale) < FALSE_ALARM / 1000


@pytest.mark.parametrize("scale", SCALES[1:])  # at 0.3 nearly all mass is on -1, 0, 1 in either
def test_the_same_test_rejects_rounded_gaussian_noise_of_the_same_spread(scale: float) -> None:
    q = math.exp(-1 / scale)
    deviation = math.sqrt(2 * q) / (1 - q)
    gaussian = np.rint(np.random.default_rng(1).normal(0, deviation, SAMPLES)).astype(np.int64)
    assert _p_value(gaussian, scale) < FALSE_ALARM


def test_calibrated_noise_has_scale_sensitivity_over_epsilon() -> None:
    noise = SystemNoise().add(np.zeros(SAMPLES, np.int64), calibrate(3, Fraction(2, 5)))
    assert _p_value(noise, 7.5) > FALSE_ALARM
    assert _p_value(noise, 2.5) < FALSE_ALARM  # a sensitivity taken for 1


def test_neighbouring_cells_get_independent_noise() -> None:
    noise = _draw(7.5, SystemNoise()).astype(np.float64)
    bound = -stats.norm.ppf(FALSE_ALARM / 8) / math.sqrt(SAMPLES - 10)
    for lag in (1, 2, 10):
        assert abs(np.corrcoef(noise[:-lag], noise[lag:])[0, 1]) < bound
    # Magnitudes as well: a reused uniform would show here even where signs are fresh.
    assert abs(np.corrcoef(np.abs(noise[:-1]), np.abs(noise[1:]))[0, 1]) < 2 * bound


# --- an audit through the door: two tables that differ in one row, seen from outside only --------

RUNS = 6_000
AUDIT_ALARM = 1e-7
DOMAIN = Domain.of(["x"], (0.0, 1.0))
ROWS = np.linspace(0.0, 1.0, 20)[:, np.newaxis]


class HalfScale:
    """A planted fault: noise at half the scale that was proven."""

    private = True

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        fault = Calibration(calibration.scale / 2, calibration.epsilon_used)
        return SystemNoise().add(values, fault)


def _count(table: PrivateTable) -> int:
    return table.noisy_count(Fraction(1))


def _cell(table: PrivateTable) -> int:
    return int(table.noisy_histogram(Grid(1, 1), Fraction(1))[0])


def _answers(
    rows: npt.NDArray[np.float64], ask: Callable[[PrivateTable], int], noise: NoiseSource
) -> IntArray:
    engine = LocalEngine(rows, DOMAIN)
    answers = []
    for _ in range(RUNS // 200):
        table = PrivateTable(engine, Budget(Fraction(200)), MemoryTranscript("audit"), noise)
        answers += [ask(table) for _ in range(200)]
    return np.array(answers)


def _proven_loss(fewer: IntArray, more: IntArray) -> float:
    """Lower confidence bound on the privacy loss (Clopper-Pearson), over half-line events."""
    losses, n = [], len(fewer)
    for threshold in range(len(ROWS) - 3, len(ROWS) + 2):
        for a, b in (
            (fewer <= threshold, more <= threshold),
            (more > threshold, fewer > threshold),
        ):
            low = stats.beta.ppf(AUDIT_ALARM, a.sum(), n - a.sum() + 1)
            high = stats.beta.ppf(1 - AUDIT_ALARM, b.sum() + 1, n - b.sum())
            losses.append(math.log(low / high))
    return max(losses)


def _audit_by_runs(ask: Callable[[PrivateTable], int], noise: NoiseSource) -> float:
    fewer, more = (_answers(rows, ask, noise) for rows in (ROWS[:-1], ROWS))
    return _proven_loss(fewer, more)


def _audit_by_cells(noise: NoiseSource) -> float:
    """One histogram, many audits: each cell's noise is its own, so a cell is a run."""
    cells = 10_000
    grid = Grid(1, cells)
    full = np.repeat((np.arange(cells) + 0.5) / cells, len(ROWS))[:, np.newaxis]
    answers = []
    for rows in (np.delete(full, np.s_[:: len(ROWS)], axis=0), full):
        table = PrivateTable(
            LocalEngine(rows, DOMAIN), Budget(Fraction(1)), MemoryTranscript("audit"), noise
        )
        answers.append(table.noisy_histogram(grid, Fraction(1)))
    return _proven_loss(*answers)


def test_an_audit_of_each_cell_finds_no_more_loss_than_epsilon_and_not_much_less() -> None:
    # An audit that saw nothing would prove nothing, hence the lower end.
    assert 0.7 < _audit_by_cells(SystemNoise()) <= 1.0


def test_an_audit_of_each_cell_catches_noise_at_half_the_scale() -> None:
    assert _audit_by_cells(HalfScale()) > 1.2


@pytest.mark.slow
@pytest.mark.parametrize("ask", [_count, _cell])
def test_an_audit_of_whole_runs_finds_no_more_loss_than_epsilon_and_not_much_less(
    ask: Callable[[PrivateTable], int],
) -> None:
    assert 0.7 < _audit_by_runs(ask, SystemNoise()) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("ask", [_count, _cell])
def test_an_audit_of_whole_runs_catches_noise_at_half_the_scale(
    ask: Callable[[PrivateTable], int],
) -> None:
    assert _audit_by_runs(ask, HalfScale()) > 1.2
