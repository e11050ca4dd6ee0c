"""Epsilons are exact rationals: shares add up, and nothing slips through below or above."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkm_spark.errors import BudgetExceededError, EpsilonError, ParameterError
from dpkm_spark.privacy.budget import MAX_EPSILON, MIN_EPSILON, Budget, parse_epsilon

TINY = Fraction(5e-324)  # the least subnormal double

# Parts of up to a million to one stay far above the smallest epsilon there is.
parts = st.lists(st.integers(1, 10**6), min_size=1, max_size=30)
epsilons = st.fractions(min_value=Fraction(1, 100), max_value=10**6, max_denominator=10**6)


@pytest.mark.parametrize(
    "value", ["0.1", 0.1, Decimal("0.1"), Fraction(1, 10), " 0.1 ", "1/10", "1e-1", np.float64(0.1)]
)
def test_a_tenth_is_a_tenth_however_it_is_written(value: object) -> None:
    assert parse_epsilon(value) == Fraction(1, 10)


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        ("1/3", Fraction(1, 3)),
        (" 2/6 ", Fraction(1, 3)),
        (1, Fraction(1)),
        (1e9, Fraction(10**9)),
        ("1e9", Fraction(10**9)),
        (np.int64(3), Fraction(3)),
        (MIN_EPSILON, MIN_EPSILON),
        (MAX_EPSILON, MAX_EPSILON),
        ("1e-12", Fraction(1, 10**12)),
    ],
)
def test_the_number_written_is_the_number_read(value: object, exact: Fraction) -> None:
    assert parse_epsilon(value) == exact


@given(st.decimals(min_value=Decimal("1e-11"), max_value=Decimal("1e15"), allow_nan=False))
def test_a_decimal_and_its_text_are_the_same_rational(value: Decimal) -> None:
    if len(str(value)) <= 60:
        assert parse_epsilon(value) == parse_epsilon(str(value)) == Fraction(value)


@given(st.floats(min_value=1e-11, max_value=1e15))
def test_a_float_is_read_as_its_shortest_decimal(value: float) -> None:
    assert parse_epsilon(value) == Fraction(repr(value))


def test_a_numpy_integer_gives_a_rational_that_cannot_overflow() -> None:
    assert type(parse_epsilon(np.int64(3)).numerator) is int


BAD = [
    (0, "must be greater than 0"),
    (0.0, "must be greater than 0"),
    (-0.0, "must be greater than 0"),
    ("-0", "must be greater than 0"),
    ("0e999999999", "must be greater than 0"),
    (-1, "must be greater than 0"),
    ("-1/3", "must be greater than 0"),
    (float("nan"), "must be a finite number"),
    ("NaN", "must be a finite number"),
    (Decimal("sNaN"), "must be a finite number"),
    (float("inf"), "must be a finite number"),
    ("-Infinity", "must be a finite number"),
    (1e-300, "must be at least 2^-40"),
    ("1e-300", "must be at least 2^-40"),
    (TINY, "must be at least 2^-40"),
    (5e-324, "must be at least 2^-40"),
    (MIN_EPSILON * Fraction(999, 1000), "must be at least 2^-40"),
    (1e300, "must be at most 2^50"),
    (MAX_EPSILON + 1, "must be at most 2^50"),
    (10**5000, "must be at most 2^50"),
    (Fraction(10**5000, 3), "must be at most 2^50"),
    # Written out as rationals these have 10^8 digits; they must be refused unread.
    ("1e-99999999", "must be between 2^-40 and 2^50"),
    ("1e99999999", "must be between 2^-40 and 2^50"),
    (Decimal("1e-99999999"), "must be between 2^-40 and 2^50"),
    ("1e-99999999999999999999", "must be a number"),
    (True, "must be a number"),
    (None, "must be a number"),
    ([1], "must be a number"),
    (1j, "must be a number"),
    ("", "must be a number"),
    ("one", "must be a number"),
    ("1/0", "must be a number"),
    ("1/2/3", "must be a number"),
    ("1,5", "must be a number"),
    ("0x10", "must be a number"),
    ("9" * 200, "more than 60 characters"),
    ("x" * 200, "more than 60 characters"),
]


@pytest.mark.parametrize(
    ("value", "rule"), BAD, ids=[f"{i}-{rule}" for i, (_, rule) in enumerate(BAD)]
)
def test_no_epsilon_outside_the_range_and_the_error_names_it(value: object, rule: str) -> None:
    with pytest.raises(EpsilonError) as caught:
        parse_epsilon(value, "count-share")
    assert str(caught.value).startswith("count-share: ")
    assert rule in str(caught.value)
    assert len(str(caught.value)) < 250
    assert isinstance(caught.value, ParameterError)


@given(st.text(max_size=70))
def test_any_text_is_an_epsilon_or_an_epsilon_error(text: str) -> None:
    try:
        number = parse_epsilon(text)
    except EpsilonError:
        return
    assert MIN_EPSILON <= number <= MAX_EPSILON


@given(epsilons, parts)
def test_shares_of_the_whole_leave_exactly_nothing(epsilon: Fraction, weights: list[int]) -> None:
    budget = Budget(epsilon)
    for weight in weights:
        budget.charge(epsilon * Fraction(weight, sum(weights)), "a share")
    assert budget.remaining == 0
    assert budget.spent == budget.total == epsilon


def test_ten_tenths_are_one_although_floats_say_otherwise() -> None:
    budget = Budget(Fraction(1))
    for _ in range(10):
        budget.charge(parse_epsilon(0.1), "a tenth")
    assert budget.remaining == 0
    assert sum([0.1] * 10) != 1.0


@given(epsilons, st.fractions(min_value=Fraction(1, 10**6), max_value=1, max_denominator=10**6))
def test_a_piece_above_what_is_left_is_refused_and_not_charged(
    epsilon: Fraction, share: Fraction
) -> None:
    budget = Budget(epsilon)
    budget.charge(epsilon * share, "a first piece")
    left = budget.remaining
    with pytest.raises(BudgetExceededError, match="epsilon of a second piece"):
        budget.charge(left + MIN_EPSILON, "a second piece")
    assert budget.remaining == left


@pytest.mark.parametrize("piece", [TINY, Fraction(1, 10**30), MIN_EPSILON, Fraction(1, 10**9)])
def test_nothing_however_tiny_is_sold_after_exhaustion(piece: Fraction) -> None:
    # 1.0 + 5e-324 == 1.0 in floats, so a float budget would sell such pieces for ever.
    budget = Budget(Fraction(1))
    budget.charge(Fraction(1), "everything")
    with pytest.raises((BudgetExceededError, EpsilonError)):
        budget.charge(piece, "a crumb")
    assert budget.spent == 1


@pytest.mark.parametrize("piece", [Fraction(0), Fraction(-1), float("nan"), float("inf")])
def test_a_piece_that_is_no_epsilon_neither_charges_nor_refunds(piece: Fraction) -> None:
    budget = Budget(Fraction(1))
    budget.charge(Fraction(1, 2), "half")
    with pytest.raises(EpsilonError, match="epsilon of a trick"):
        budget.charge(piece, "a trick")
    assert budget.spent == Fraction(1, 2)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), 1e-300])
def test_no_budget_without_an_epsilon(epsilon: Fraction) -> None:
    with pytest.raises(EpsilonError):
        Budget(epsilon)
