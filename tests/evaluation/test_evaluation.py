"""Exact NICV: exact on integers, the same by both engines, and nothing of it private."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dpkm_spark import evaluation
from dpkm_spark.algorithms.gene import GeneParameters, gene
from dpkm_spark.algorithms.lloyd import LloydParameters, lloyd
from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.evaluation import OpenTable, exact_nicv
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame

DOMAIN = Domain.of(["x", "y"], {"x": (-10.0, 30.0), "y": (0.0, 1.0)})
LINE = Domain.of(["x"], (-1.0, 1.0))

values = st.one_of(
    st.sampled_from([-10.0, 30.0, 0.0, 1.0, -math.inf, math.inf, math.nan]),
    st.floats(-20.0, 40.0, allow_subnormal=False),
)
points = st.lists(st.tuples(values, values), max_size=8)
centroid_values = st.floats(-20.0, 40.0, allow_subnormal=False)
centroid_sets = st.lists(st.tuples(centroid_values, centroid_values), min_size=1, max_size=4)


def _coordinate(value: float, low: float, high: float) -> int:
    """A row's integer coordinate, by rational arithmetic."""
    clipped = Fraction(min(max(value, low), high))
    share = (clipped - Fraction(low)) / (Fraction(high) - Fraction(low))
    return math.floor(share * 2 * SCALE + Fraction(1, 2)) - SCALE


def _by_fractions(
    rows: list[tuple[float, float]], centroids: list[tuple[float, float]]
) -> Fraction | None:
    """NICV of integer coordinates by Python's rationals; None without rows."""
    bounds = list(zip(DOMAIN.lower, DOMAIN.upper, strict=True))

    def whole(point: tuple[float, float]) -> list[int]:
        return [_coordinate(v, *b) for v, b in zip(point, bounds, strict=True)]

    valid = [row for row in rows if not any(map(math.isnan, row))]
    if not valid:
        return None
    centres = [whole(c) for c in centroids]
    total = sum(
        min(sum((a - b) ** 2 for a, b in zip(whole(row), c, strict=True)) for c in centres)
        for row in valid
    )
    return Fraction(total, len(valid) * SCALE**2)


@settings(max_examples=300)
@given(points, centroid_sets)
def test_nicv_is_that_of_rational_arithmetic(
    rows: list[tuple[float, float]], centroids: list[tuple[float, float]]
) -> None:
    engine = LocalEngine(np.array(rows).reshape(-1, 2), DOMAIN)
    expected = _by_fractions(rows, centroids)
    found = exact_nicv(engine, centroids)
    if expected is None:
        assert math.isnan(found)
    else:
        # A coordinate that is half-way between two steps may be rounded to either.
        assert found == pytest.approx(float(expected), abs=8 / SCALE)


def test_nicv_is_exact_where_floats_would_round() -> None:
    # Steps of 2^-20, so that coordinates are what they look like: 3 rows, one step away each.
    step = 1 / SCALE
    rows = np.array([[step], [-step], [2 * step]])
    assert exact_nicv(LocalEngine(rows, LINE), [[0.0]]) == float(Fraction(6, 3 * SCALE**2))
    # Beside the largest distances a single step still counts: its square is 2^-42 of theirs.
    rows = np.array([[1.0], [1.0], [-1.0 + step]])
    expected = Fraction(2 * 4 * SCALE**2 + 1, 3 * SCALE**2)
    assert exact_nicv(LocalEngine(rows, LINE), [[-1.0]]) == float(expected)
    assert float(expected) != 8 / 3


def test_sums_beyond_int64_are_exact() -> None:
    class Vast(LocalEngine):
        """2^40 rows in opposite corners: more than int64 holds in units of 1 / SCALE^2."""

        def count(self) -> int:
            return 1 << 40

        def candidate_costs(self, candidates: IntArray) -> IntArray:
            return np.array([[1 << 62, (1 << 60) - 1]], dtype=np.int64)

    expected = Fraction((1 << 82) + (1 << 60) - 1, 1 << 80)
    engine = Vast(np.zeros((1, 1)), LINE)
    assert exact_nicv(engine, [[0.0]]) == float(expected)
    np.testing.assert_array_equal(
        OpenTable(engine).candidate_costs(np.zeros((1, 1, 1))), [float(expected * (1 << 40))]
    )


def test_rows_and_centroids_are_clipped_to_the_domain() -> None:
    engine = LocalEngine([[5.0], [-math.inf]], LINE)
    assert exact_nicv(engine, [[1.0], [-1.0]]) == 0.0
    assert exact_nicv(engine, [[77.0], [-77.0]]) == 0.0
    assert exact_nicv(engine, [[0.0]]) == 1.0


def test_a_table_without_rows_has_no_mean() -> None:
    assert math.isnan(exact_nicv(LocalEngine(np.zeros((0, 1)), LINE), [[0.0]]))
    assert math.isnan(exact_nicv(LocalEngine([[math.nan]], LINE), [[0.0]]))


