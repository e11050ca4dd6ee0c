"""The job on a real standalone master with two workers that have neither our code nor Python."""

from __future__ import annotations

import json
import os
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, free_port, run_job, spark_script, wait_for_port

pytestmark = pytest.mark.cluster

NO_PYTHON = "/nonexistent/python"
COLUMNS = ("--columns", "x,y", "--bounds", "-1:1", "--k", "3", "--epsilon", "1")


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    port: int
    web_port: int
    workers: tuple[Path, ...]

    def state(self) -> dict[str, Any]:
        """Give what the master says of itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/") as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def executors(self) -> list[int]:
        """Count the executors that each worker has started so far."""
        return [len(list(folder.glob("app-*/*/stderr"))) for folder in self.workers]


@contextmanager
def server(folder: Path, main_class: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Spark server that knows nothing of this checkout."""
    folder.mkdir()
    kept = ("PATH", "HOME", "JAVA_HOME", "LANG")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": NO_PYTHON}
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(
            [spark_script("spark-class"), f"org.apache.spark.deploy.{main_class}", *arguments],
            cwd=folder,
            env=env,
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a master and two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    port, web_port = free_port(), free_port()
    address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    with ExitStack() as running:
        master = running.enter_context(server(folder / "master", "master.Master", *address))
        wait_for_port(port, master)
        wait_for_port(web_port, master)
        works = tuple(folder / f"worker{i}" / "work" for i in range(2))
        for work in works:
            options = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
            running.enter_context(
                server(
                    work.parent,
                    "worker.Worker",
                    *options,
                    "--work-dir",
                    str(work),
                    f"spark://127.0.0.1:{port}",
                )
            )
        started = Cluster(port, web_port, works)
        end = time.monotonic() + 120
        while started.state()["aliveworkers"] < 2:
            if time.monotonic() > end:
                pytest.fail("the workers did not register")
            time.sleep(0.2)
        yield started


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of eight files, so that both executors have something to do."""
    folder = tmp_path_factory.mktemp("points") / "points.parquet"
    folder.mkdir()
    random = np.random.default_rng(11)
    for i in range(8):
        values = random.normal(0, 0.4, size=(500, 2))
        pq.write_table(pa.table({"x": values[:, 0], "y": values[:, 1]}), folder / f"{i}.parquet")
    return folder


def submit(cluster: Cluster, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Submit the job as a user does; executors would find no Python if they looked for it."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": NO_PYTHON,
        "spark.pyspark.driver.python": sys.executable,
    }
    pairs = [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]
    command = [str(ROOT / "spark-submit.sh"), "--master", f"spark://127.0.0.1:{cluster.port}"]
    return subprocess.run(
        [*command, *pairs, str(ROOT / "jobs" / "eugkm.py"), *arguments],
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_both_executors_work_without_python_and_give_the_local_result(
    cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    flags = ("--input", str(points), *COLUMNS, "--seed", "1", "--run-id", "same")
    done = submit(cluster, tmp_path, *flags, "--output", str(tmp_path / "cluster"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert cluster.executors() == [1, 1]
    finished = cluster.state()["completedapps"]
    assert [(app["state"], app["cores"]) for app in finished] == [("FINISHED", 2)]

    local = run_job(*flags, "--output", str(tmp_path / "local"), cwd=tmp_path)
    assert local.returncode == 0, local.stderr[-3000:]
    for part in ("centroids", "synopsis"):
        tables = [pq.read_table(tmp_path / kind / part) for kind in ("cluster", "local")]
        assert tables[0].num_rows > 0
        assert (
            tables[0]
            .sort_by(tables[0].column_names[0])
            .equals(tables[1].sort_by(tables[1].column_names[0]))
        )
    assert (tmp_path / "cluster" / "run.json").is_file()
    assert (tmp_path / "cluster" / "report.html").is_file()


def test_an_executor_that_needs_python_would_fail_here(
    cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    """Show that the test above could fail: the same cluster refuses a job that needs Python."""
    job = tmp_path / "needs_python.py"
    job.write_text(
        "from pyspark.sql import SparkSession\n"
        "from pyspark.sql.functions import udf\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "spark.range(4).select(udf(str)('id')).collect()\n"
    )
    conf = ["--conf", f"spark.pyspark.python={NO_PYTHON}", "--conf", "spark.executor.memory=512m",
            "--conf", f"spark.pyspark.driver.python={sys.executable}",
            "--conf", "spark.driver.host=127.0.0.1"]  # fmt: skip
    master = ["--master", f"spark://127.0.0.1:{cluster.port}"]
    done = subprocess.run(
        [spark_script("spark-submit"), *master, *conf, str(job)],
        cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode != 0
    assert NO_PYTHON in done.stderr + done.stdout


def test_a_failure_of_the_job_is_its_exit_code_on_a_cluster_too(
    cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    flags = ("--input", str(points), "--bounds", "z=0:1", "--k", "3", "--epsilon", "1")
    done = submit(cluster, tmp_path, *flags, "--output", str(tmp_path / "out"))
    assert done.returncode == 3, done.stderr[-3000:]
    assert "no 'z' in the table" in done.stderr
