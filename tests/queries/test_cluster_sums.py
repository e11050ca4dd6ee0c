"""Sums of clusters, costs of candidates, marginals: every way to them gives the same integers."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from conftest import CONNECT
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import SCALE, Domain, IntArray
from dpkm_spark.errors import ExecutorError, QueryError
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import BlockPlan, PrivateTable
from dpkm_spark.queries import native, workers
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame

pytestmark = pytest.mark.spark

WAYS = ("SQL", "Python")
#: (k, d) on both sides of the switch, at 1,000 numbers k (d + 1) and 50 columns, and far beyond.
SHAPES = [(1, 1), (33, 2), (333, 2), (334, 2), (2, 50), (2, 51), (1, 200), (100, 10)]
#: So many numbers that centroids lose low bits.
COARSE = (300, 60)


def domain_of(d: int) -> Domain:
    """A domain whose values are integer coordinates themselves."""
    return Domain.of([f"x{i}" for i in range(d)], (float(-SCALE), float(SCALE)))


def frame_of(spark: SparkSession, rows: IntArray, partitions: int = 2) -> DataFrame:
    columns = {f"x{i}": column.astype(np.float64) for i, column in enumerate(rows.T)}
    return table_to_frame(spark, pa.table(columns)).repartition(partitions)


def centroids_of(k: int, d: int, seed: int = 0) -> IntArray:
    """Centroids at the bounds, twice at one place, and anywhere."""
    chosen = np.random.default_rng([k, d, seed])
    centroids = chosen.integers(-SCALE, SCALE, (k, d), endpoint=True)
    # Even coordinates, so that the middle between two of them is a coordinate too.
    centroids -= centroids % 2
    corner = chosen.random(k) < 0.2
    centroids[corner] = chosen.choice([-SCALE, SCALE], (k, d))[corner]
    centroids[k // 2] = centroids[k // 3]
    return centroids


def rows_of(centroids: IntArray, n: int = 300) -> IntArray:
    """Rows where engines could part: on centroids, halfway between two, at corners, a step off."""
    k, d = centroids.shape
    chosen = np.random.default_rng([n, k, d])
    one, other = (centroids[chosen.integers(0, k, n)] for _ in range(2))
    kinds = [
        one,
        (one + other) // 2,
        (one + other) // 2 + chosen.integers(-1, 1, (n, d), endpoint=True),
        chosen.choice([-SCALE, SCALE], (n, d)),
        chosen.integers(-SCALE, SCALE, (n, d), endpoint=True),
    ]
    rows = np.stack(kinds)[chosen.integers(0, len(kinds), n), np.arange(n)]
    # Every second row is there again.
    return np.clip(np.concatenate([rows, rows[::2]]), -SCALE, SCALE)


@contextmanager
def by_way_of(way: str) -> Iterator[None]:
    """Force the engine's choice between SQL and Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "fits", lambda k, d: way == "SQL")
        yield


def same(found: IntArray, expected: IntArray) -> bool:
    assert found.dtype == np.int64
    assert found.shape == expected.shape
    return np.array_equal(found, expected)


# --- sums of clusters -----------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "d"), [*SHAPES, COARSE])
def test_sums_are_those_of_the_local_engine(spark: SparkSession, k: int, d: int) -> None:
    centroids = centroids_of(k, d)
    rows = rows_of(centroids)
    expected = LocalEngine(rows, domain_of(d)).cluster_sums(centroids)
    engine = SparkEngine(frame_of(spark, rows), domain_of(d))
    assert expected[:, d].sum() == len(rows)
    assert same(engine.cluster_sums(centroids), expected)


@pytest.mark.parametrize(
    ("k", "d"), [(1, 1), (2, 1), (3, 2), (32, 2), (33, 2), (67, 2), (7, 20), (7, 21), (1, 50)]
)
def test_sql_and_python_agree_on_the_same_rows(spark: SparkSession, k: int, d: int) -> None:
    centroids = centroids_of(k, d, seed=1)
    engine = SparkEngine(frame_of(spark, rows_of(centroids, 500)), domain_of(d))
    found = []
    for way in WAYS:
        with by_way_of(way):
            found.append(engine.cluster_sums(centroids))
    assert same(*found)


