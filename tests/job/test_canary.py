"""No un-noised number and no value of a row leaves the job: plant some, and search everything.

Spark's own log is inside the trust boundary: it belongs to whoever may read the table. What the
job writes, prints and logs from Python is not.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import CONNECT, ROOT
from job_case import input_flags, read_part, read_run, run_main
from pyspark.sql import SparkSession

from dpkm_spark.domain import SCALE, Domain

VALUE = 0.7310585786300049
#: Rows in all, and rows at one corner: primes, so that nothing else comes near by accident.
ROWS, CORNER = 7919, 3571
SQUARE = ("--columns", "x,y", "--bounds", "-1:1")
#: Noise of scale 10 on the cells and 500 on the count hides the exact numbers nearly always.
EPSILON = "0.1"
_TRIES = 4


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 7919 rows: 7 hold the value, 3571 are at one corner."""
    random = np.random.default_rng(5)
    points = random.uniform(-0.7, 0.9, size=(ROWS, 2))
    points[:CORNER] = -0.99
    points[-7:, 0] = VALUE
    path = tmp_path_factory.mktemp("planted") / "planted.parquet"
    pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), path)
    return path


def spellings() -> list[str]:
    """Give the usual ways to write the planted value."""
    step = int(Domain.of(["x"], (-1.0, 1.0)).steps([[VALUE]])[0, 0])
    packed = struct.pack(">d", VALUE)
    return [
        repr(VALUE)[:14],
        repr(VALUE)[1:14],
        repr(VALUE)[2:14],
        f"{VALUE:.9e}",
        VALUE.hex()[4:],
        packed.hex(),
        packed[::-1].hex(),
        str(step),
        str(step - SCALE),
    ]


def value_is_in(text: str) -> bool:
    return any(spelling.lower() in text.lower() for spelling in spellings())


def number_is_in(text: str, number: int) -> bool:
    """Tell whether a number stands in a text on its own, as 7919 or 7,919."""
    return re.search(rf"(?<![\w.,]){number // 1000},?{number % 1000:03d}(?![\w])", text) is not None


def secret_lines(text: str) -> list[str]:
    """Give the lines that tell a planted fact."""
    return [
        line
        for line in text.splitlines()
        if value_is_in(line) or number_is_in(line, ROWS) or number_is_in(line, CORNER)
    ]


def released_by_chance(output: Path) -> bool:
    """Tell whether noise happened to be zero, so that a secret is among the released numbers."""
    counts = set(read_part(output, "synopsis")["noisy_count"].to_pylist())
    counts |= {int(size) for size in read_part(output)["noisy_size"].to_pylist()}
    counts |= {read_run(output)["result"]["count"]}
    return bool(counts & {ROWS, CORNER})


def written_text(output: Path) -> str:
    """Give everything under the output as text, tables decoded and file names included."""
    texts = [str(path.relative_to(output)) for path in output.rglob("*")]
    texts += [(output / name).read_text("utf-8") for name in ("run.json", "report.html")]
    for part in ("centroids", "synopsis"):
        texts += [json.dumps(row) for row in read_part(output, part).to_pylist()]
    # Compressed or not: parquet's own statistics and metadata are bytes too.
    texts += [path.read_bytes().decode("latin-1") for path in output.rglob("*") if path.is_file()]
    return "\n".join(texts)


def test_the_search_finds_what_it_looks_for() -> None:
    assert value_is_in(f"row ({VALUE}, 1)")
    assert value_is_in(f"{VALUE:.9e}")
    assert number_is_in("n=7919", ROWS)
    assert number_is_in("read 7,919 rows", ROWS)
    assert not number_is_in("port 37919, 0.7919, o7919, 79190", ROWS)


@dataclass(frozen=True)
class Process:
    """A job run as a process of its own, with every log at its most talkative."""

    code: int
    out: str
    err: str
    python_log: str
    spark_log: str


