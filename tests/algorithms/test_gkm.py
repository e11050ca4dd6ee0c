"""GkM behind the door: it spends the budget exactly, and averages blocks as the paper has it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from algorithm_case import DOMAIN, Untouchable, asked, some_rows, table_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpkm_spark.algorithms.gkm import (
    ALGORITHM,
    RANGE_BINS,
    GKMParameters,
    GKMResult,
    gkm,
    range_of,
)
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import (
    BudgetExceededError,
    EpsilonError,
    ParameterError,
    QueryError,
    TranscriptError,
)
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import BlockPlan, PrivateTable
from dpkm_spark.queries import blocks
from dpkm_spark.queries.local import LocalEngine

HUGE = Fraction(10**9)


# --- budget ---------------------------------------------------------------------------------------

shares = st.one_of(
    st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(9_999, 10**4)),
    st.floats(min_value=1e-4, max_value=0.9999),
)
sizes = st.one_of(st.sampled_from(["paper", "3k"]), st.integers(1, 1 << 40))


@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**4), max_value=10**6),
    share=shares,
    public=st.one_of(st.none(), st.integers(0, 10**12)),
    size=sizes,
    output_range=st.sampled_from(["dp", "public"]),
    d=st.integers(1, 200),
)
@settings(max_examples=1000)
def test_the_shares_add_up_to_epsilon_exactly(
    *,
    epsilon: Fraction,
    share: Fraction,
    public: int | None,
    size: str | int,
    output_range: str,
    d: int,
) -> None:
    parameters = GKMParameters(3, size, output_range, public_count=public, count_share=share)
    plan = parameters.plan(epsilon, d, 1000)
    assert sum((q.epsilon * q.times for q in plan), Fraction(0)) == epsilon
    assert all(isinstance(q.epsilon, Fraction) and q.epsilon > 0 for q in plan)
    assert parameters.buys_count == (public is None)
    bought, box = ["count"] * (public is None), ["marginals"] * (output_range == "dp")
    assert [q.name for q in plan] == [*bought, *box, "block_sums"]
    assert plan[-1].sensitivity == 3 * d
    if box:
        assert plan[-2].epsilon == plan[-1].epsilon
        assert plan[-2].sensitivity == d


@pytest.mark.parametrize("output_range", ["dp", "public"])
@pytest.mark.parametrize("public", [None, 400])
def test_what_is_asked_is_what_was_planned(output_range: str, public: int | None) -> None:
    parameters = GKMParameters(
        2, "3k", output_range, public_count=public, count_share=Fraction(1, 10)
    )
    table = table_of(some_rows(), epsilon=Fraction(2, 3))
    result = gkm(table, parameters)
    plan = parameters.plan(Fraction(2, 3), 2, result.count or 0)
    assert asked(table) == [(query.name, query.epsilon) for query in plan]
    assert table.remaining == 0
    assert (result.count == 400) == result.count_is_public == (public is not None)
    assert result.range_is_public == (output_range == "public")
    for answer, query in zip(table.transcript.answers, plan, strict=True):
        unit = SCALE if query.name == "block_sums" else 1
        assert answer.query.sensitivity == query.sensitivity * unit
        assert answer.scale == pytest.approx(query.sensitivity * unit / float(query.epsilon))


def test_the_noise_on_a_coordinate_is_that_of_equation_3() -> None:
    # (max - min) k d / (l eps_a), and half the budget is 2 (max - min) k d / (l eps).
    table = table_of(some_rows(), epsilon=Fraction(1, 2))
    parameters = GKMParameters(4, 10, "dp", public_count=600)
    result = gkm(table, parameters)
    assert result.blocks == 60
    answer = table.transcript.answers[-1]
    assert answer.scale / SCALE / 60 == pytest.approx(2 * 4 * 2 / (60 * 0.5))
    assert result.noise_scale == pytest.approx(answer.scale / SCALE / 60)


@pytest.mark.parametrize("name", ["noisy_count", "noisy_marginals", "noisy_block_mean"])
def test_an_algorithm_that_asks_for_more_is_stopped_at_the_door(name: str) -> None:
    engine: Any = Untouchable()
    table = PrivateTable(engine, Budget(Fraction(1)), MemoryTranscript("run"), engine)
    more = Fraction(11, 10)
    plan = BlockPlan.of(blocks=3, key=1, starts=np.zeros((2, 2)), low=-np.ones(2), high=np.ones(2))
    ask = {
        "noisy_count": lambda: table.noisy_count(more),
        "noisy_marginals": lambda: table.noisy_marginals(4, more),
        "noisy_block_mean": lambda: table.noisy_block_mean(plan, more),
    }[name]
    engine.prepare_heavy = lambda: None
    with pytest.raises(BudgetExceededError):
        ask()
    assert table.remaining == 1
    assert not table.transcript.answers


def test_a_spent_budget_is_told_and_nothing_is_asked() -> None:
    engine: Any = Untouchable()
    budget = Budget(Fraction(1))
    budget.charge(Fraction(1), "something else")
    table = PrivateTable(engine, budget, MemoryTranscript("run"), engine)
    with pytest.raises(BudgetExceededError, match="whole budget"):
        gkm(table, GKMParameters(2))


def test_a_share_too_small_is_refused_before_a_count_is_paid_for() -> None:
    domain = Domain.of([f"x{i}" for i in range(50)], (-1.0, 1.0))
    small = Fraction(1, 10_000)
    table = table_of(np.zeros((3, 50)), domain=domain, epsilon=small)
    # Noise of a count is fine at this share, that of 500 numbers in units of 2^-20 is not.
    with pytest.raises(EpsilonError, match="block_sums"):
        gkm(table, GKMParameters(10))
    assert table.remaining == small


def test_more_dimensions_than_exact_scores_allow_are_refused_before_that() -> None:
    d = blocks.MOST_DIMENSIONS + 1
    domain = Domain.of_vector("v", [(-1.0, 1.0)] * d)
    table = table_of(np.zeros((1, d)), domain=domain)
    with pytest.raises(
        ParameterError, match=f"columns: got {d}; this method can use at most {d - 1}"
    ):
        gkm(table, GKMParameters(1))
    assert table.remaining == 1


class NoPython(LocalEngine):
    """An engine that cannot serve blocks."""

    def prepare_heavy(self) -> None:
        raise QueryError("no Python")


def test_blocks_that_cannot_be_served_are_refused_before_a_count_is_paid_for() -> None:
    table = PrivateTable(NoPython(some_rows(), DOMAIN), Budget(Fraction(1)))
    with pytest.raises(QueryError, match="no Python"):
        gkm(table, GKMParameters(3))
    assert table.remaining == 1


def test_a_plan_for_other_dimensions_is_refused() -> None:
    plan = BlockPlan.of(blocks=3, key=1, starts=np.zeros((2, 3)), low=-np.ones(3), high=np.ones(3))
    table = table_of(some_rows())
    with pytest.raises(ParameterError, match="dimensions"):
        table.noisy_block_mean(plan, Fraction(1))
    assert table.remaining == 1


# --- number of blocks -----------------------------------------------------------------------------


@given(st.integers(0, 1 << 62))
def test_gkm_has_the_floor_of_n_to_the_two_fifths(n: int) -> None:
    found = GKMParameters(3).blocks(n)
    if n:
        assert found**5 <= n * n < (found + 1) ** 5
    else:
        assert found == 1


@pytest.mark.parametrize(
    ("size", "k", "n", "expected"),
    [
        ("paper", 3, 10**5, 100),
        ("paper", 3, 10**5 - 1, 99),
        ("paper", 3, 10**10, 10**4),
        ("3k", 8, 10**7, 416_666),
        ("3k", 5, 14, 1),
        (100, 5, 1050, 10),
        (100, 5, 99, 1),
        ("paper", 5, -50, 1),
        ("3k", 5, -50, 1),
        (1, 1, 1 << 62, BlockPlan.MOST_BLOCKS),
    ],
)
def test_number_of_blocks(size: str | int, k: int, n: int, expected: int) -> None:
    assert GKMParameters(k, size).blocks(n) == expected


@pytest.mark.parametrize("noisy", [-(10**6), 0, 10**15, 1 << 62])
def test_a_noisy_count_far_off_costs_neither_memory_nor_time(noisy: int) -> None:
    class OnlyCount:
        private = True

        def add(self, values: IntArray, calibration: Calibration) -> IntArray:
            return values + noisy if len(values) == 1 else values

    result = gkm(table_of(some_rows(50), noise=OnlyCount()), GKMParameters(3, "3k"))
    assert 1 <= result.blocks <= BlockPlan.MOST_BLOCKS
    assert np.isfinite(result.centroids).all()


# --- what is released -----------------------------------------------------------------------------

values = st.one_of(st.floats(-50, 50), st.sampled_from([10.0, 0.5]))


@given(
    rows=st.integers(0, 40).flatmap(lambda n: hnp.arrays(np.float64, (n, 2), elements=values)),
    k=st.integers(1, 6),
    size=st.one_of(st.sampled_from(["paper", "3k"]), st.integers(1, 30)),
    output_range=st.sampled_from(["dp", "public"]),
    starts=st.sampled_from(BlockPlan.METHODS),
    epsilon=st.sampled_from([Fraction(1, 100), Fraction(1), HUGE]),
)
def test_always_k_centroids_within_the_bounds(
    *, rows: FloatArray, k: int, size: str | int, output_range: str, starts: str, epsilon: Fraction
) -> None:
    result = gkm(table_of(rows, epsilon=epsilon), GKMParameters(k, size, output_range, starts))
    assert result.centroids.shape == (k, 2)
    assert result.noisy_sizes is None
    low, high = np.array(DOMAIN.lower), np.array(DOMAIN.upper)
    assert ((result.low >= low) & (result.high <= high) & (result.low < result.high)).all()
    # The box is rounded to steps, and the ends in the table's own units to a double.
    slack = (high - low) / SCALE
    assert (result.centroids >= result.low - slack).all()
    assert (result.centroids <= result.high + slack).all()
    assert ((result.centroids >= low) & (result.centroids <= high)).all()
    # In lexicographic order.
    assert result.centroids.tolist() == sorted(result.centroids.tolist())


def _two_groups(n: int = 6000) -> FloatArray:
    random = np.random.default_rng(7)
    first = random.normal((0.0, 0.2), (0.5, 0.02), (n // 2, 2))
    second = random.normal((20.0, 0.7), (0.5, 0.02), (n - n // 2, 2))
    return np.concatenate([first, second])


@pytest.mark.parametrize("starts", BlockPlan.METHODS)
@pytest.mark.parametrize("output_range", ["dp", "public"])
@pytest.mark.parametrize("size", ["paper", "3k"])
def test_without_noise_two_clear_groups_are_found(
    size: str, output_range: str, starts: str
) -> None:
    parameters = GKMParameters(2, size, output_range, starts)
    result = gkm(table_of(_two_groups(), epsilon=HUGE), parameters)
    # Small blocks may have no row of a group, and then both centroids are in the other one.
    far = np.abs(result.centroids - [[0.0, 0.2], [20.0, 0.7]]).max(axis=0) / [20.0, 0.5]
    assert far.max() < (0.02 if size == "paper" else 0.1)


def test_the_noise_has_the_scale_that_is_told() -> None:
    # One coordinate of one centroid in the middle of its box, in 400 runs of known seeds.
    domain = Domain.of(["x"], (-1.0, 1.0))
    parameters = GKMParameters(1, 10, "public", public_count=1000)
    found, scale = [], 0.0
    for seed in range(400):
        table = table_of(np.zeros((1000, 1)), domain=domain, noise=SeededNoise(seed))
        result = gkm(table, parameters)
        found.append(abs(float(result.centroids[0, 0])))
        scale = result.noise_scale * 2.0
    assert scale == pytest.approx(2 / 100)
    # The mean of |Laplace| is its scale, known here to a twentieth.
    assert np.mean(found) == pytest.approx(scale, rel=0.15)


def test_a_run_with_the_same_id_and_noise_repeats_itself_and_another_id_does_not() -> None:
    rows = some_rows(3000)
    parameters = GKMParameters(3, "3k", public_count=3000)
    runs = [
        gkm(table_of(rows, noise=SeededNoise(1), run_id=name), parameters).centroids
        for name in ("a", "a", "b")
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_replayed_run_needs_no_table() -> None:
    parameters = GKMParameters(2, "3k")
    table = table_of(some_rows())
    first = gkm(table, parameters)
    nothing: Any = Untouchable()
    transcript = MemoryTranscript("run", table.transcript.answers)
    again = gkm(PrivateTable(nothing, Budget(Fraction(1)), transcript, nothing), parameters)
    assert np.array_equal(again.centroids, first.centroids)
    assert again.record() == first.record()


@pytest.mark.parametrize("other", [{"starts": "gupt"}, {"block_size": "paper"}, {"k": 3}])
def test_a_replay_with_other_parameters_is_refused(other: dict[str, Any]) -> None:
    given: dict[str, Any] = {"k": 2, "block_size": "3k", "public_count": 500}
    table = table_of(some_rows())
    gkm(table, GKMParameters(**given))
    with pytest.raises(TranscriptError):
        gkm(
            table_of(some_rows(), answers=table.transcript.answers),
            GKMParameters(**(given | other)),
        )


def test_seeded_noise_is_told() -> None:
    assert not gkm(table_of(some_rows(), noise=SeededNoise(1)), GKMParameters(2)).private
    assert gkm(table_of(some_rows()), GKMParameters(2)).private


def test_record_facts_and_warnings() -> None:
    parameters = GKMParameters(2, "3k", "public", public_count=6000)
    quiet = gkm(table_of(_two_groups()), parameters)
    assert quiet.record() | {"output_lower": 0, "output_upper": 0} == {
        "count": 6000,
        "count_is_public": True,
        "blocks": 1000,
        "rows_per_block": 6.0,
        "output_lower": 0,
        "output_upper": 0,
        "output_range_is_public": True,
        "noise_scale_over_range": pytest.approx(4 / 1000),
    }
    assert quiet.record()["output_lower"] == list(DOMAIN.lower)
    assert quiet.record()["output_upper"] == list(DOMAIN.upper)
    assert quiet.facts() == {
        "Blocks": "1,000 of about 6 rows",
        "Range of centroids": "the domain",
        "Noise on a coordinate": "scale 0.004 of that range",
    }
    assert quiet.warnings() == []
    loud: GKMResult = gkm(table_of(_two_groups(), epsilon=Fraction(1, 100)), parameters)
    assert ["3k" in warning for warning in loud.warnings()] == [True]
    assert parameters.record() == {
        "k": 2,
        "block_size": "3k",
        "output_range": "public",
        "starts": "public",
        "rounds_per_block": 10,
        "count_share": "1/50",
    }


# --- range ----------------------------------------------------------------------------------------


@given(
    marginals=hnp.arrays(
        np.int64, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.integers(-300, 300)
    ),
    k=st.integers(1, 20),
    epsilon=st.sampled_from([1e-3, 1.0, 1e6]),
)
def test_a_range_is_never_empty_and_within_the_domain(
    marginals: IntArray, k: int, epsilon: float
) -> None:
    low, high = range_of(marginals, k, epsilon)
    assert low.shape == high.shape == marginals.shape[:1]
    assert ((low >= -1) & (low < high) & (high <= 1)).all()


@pytest.mark.parametrize("k", [1, 2, 5])
def test_without_noise_the_range_goes_from_one_share_of_the_rows_to_the_other(k: int) -> None:
    line = np.zeros((1, 20), dtype=np.int64)
    line[0, 5:15] = 1000
    low, high = range_of(line, k, 1e9)
    # More than a share 1 / (2 k) of the rows are left of the end of the first bin of the box.
    cut = 10 // (2 * max(k, 2))
    assert (low[0], high[0]) == (pytest.approx(-0.5 + cut / 10), pytest.approx(0.5 - cut / 10))


def test_rows_that_do_not_stand_out_of_the_noise_leave_the_domain() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        noise = np.rint(random.laplace(0, 3 / 0.1, (3, RANGE_BINS))).astype(np.int64)
        low, high = range_of(noise, 3, 0.1)
        assert (low.tolist(), high.tolist()) == ([-1.0] * 3, [1.0] * 3)


def test_noise_on_a_clear_column_leaves_a_box_around_its_rows() -> None:
    random = np.random.default_rng(2)
    rows = np.zeros((2, RANGE_BINS), dtype=np.int64)
    rows[:, 10:14] = 5000
    for _ in range(200):
        noise = np.rint(random.laplace(0, 2 / 0.1, rows.shape)).astype(np.int64)
        low, high = range_of(rows + noise, 3, 0.1)
        # Bins 10 to 13, of 32 on a width of 2.
        assert ((low <= 10 / 16 - 1 + 1e-9) & (high >= 14 / 16 - 1 - 1e-9)).all()
        assert ((low >= 10 / 16 - 1 - 1e-9) & (high <= 14 / 16 - 1 + 1e-9)).all()


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"k": 10_001},
        {"block_size": 0},
        {"block_size": "4k"},
        {"block_size": 1.5},
        {"output_range": "loose"},
        {"starts": "rows"},
        {"public_count": -1},
        {"count_share": Fraction(1)},
    ],
)
def test_what_is_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        GKMParameters(**{"k": 2, **wrong})


def test_settings_make_parameters() -> None:
    defaults = {setting.key: setting.default for setting in ALGORITHM.settings}
    assert ALGORITHM.configure(defaults | {"k": 4}) == GKMParameters(4)
    parse = {setting.key: setting.parse for setting in ALGORITHM.settings}["block_size"]
    assert [parse(v) for v in ("paper", "3k", "24", 24)] == ["paper", "3k", 24, 24]
    for wrong in ("", "k", "2.5", 2.5, True, None):
        with pytest.raises(ParameterError, match="block-size"):
            parse(wrong)
    given = {"k": 4, "block_size": 24, "output_range": "public", "block_starts": "gupt"}
    assert ALGORITHM.configure(defaults | given) == GKMParameters(4, 24, "public", "gupt")
