"""What leaves an engine: integers for the door, and no word of a row, however a query fails."""

from __future__ import annotations

import io
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import QueryError
from dpkm_spark.grid import Grid
from dpkm_spark.queries import spark as engine_module
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine

pytestmark = pytest.mark.spark

DOMAIN = Domain.of(["x"], (0, 1))
CANARY = "canary-4711"
Ask = Callable[[SparkEngine], object]
QUESTIONS = [
    pytest.param(lambda engine: engine.count(), id="count"),
    pytest.param(lambda engine: engine.cell_histogram(Grid(1, 4)), id="cell_histogram"),
]


@contextmanager
def debug_logs() -> Iterator[io.StringIO]:
    """Catch what every logger of the driver would write at DEBUG."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s"))
    names = ["", "py4j", "py4j.clientserver", "py4j.java_gateway", "pyspark"]
    names += [name for name in logging.root.manager.loggerDict if "pyspark" in name]
    loggers = [logging.getLogger(name) for name in dict.fromkeys(names)]
    before = [(logger.level, logger.disabled) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
    try:
        yield text
    finally:
        for logger, (level, disabled) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.disabled = disabled


def failing_frame(spark: SparkSession, how: str) -> DataFrame:
    """Make a frame whose schema is fine and whose rows raise, with a row's value in the message."""
    text = f"concat('{CANARY}-', cast(id AS string))"
    value = {
        "raise_error": f"if(id >= 0, cast(raise_error({text}) AS double), 0.0D)",
        "bad cast": f"cast({text} AS double)",
        "overflow": "cast(cast(id + 4711471147114711 AS int) AS double)",
        "division": "1.0D / (id - id)",
    }[how]
    return spark.range(0, 4, 1, 2).selectExpr(f"{value} AS x")


@pytest.mark.parametrize("how", ["raise_error", "bad cast", "overflow", "division"])
@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_failing_query_tells_nothing_of_the_rows(spark: SparkSession, how: str, ask: Ask) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        engine = SparkEngine(failing_frame(spark, how), DOMAIN)
        with debug_logs() as logs, pytest.raises(QueryError) as caught:
            ask(engine)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "false")
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    told = [str(error), repr(error), repr(error.args), "".join(traceback.format_exception(error))]
    # 47114711... is the value of the row that overflows.
    for text in told:
        assert CANARY not in text
        assert "4711" not in text
    # The plan, with the canary's literal, was logged while the frame was made, before the query;
    # during it nothing of a row may be. Row 0 to 3 complete the canary.
    for row in range(4):
        assert f"{CANARY}-{row}" not in logs.getvalue()


def test_a_failing_query_names_itself_and_sparks_condition(spark: SparkSession) -> None:
    engine = SparkEngine(failing_frame(spark, "raise_error"), DOMAIN)
    with pytest.raises(QueryError, match=r"^count: Spark failed with .*\(USER_RAISED_EXCEPTION"):
        engine.count()
    with pytest.raises(QueryError, match=r"^cell_histogram: .*budget stays charged$"):
        engine.cell_histogram(Grid(1, 4))


def test_the_engine_answers_again_after_a_failure(spark: SparkSession) -> None:
    with pytest.raises(QueryError):
        SparkEngine(failing_frame(spark, "raise_error"), DOMAIN).count()
    assert SparkEngine(spark.createDataFrame([(0.5,)], "x double"), DOMAIN).count() == 1


def test_exact_counts_stay_out_of_debug_logs(spark: SparkSession) -> None:
    # No other number of this test contains these digits.
    rows = spark.range(0, 7919 * 3, 1, 2).selectExpr("if(id % 3 = 0, 0.1D, null) AS x")
    engine = SparkEngine(rows, DOMAIN)
    # The first query of a session may log numbers of its own making.
    engine.count()
    with debug_logs() as logs:
        assert engine.count() == 7919
        histogram = engine.cell_histogram(Grid(1, 2))
        logging.getLogger("some.other").debug("still heard")
    assert histogram.tolist() == [7919, 0]
    # py4j writes a long as `L7919`, and names its own objects `o7919`.
    assert not re.search(r"(?<![o\d])7919(?!\d)", logs.getvalue())
    # The handler was in place, so silence means something.
    assert "still heard" in logs.getvalue()


def test_wire_loggers_get_their_levels_back(spark: SparkSession) -> None:
    names = ("py4j", "py4j.clientserver", "py4j.java_gateway", "pyspark.sql.connect.logging")
    with debug_logs():
        levels = [logging.getLogger(name).level for name in names]
        SparkEngine(spark.createDataFrame([(0.5,)], "x double"), DOMAIN).count()
        with pytest.raises(QueryError):
            SparkEngine(failing_frame(spark, "raise_error"), DOMAIN).count()
        assert [logging.getLogger(name).level for name in names] == levels


@pytest.mark.parametrize("m", [3, 10_000, 200_000])
def test_plans_hold_no_python(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    m: int,
) -> None:
    asked: list[DataFrame] = []
    real = engine_module.frame_to_table

    def seen(frame: DataFrame) -> pa.Table:
        asked.append(frame)
        return real(frame)

    monkeypatch.setattr(engine_module, "frame_to_table", seen)
    for frame, domain in (
        (spark.range(9).selectExpr("cast(id AS double) AS x"), DOMAIN),
        (spark.range(9).selectExpr("array(0.5D, 0.5D) AS x"), Domain.of_vector("x", [(0, 1)] * 2)),
    ):
        engine = SparkEngine(frame, domain)
        engine.count()
        engine.cell_histogram(Grid(1, m) if domain == DOMAIN else Grid(2, 3))
    assert len(asked) == 4
    for frame in asked:
        frame.explain(mode="extended")
        plan = capsys.readouterr().out
        assert "HashAggregate" in plan
        for word in ("Python", "ArrowEval", "MapInArrow", "MapInPandas", "Pandas"):
            assert word not in plan


@pytest.mark.parametrize("how", ["true", "false"])
def test_ansi_mode_does_not_change_the_integers(spark: SparkSession, how: str) -> None:
    values = [0.0, -0.0, 1.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), None, 0.3]
    rows = [(a, b) for a in values for b in values]
    domain, grid = Domain.of(["x", "y"], {"x": (0, 1), "y": (-1e300, 1e300)}), Grid(2, 9)
    numbers = [[np.nan if v is None else v for v in row] for row in rows]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", how)
    try:
        engine = SparkEngine(spark.createDataFrame(rows, "x double, y double"), domain)
        local = LocalEngine(numbers, domain)
        assert engine.cell_histogram(grid).tolist() == local.cell_histogram(grid).tolist()
        assert engine.count() == local.count() == 64
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "false")
