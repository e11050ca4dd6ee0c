"""DPLloyd behind the door: its rounds spend the budget exactly and use nothing but answers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from algorithm_case import DOMAIN, Untouchable, asked, some_rows, table_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpkm_spark.algorithms.dplloyd import DPLloydParameters, DPLloydResult, dplloyd, moved
from dpkm_spark.analysis import optimal_ratio, optimal_rounds
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import BudgetExceededError, EpsilonError, ParameterError, QueryError
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import Calibration, SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import NoisySums, PrivateTable
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.nearest import to_coordinates

HUGE = Fraction(10**9)


# --- budget ---------------------------------------------------------------------------------------

epsilons = st.fractions(min_value=Fraction(1, 10**4), max_value=10**6)
shares = st.one_of(
    st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(9_999, 10**4)),
    st.floats(min_value=1e-4, max_value=0.9999),
)


@given(
    epsilon=epsilons,
    share=shares,
    public=st.one_of(st.none(), st.integers(0, 10**12)),
    split=st.sampled_from(["equal", "optimal"]),
    rounds=st.one_of(st.none(), st.integers(1, 1000)),
    d=st.integers(1, 200),
    count=st.integers(-(10**6), 10**12),
)
@settings(max_examples=100)
def test_the_shares_add_up_to_epsilon_exactly(
    *,
    epsilon: Fraction,
    share: Fraction,
    public: int | None,
    split: str,
    rounds: int | None,
    d: int,
    count: int,
) -> None:
    parameters = DPLloydParameters(3, rounds, split, public, share)
    plan = parameters.plan(epsilon, d, count)
    assert sum((q.epsilon * q.times for q in plan), Fraction(0)) == epsilon
    assert all(isinstance(q.epsilon, Fraction) and q.epsilon > 0 for q in plan)
    bought = split == "optimal" and rounds is None and public is None
    assert parameters.buys_count == bought
    assert [q.name for q in plan] == ["count"] * bought + ["cluster_sums"]
    if rounds is not None:
        assert plan[-1].times == rounds
    elif split == "equal":
        assert plan[-1].times == 5
    else:
        assert 2 <= plan[-1].times <= 7


def test_five_rounds_of_a_fifth_each_are_asked() -> None:
    table = table_of(some_rows(), epsilon=Fraction(1, 3))
    result = dplloyd(table, DPLloydParameters(3))
    assert table.remaining == 0
    assert asked(table) == [("cluster_sums", Fraction(1, 15))] * 5
    assert (result.rounds, result.count, result.count_is_public) == (5, None, False)
    # Sensitivity d + 1 with sums in units of 1 / SCALE, so noise of scale (d + 1) t / epsilon.
    for answer in table.transcript.answers:
        assert answer.query.sensitivity == 3 * SCALE
        assert answer.scale / SCALE == pytest.approx(3 * 15)


def test_the_optimal_split_buys_a_count_and_takes_its_rounds_from_it() -> None:
    table = table_of(some_rows(1000), epsilon=Fraction(2), noise=SeededNoise(1))
    result = dplloyd(table, DPLloydParameters(2, split="optimal", count_share=Fraction(1, 4)))
    assert result.count == int(table.transcript.answers[0].values[0])
    rounds = optimal_rounds(n=result.count, d=2, k=2, epsilon=1.5)
    # 1,000 rows are enough for more than the least number, and too few for the largest.
    assert 2 < rounds < 7
    assert result.rounds == rounds
    share = Fraction(3, 2) / rounds
    assert asked(table) == [("count", Fraction(1, 2))] + [("cluster_sums", share)] * rounds
    assert table.remaining == 0


@pytest.mark.parametrize(("public", "rounds"), [(0, 2), (500, 3), (10**9, 7)])
def test_a_public_count_decides_the_rounds_and_costs_nothing(public: int, rounds: int) -> None:
    table = table_of(some_rows(), epsilon=Fraction(2))
    result = dplloyd(table, DPLloydParameters(2, split="optimal", public_count=public))
    assert asked(table) == [("cluster_sums", Fraction(2, rounds))] * rounds
    assert (result.count, result.count_is_public) == (public, True)


def test_a_spent_table_is_refused() -> None:
    table = table_of(some_rows())
    table.noisy_count(Fraction(1))
    with pytest.raises(BudgetExceededError):
        dplloyd(table, DPLloydParameters(3))


def test_a_share_too_small_for_noise_is_refused_before_anything_is_spent() -> None:
    epsilon = Fraction(1, 10**7)
    stub = Untouchable()
    table = PrivateTable(stub, Budget(epsilon), MemoryTranscript("run"), stub)
    with pytest.raises(EpsilonError, match="epsilon of cluster_sums"):
        dplloyd(table, DPLloydParameters(3))
    assert table.remaining == epsilon


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("k", bad) for bad in (0, -1, 1.5, True, None, "3", 10_001)],
        *[("rounds", bad) for bad in (0, -1, 2.5, True, 1001, "5")],
        *[("split", bad) for bad in ("", "Equal", None, 1)],
        *[("public_count", bad) for bad in (-1, 2.5, True, 1 << 63)],
        *[("count_share", bad) for bad in (Fraction(0), Fraction(1), Fraction(-1, 2), 2.0)],
    ],
)
def test_a_parameter_out_of_range_is_an_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        DPLloydParameters(**{"k": 3, name: value})
    assert str(caught.value).startswith(f"{name}: got ")
    assert "must be" in str(caught.value)


# --- which way round the split is -----------------------------------------------------------------

DRAWS = 20_000


def _noise_of_a_round(d: int, share: Fraction) -> tuple[float, float]:
    """Measure the noise of a round of an empty table: mean |noise| of a sum, and of a count.

    For the Laplace distribution that mean is the scale; over so many draws it is known to 1 %.
    """
    domain = Domain.of([f"x{i}" for i in range(d)], (-1.0, 1.0))
    rows = np.zeros((0, d))
    parameters = DPLloydParameters(3, split="optimal")
    table = table_of(rows, epsilon=share, domain=domain, noise=SeededNoise(2))
    centroids = np.zeros((DRAWS, d))
    noisy = table.noisy_cluster_sums(centroids, share, parameters.weight(d))
    assert table.remaining == 0
    return float(np.abs(noisy.sums).mean()), float(np.abs(noisy.sizes).mean())


@pytest.mark.parametrize("d", [2, 10])
def test_the_optimal_split_gives_the_count_its_share_and_coordinates_theirs(d: int) -> None:
    share = Fraction(1, 2)
    of_sums, of_counts = _noise_of_a_round(d, share)
    c = optimal_ratio(d)
    eps_coordinate, eps_count = 0.5 / (d + c), 0.5 * c / (d + c)
    assert of_sums == pytest.approx(1 / eps_coordinate, rel=0.03)
    assert of_counts == pytest.approx(1 / eps_count, rel=0.03)
    # The other way round, or the equal split, would be seen: c is 0.74 and 1.27.
    swapped_count, equal = 1 / (0.5 / (1 + d * c)), 1 / (0.5 / (d + 1))
    for wrong in (swapped_count, 1 / eps_coordinate, equal):
        assert abs(of_counts / wrong - 1) > 0.1
    # A round spends d coordinates' shares and the count's, and no more.
    assert d * eps_coordinate + eps_count == pytest.approx(0.5)


def test_the_equal_split_gives_sums_and_counts_the_same_noise() -> None:
    table = table_of(np.zeros((0, 2)), noise=SeededNoise(3))
    noisy = table.noisy_cluster_sums(
        np.zeros((DRAWS, 2)), Fraction(1), DPLloydParameters(3).weight(2)
    )
    assert float(np.abs(noisy.sums).mean()) == pytest.approx(3, rel=0.03)
    assert float(np.abs(noisy.sizes).mean()) == pytest.approx(3, rel=0.03)


# --- moving centroids -----------------------------------------------------------------------------

finite = st.floats(-1e12, 1e12)


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_centroids_move_to_clipped_means_and_those_of_light_clusters_stay(
    data: st.DataObject, k: int, d: int
) -> None:
    before = data.draw(hnp.arrays(np.float64, (k, d), elements=st.floats(-1, 1)))
    sums = data.draw(hnp.arrays(np.float64, (k, d), elements=finite))
    sizes = data.draw(
        hnp.arrays(np.float64, k, elements=st.one_of(finite, st.sampled_from([0.0, 0.999, 1.0])))
    )
    after = moved(before, NoisySums(sums, sizes))
    for j in range(k):
        if sizes[j] < 1:
            assert (after[j] == before[j]).all()
        else:
            assert (after[j] == np.clip(sums[j] / sizes[j], -1, 1)).all()
    assert (np.abs(after) <= 1).all()


def test_light_clusters_cause_no_division_by_zero() -> None:
    with np.errstate(all="raise"):
        after = moved(np.full((2, 1), 0.5), NoisySums(np.array([[3.0], [3.0]]), np.array([0.0, 4])))
    assert after.tolist() == [[0.5], [0.75]]


# --- always k centroids ---------------------------------------------------------------------------

TABLES: dict[str, FloatArray] = {
    "empty": np.zeros((0, 2)),
    "one row": np.array([[3.0, 0.5]]),
    "all rows equal": np.full((400, 2), 0.25),
    "fewer rows than clusters": np.array([[0.0, 0.0], [20.0, 1.0]]),
    "all NaN": np.full((50, 2), np.nan),
    "all infinite": np.tile([[np.inf, -np.inf]], (50, 1)),
    "all outside": np.full((50, 2), 1e300),
}


@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), HUGE])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES.keys())
def test_every_table_gives_k_finite_centroids_within_the_bounds(
    rows: FloatArray, k: int, epsilon: Fraction, split: str
) -> None:
    _assert_sound(dplloyd(table_of(rows, epsilon=epsilon), DPLloydParameters(k, split=split)), k)


def test_more_clusters_than_rows_are_all_given() -> None:
    _assert_sound(dplloyd(table_of(some_rows(20)), DPLloydParameters(200)), 200)


def _assert_sound(result: DPLloydResult, k: int) -> None:
    assert result.centroids.shape == (k, 2)
    assert (result.centroids >= DOMAIN.lower).all()
    assert (result.centroids <= DOMAIN.upper).all()
    assert result.noisy_sizes is not None
    assert np.isfinite(result.noisy_sizes).all()
    assert (np.diff(result.noisy_sizes) <= 0).all()
    assert result.trail.shape == (result.rounds + 1, k, 2)


def _lloyd(coordinates: IntArray, centroids: FloatArray, rounds: int) -> FloatArray:
    """Plain Lloyd in floats; empty clusters stay."""
    points = coordinates / SCALE
    for _ in range(rounds):
        squared = ((points[:, None] - to_coordinates(centroids) / SCALE) ** 2).sum(axis=2)
        label = squared.argmin(axis=1)
        centroids = np.array([
            points[label == j].mean(axis=0) if (label == j).any() else centroids[j]
            for j in range(len(centroids))
        ])  # fmt: skip
    return centroids


@pytest.mark.parametrize("split", ["equal", "optimal"])
def test_without_noise_it_is_lloyds_algorithm(split: str) -> None:
    rows = some_rows()
    table = table_of(rows, epsilon=HUGE, noise=SeededNoise(1))
    result = dplloyd(table, DPLloydParameters(4, rounds=6, split=split))
    starts = sphere_packed_starts(1, 4, 2, table.public_random("starts"))[0]
    np.testing.assert_array_equal(result.trail[0], starts)
    expected = _lloyd(DOMAIN.steps(rows) - SCALE, starts, 6)
    np.testing.assert_allclose(result.trail[-1], expected, atol=1e-5)
    assert result.noisy_sizes is not None
    assert result.noisy_sizes.sum() == pytest.approx(500, abs=1e-3)
    # Released in the table's units, largest first, with the sizes of the last round.
    label = ((((DOMAIN.steps(rows) - SCALE) / SCALE)[:, None] - result.trail[-2]) ** 2).sum(axis=2)
    sizes = np.bincount(label.argmin(axis=1), minlength=4)
    np.testing.assert_allclose(result.noisy_sizes, np.sort(sizes)[::-1], atol=1e-3)
    order = np.argsort(-sizes, kind="stable")
    np.testing.assert_allclose(result.centroids, DOMAIN.to_table_units(expected[order]), atol=1e-3)


# --- a run is its transcript ----------------------------------------------------------------------


def _assert_same(a: DPLloydResult, b: DPLloydResult) -> None:
    np.testing.assert_array_equal(a.centroids, b.centroids)
    np.testing.assert_array_equal(a.noisy_sizes, b.noisy_sizes)
    np.testing.assert_array_equal(a.trail, b.trail)
    assert (a.count, a.rounds) == (b.count, b.rounds)


@pytest.mark.parametrize("split", ["equal", "optimal"])
def test_the_same_transcript_gives_the_same_result_without_the_table(split: str) -> None:
    parameters = DPLloydParameters(3, split=split)
    table = table_of(some_rows())
    first = dplloyd(table, parameters)
    stub = Untouchable()
    stored = MemoryTranscript("run", table.transcript.answers)
    _assert_same(first, dplloyd(PrivateTable(stub, Budget(Fraction(1)), stored, stub), parameters))


@pytest.mark.parametrize("stored", range(6))
def test_a_driver_that_died_is_continued_by_the_next(stored: int) -> None:
    first = table_of(some_rows(), noise=SeededNoise(1))
    whole = dplloyd(first, DPLloydParameters(3))
    answers = first.transcript.answers[:stored]
    second = table_of(some_rows(), answers=answers, noise=SeededNoise(1 if stored == 0 else 2))
    again = dplloyd(second, DPLloydParameters(3))
    assert second.remaining == 0
    assert asked(second) == asked(first)
    np.testing.assert_array_equal(again.trail[: stored + 1], whole.trail[: stored + 1])


def test_seeded_noise_repeats_the_result_and_marks_it_not_private() -> None:
    first, again = (
        dplloyd(table_of(some_rows(), noise=SeededNoise(3)), DPLloydParameters(3)) for _ in range(2)
    )
    _assert_same(first, again)
    assert first.private is False
    assert dplloyd(table_of(some_rows()), DPLloydParameters(3)).private is True


class Constant:
    """Gives the same answers whatever the exact ones were."""

    private = True

    def add(self, values: IntArray, calibration: Calibration) -> IntArray:
        size = len(values)
        return np.random.default_rng(size).integers(-20 * SCALE, 60 * SCALE, size=size)


@pytest.mark.parametrize("split", ["equal", "optimal"])
def test_tables_with_the_same_noisy_answers_have_the_same_result_and_progress(split: str) -> None:
    def run(rows: FloatArray) -> tuple[DPLloydResult, list[str]]:
        lines: list[str] = []

        def listen(text: str, *, brief: bool = False) -> None:
            lines.append(f"{brief} {text}")

        table = table_of(rows, noise=Constant())
        return dplloyd(table, DPLloydParameters(6, split=split), listen), lines

    first, said = run(np.zeros((0, 2)))
    for rows in (some_rows(), np.full((10_000, 2), 0.9), np.full((5, 2), np.nan)):
        other, also = run(rows)
        _assert_same(first, other)
        assert said == also


def test_empty_clusters_get_noise_as_well() -> None:
    table = table_of(np.zeros((0, 2)), noise=SeededNoise(1))
    result = dplloyd(table, DPLloydParameters(200, rounds=1))
    assert result.noisy_sizes is not None
    # 200 draws of scale 3; a count of zero would need a draw below 2^-21.
    assert (result.noisy_sizes != 0).all()
    assert (result.noisy_sizes < 0).any()


def test_what_is_recorded_is_what_was_released() -> None:
    result = dplloyd(table_of(some_rows()), DPLloydParameters(3, rounds=2))
    assert result.record() == {"count": None, "count_is_public": False, "rounds": 2}
    assert result.facts() == {"Rounds": "2"}
    assert result.how == "by 2 noisy rounds of Lloyd"
    assert result.synopsis is None


# --- utility --------------------------------------------------------------------------------------


def _nicv(points: FloatArray, centroids: FloatArray) -> float:
    return float(((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).mean())


def _blobs() -> FloatArray:
    random = np.random.default_rng(4)
    # Both diagonals that two packed starts can lie on tell these two apart.
    centres = np.array([[-0.6, 0.0], [0.6, 0.0]])
    return np.repeat(centres, 3000, axis=0) + random.normal(0, 0.1, (6000, 2))


def _mean_nicv(epsilon: Fraction, **options: Any) -> float:
    points = _blobs()
    domain = Domain.of(["x", "y"], (-1.0, 1.0))
    engine = LocalEngine(points, domain)
    found = []
    for i in range(6):
        table = PrivateTable(engine, Budget(epsilon), MemoryTranscript(f"{i}"), SeededNoise(i))
        found.append(_nicv(points, dplloyd(table, DPLloydParameters(2, **options)).centroids))
    return float(np.mean(found))


@pytest.mark.parametrize("split", ["equal", "optimal"])
def test_clear_clusters_are_found_and_less_epsilon_costs_accuracy(split: str) -> None:
    good, poor = (_mean_nicv(e, split=split) for e in (Fraction(1), Fraction(1, 200)))
    assert good < 1.02 * 0.02  # the variance within the clusters is 0.02
    assert poor > 2 * good


class NoPython(LocalEngine):
    """An engine that cannot serve sums."""

    def prepare_sums(self, k: int) -> None:
        raise QueryError(f"no Python for {k} clusters")


def test_sums_that_cannot_be_served_are_refused_before_a_count_is_paid_for() -> None:
    table = PrivateTable(NoPython(some_rows(), DOMAIN), Budget(Fraction(1)))
    with pytest.raises(QueryError, match="no Python for 3 clusters"):
        dplloyd(table, DPLloydParameters(k=3, split="optimal"))
    assert table.remaining == 1


def test_a_share_too_small_for_sums_is_refused_before_a_count_is_paid_for() -> None:
    epsilon = Fraction(1, 10**6)
    table = table_of(some_rows(), epsilon=epsilon)
    # Noise of a count is fine at this share, that of sums in units of 2^-20 is not.
    with pytest.raises(EpsilonError, match="cluster_sums"):
        dplloyd(table, DPLloydParameters(k=3, split="optimal"))
    assert table.remaining == epsilon