_TALKATIVE = """\
import logging, runpy, sys
logging.basicConfig(level=1, format="%(name)s %(levelname)s %(message)s",
                    handlers=[logging.FileHandler("python.log"), logging.StreamHandler()])
for name in ("py4j", "py4j.java_gateway", "py4j.clientserver"):
    logging.getLogger(name).setLevel(1)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


def run_talkative(folder: Path, *arguments: str, before: str = "", level: str = "debug") -> Process:
    """Run the job with Python's loggers at 1 and Spark's at debug, the latter to its own file."""
    folder.mkdir()
    (folder / "log4j2.properties").write_text(
        _LOG4J.format(level=level, file=folder / "spark.log"), encoding="utf-8"
    )
    (folder / "talkative.py").write_text(_TALKATIVE.replace("sys.argv =", before + "sys.argv =", 1))
    options = "--master local[2] --conf spark.ui.enabled=false --conf spark.eventLog.enabled=false"
    env = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_LOG_LEVEL": "debug",
    }
    env.pop("SPARK_REMOTE", None)
    env.pop("SPARK_CONNECT_MODE_ENABLED", None)
    done = subprocess.run(
        [sys.executable, "talkative.py", str(ROOT / "jobs" / "eugkm.py"), *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    logs = [(folder / name).read_text("utf-8", "replace") for name in ("python.log", "spark.log")]
    return Process(done.returncode, done.stdout, done.stderr, *logs)


@pytest.mark.slow
def test_a_whole_run_shows_no_planted_fact_at_any_log_level(planted: Path, tmp_path: Path) -> None:
    for attempt in range(_TRIES):
        output = tmp_path / f"out{attempt}"
        flags = ("--output", str(output), *input_flags(planted, k=4, epsilon=EPSILON), *SQUARE)
        run = run_talkative(tmp_path / f"run{attempt}", *flags)
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
    run = run_talkative(tmp_path / "run", *flags, *output, str(table), before=view, level="info")
    assert run.code == 6, run.err[-2000:]
    assert "CAST_INVALID_INPUT" in run.err
    assert not value_is_in(run.out)
    assert [line for line in run.err.splitlines() if value_is_in(line)] == []
    assert not value_is_in(run.python_log)
    # Spark's own log tells those who may read the table what went wrong.
    assert value_is_in(run.spark_log)


class _Everything(logging.Handler):
    """Keeps each record of each logger as text."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.getMessage()} {record.exc_text or ''}")


@pytest.fixture
def everything(spark: SparkSession) -> Iterator[_Everything]:
    """Listen to every logger of this process at its lowest level."""
    names = ["SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "py4j.clientserver",
             "py4j.java_gateway", "pyspark.sql.connect.logging", "grpc"]  # fmt: skip
    try:
        from pyspark.logger import PySparkLogger

        context_loggers = [PySparkLogger.getLogger(name) for name in names[:2]]
    except ImportError:
        context_loggers = []
    loggers = [logging.getLogger(), *context_loggers, *map(logging.getLogger, names[2:])]
    before = [(one.level, one.disabled, one.propagate) for one in loggers]
    listener = _Everything()
    for one in loggers:
        one.setLevel(1)
        one.disabled = False
        one.propagate = False
        one.addHandler(listener)
    yield listener
    for one, (level, disabled, propagate) in zip(loggers, before, strict=True):
        one.removeHandler(listener)
        one.setLevel(level)
        one.disabled, one.propagate = disabled, propagate


@pytest.mark.spark
def test_our_process_logs_no_planted_fact(
    everything: _Everything,
    planted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for attempt in range(_TRIES):
        output = tmp_path / f"out{attempt}"
        everything.lines.clear()
        flags = ("--output", str(output), *input_flags(planted, k=4, epsilon=EPSILON), *SQUARE)
        outcome = run_main(capsys, *flags, "--restarts", "2")
        assert outcome.code == 0, outcome.shown
        if not released_by_chance(output):
            break
    else:
        pytest.fail("the noise was zero again and again")
    heard = "\n".join(everything.lines)
    assert ("pyspark.sql.connect" if CONNECT else "py4j") in heard
    assert secret_lines(heard) == []
    assert secret_lines(outcome.shown) == []
    assert secret_lines(written_text(output)) == []


@pytest.mark.spark
@pytest.mark.parametrize("cast", ["cast(s AS double)", "s * 1.0D"])
def test_a_cast_that_fails_quotes_no_row_in_our_process(
    cast: str,
    everything: _Everything,
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