@pytest.mark.parametrize(
    "centroids",
    [[], [0.0], [[0.0, 0.0]], [[[0.0]]], [[math.nan]], [[math.inf]], np.zeros((0, 1))],
)
def test_centroids_of_another_shape_or_kind_are_refused(centroids: list[float]) -> None:
    with pytest.raises(ParameterError, match=r"^centroids: got"):
        exact_nicv(LocalEngine(np.zeros((2, 1)), LINE), centroids)


# --- the table without a door ---------------------------------------------------------------------


@settings(max_examples=100)
@given(points, centroid_sets)
def test_the_open_table_gives_the_engines_integers_in_normalised_units(
    rows: list[tuple[float, float]], centroids: list[tuple[float, float]]
) -> None:
    engine = LocalEngine(np.array(rows).reshape(-1, 2), DOMAIN)
    table = OpenTable(engine)
    normalised = np.clip(DOMAIN.to_normalised(centroids), -1, 1)
    whole = np.rint(normalised * SCALE).astype(np.int64)
    exact = table.cluster_sums(normalised)
    sums = engine.cluster_sums(whole)
    np.testing.assert_array_equal(exact.sums * SCALE, sums[:, :2])
    np.testing.assert_array_equal(exact.sizes, sums[:, 2])
    assert exact.sizes.sum() == table.count() == engine.count()
    (high, low), cost = (
        engine.candidate_costs(whole[None])[0],
        table.candidate_costs(normalised[None]),
    )
    assert cost.shape == (1,)
    assert cost[0] == float(Fraction(int(high) * SCALE + int(low), SCALE**2))


def test_public_randomness_is_that_of_a_private_run_of_the_same_name() -> None:
    # So baselines start where private runs of the same name start.
    engine = LocalEngine(np.zeros((1, 1)), LINE)
    door = PrivateTable(engine, Budget(Fraction(1)), MemoryTranscript("run-7"))
    draws = [
        table.public_random("starts").random(5)
        for table in (OpenTable(engine, "run-7"), door, OpenTable(engine, "run-8"))
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_what_is_not_private_says_so() -> None:
    for thing in (evaluation, OpenTable, exact_nicv, OpenTable.count, OpenTable.cluster_sums,
                  OpenTable.candidate_costs):  # fmt: skip
        assert "not private" in (thing.__doc__ or "").lower().replace("nothing here is", "not")


# --- by Spark -------------------------------------------------------------------------------------


def _biting_rows(n: int) -> FloatArray:
    random = np.random.default_rng(3)
    rows = np.column_stack([random.normal(10, 15, n), random.normal(0.5, 0.5, n)])
    rows[::17, 0], rows[5::23, 1], rows[7::29, 1] = math.nan, math.inf, -math.inf
    return rows


def _spark_engine(spark: SparkSession, rows: FloatArray, partitions: int) -> SparkEngine:
    table = pa.table({name: rows[:, i] for i, name in enumerate(DOMAIN.columns)})
    return SparkEngine(table_to_frame(spark, table).repartition(partitions), DOMAIN)


@pytest.mark.spark
@pytest.mark.parametrize("k", [1, 5, 40])
def test_both_engines_give_the_same_nicv_to_the_bit(spark: SparkSession, k: int) -> None:
    rows = _biting_rows(500)
    centroids = np.random.default_rng(k).uniform((-10, 0), (30, 1), size=(k, 2))
    expected = exact_nicv(LocalEngine(rows, DOMAIN), centroids)
    for partitions in (1, 7):
        assert exact_nicv(_spark_engine(spark, rows, partitions), centroids) == expected
    assert expected > 0


@pytest.mark.spark
def test_a_frame_without_rows_has_no_mean(spark: SparkSession) -> None:
    assert math.isnan(exact_nicv(_spark_engine(spark, np.zeros((0, 2)), 1), [[0.0, 0.5]]))
    nothing = np.full((3, 2), math.nan)
    assert math.isnan(exact_nicv(_spark_engine(spark, nothing, 1), [[0.0, 0.5]]))


@pytest.mark.spark
def test_the_baselines_give_the_same_bits_by_spark(spark: SparkSession) -> None:
    rows = _biting_rows(200)
    tables = [
        OpenTable(engine, "run")
        for engine in (_spark_engine(spark, rows, 3), LocalEngine(rows, DOMAIN))
    ]
    one, other = (lloyd(t, LloydParameters(k=3, restarts=2, max_iter=3)) for t in tables)
    np.testing.assert_array_equal(one.centroids, other.centroids)
    assert one.record() == other.record()
    bred, same = (gene(t, GeneParameters(k=3, generations=2)) for t in tables)
    np.testing.assert_array_equal(bred.centroids, same.centroids)
    assert bred.trail == same.trail
