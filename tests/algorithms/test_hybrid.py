"""The hybrid behind the door: the decision, both of its ways, and what it says of itself."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from algorithm_case import DOMAIN, Untouchable, asked, some_rows, table_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dpkm_spark.algorithms.dplloyd import moved
from dpkm_spark.algorithms.eugkm import EUGKMParameters, eugkm
from dpkm_spark.algorithms.hybrid import ALGORITHM, HybridParameters, HybridResult, hybrid
from dpkm_spark.analysis import decide_hybrid, hybrid_threshold
from dpkm_spark.domain import SCALE, FloatArray, IntArray
from dpkm_spark.errors import BudgetExceededError, EpsilonError, ParameterError
from dpkm_spark.grid import Grid, GridRule
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript
from dpkm_spark.private_table import NoisySums, PrivateTable

SMALL = GridRule(max_cells=256)
FIXED = GridRule(name="fixed", cells_per_dimension=6)
HUGE = Fraction(10**9)
#: N epsilon from which a last round pays at k = 3 in two dimensions.
THRESHOLD = hybrid_threshold(d=2, k=3)


def _parameters(k: int = 3, rule: GridRule = SMALL, **options: Any) -> HybridParameters:
    return HybridParameters(k=k, rule=rule, **{"restarts": 3, **options})


# --- the decision ---------------------------------------------------------------------------------


def test_the_threshold_lies_within_reach_of_these_tests() -> None:
    assert 11_000 < THRESHOLD < 12_000


@pytest.mark.parametrize(("factor", "last_round"), [(0.99, False), (1.01, True)])
def test_a_last_round_comes_where_n_epsilon_exceeds_the_threshold(
    factor: float, last_round: bool
) -> None:
    table = table_of(some_rows(), epsilon=Fraction(2))
    result = hybrid(table, _parameters(public_count=int(THRESHOLD * factor / 2)))
    assert result.last_round == last_round
    rounds = [("cell_histogram", Fraction(1)), ("cluster_sums", Fraction(1))]
    assert asked(table) == (rounds if last_round else [("cell_histogram", Fraction(2))])
    assert table.remaining == 0
    assert result.decision is not None
    assert result.decision.holds == last_round
    assert result.decision.against_dplloyd.holds


def test_the_decision_uses_what_is_left_after_a_noisy_count_and_that_count() -> None:
    # 500 rows at epsilon = 24 are just above the threshold; without the count's share, below.
    epsilon = Fraction(24)
    assert 500 * 24 > THRESHOLD > 500 * 24 * 0.9
    table = table_of(some_rows(), epsilon=epsilon, noise=SeededNoise(1))
    result = hybrid(table, _parameters(count_share=Fraction(1, 10)))
    assert not result.last_round
    assert result.count == int(table.transcript.answers[0].values[0])
    assert result.decision is not None
    assert result.decision.work == pytest.approx(result.count * 21.6)
    assert asked(table) == [("count", Fraction(12, 5)), ("cell_histogram", Fraction(108, 5))]


@pytest.mark.parametrize("noisy", [-(10**6), 0, 1 << 62])
def test_the_decision_follows_the_noisy_count_and_not_the_true_one(noisy: int) -> None:
    results = [
        hybrid(table_of(rows, noise=Given(noisy)), _parameters())
        for rows in (np.zeros((0, 2)), some_rows(30_000))
    ]
    assert [r.last_round for r in results] == [noisy > THRESHOLD] * 2
    assert [r.count for r in results] == [noisy] * 2


class Given:
    """The count that is given, then answers that do not depend on the rows."""

    private = True

    def __init__(self, count: int) -> None:
        self.count = count

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        if len(values) == 1:
            return np.array([self.count])
        return np.random.default_rng(len(values)).integers(-20, 60, size=len(values))


def test_eq_15_uses_the_theta_of_the_grid() -> None:
    # Twice the theta doubles the threshold.
    public = int(THRESHOLD * 1.5)
    for theta, last_round in ((10.0, True), (20.0, False)):
        rule = GridRule(theta=theta, max_cells=256)
        result = hybrid(table_of(some_rows()), _parameters(rule=rule, public_count=public))
        assert result.last_round == last_round


@pytest.mark.parametrize(
    ("name", "public", "last_round"),
    [("always", 0, True), ("always", 10**9, True), ("never", 0, False), ("never", 10**9, False)],
)
def test_the_user_can_decide(name: str, public: int, last_round: bool) -> None:
    table = table_of(some_rows())
    result = hybrid(table, _parameters(hybrid_rule=name, public_count=public))
    assert result.last_round == last_round
    assert [query for query, _ in asked(table)] == ["cell_histogram", "cluster_sums"][
        : 1 + last_round
    ]
    # What the equations said is told all the same.
    assert result.decision == decide_hybrid(n=public, d=2, k=3, epsilon=1.0)
    assert table.remaining == 0


def test_a_fixed_grid_and_a_choice_of_the_user_need_no_count() -> None:
    for name in ("always", "never"):
        table = table_of(some_rows())
        result = hybrid(table, _parameters(rule=FIXED, hybrid_rule=name))
        assert "count" not in dict(asked(table))
        assert (result.count, result.decision) == (None, None)
        assert "predicted" not in result.facts()["Last round"].lower()
    table = table_of(some_rows())
    hybrid(table, _parameters(rule=FIXED))
    assert asked(table)[0] == ("count", Fraction(1, 50))


# --- what the two ways compute --------------------------------------------------------------------


def _answers(table: PrivateTable) -> tuple[Answer, ...]:
    return table.transcript.answers


def test_without_a_last_round_it_is_eugkm() -> None:
    tables = [table_of(some_rows(), noise=SeededNoise(2)) for _ in range(2)]
    found = hybrid(tables[0], _parameters(hybrid_rule="never"))
    expected = eugkm(tables[1], EUGKMParameters(3, SMALL, restarts=3))
    assert asked(tables[0]) == asked(tables[1])
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    np.testing.assert_array_equal(found.noisy_sizes, expected.noisy_sizes)
    np.testing.assert_array_equal(found.synopsis.counts, expected.synopsis.counts)
    assert found.how == expected.how
    assert found.on_grid.record() == expected.record()


def test_a_last_round_moves_eugkms_centroids_to_noisy_means() -> None:
    table = table_of(some_rows(), epsilon=Fraction(4), noise=SeededNoise(2))
    result = hybrid(table, _parameters(hybrid_rule="always", public_count=500))
    # EUGkM on half the budget, on the grid for that half: (500 * 2 / 10)^(1 / 2) = 10.
    half = table_of(some_rows(), epsilon=Fraction(2), noise=SeededNoise(2))
    first = eugkm(half, EUGKMParameters(3, SMALL, public_count=500, restarts=3))
    assert result.synopsis.grid == first.synopsis.grid == Grid(2, 10)
    np.testing.assert_array_equal(result.synopsis.counts, first.synopsis.counts)
    np.testing.assert_array_equal(result.on_grid.centroids, first.centroids)
    assert result.synopsis.epsilon == "2"
    # One round from there: noise of scale (d + 1) / (epsilon / 2).
    answer = _answers(table)[1]
    assert answer.query.sensitivity == 3 * SCALE
    assert answer.scale / SCALE == pytest.approx(3 / 2)
    values = answer.values.reshape(3, 3) / SCALE
    before = DOMAIN.to_normalised(first.centroids)
    after = moved(before, NoisySums(values[:, :2], values[:, 2]))
    order = np.argsort(-values[:, 2], kind="stable")
    np.testing.assert_array_equal(result.centroids, DOMAIN.to_table_units(after[order]))
    np.testing.assert_array_equal(result.noisy_sizes, values[order, 2])
    assert (result.centroids != first.centroids).any()


def test_without_noise_a_last_round_mends_what_the_cells_blur() -> None:
    # All rows stand near the lower edges of wide cells; the grid can only give the cells' centres.
    rows = np.repeat([[-9.9, 0.01], [10.1, 0.51]], [300, 200], axis=0)
    rule = GridRule(name="fixed", cells_per_dimension=4)
    options = {"rule": rule, "k": 2, "public_count": 500, "restarts": 5}
    found = {
        name: hybrid(
            table_of(rows, epsilon=HUGE, noise=SeededNoise(1)),
            HybridParameters(hybrid_rule=name, **options),
        )
        for name in ("always", "never")
    }
    np.testing.assert_allclose(found["always"].centroids, [[-9.9, 0.01], [10.1, 0.51]], atol=1e-3)
    np.testing.assert_allclose(found["never"].centroids, [[-5, 0.125], [15, 0.625]], atol=1e-3)
    for result in found.values():
        np.testing.assert_allclose(result.noisy_sizes, [300, 200], atol=1e-3)


TABLES: dict[str, FloatArray] = {
    "empty": np.zeros((0, 2)),
    "one row": np.array([[3.0, 0.5]]),
    "all rows equal": np.full((400, 2), 0.25),
    "all NaN": np.full((50, 2), np.nan),
    "all infinite": np.tile([[np.inf, -np.inf]], (50, 1)),
}


@pytest.mark.parametrize("name", ["auto", "always", "never"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), HUGE])
@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES.keys())
def test_every_table_gives_k_finite_centroids_within_the_bounds(
    rows: FloatArray, epsilon: Fraction, name: str
) -> None:
    result = hybrid(table_of(rows, epsilon=epsilon), _parameters(5, hybrid_rule=name))
    assert result.centroids.shape == (5, 2)
    assert (result.centroids >= DOMAIN.lower).all()
    assert (result.centroids <= DOMAIN.upper).all()
    assert result.noisy_sizes is not None
    assert np.isfinite(result.noisy_sizes).all()
    assert (np.diff(result.noisy_sizes) <= 0).all()


# --- budget and parameters ------------------------------------------------------------------------


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**4), max_value=10**6),
    share=st.one_of(
        st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(9_999, 10**4)),
        st.floats(min_value=1e-4, max_value=0.9999),
    ),
    public=st.one_of(st.none(), st.integers(0, 10**9)),
    name=st.sampled_from(["auto", "always", "never"]),
    rule=st.sampled_from([GridRule(), GridRule(name="mkm"), FIXED]),
    d=st.integers(1, 50),
    count=st.integers(-(10**6), 10**9),
)
@settings(max_examples=100)
def test_the_shares_add_up_to_epsilon_exactly(
    *,
    epsilon: Fraction,
    share: Fraction,
    public: int | None,
    name: str,
    rule: GridRule,
    d: int,
    count: int,
) -> None:
    parameters = HybridParameters(3, rule, name, public, share)
    plan = parameters.plan(epsilon, d, count)
    assert sum((q.epsilon * q.times for q in plan), Fraction(0)) == epsilon
    assert all(isinstance(q.epsilon, Fraction) and q.epsilon > 0 for q in plan)
    bought = public is None and (name == "auto" or rule.name != "fixed")
    assert parameters.buys_count == bought
    names = [q.name for q in plan]
    assert names[:1] == (["count"] if bought else ["cell_histogram"])
    if name == "auto":
        left = epsilon - (plan[0].epsilon if bought else 0)
        decision = decide_hybrid(n=count, d=d, k=3, epsilon=float(left), theta=rule.theta)
        assert ("cluster_sums" in names) == decision.holds
    else:
        assert ("cluster_sums" in names) == (name == "always")
    if "cluster_sums" in names:
        assert plan[-2].epsilon == plan[-1].epsilon
        assert plan[-1].sensitivity == d + 1


def test_a_spent_table_is_refused() -> None:
    table = table_of(some_rows())
    table.noisy_count(Fraction(1))
    with pytest.raises(BudgetExceededError):
        hybrid(table, _parameters())


def test_a_share_too_small_for_noise_is_refused_before_anything_is_spent() -> None:
    epsilon = Fraction(1, 1 << 40)
    stub = Untouchable()
    table = PrivateTable(stub, Budget(epsilon), MemoryTranscript("run"), stub)
    with pytest.raises(EpsilonError, match="epsilon of count"):
        hybrid(table, _parameters())
    assert table.remaining == epsilon


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("k", bad) for bad in (0, -1, 1.5, True, None, "3", 10_001)],
        *[("hybrid_rule", bad) for bad in ("", "Auto", None, True)],
        *[("restarts", bad) for bad in (0, 2.5, 10_001)],
        *[("max_iter", bad) for bad in (0, 2.5, 1_000_001)],
        *[("public_count", bad) for bad in (-1, 2.5, True, 1 << 63)],
        *[("count_share", bad) for bad in (Fraction(0), Fraction(1), 2.0)],
    ],
)
def test_a_parameter_out_of_range_is_an_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        HybridParameters(**{"k": 3, name: value})
    assert str(caught.value).startswith(f"{name}: got ")
    assert "must be" in str(caught.value)


# --- a run is its transcript ----------------------------------------------------------------------


def _assert_same(a: HybridResult, b: HybridResult) -> None:
    np.testing.assert_array_equal(a.centroids, b.centroids)
    np.testing.assert_array_equal(a.noisy_sizes, b.noisy_sizes)
    np.testing.assert_array_equal(a.synopsis.counts, b.synopsis.counts)
    assert (a.record(), a.facts(), a.how) == (b.record(), b.facts(), b.how)


@pytest.mark.parametrize("name", ["auto", "always", "never"])
def test_the_same_transcript_gives_the_same_result_without_the_table(name: str) -> None:
    parameters = _parameters(hybrid_rule=name)
    table = table_of(some_rows())
    first = hybrid(table, parameters)
    stub = Untouchable()
    stored = MemoryTranscript("run", _answers(table))
    _assert_same(first, hybrid(PrivateTable(stub, Budget(Fraction(1)), stored, stub), parameters))


@pytest.mark.parametrize("stored", range(4))
def test_a_driver_that_died_is_continued_by_the_next(stored: int) -> None:
    parameters = _parameters(hybrid_rule="always")
    first = table_of(some_rows())
    whole = hybrid(first, parameters)
    second = table_of(some_rows(), answers=_answers(first)[:stored], noise=SeededNoise(2))
    again = hybrid(second, parameters)
    assert second.remaining == 0
    assert asked(second) == asked(first)
    if stored >= 2:
        np.testing.assert_array_equal(again.on_grid.centroids, whole.on_grid.centroids)
    assert again.private == (stored == 3)


@pytest.mark.parametrize("count", [0, 1 << 40])
def test_tables_with_the_same_noisy_answers_have_the_same_result_and_progress(count: int) -> None:
    def run(rows: FloatArray) -> tuple[HybridResult, list[str]]:
        lines: list[str] = []

        def listen(text: str, *, brief: bool = False) -> None:
            lines.append(f"{brief} {text}")

        return hybrid(table_of(rows, noise=Given(count)), _parameters(6), listen), lines

    first, said = run(np.zeros((0, 2)))
    assert first.last_round == (count > 0)
    for rows in (some_rows(), np.full((10_000, 2), 0.9), np.full((5, 2), np.nan)):
        other, also = run(rows)
        _assert_same(first, other)
        assert said == also


# --- what it says of itself -----------------------------------------------------------------------


def test_the_record_holds_both_sides_of_each_inequality() -> None:
    result = hybrid(table_of(some_rows()), _parameters(public_count=10**6))
    record = result.record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    decision = decide_hybrid(n=10**6, d=2, k=3, epsilon=1.0)
    assert record["hybrid"] == {
        "rule": "auto",
        "last_round": True,
        "equation_14": {
            "left": decision.against_dplloyd.left,
            "right": decision.against_dplloyd.right,
            "holds": True,
        },
        "equation_15": {
            "left": decision.against_eugkm.left,
            "right": decision.against_eugkm.right,
            "holds": True,
        },
        "n_epsilon": 1e6,
        "threshold": THRESHOLD,
    }
    assert (record["count"], record["count_is_public"]) == (10**6, True)
    assert {key: record[key] for key in ("grid", "best_restart", "objective_on_synopsis")} == {
        key: result.on_grid.record()[key]
        for key in ("grid", "best_restart", "objective_on_synopsis")
    }


def test_the_decision_is_told_in_words() -> None:
    results = {
        public: hybrid(table_of(some_rows()), _parameters(public_count=public))
        for public in (500, 10**6)
    }
    assert results[10**6].facts()["Last round"] == (
        "one round of DPLloyd. Predicted squared error of a centroid after it 1.56e-09: "
        "at most DPLloyd's 9.74e-09 (Eq. 14), at most EUGkM's 1.33e-07 (Eq. 15)"
    )
    assert results[500].facts()["Last round"] == (
        "none, EUGkM alone. Predicted squared error of a centroid after it 0.00623: "
        "at most DPLloyd's 0.039 (Eq. 14), above EUGkM's 0.000267 (Eq. 15)"
    )
    assert results[10**6].how.endswith("cells, 16 a dimension (capped from 224), "
                                       "and one noisy round of Lloyd")  # fmt: skip
    assert "round of Lloyd" not in results[500].how
    asked = hybrid(table_of(some_rows()), _parameters(public_count=500, hybrid_rule="always"))
    assert asked.facts()["Last round"].startswith(
        "one round of DPLloyd, as asked for (--hybrid-rule always). Predicted"
    )


@pytest.mark.parametrize("public", [500, 10**6])
def test_the_outlook_of_a_dry_run_is_what_a_run_does(public: int) -> None:
    parameters = _parameters(public_count=public)
    result = hybrid(table_of(some_rows()), parameters)
    said = ALGORITHM.outlook(parameters, Fraction(1), 2, public)
    grid = result.synopsis.grid
    assert said.startswith(f"{grid.cells_per_dimension} cells a dimension, {grid.size} in all")
    assert said.endswith("; then a round of DPLloyd" if result.last_round else "; no last round")
    assert result.last_round == (public == 10**6)


@pytest.mark.parametrize("name", ["always", "never"])
def test_a_single_cell_is_warned_of(name: str) -> None:
    result = hybrid(
        table_of(some_rows()), _parameters(rule=GridRule(max_cells=1), hybrid_rule=name)
    )
    (warning,) = result.warnings()
    assert warning.startswith("The grid has a single cell")
    assert ("last round" in warning) == (name == "always")
    assert hybrid(table_of(some_rows()), _parameters(rule=FIXED, hybrid_rule=name)).warnings() == []