@pytest.mark.parametrize(
    ("partitions", "way"), [(1, "SQL"), (2, "Python"), (7, "SQL"), (7, "Python")]
)
def test_layout_and_order_do_not_matter(spark: SparkSession, partitions: int, way: str) -> None:
    centroids = centroids_of(5, 3)
    rows = rows_of(centroids)
    local = LocalEngine(rows, domain_of(3))
    shuffled = rows[random.Random(partitions).sample(range(len(rows)), len(rows))]
    engine = SparkEngine(frame_of(spark, shuffled, partitions), domain_of(3))
    with by_way_of(way):
        assert same(engine.cluster_sums(centroids), local.cluster_sums(centroids))
        for m in (1, 3):
            candidates = np.stack([centroids_of(5, 3, seed) for seed in range(m)])
            assert same(engine.candidate_costs(candidates), local.candidate_costs(candidates))
    assert same(engine.marginals(7), local.marginals(7))


@pytest.mark.parametrize("way", WAYS)
def test_ties_go_to_the_first_centroid(spark: SparkSession, way: str) -> None:
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1], [1, 1]]) * SCALE
    rows = np.array([[0, 0]] * 3 + [[0, SCALE]] * 2 + [[SCALE, SCALE]] + [[-5, 0]])
    engine = SparkEngine(frame_of(spark, rows), domain_of(2))
    with by_way_of(way):
        found = engine.cluster_sums(corners)
        backwards = engine.cluster_sums(corners[::-1].copy())
    s = SCALE
    assert found.tolist() == [[s, 3 * s, 6], [0, 0, 0], [-5, 0, 1], [0, 0, 0], [0, 0, 0]]
    # The order of centroids decides ties, and nothing else does.
    assert backwards[:, 2].tolist() == [6, 1, 0, 0, 0]


