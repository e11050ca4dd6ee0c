"""The formulas: numbers worked out elsewhere, how they scale, and inputs at the extremes."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkm_spark.analysis import (
    HybridDecision,
    count_weight,
    decide_hybrid,
    dplloyd_mse,
    eug_cells,
    eugkm_variance,
    gkm_blocks,
    gkm_mse,
    grid_bias_bound,
    grid_variance,
    hybrid_mse,
    hybrid_threshold,
    optimal_mse,
    optimal_ratio,
    optimal_rounds,
    predicted_errors,
    small_blocks,
    squared_norm,
)
from dpkm_spark.domain import SCALE
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import GridRule

ns = st.integers(1, 10**12)
ds = st.integers(1, 40)
ks = st.integers(1, 500)
epsilons = st.floats(1e-4, 1e3)

#: N, d, k as the paper has them; the least epsilon at which Eq. 15 holds, with sum o^2 = 0.2025 d
#: and with d / 3; and eps_m, the least budget of a round with the optimal split. All worked out by
#: hand for the design, before there was code.
PAPER = {
    "S1": (5000, 2, 15, 58.4, 64.8, 1.178),
    "Gowalla": (107_091, 2, 5, 0.303, 0.336, 0.0106),
    "TIGER": (16_281, 2, 2, 0.319, 0.354, 0.0176),
    "Image": (34_112, 3, 3, 0.126, 0.137, 0.0257),
    "Adult-num": (48_841, 6, 5, 0.068, 0.073, 0.0962),
    "Lifesci": (26_733, 10, 3, 0.073, 0.077, 0.1643),
}


# --- Eq. 7 ----------------------------------------------------------------------------------------


def test_equation_7_for_small_numbers() -> None:
    # b = 3 * 5 / 0.5 = 30, so variances 1800; C = 1000; 2 * 1800 + 0.5 * 1800 over 10^6.
    error = dplloyd_mse(n=4000, d=2, k=4, epsilon=0.5, rounds=5, norm=0.5)
    assert error == pytest.approx((2 + 0.5) * 1800 / 1000**2)


@given(ns, ds, ks, epsilons, st.integers(1, 20))
def test_equation_7_grows_with_rounds_and_clusters_and_falls_with_rows_and_epsilon(
    n: int, d: int, k: int, epsilon: float, rounds: int
) -> None:
    def error(a: int = 1, b: int = 1, c: int = 1, e: int = 1) -> float:
        return dplloyd_mse(n=n * a, d=d, k=k * b, epsilon=epsilon * c, rounds=rounds * e)

    assert error(a=3) == pytest.approx(error() / 9)
    assert error(b=3) == pytest.approx(error() * 9)
    assert error(c=4) == pytest.approx(error() / 16)
    assert error(e=2) == pytest.approx(error() * 4)


@given(ns, ds, ks, epsilons)
def test_the_default_norm_is_that_of_rho(n: int, d: int, k: int, epsilon: float) -> None:
    given_norm = dplloyd_mse(n=n, d=d, k=k, epsilon=epsilon, norm=0.2025 * d)
    assert dplloyd_mse(n=n, d=d, k=k, epsilon=epsilon) == pytest.approx(given_norm)
    assert squared_norm(d) == pytest.approx(0.2025 * d)


# --- the optimal split ----------------------------------------------------------------------------


def error_of_ratio(ratio: float, d: int) -> float:
    """N E / k = 1: d coordinates with 1 / (d + ratio) each, the count with ratio / (d + ratio)."""
    coordinate, count = 1 / (d + ratio), ratio / (d + ratio)
    return 2 * (d / coordinate**2 + squared_norm(d) / count**2)


@given(ds, st.floats(0.01, 100))
def test_no_other_split_of_a_round_has_a_smaller_error(d: int, factor: float) -> None:
    best = optimal_mse(n=1, d=d, k=1, epsilon=1, rounds=1)
    assert best == pytest.approx(error_of_ratio(optimal_ratio(d), d))
    assert error_of_ratio(optimal_ratio(d) * factor, d) >= best * (1 - 1e-12)
    equal = dplloyd_mse(n=1, d=d, k=1, epsilon=1, rounds=1)
    assert equal == pytest.approx(error_of_ratio(1.0, d))


def test_the_count_gets_less_than_a_coordinate_in_few_dimensions_and_more_in_many() -> None:
    assert [round(optimal_ratio(d), 3) for d in (2, 4, 5, 10)] == [0.74, 0.932, 1.004, 1.265]
    for d in (1, 2, 10, 2048):
        assert count_weight(d) == pytest.approx(optimal_ratio(d) * SCALE, abs=0.5)
        assert 1 <= count_weight(d) <= 1 << 40


@pytest.mark.parametrize("name", PAPER)
def test_rounds_of_the_optimal_split_follow_the_least_budget_of_a_round(name: str) -> None:
    n, d, k, *_, least = PAPER[name]

    def rounds(times: float) -> int:
        return optimal_rounds(n=n, d=d, k=k, epsilon=least * times)

    # eps_m is known to three or four digits.
    assert [rounds(t) for t in (0.1, 1, 2, 2.98, 3.02, 4.96, 5.04, 6.93, 7.07, 100)] == [
        2, 2, 2, 2, 3, 4, 5, 6, 7, 7,
    ]  # fmt: skip


def test_the_least_budget_of_a_round_is_that_of_a_total_error_of_0_004() -> None:
    n, d, k = 107_091, 2, 5
    least = math.sqrt(500 * k**3 / n**2 * (d + optimal_ratio(d)) ** 3)
    assert k * optimal_mse(n=n, d=d, k=k, epsilon=least, rounds=1) == pytest.approx(0.004)


# --- Eq. 9 and 10 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "side", "cells"), [(1, 4, 5), (2, 3, 2), (2, 2, 7), (3, 2, 3), (4, 1, 3)]
)
def test_the_finite_grid_formula_is_the_sum_over_the_cells_of_a_cube(
    d: int, side: int, cells: int
) -> None:
    # By Eq. 8 the centroid moves by the sum of (t_i - tau_i) nu_t over the cells, divided by C.
    n, epsilon, k, m = 10_000, 0.3, side**d, side * cells
    line = [((2 * j + 1) / cells - 1) / side for j in range(cells)]
    squares = sum(sum(x * x for x in t) for t in itertools.product(line, repeat=d))
    exact = squares * (2 / epsilon**2) / (n / k) ** 2
    found = grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=m**d)
    assert found == pytest.approx(exact)
    plain = grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=m**d, finite=False)
    assert found == pytest.approx(plain * (1 - 1 / cells**2))


@given(ns, ds, ks, epsilons)
def test_a_cell_for_each_cluster_or_fewer_leaves_noise_nothing_to_move(
    n: int, d: int, k: int, epsilon: float
) -> None:
    for cells in (k, k / 2, 1):
        if cells <= k:
            assert grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=cells) == 0
    assert grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=2.0**60 * k) > 0


def test_the_bias_bound_is_the_squared_half_diagonal_of_a_cell() -> None:
    for d, m in [(1, 4), (2, 22), (6, 4)]:
        assert grid_bias_bound(d=d, cells=m**d) == pytest.approx(d * (1 / m) ** 2)


def test_the_cells_are_those_of_the_grids_rule() -> None:
    for n, d, epsilon in [(5000, 2, 1.0), (48_842, 6, 0.05), (26_733, 10, 0.5), (33_925, 3, 1.0)]:
        wanted = GridRule().choose(dimension=d, count=n, epsilon=epsilon).wanted
        assert wanted == math.floor(eug_cells(n=n, d=d, epsilon=epsilon) ** (1 / d) + 0.5)
    assert eug_cells(n=5000, d=2, epsilon=1.0) == pytest.approx(500)
    assert eug_cells(n=26_733, d=10, epsilon=1.0) == pytest.approx(514_928, rel=1e-4)


# --- Eq. 11 to 15 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
def test_thresholds_of_equation_15_for_the_papers_data_sets(name: str) -> None:
    n, d, k, usual, uniform, _ = PAPER[name]
    assert hybrid_threshold(d=d, k=k) / n == pytest.approx(usual, rel=0.01)
    assert hybrid_threshold(d=d, k=k, norm=d / 3) / n == pytest.approx(uniform, rel=0.01)


@given(ns, ds, ks, epsilons, st.floats(0.5, 50))
def test_equation_15_compares_errors_as_its_closed_form_compares_n_epsilon(
    n: int, d: int, k: int, epsilon: float, theta: float
) -> None:
    decision = decide_hybrid(n=n, d=d, k=k, epsilon=epsilon, theta=theta)
    distance = math.log(decision.work / decision.threshold)
    if abs(distance) > 1e-9:
        assert decision.against_eugkm.holds == (distance > 0)
    assert decision.work == pytest.approx(n * epsilon)


@given(ns, ds, ks, epsilons, st.integers(1, 20))
def test_equation_14_holds_for_two_rounds_or_more(
    n: int, d: int, k: int, epsilon: float, rounds: int
) -> None:
    decision = decide_hybrid(n=n, d=d, k=k, epsilon=epsilon, rounds=rounds)
    assert decision.against_dplloyd.holds == (rounds >= 2)
    assert decision.holds == (decision.against_dplloyd.holds and decision.against_eugkm.holds)


@given(ns, ds, ks, epsilons)
def test_both_sides_are_the_equations(n: int, d: int, k: int, epsilon: float) -> None:
    public = {"n": n, "d": d, "k": k, "epsilon": epsilon}
    decision = decide_hybrid(**public)
    # Eq. 13 written out.
    thirteen = 8 * (d + 1) ** 2 * 1.2025 * d * (k / (n * epsilon)) ** 2
    assert hybrid_mse(**public) == pytest.approx(thirteen)
    assert decision.against_dplloyd.left == decision.against_eugkm.left == hybrid_mse(**public)
    assert decision.against_dplloyd.right == dplloyd_mse(**public, rounds=5)
    assert decision.against_eugkm.right == eugkm_variance(**public)
    power = 2 * d / (2 + d)
    twelve = 2 * d / 3 * k ** ((d - 2) / d) * 10**-power * (n * epsilon) ** (-4 / (2 + d))
    assert eugkm_variance(**public) == pytest.approx(twelve)


def decide(name: str, epsilon: float) -> HybridDecision:
    n, d, k, *_ = PAPER[name]
    return decide_hybrid(n=n, d=d, k=k, epsilon=epsilon)


def test_the_papers_own_cases_of_the_hybrid() -> None:
    # It reports a fallback on Adult-num at 0.05, and a last round on Gowalla at 0.7.
    assert not decide("Adult-num", 0.05).holds
    assert decide("Adult-num", 0.1).holds
    assert decide("Gowalla", 0.7).holds
    assert not any(decide("S1", epsilon).holds for epsilon in (0.05, 0.1, 0.5, 1.0))


# --- Eq. 3 ----------------------------------------------------------------------------------------


def test_the_noise_of_gkm_has_the_papers_scale() -> None:
    # Half the budget for the range: scale 4 k d / (l epsilon) for outputs in [-1, 1].
    assert gkm_mse(d=2, k=15, epsilon=0.5, blocks=30) == pytest.approx(4 * (120 / 15) ** 2)
    # A public range: 2 k d / (l epsilon), a quarter of that.
    assert gkm_mse(d=2, k=15, epsilon=0.5, blocks=30, share=1.0) == pytest.approx(4 * 4.0**2)
    assert gkm_mse(d=2, k=15, epsilon=0.5, blocks=30, width=1.0) == pytest.approx(4 * 4.0**2)


def test_small_blocks_make_the_scale_twelve_k_squared_d_over_n_epsilon() -> None:
    n, d, k, epsilon = 90_000, 3, 5, 0.7
    assert gkm_mse(d=d, k=k, epsilon=epsilon, blocks=small_blocks(n, k)) == pytest.approx(
        2 * d * (12 * k * k * d / (n * epsilon)) ** 2
    )


def test_numbers_of_blocks() -> None:
    assert [gkm_blocks(n) for n in (-3, 0, 1, 5000, 100_000)] == [1, 1, 1, 30, 100]
    for n in [*range(1, 3000), *(root**5 + more for root in range(2, 500) for more in (-1, 0, 1))]:
        blocks = gkm_blocks(n)
        assert blocks**5 <= n**2 < (blocks + 1) ** 5
    assert [small_blocks(n, 5) for n in (-3, 0, 14, 15, 44, 45)] == [1, 1, 1, 1, 2, 3]


# --- all methods ----------------------------------------------------------------------------------


def test_every_private_method_is_predicted_or_said_to_have_no_formula() -> None:
    rows = predicted_errors(48_842, 6, 5, 1.0)
    found = {row.method: row for row in rows}
    assert list(found) == [
        "dplloyd", "dplloyd --split optimal", "eugkm", "hybrid", "gkm", "gkm-3k", "pgkm",
    ]  # fmt: skip
    assert found["pgkm"].noise is None
    assert "no formula" in found["pgkm"].note
    assert found["dplloyd"].noise == dplloyd_mse(n=48_842, d=6, k=5, epsilon=1.0)
    assert found["hybrid"].noise == hybrid_mse(n=48_842, d=6, k=5, epsilon=1.0)
    assert found["eugkm"].noise == grid_variance(n=48_842, d=6, k=5, epsilon=1.0, cells=8**6)
    assert found["eugkm"].bias == pytest.approx(6 / 64)
    # m = (24421 * 0.1)^(1 / 4) = 7.03 for the half.
    assert found["hybrid"].note == "m = 7, then one round of dplloyd"
    # The order that the paper's figures have.
    assert found["gkm"].noise > found["gkm-3k"].noise > found["eugkm"].noise


def test_where_the_hybrid_falls_back_its_prediction_is_eugkms() -> None:
    found = {row.method: row for row in predicted_errors(48_842, 6, 5, 0.05)}
    assert (found["hybrid"].noise, found["hybrid"].bias) == (
        found["eugkm"].noise, found["eugkm"].bias,
    )  # fmt: skip
    assert "no last round" in found["hybrid"].note


def test_a_cap_on_cells_and_a_public_range_are_heeded() -> None:
    plain = {row.method: row for row in predicted_errors(10**6, 6, 5, 1.0, rounds=3)}
    other = {
        row.method: row
        for row in predicted_errors(10**6, 6, 5, 1.0, rounds=3, max_cells=64, public_range=True)
    }
    assert other["eugkm"].note == "m = 2 (capped)"
    assert other["eugkm"].bias == pytest.approx(6 / 4)
    assert other["gkm"].noise == pytest.approx(plain["gkm"].noise / 4)
    assert other["dplloyd"] == plain["dplloyd"]
    assert plain["dplloyd"].noise == dplloyd_mse(n=10**6, d=6, k=5, epsilon=1.0, rounds=3)


def test_a_hybrid_that_starts_from_hardly_any_cells_is_told() -> None:
    found = {row.method: row for row in predicted_errors(10**7, 40, 3, 1.0)}
    assert found["eugkm"].note.startswith("no better than random points; m = 1 (capped)")
    assert found["hybrid"].note == (
        "m = 1 (capped), then one round of dplloyd; so coarse a grid is a poor start"
    )


def test_errors_that_exceed_a_random_points_are_called_hopeless() -> None:
    hopeless = {
        row.method
        for row in predicted_errors(5000, 2, 15, 0.1)
        if row.note.startswith("no better than random points")
    }
    assert hopeless == {"dplloyd", "gkm", "gkm-3k"}


@given(
    n=st.one_of(st.integers(-(10**6), 10**13), st.sampled_from([-(1 << 62), 0, 1 << 62, 10**400])),
    d=st.one_of(ds, st.just(2048)),
    k=st.one_of(ks, st.just(10_000)),
    epsilon=st.one_of(
        st.floats(min_value=5e-324, max_value=1.7e308),
        st.sampled_from([5e-324, 2.0**-40, 1e-9, 1.0, 2.0**50, 1.7e308]),
    ),
    theta=st.sampled_from([5e-324, 10.0, 1e308]),
)
def test_every_prediction_is_a_finite_number_at_the_extremes(
    n: int, d: int, k: int, epsilon: float, theta: float
) -> None:
    for row in predicted_errors(n, d, k, epsilon, theta=theta):
        for value in (row.noise, row.bias):
            assert value is None or (math.isfinite(value) and value >= 0)
    decision = decide_hybrid(n=n, d=d, k=k, epsilon=epsilon)
    assert json.dumps(decision.against_eugkm.record(), allow_nan=False)
    assert isinstance(decision.holds, bool)
    assert 2 <= optimal_rounds(n=n, d=d, k=k, epsilon=epsilon) <= 7


@given(st.integers(-(10**9), 0), ds, ks, epsilons)
def test_a_count_below_one_counts_as_one(n: int, d: int, k: int, epsilon: float) -> None:
    assert predicted_errors(n, d, k, epsilon) == predicted_errors(1, d, k, epsilon)
    assert decide_hybrid(n=n, d=d, k=k, epsilon=epsilon) == decide_hybrid(
        n=1, d=d, k=k, epsilon=epsilon
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", bad) for bad in (0.0, -1.0, math.nan, math.inf)]
    + [(name, bad) for name in ("d", "k", "rounds") for bad in (0, -1)],
)
def test_a_public_number_out_of_range_is_an_error_that_names_it(name: str, value: float) -> None:
    public = {"n": 100, "d": 2, "k": 3, "epsilon": 1.0, "rounds": 5}
    with pytest.raises(ParameterError, match=f"^{name}: got .*; must be"):
        dplloyd_mse(**{**public, name: value})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_theta_cells_and_shares_must_be_positive(value: float) -> None:
    with pytest.raises(ParameterError, match=r"^theta: got"):
        eug_cells(n=10, d=2, epsilon=1.0, theta=value)
    with pytest.raises(ParameterError, match=r"^cells: got"):
        grid_variance(n=10, d=2, k=3, epsilon=1.0, cells=value)
    with pytest.raises(ParameterError, match=r"^share: got"):
        gkm_mse(d=2, k=3, epsilon=1.0, blocks=4, share=value)
