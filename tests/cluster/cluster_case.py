"""A real standalone master with two workers, and jobs submitted to it or run on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, free_port, spark_script, wait_for_port

NO_PYTHON = "/nonexistent/python"
#: It has numpy and pyarrow, as a cluster's Python may, and our package only where PYTHONPATH says.
PYTHON = sys.executable

#: Jobs of a few seconds are not worth the optimising compiler: this halves the work.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    port: int
    web_port: int
    workers: tuple[Path, ...]

    @property
    def master(self) -> str:
        """The master's URL."""
        return f"spark://127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        """Give what the master says of itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/") as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def executors(self) -> list[int]:
        """Count the executors that each worker has started so far."""
        return [len(list(folder.glob("app-*/*/stderr"))) for folder in self.workers]


def environment(**more: str) -> dict[str, str]:
    """Give an environment that knows nothing of this checkout."""
    kept = ("PATH", "HOME", "JAVA_HOME", "LANG")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    return {**env, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def server(folder: Path, main_class: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Spark server."""
    folder.mkdir()
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(
            [spark_script("spark-class"), f"org.apache.spark.deploy.{main_class}", *arguments],
            cwd=folder,
            env=environment(PYSPARK_PYTHON=NO_PYTHON, SPARK_DAEMON_JAVA_OPTS=_JAVA),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a master and two workers of one core each."""
    port, web_port = free_port(), free_port()
    address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    with ExitStack() as running:
        master = running.enter_context(server(folder / "master", "master.Master", *address))
        wait_for_port(port, master)
        wait_for_port(web_port, master)
        works = tuple(folder / f"worker{i}" / "work" for i in range(2))
        started = Cluster(port, web_port, works)
        for work in works:
            options = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
            place = ("--work-dir", str(work), started.master)
            running.enter_context(server(work.parent, "worker.Worker", *options, *place))
        end = time.monotonic() + 120
        while started.state()["aliveworkers"] < 2:
            if time.monotonic() > end:
                pytest.fail("the workers did not register")
            time.sleep(0.2)
        yield started


def _conf(python: str) -> list[str]:
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _JAVA,
        "spark.driver.extraJavaOptions": _JAVA,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": sys.executable,
    }
    return [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]


def submit(cluster: Cluster, folder: Path, job: str, *arguments: str) -> Done:
    """Submit a job as a user does, to executors that find no Python if they look for it."""
    command = [str(ROOT / "spark-submit.sh"), "--master", cluster.master, *_conf(NO_PYTHON)]
    env = {**os.environ, "PYSPARK_PYTHON": NO_PYTHON, "SPARK_LOCAL_IP": "127.0.0.1"}
    return _run([*command, f"jobs/{job}.py", *arguments], folder, env)


def submit_bare(
    cluster: Cluster, folder: Path, script: Path, *arguments: str, python: str = PYTHON
) -> Done:
    """Submit by Spark's own spark-submit, with no package of ours on the executors.

    The launcher would ship the package by ``--py-files``; here nothing does.
    """
    command = [spark_script("spark-submit"), "--master", cluster.master, *_conf(python)]
    return _run([*command, str(script), *arguments], folder, environment())


#: Several jobs in one session, as a notebook runs them: it saves starting Spark for each.
_SEVERAL = """\
import json, sys
sys.path.append(sys.argv[1])
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
from dpkm_spark.job.run import main
codes = {which: main(name, flags) for which, name, *flags in json.loads(sys.argv[2])}
print("codes:", json.dumps(codes))
spark.stop()
"""


def several(folder: Path, *runs: list[str]) -> tuple[Path, str, str]:
    """Write a script that runs jobs, each a name of the run, of the job, and flags."""
    script = folder / "several.py"
    script.write_text(_SEVERAL, encoding="utf-8")
    return script, str(ROOT), json.dumps(runs)


def codes_of(done: Done) -> dict[str, int]:
    """Give the exit codes of several jobs."""
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("codes: ")]
    found: dict[str, int] = json.loads(line.partition(": ")[2])
    return found


def run_here(folder: Path, *runs: list[str]) -> Done:
    """Run jobs on this machine."""
    options = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    options += ["--driver-java-options", _JAVA, "pyspark-shell"]
    env = environment(PYSPARK_PYTHON=PYTHON, PYSPARK_SUBMIT_ARGS=shlex.join(options))
    return _run([sys.executable, *map(str, several(folder, *runs))], folder, env)


def _run(command: list[str], folder: Path, env: dict[str, str]) -> Done:
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )


def parts(output: Path) -> dict[str, pa.Table]:
    """Read the tables of an output."""
    found = {name: output / name for name in ("centroids", "synopsis") if (output / name).exists()}
    tables = {name: pq.read_table(path) for name, path in found.items()}
    return {name: table.sort_by(table.column_names[0]) for name, table in tables.items()}