@settings(max_examples=3)
@given(data=st.data())
def test_engines_agree_on_any_integers(spark: SparkSession, data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 3), label="d")
    number = st.one_of(
        st.integers(-2, 2),
        st.sampled_from([-SCALE, SCALE, SCALE - 1, SCALE // 2]),
        st.integers(-SCALE, SCALE),
    )
    point = st.tuples(*[number] * d)
    centroids = np.array(data.draw(st.lists(point, min_size=1, max_size=9), label="centroids"))
    rows = np.array(data.draw(st.lists(point, max_size=40), label="rows"), dtype=np.int64)
    rows = rows.reshape(-1, d)
    local = LocalEngine(rows, domain_of(d))
    engine = SparkEngine(frame_of(spark, rows, data.draw(st.integers(1, 4))), domain_of(d))
    for way in WAYS:
        with by_way_of(way):
            assert same(engine.cluster_sums(centroids), local.cluster_sums(centroids))
            one = centroids[None]
            assert same(engine.candidate_costs(one), local.candidate_costs(one))


# --- costs of candidates --------------------------------------------------------------------------


#: (m, k, d): one candidate by SQL, where it fits; many by Python.
CANDIDATES = [(1, 3, 2), (1, 66, 2), (1, 3, 60), (1, 501, 1), (200, 3, 2), (7, 40, 5), (3, 2, 60)]


@pytest.mark.parametrize(("m", "k", "d"), CANDIDATES)
def test_costs_are_those_of_the_local_engine(spark: SparkSession, m: int, k: int, d: int) -> None:
    candidates = np.stack([centroids_of(k, d, seed) for seed in range(m)])
    rows = rows_of(candidates[0])
    local = LocalEngine(rows, domain_of(d))
    engine = SparkEngine(frame_of(spark, rows), domain_of(d))
    assert same(engine.candidate_costs(candidates), local.candidate_costs(candidates))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d", [1, 2, 60])
def test_the_farthest_rows_cost_exactly_what_they_must(
    spark: SparkSession, d: int, way: str
) -> None:
    rows = np.full((1000, d), SCALE)
    engine = SparkEngine(frame_of(spark, rows), domain_of(d))
    candidates = np.full((1, 1, d), -SCALE)
    candidates[0, 0, 0] += 1
    with by_way_of(way):
        ((high, low),) = engine.candidate_costs(candidates)
    cost = 4 * d * SCALE**2 - 4 * SCALE + 1
    assert (int(high), int(low)) == (1000 * (cost // SCALE), 1000 * (cost % SCALE))


# --- marginals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bins", "d"), [(1, 2), (2, 1), (32, 3), (7, 60), (1000, 2)])
def test_marginals_are_those_of_the_local_engine(spark: SparkSession, bins: int, d: int) -> None:
    rows = rows_of(centroids_of(5, d))
    edges = np.linspace(-SCALE, SCALE, bins + 1).astype(np.int64)[:, None]
    rows = np.concatenate([rows, np.clip(edges + np.arange(-1, 2)[None], -SCALE, SCALE)
                           .reshape(-1, 1).repeat(d, axis=1)])  # fmt: skip
    found = SparkEngine(frame_of(spark, rows), domain_of(d)).marginals(bins)
    assert same(found, LocalEngine(rows, domain_of(d)).marginals(bins))
    assert (found.sum(axis=1) == len(rows)).all()


# --- odd tables and sessions ----------------------------------------------------------------------

EMPTY = {
    "no rows": "SELECT 0D AS x0, 0D AS x1 WHERE false",
    "empty partitions": "SELECT /*+ REPARTITION(5) */ 0D AS x0, 0D AS x1 WHERE false",
    "nothing in the domain": "SELECT double('NaN') AS x0, cast(null AS double) AS x1 FROM range(9)",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_table_is_all_zeros(spark: SparkSession, kind: str, way: str) -> None:
    engine = SparkEngine(spark.sql(EMPTY[kind]), domain_of(2))
    centroids = centroids_of(4, 2)
    with by_way_of(way):
        assert same(engine.cluster_sums(centroids), np.zeros((4, 3), dtype=np.int64))
        for m in (1, 3):
            costs = engine.candidate_costs(np.stack([centroids] * m))
            assert same(costs, np.zeros((m, 2), dtype=np.int64))
    if way == "SQL":
        assert same(engine.marginals(5), np.zeros((2, 5), dtype=np.int64))


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_ansi_mode_changes_no_integer(spark: SparkSession, ansi: str) -> None:
    centroids = centroids_of(6, 2)
    numbers = rows_of(centroids, 100).astype(np.float64)
    odd = [[np.nan, 0], [np.inf, -np.inf], [1e308, -1e308], [-0.0, 5e-324], [0.5, -0.5]]
    rows = np.concatenate([numbers, odd])
    columns = {f"x{i}": column for i, column in enumerate(rows.T)}
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        local = LocalEngine(rows, domain_of(2))
        engine = SparkEngine(table_to_frame(spark, pa.table(columns)), domain_of(2))
        for way in WAYS:
            with by_way_of(way):
                assert same(engine.cluster_sums(centroids), local.cluster_sums(centroids))
                one = centroids[None]
                assert same(engine.candidate_costs(one), local.candidate_costs(one))
        assert same(engine.marginals(9), local.marginals(9))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "false")


def test_the_switch_is_where_it_is_said_to_be() -> None:
    assert native.fits(333, 2)
    assert not native.fits(334, 2)
    assert native.fits(19, 50)
    assert not native.fits(1, 51)


@pytest.mark.parametrize(
    ("k", "d"),
    [
        (1, 1),
        (333, 2),
        (2, 4),
        (200, 4),
        (40, 20),
        (40, 21),
        (40, 24),
        (30, 30),
        (20, 48),
        (19, 50),
    ],
)
def test_no_generated_method_outgrows_what_the_jvm_compiles(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], k: int, d: int
) -> None:
    # Beyond 8,000 bytes the JVM compiles no method: each row is interpreted.
    steps = SparkEngine(frame_of(spark, rows_of(centroids_of(3, d))), domain_of(d))._steps
    before = spark.conf.get("spark.sql.adaptive.enabled")
    # A plan that may still change shows no code.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        for query in (native.cluster_sums, native.costs):
            query(steps, centroids_of(k, d)).explain(mode="codegen")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before or "true")
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", capsys.readouterr().out)]
    assert len(sizes) >= 4
    assert max(sizes) < 8000


def test_below_the_switch_plans_hold_no_python(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[DataFrame] = []
    real = SparkEngine.cluster_sums.__globals__["frame_to_table"]

    def seen(frame: DataFrame) -> pa.Table:
        asked.append(frame)
        return real(frame)

    monkeypatch.setattr("dpkm_spark.queries.spark.frame_to_table", seen)
    rows = rows_of(centroids_of(3, 2))
    engine = SparkEngine(frame_of(spark, rows), domain_of(2))
    engine.cluster_sums(centroids_of(50, 2))
    engine.candidate_costs(centroids_of(50, 2)[None])
    engine.marginals(32)
    engine.cluster_sums(centroids_of(334, 2))
    plans = []
    for frame in asked:
        frame.explain(mode="extended")
        plans.append(capsys.readouterr().out)
    assert ["MapInArrow" in plan for plan in plans] == [False, False, False, True]
    assert not any("Python" in plan for plan in plans[:3])


# --- the way to the executors ---------------------------------------------------------------------

_STRANGER = """
import pickle, sys
import pyarrow as pa
function, batches = pickle.loads(sys.stdin.buffer.read())
given = [pa.RecordBatch.from_pydict(batch) for batch in batches]
sys.stdout.write(repr([batch.to_pydict() for batch in function(iter(given))]))
assert not any("dpkm" in name for name in sys.modules), "the function imported our package"
try:
    import dpkm_spark
except ImportError:
    sys.exit()
sys.exit("our package is on the path, so this test proves nothing")
"""


class _Caught:
    """Stands for a DataFrame, and keeps the function that would go to the executors."""

    columns = ("s0",)
    function: Any = None

    def range(self, *_: object) -> _Caught:
        return self

    def selectExpr(self, *_: object) -> _Caught:  # noqa: N802 - Spark's name
        return self

    groupBy = agg = selectExpr  # noqa: N815 - likewise

    def mapInArrow(self, function: Any, _: str) -> _Caught:  # noqa: N802 - Spark's name
        self.function = function
        return self


STEPS = {"s0": [SCALE - 5, SCALE + 9, SCALE + 9]}
#: What is sent, the batch it gets, and what it gives.
SENT: dict[str, tuple[Any, dict[str, list[int]], dict[str, list[int]]]] = {
    "probe": (workers.probe, {"id": [0]}, {"n": [1]}),
    "cluster_sums": (
        lambda frame: workers.cluster_sums(frame, np.array([[0], [7]])),
        STEPS,
        {"cluster": [0, 1], "n0": [-5, 18], "n1": [1, 2]},
    ),
    "candidate_costs": (
        lambda frame: workers.candidate_costs(frame, np.array([[[0]], [[7]]])),
        STEPS,
        {"candidate": [0, 1], "high": [0, 0], "low": [25 + 81 + 81, 144 + 4 + 4]},
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_functions_travel_without_our_package(name: str, tmp_path: Path) -> None:
    send, batch, expected = SENT[name]
    caught = _Caught()
    # Nothing but the frame is Spark's own in what is sent.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "F", mock.MagicMock())
        send(caught)
        package = cloudpickle.dumps((caught.function, [batch]))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", _STRANGER],
        input=package, cwd=tmp_path, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == repr([expected])


# --- where executors cannot run Python ------------------------------------------------------------

NO_PYTHON = "/nonexistent/python"
PLAN = BlockPlan.of(starts=np.zeros((2, 1)), low=-np.ones(1), high=np.ones(1), blocks=3, key=1)
HEAVY: dict[str, Any] = {
    "sums of many clusters": lambda t: t.noisy_cluster_sums(np.zeros((501, 1)), t.remaining),
    "blocks": lambda t: t.noisy_block_mean(PLAN, t.remaining),
    "selection": lambda t: t.private_select(np.zeros((3, 2, 1)), 2, t.remaining),
}


@pytest.fixture
def broken_probe(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the probe fail on the executor, as it does where numpy is missing."""
    probed: list[str] = []

    def fail(batches: Any) -> Any:
        raise ModuleNotFoundError("No module named 'numpy'")

    def probe(spark: SparkSession) -> DataFrame:
        probed.append("probe")
        return spark.range(0, 1, 1, 1).mapInArrow(fail, "n bigint")

    monkeypatch.setattr(workers, "probe", probe)
    return probed


def table_on(spark: SparkSession, transcript: MemoryTranscript) -> PrivateTable:
    # A row that fails would show in the message: the probe reads none.
    sql = "SELECT if(id >= 0, raise_error('row 4711'), 0D) AS x0 FROM range(3)"
    return PrivateTable(
        SparkEngine(spark.sql(sql), domain_of(1)), Budget(1), transcript, SeededNoise(1)
    )


@pytest.mark.parametrize("ask", HEAVY.values(), ids=HEAVY.keys())
def test_without_python_a_query_fails_before_it_is_charged(
    ask: Any, spark: SparkSession, broken_probe: list[str]
) -> None:
    transcript = MemoryTranscript("run-1")
    table = table_on(spark, transcript)
    for attempt in (1, 2):
        with pytest.raises(ExecutorError, match="Python with numpy and pyarrow") as caught:
            ask(table)
        assert "before any row was read" in str(caught.value)
        assert "4711" not in str(caught.value)
        assert caught.value.__context__ is None
        assert table.remaining == 1
        assert transcript.answers == ()
        # A failure is not remembered: an executor may be repaired.
        assert len(broken_probe) == attempt


@pytest.mark.skipif(CONNECT, reason="the server chooses its own Python")
def test_without_an_interpreter_a_query_fails_before_it_is_charged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_on(spark, MemoryTranscript("run-1"))
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", NO_PYTHON)
        with pytest.raises(ExecutorError, match="before any row was read"):
            HEAVY["blocks"](table)
        assert table.remaining == 1
    # With an interpreter it is charged; what fails then is the query.
    with pytest.raises(QueryError, match="stays charged"):
        HEAVY["blocks"](table)
    assert table.remaining == 0


def test_small_sums_work_without_python(spark: SparkSession, broken_probe: list[str]) -> None:
    engine = SparkEngine(frame_of(spark, np.array([[1], [2]])), domain_of(1))
    table = PrivateTable(engine, Budget(10**12), MemoryTranscript("run-1"), SeededNoise(1))
    noisy = table.noisy_cluster_sums(np.zeros((1, 1)), table.remaining)
    assert noisy.sizes.tolist() == pytest.approx([2], abs=0.1)
    assert broken_probe == []


def test_stored_answers_are_replayed_without_python(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, broken_probe: list[str]
) -> None:
    transcript = MemoryTranscript("run-1")
    rows = LocalEngine(np.array([[1], [2]]), domain_of(1))
    first = PrivateTable(rows, Budget(1), transcript, SeededNoise(1))
    expected = HEAVY["selection"](first)
    second = table_on(spark, transcript)
    assert np.array_equal(HEAVY["selection"](second), expected)
    assert second.remaining == 0
    assert broken_probe == []


def test_a_probe_that_worked_is_not_asked_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SparkEngine(frame_of(spark, np.array([[1]])), domain_of(1))
    engine.prepare_heavy()

    def again(_: SparkSession) -> DataFrame:
        raise AssertionError("asked again")

    monkeypatch.setattr(workers, "probe", again)
    engine.prepare_heavy()
    engine.prepare_sums(10_000)
