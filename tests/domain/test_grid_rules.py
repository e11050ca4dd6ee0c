"""How many cells: the paper's rule, Lei's rule, a fixed number, and the cap on each."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import (
    DEFAULT_MAX_CELLS,
    LARGEST_MAX_CELLS,
    MAX_CELLS_PER_DIMENSION,
    Grid,
    GridRule,
)


def side(rule: GridRule, d: int, n: int, epsilon: float = 1.0) -> int:
    return rule.choose(dimension=d, count=n, epsilon=epsilon).grid.cells_per_dimension


@pytest.mark.parametrize(
    ("name", "n", "d", "m"),
    [
        ("S1", 5_000, 2, 22),
        ("Gowalla", 107_091, 2, 103),
        ("TIGER", 16_281, 2, 40),
        ("Image", 34_112, 3, 26),
        ("Adult-num", 48_842, 6, 8),
        ("Lifesci", 26_733, 10, 4),
    ],
)
def test_eug_gives_the_papers_grids_at_epsilon_1(name: str, n: int, d: int, m: int) -> None:
    assert side(GridRule(), d, n) == m, name


def test_eug_gives_adults_grid_at_epsilon_0_05() -> None:
    assert side(GridRule(), 6, 48_842, epsilon=0.05) == 4


@pytest.mark.parametrize(
    ("n", "d", "m"),
    [
        # (N / sqrt(ln N))^(2 / (d + 3)): 5000 / 2.9184 = 1713.2; ^0.4 = 19.66.
        (5_000, 2, 20),
        # 48842 / 3.2856 = 14865; ^(2/9) = 8.456.
        (48_842, 6, 8),
        # 100 / 2.146 = 46.6; ^0.5 = 6.83.
        (100, 1, 7),
    ],
)
def test_mkm_gives_leis_grid(n: int, d: int, m: int) -> None:
    assert side(GridRule("mkm"), d, n) == m


def test_mkm_ignores_epsilon_and_eug_grows_with_it() -> None:
    assert side(GridRule("mkm"), 2, 5_000, 0.01) == side(GridRule("mkm"), 2, 5_000, 10.0)
    assert side(GridRule(), 2, 5_000, 0.25) == 11
    assert side(GridRule(), 2, 5_000, 4.0) == 45


def test_theta_divides_the_count() -> None:
    assert side(GridRule(theta=2.5), 2, 5_000) == 45


def test_fixed_takes_m_whatever_the_count() -> None:
    rule = GridRule("fixed", cells_per_dimension=17)
    assert not rule.needs_count
    assert [side(rule, 2, n) for n in (0, 5_000)] == [17, 17]
    assert GridRule().needs_count
    assert GridRule("mkm").needs_count


@pytest.mark.parametrize("name", ["eug", "mkm"])
@pytest.mark.parametrize("count", [-(1 << 40), -1, 0, 1])
def test_a_noisy_count_below_1_gives_one_cell(name: str, count: int) -> None:
    choice = GridRule(name).choose(dimension=2, count=count, epsilon=1.0)  # type: ignore[arg-type]
    assert choice.grid.size == 1
    assert not choice.capped


@pytest.mark.parametrize("rule", [GridRule(), GridRule("mkm"), GridRule(theta=1e-300)])
@pytest.mark.parametrize("epsilon", [1e9, 1e300, sys.float_info.max])
def test_huge_counts_and_epsilons_end_at_the_cap(rule: GridRule, epsilon: float) -> None:
    choice = rule.choose(dimension=2, count=1 << 62, epsilon=epsilon)
    assert choice.grid == Grid(2, 1 << 10)
    assert choice.capped
    assert choice.wanted > 1 << 10


def test_a_tiny_epsilon_gives_one_cell() -> None:
    assert side(GridRule(), 3, 5_000, 1e-300) == 1


def test_the_cap_lowers_m_and_is_recorded() -> None:
    choice = GridRule(max_cells=400).choose(dimension=2, count=5_000, epsilon=1.0)
    assert (choice.grid.cells_per_dimension, choice.wanted, choice.capped) == (20, 22, True)


def test_a_cap_that_is_just_met_is_not_recorded() -> None:
    choice = GridRule(max_cells=22 * 22).choose(dimension=2, count=5_000, epsilon=1.0)
    assert (choice.grid.cells_per_dimension, choice.capped) == (22, False)


def test_the_cap_also_lowers_a_fixed_m() -> None:
    rule = GridRule("fixed", cells_per_dimension=5_000_000, max_cells=LARGEST_MAX_CELLS)
    choice = rule.choose(dimension=1, count=1, epsilon=1.0)
    assert choice.grid.cells_per_dimension == MAX_CELLS_PER_DIMENSION
    assert choice.capped
    assert choice.wanted == 5_000_000


@given(st.integers(1, LARGEST_MAX_CELLS), st.integers(1, 40))
def test_the_cap_gives_the_largest_m_that_fits(max_cells: int, d: int) -> None:
    rule = GridRule("fixed", cells_per_dimension=1 << 30, max_cells=max_cells)
    m = side(rule, d, 1)
    assert m**d <= max_cells
    assert (m + 1) ** d > max_cells or m == MAX_CELLS_PER_DIMENSION


@pytest.mark.parametrize(("m", "d"), [(2, 28), (3, 16), (645, 3), (16384, 2), (1024, 2), (10, 8)])
def test_the_cap_is_exact_at_perfect_powers(m: int, d: int) -> None:
    for cap, expected in ((m**d, m), (m**d - 1, m - 1)):
        rule = GridRule("fixed", cells_per_dimension=1 << 30, max_cells=cap)
        assert side(rule, d, 1) == max(expected, 1)


@given(
    st.sampled_from(["eug", "mkm"]),
    st.integers(1, 30),
    st.integers(-(1 << 62), 1 << 62),
    st.floats(1e-12, 1e12),
)
def test_every_choice_is_a_grid_within_the_cap(name: str, d: int, n: int, epsilon: float) -> None:
    choice = GridRule(name).choose(dimension=d, count=n, epsilon=epsilon)  # type: ignore[arg-type]
    assert 1 <= choice.grid.size <= DEFAULT_MAX_CELLS
    assert choice.capped == (choice.grid.cells_per_dimension < choice.wanted)


@pytest.mark.parametrize(
    ("given_rule", "named"),
    [
        ({"name": "ug"}, "grid"),
        ({"theta": 0.0}, "theta"),
        ({"theta": -1.0}, "theta"),
        ({"theta": math.nan}, "theta"),
        ({"theta": math.inf}, "theta"),
        ({"max_cells": 0}, "max_cells"),
        ({"max_cells": LARGEST_MAX_CELLS + 1}, "max_cells"),
        ({"name": "fixed"}, "cells_per_dimension"),
        ({"name": "fixed", "cells_per_dimension": 0}, "cells_per_dimension"),
    ],
)
def test_a_bad_rule_names_its_parameter(given_rule: dict[str, object], named: str) -> None:
    with pytest.raises(ParameterError, match=f"^{named}: "):
        GridRule(**given_rule)  # type: ignore[arg-type]
