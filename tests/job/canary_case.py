"""Planting facts in a table, and searching everything that leaves a job for them.

Spark's own log is inside the trust boundary: it belongs to whoever may read the table. What the
job writes, prints and logs from Python is not.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from conftest import ROOT
from job_case import read_part, read_run

from dpkm_spark.domain import SCALE, Domain

VALUE = 0.7310585786300049
#: Rows in all, and rows at one corner: primes, so that nothing else comes near by accident.
ROWS, CORNER = 7919, 3571
SQUARE = ("--columns", "x,y", "--bounds", "-1:1")
#: Noise of scale 10 on the cells and 500 on the count hides the exact numbers nearly always.
EPSILON = "0.1"
#: Runs until no noise is zero.
TRIES = 4

#: Runs of private jobs that take every way to the rows: name of the job, k, flags.
RUNS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "eugkm": ("eugkm", 4, ("--restarts", "2")),
    "dplloyd": ("dplloyd", 4, ("--rounds", "2")),
    "dplloyd by Python": ("dplloyd", 334, ("--rounds", "2")),
    "gkm": ("gkm", 3, ("--block-size", "500")),
    "pgkm": ("pgkm", 3, ("--generations", "2", "--count-share", "0.5")),
    "hybrid": ("hybrid", 4, ("--restarts", "2", "--hybrid-rule", "always")),
}


def plant(path: Path) -> Path:
    """Write a table of 7919 rows: 7 hold the value, 3571 are at one corner."""
    random = np.random.default_rng(5)
    points = random.uniform(-0.7, 0.9, size=(ROWS, 2))
    points[:CORNER] = -0.99
    points[-7:, 0] = VALUE
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
    """Tell whether the planted value stands in a text."""
    return any(spelling.lower() in text.lower() for spelling in spellings())


def number_is_in(text: str, number: int) -> bool:
    """Tell whether a number stands in a text on its own, as 7919 or 7,919.

    Functions travel to executors as base64, of which a run of digits says nothing.
    """
    text = re.sub(r"[A-Za-z0-9+/=]{200,}", " ", text)
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
    sizes = [size for size in read_part(output)["noisy_size"].to_pylist() if size is not None]
    # Sizes of sums are no whole numbers, and are rounded where people see them.
    counts = {bound(size) for size in sizes for bound in (math.floor, math.ceil)}
    counts.add(read_run(output)["result"]["count"])
    if (output / "synopsis").exists():
        counts |= set(read_part(output, "synopsis")["noisy_count"].to_pylist())
    return bool(counts & {ROWS, CORNER})


def written_text(output: Path) -> str:
    """Give everything under the output as text, tables decoded and file names included."""
    texts = [str(path.relative_to(output)) for path in output.rglob("*")]
    texts += [(output / name).read_text("utf-8") for name in ("run.json", "report.html")]
    for part in ("centroids", "synopsis"):
        if (output / part).exists():
            texts += [json.dumps(row) for row in read_part(output, part).to_pylist()]
    # Compressed or not: parquet's own statistics and metadata are bytes too.
    texts += [path.read_bytes().decode("latin-1") for path in output.rglob("*") if path.is_file()]
    return "\n".join(texts)


# --- a process of its own -------------------------------------------------------------------------


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


def run_talkative(
    folder: Path, job: str, *arguments: str, before: str = "", level: str = "debug"
) -> Process:
    """Run a job with Python's loggers at 1 and Spark's at debug, the latter to its own file.

    The processes of Python on the executors write to the standard error that is caught here.
    """
    folder.mkdir()
    (folder / "log4j2.properties").write_text(
        _LOG4J.format(level=level, file=folder / "spark.log"), encoding="utf-8"
    )
    (folder / "talkative.py").write_text(_TALKATIVE.replace("sys.argv =", before + "sys.argv =", 1))
    options = "--master local[2] --conf spark.ui.enabled=false --conf spark.eventLog.enabled=false"
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONNECT_LOG_LEVEL": "debug",
    }
    env.pop("SPARK_REMOTE", None)
    env.pop("SPARK_CONNECT_MODE_ENABLED", None)
    done = subprocess.run(
        [sys.executable, "talkative.py", str(ROOT / "jobs" / f"{job}.py"), *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    logs = [(folder / name).read_text("utf-8", "replace") for name in ("python.log", "spark.log")]
    return Process(done.returncode, done.stdout, done.stderr, *logs)


# --- this process ---------------------------------------------------------------------------------


class Everything(logging.Handler):
    """Keeps each record of each logger as text."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.lines.append(f"{record.name} {record.getMessage()} {record.exc_text or ''}")


@contextmanager
def all_logs() -> Iterator[Everything]:
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
    listener = Everything()
    for one in loggers:
        one.setLevel(1)
        one.disabled = False
        one.propagate = False
        one.addHandler(listener)
    try:
        yield listener
    finally:
        for one, (level, disabled, propagate) in zip(loggers, before, strict=True):
            one.removeHandler(listener)
            one.setLevel(level)
            one.disabled, one.propagate = disabled, propagate
