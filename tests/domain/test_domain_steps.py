"""The integer steps of a row: in range, monotone and exact at both bounds, for any bounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dpkm_spark.domain import SCALE, Domain
from dpkm_spark.errors import DomainError

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_VALUE = st.floats(allow_nan=False)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    """Draw one column with bounds of any size: tiny widths, huge offsets, nearly overflowing."""
    low = draw(FINITE)
    high = draw(
        st.one_of(
            FINITE,
            # Neighbouring doubles: the width is one unit in the last place.
            st.just(math.nextafter(low, math.inf)),
            st.sampled_from([1e-300, 1e-9, 1.0, 1e300]).map(lambda width: low + width),
        )
    )
    try:
        return Domain.of(["x"], (min(low, high), max(low, high)))
    except DomainError:
        assume(False)
        raise


@given(domains(), st.lists(ANY_VALUE, max_size=20))
@example(Domain.of(["x"], (0.0, 1.2e-302)), [5e-324, 1e-302])
@example(Domain.of(["x"], (-8.9e307, 8.9e307)), [1.7e308, -1.7e308])
@example(Domain.of(["x"], (1e16, 1e16 + 2)), [1e16 + 1])
def test_steps_stay_in_range_and_rise_with_the_value(domain: Domain, values: list[float]) -> None:
    rising = np.array([-math.inf, *sorted(values), math.inf])
    steps = domain.steps(rising)[:, 0]
    assert len(steps) == len(rising)
    assert steps.min() >= 0
    assert steps.max() <= 2 * SCALE
    assert (np.diff(steps) >= 0).all()


@given(domains())
def test_bounds_and_all_beyond_map_to_the_outermost_steps(domain: Domain) -> None:
    low, high = domain.lower[0], domain.upper[0]
    outside = [-math.inf, math.nextafter(low, -math.inf), low]
    assert (domain.steps(outside) == 0).all()
    assert (domain.steps([high, math.nextafter(high, math.inf), math.inf]) == 2 * SCALE).all()


@given(st.floats(-1.0, 1.0), st.sampled_from([(-1.0, 1.0), (-2.0, 2.0), (-0.5, 0.5)]))
def test_a_step_is_the_value_rounded_half_up(share: float, bounds: tuple[float, float]) -> None:
    # Widths that are powers of two leave only the addition of one half to round; `+ 0.5` on a
    # number below 2^21 is off by less than 2^-30.
    value = share * bounds[1]
    exact = Fraction(value - bounds[0]) * 2 * SCALE / Fraction(bounds[1] - bounds[0])
    step = int(Domain.of(["x"], bounds).steps([value])[0, 0])
    assert abs(step - exact) <= Fraction(1, 2) + Fraction(1, 2**30)


def test_halfway_values_round_up() -> None:
    step = 2.0**-20
    assert Domain.of(["x"], (-1, 1)).steps([-1 + 0.5 * step, -1 + 1.5 * step]).tolist() == [
        [1],
        [2],
    ]


def test_rows_with_a_nan_are_dropped_and_the_others_keep_their_order() -> None:
    domain = Domain.of(["x", "y"], (0, 2))
    rows = [
        (2, 0),
        (math.nan, 1),
        (0, 2),
        (1, math.nan),
        (math.nan, math.nan),
        (math.inf, -math.inf),
    ]
    assert domain.steps(rows).tolist() == [[2 * SCALE, 0], [0, 2 * SCALE], [2 * SCALE, 0]]


@pytest.mark.parametrize("d", [1, 2, 5])
def test_no_rows_give_no_steps(d: int) -> None:
    domain = Domain.of([f"c{i}" for i in range(d)], (0, 1))
    assert domain.steps([]).shape == (0, d)
    assert domain.steps(np.full((3, d), math.nan)).shape == (0, d)
    assert domain.steps([]).dtype == np.int64


def test_minus_zero_is_zero() -> None:
    for bounds in ((0.0, 1.0), (-0.0, 1.0), (-1.0, 0.0), (-1.0, -0.0)):
        both = Domain.of(["x"], bounds).steps([0.0, -0.0])
        assert both[0] == both[1]


def test_each_column_has_its_own_bounds() -> None:
    domain = Domain.of(["x", "y"], {"y": (0, 100), "x": (-1, 1)})
    assert domain.steps([(0, 25)]).tolist() == [[SCALE, SCALE // 2]]


@given(domains())
def test_table_units_hit_both_bounds_exactly(domain: Domain) -> None:
    ends = domain.to_table_units([[-1.0], [1.0]])[:, 0]
    assert ends.tolist() == [domain.lower[0], domain.upper[0]]


@given(domains(), st.floats(-1.0, 1.0))
def test_table_units_never_leave_the_bounds(domain: Domain, share: float) -> None:
    value = domain.to_table_units([share])[0]
    assert domain.lower[0] <= value <= domain.upper[0]


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e9),
    st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20),
)
def test_the_way_to_table_units_and_back_is_the_identity(
    low: float, width: float, shares: list[float]
) -> None:
    domain = Domain.of(["x"], (low, low + width))
    points = np.array(shares)[:, None]
    back = domain.to_normalised(domain.to_table_units(points))
    # A value carries the relative rounding of its offset: |low| / width at worst.
    slack = 1e-15 * (8 + 8 * max(abs(low), abs(low + width)) / (domain.upper[0] - low))
    assert np.allclose(back, points, rtol=0, atol=slack)


def test_units_of_many_points_keep_their_shape() -> None:
    domain = Domain.of(["x", "y"], {"x": (0, 10), "y": (-4, 4)})
    points = np.zeros((3, 5, 2))
    assert domain.to_table_units(points).shape == (3, 5, 2)
    assert domain.to_table_units(points)[0, 0].tolist() == [5.0, 0.0]
    assert domain.to_normalised([(0, 4)]).tolist() == [[-1.0, 1.0]]
    # No clipping: a point outside stays outside.
    assert domain.to_normalised([(20, 0)]).tolist() == [[3.0, 0.0]]


def test_bounds_of_any_number_type_are_written_as_plain_sql() -> None:
    # numpy 2 shows its doubles as `np.float64(0.5)`, which no SQL parser knows.
    domain = Domain(("x",), (np.float64(0.5),), (2,))
    assert "np.float64" not in domain.steps_sql(["v"])[0]
    assert Domain(("x",), (0.5,), (2.0,)).steps_sql(["v"]) == domain.steps_sql(["v"])
