"""No un-noised number and no value of a row leaves a job: plant some, and search everything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from canary_case import (
    EPSILON,
    ROWS,
    RUNS,
    SQUARE,
    TRIES,
    VALUE,
    Everything,
    all_logs,
    number_is_in,
    plant,
    released_by_chance,
    run_talkative,
    secret_lines,
    value_is_in,
    written_text,
)
from conftest import CONNECT
from job_case import input_flags, run_main
from pyspark.sql import SparkSession

from dpkm_spark.queries.spark import SparkEngine

#: Numbers of seven digits and more.
LARGE = 10**6


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with facts in it that must not be told."""
    return plant(tmp_path_factory.mktemp("planted") / "planted.parquet")


@dataclass(frozen=True)
class Watch:
    """What a run told and must not tell."""

    everything: Everything
    exact: set[int]
    capsys: pytest.CaptureFixture[str]


@pytest.fixture
def everything(spark: SparkSession) -> Iterator[Everything]:
    """Every line of every logger of this process."""
    with all_logs() as listener:
        yield listener


@pytest.fixture
def watch(
    everything: Everything,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Watch:
    """Keep all logs, and every large number that an engine gives: nothing else comes near them."""
    exact: set[int] = set()
    for name in ("cluster_sums", "candidate_costs", "marginals", "block_sums"):
        real = getattr(SparkEngine, name)

        def ask(self: SparkEngine, *arguments: Any, real: Any = real) -> Any:
            answer = real(self, *arguments)
            exact.update(n for n in map(abs, answer.reshape(-1).tolist()) if n >= LARGE)
            return answer

        monkeypatch.setattr(SparkEngine, name, ask)
    return Watch(everything, exact, capsys)


def exact_numbers_in(text: str, exact: set[int]) -> set[int]:
    """Give the exact numbers that stand in a text."""
    written = {int(digits) for digits in re.findall(r"\d{7,}", text.replace(",", ""))}
    return written & exact


def test_the_search_finds_what_it_looks_for() -> None:
    assert value_is_in(f"row ({VALUE}, 1)")
    assert value_is_in(f"{VALUE:.9e}")
    assert number_is_in("n=7919", ROWS)
    assert number_is_in("read 7,919 rows", ROWS)
    assert not number_is_in("port 37919, 0.7919, o7919, 79190", ROWS)
    assert number_is_in(f"/{'a' * 100}/7919/", ROWS)
    assert not number_is_in(f"gAWV{'/' * 200}7919//", ROWS)
    numbers = {12_345_678, 1_234_567}
    assert exact_numbers_in("sum=-12345678, 1,234,567, 12345679", numbers) == numbers


@pytest.mark.slow
@pytest.mark.parametrize("which", ["eugkm", "dplloyd by Python", "gkm", "pgkm"])
def test_a_whole_run_shows_no_planted_fact_at_any_log_level(
    which: str, planted: Path, tmp_path: Path
) -> None:
    name, k, more = RUNS[which]
    for attempt in range(TRIES):
        output = tmp_path / f"out{attempt}"
        flags = (*input_flags(planted, k=k, epsilon=EPSILON), *SQUARE, *more)
        run = run_talkative(tmp_path / f"run{attempt}", name, *flags, "--output", str(output))
        assert run.code == 0, run.err[-2000:]
        if not released_by_chance(output):
            break
    else:
        pytest.fail("the noise was zero again and again")
    assert "py4j" in run.python_log
    assert "DEBUG" in run.spark_log
    assert secret_lines(run.out) == []
    assert secret_lines(run.err) == []
    assert secret_lines(run.python_log) == []
    assert secret_lines(written_text(output)) == []
    # At DEBUG Spark's own log holds the parquet footer, and so the row count and each column's
    # least and greatest value. It is for those who may read the table; here it quotes no other.
    assert [line for line in run.spark_log.splitlines() if value_is_in(line)] == []


@pytest.mark.slow
def test_a_failing_run_quotes_no_row_in_our_output(tmp_path: Path) -> None:
    # Under ANSI a bad cast fails, and Spark's message quotes the value. It is in the file alone.
    table = tmp_path / "strings.parquet"
    pq.write_table(pa.table({"s": ["0.5"] * 9 + [f"row {VALUE}"], "y": [0.5] * 10}), table)
    view = (
        "from pyspark.sql import SparkSession\n"
        "frame = SparkSession.builder.getOrCreate().read.parquet(sys.argv[-1])\n"
        "frame = frame.selectExpr('cast(s AS double) AS x', 'y')\n"
        "frame.createOrReplaceTempView('planted')\n"
        "sys.argv.pop()\n"
    )
    flags = (*input_flags("planted"), *SQUARE, "--input-format", "table")
    output = ("--output", str(tmp_path / "out"))
    run = run_talkative(
        tmp_path / "run", "eugkm", *flags, *output, str(table), before=view, level="info"
    )
    assert run.code == 6, run.err[-2000:]
    assert "CAST_INVALID_INPUT" in run.err
    assert not value_is_in(run.out)
    assert [line for line in run.err.splitlines() if value_is_in(line)] == []
    assert not value_is_in(run.python_log)
    # Spark's own log tells those who may read the table what went wrong.
    assert value_is_in(run.spark_log)


@pytest.mark.spark
@pytest.mark.parametrize("which", RUNS)
def test_our_process_logs_no_planted_fact(
    which: str, watch: Watch, planted: Path, tmp_path: Path
) -> None:
    name, k, more = RUNS[which]
    for attempt in range(TRIES):
        output = tmp_path / f"out{attempt}"
        watch.everything.lines.clear()
        watch.exact.clear()
        flags = ("--output", str(output), *input_flags(planted, k=k, epsilon=EPSILON), *SQUARE)
        outcome = run_main(watch.capsys, *flags, *more, algorithm=name)
        assert outcome.code == 0, outcome.shown
        if not released_by_chance(output):
            break
    else:
        pytest.fail("the noise was zero again and again")
    heard = "\n".join(watch.everything.lines)
    assert ("pyspark.sql.connect" if CONNECT else "py4j") in heard
    # EUGkM asks for small counts alone.
    assert bool(watch.exact) is (name != "eugkm")
    for text in (heard, outcome.shown, written_text(output)):
        assert secret_lines(text) == []
        assert exact_numbers_in(text, watch.exact) == set()


@pytest.mark.spark
@pytest.mark.parametrize("cast", ["cast(s AS double)", "s * 1.0D"])
def test_a_cast_that_fails_quotes_no_row_in_our_process(
    cast: str,
    everything: Everything,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The planted text is in the file alone, so that no query text holds it.
    table = tmp_path / "strings.parquet"
    pq.write_table(pa.table({"s": ["0.5"] * 9 + [f"row {VALUE}"], "y": [0.5] * 10}), table)
    spark.read.parquet(str(table)).createOrReplaceTempView("dpkm_strings")
    spark.sql(f"SELECT {cast} AS x, y FROM dpkm_strings").createOrReplaceTempView("dpkm_cast")  # noqa: S608
    everything.lines.clear()
    flags = ("--output", str(tmp_path / "o"), *input_flags("dpkm_cast"), *SQUARE)
    outcome = run_main(capsys, *flags, "--input-format", "table")
    assert outcome.code == 6, outcome.shown
    assert "CAST_INVALID_INPUT" in outcome.err
    assert not value_is_in(outcome.shown)
    assert [line for line in everything.lines if value_is_in(line)] == []
