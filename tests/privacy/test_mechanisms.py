"""The noise generator: calibrated upwards, on every element, in order, from fresh entropy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpkm_spark.errors import InvariantError
from dpkm_spark.privacy import mechanisms
from dpkm_spark.privacy.budget import MAX_EPSILON, MIN_EPSILON
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise, SystemNoise, calibrate

epsilons = st.one_of(
    st.fractions(min_value=MIN_EPSILON, max_value=MAX_EPSILON),
    st.builds(
        lambda power, part: Fraction(2) ** power * part,
        st.integers(-39, 49),
        st.fractions(min_value=1, max_value=2, max_denominator=10**9),
    ),
)
ORDERED = 3 * (1 << 15) + 7  # three whole pieces and a rest


@given(st.integers(1, 10**6), epsilons)
@example(1, Fraction(1, 3))
@example(1, Fraction(1, 10))
@example(10**6, MIN_EPSILON)
@example(1, MAX_EPSILON)
def test_the_scale_is_rounded_up_and_the_privacy_map_stays_within_the_share(
    sensitivity: int, epsilon: Fraction
) -> None:
    found = calibrate(sensitivity, epsilon)
    assert Fraction(found.scale) >= Fraction(sensitivity) / epsilon
    # Asked of OpenDP anew, not of our own helper.
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    cost = dp.m.make_laplace(domain, metric, scale=found.scale).map(sensitivity)
    assert Fraction(cost) <= epsilon
    assert found.epsilon_used == cost
    # Rounded up, but by no more than a few units in the last place.
    assert found.scale <= float(Fraction(sensitivity) / epsilon) * (1 + 1e-13)


@pytest.mark.parametrize("sensitivity", [0, -1])
def test_no_query_is_insensitive(sensitivity: int) -> None:
    with pytest.raises(InvariantError, match="sensitivity"):
        calibrate(sensitivity, Fraction(1))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_would_add_no_noise_is_refused(scale: float) -> None:
    # OpenDP's own mechanism with scale 0 gives the input back.
    with pytest.raises(InvariantError, match="noise scale"):
        SystemNoise().add(np.zeros(1, dtype=np.int64), Calibration(scale, 1.0))


def test_every_element_gets_noise_zeros_too() -> None:
    # At this scale one element stays put with probability 1e-9, any of them with 4e-5.
    values = np.zeros(40_000, dtype=np.int64)
    values[::7] = 5
    calibration = Calibration(scale=5e8, epsilon_used=2e-9)
    assert np.count_nonzero(SystemNoise().add(values, calibration) == values) <= 1


def test_the_noisy_array_is_a_new_int64_one_in_the_same_order() -> None:
    # A scale this small adds nothing (exp(-50) a cell), so order and length show as they are.
    values = np.arange(ORDERED, dtype=np.int64) * 10**12
    before = values.copy()
    noisy = SystemNoise().add(values, Calibration(scale=0.02, epsilon_used=50.0))
    assert noisy.dtype == np.int64
    assert not np.shares_memory(noisy, values)
    np.testing.assert_array_equal(values, before)
    np.testing.assert_array_equal(noisy, values)


def test_pieces_of_a_large_array_do_not_share_their_noise() -> None:
    noise = SystemNoise().add(np.zeros(ORDERED, dtype=np.int64), calibrate(1, Fraction(1, 10**6)))
    pieces = noise[: 3 << 15].reshape(3, 1 << 15)
    assert np.count_nonzero(pieces[0] == pieces[1]) < 10
    assert np.count_nonzero(pieces[1] == pieces[2]) < 10


def test_a_read_only_array_is_served() -> None:
    values = np.arange(5)
    values.flags.writeable = False
    assert len(SystemNoise().add(values, calibrate(1, Fraction(1)))) == 5


def test_no_values_give_no_values() -> None:
    noisy = SystemNoise().add(np.zeros(0, dtype=np.int64), calibrate(1, Fraction(1)))
    assert noisy.shape == (0,)
    assert noisy.dtype == np.int64


def test_a_noisy_value_saturates_at_the_ends_of_int64() -> None:
    # Raising or wrapping round would tell how close to the end the value was.
    ends = np.iinfo(np.int64)
    values = np.repeat(np.array([ends.max, ends.min], dtype=np.int64), 50)
    noisy = SystemNoise().add(values, calibrate(1, MIN_EPSILON))
    assert (noisy[:50] > 0).all()
    assert (noisy[50:] < 0).all()


def test_the_system_never_repeats_its_noise() -> None:
    values, calibration = np.zeros(10, dtype=np.int64), calibrate(1, Fraction(1, 10**9))
    draws = [SystemNoise().add(values, calibration) for _ in range(2)]
    source = SystemNoise()
    draws += [source.add(values, calibration) for _ in range(2)]
    assert len({draw.tobytes() for draw in draws}) == 4


def test_numpy_seeds_do_not_reach_the_system_noise() -> None:
    def draw() -> bytes:
        np.random.seed(1)  # what a user's notebook does
        return SystemNoise().add(np.zeros(10, np.int64), calibrate(1, Fraction(1, 10**9))).tobytes()

    assert draw() != draw()


def test_seeded_noise_repeats_and_says_that_it_protects_nobody() -> None:
    values, calibration = np.arange(100), calibrate(1, Fraction(1, 100))
    first, second, other = (SeededNoise(seed).add(values, calibration) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert SeededNoise(1).private is False
    assert SystemNoise().private is True
    source = SeededNoise(1)
    assert (source.add(values, calibration) != source.add(values, calibration)).any()


def test_a_scale_that_opendp_would_undercount_is_raised_until_its_map_agrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A map that claims a little more than the truth: the first scale tried does not serve.
    class Grudging:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def map(self, sensitivity: int) -> float:
            return sensitivity / self.scale * (1 + 4e-16)

    monkeypatch.setattr(mechanisms, "_measurement", Grudging)
    found = calibrate(1, Fraction(1))
    assert found.scale > 1.0
    assert found.epsilon_used <= 1.0


def test_no_scale_is_better_than_one_whose_map_exceeds_the_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dear:
        def __init__(self, scale: float) -> None:
            pass

        def map(self, sensitivity: int) -> float:
            return 2.0

    monkeypatch.setattr(mechanisms, "_measurement", Dear)
    with pytest.raises(InvariantError, match="no noise scale serves"):
        calibrate(1, Fraction(1))


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(7, 10), Fraction(49, 50)])
def test_the_scale_is_large_enough_even_if_the_map_is_too_kind(
    monkeypatch: pytest.MonkeyPatch, epsilon: Fraction
) -> None:
    class Kind:
        def __init__(self, scale: float) -> None:
            pass

        def map(self, sensitivity: int) -> float:
            return 0.0

    monkeypatch.setattr(mechanisms, "_measurement", Kind)
    for sensitivity in range(1, 50):
        assert Fraction(calibrate(sensitivity, epsilon).scale) >= sensitivity / epsilon
