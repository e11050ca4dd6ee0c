"""One suite, two modes: DPKM_TEST_MODE=connect runs the Spark tests on a real Connect server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
CONNECT = os.environ.get("DPKM_TEST_MODE") == "connect"

# Python workers must be those of the tests' environment, also where pytest is called by hand.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}

# A first Spark query takes seconds, and a machine under load is no fault of the code.
settings.register_profile(
    "dpkm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dpkm")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session's one Spark session: classic, or a client of a Connect server of its own."""
    if CONNECT:
        yield from _connect_session(tmp_path_factory.mktemp("connect"))
    else:
        yield from _classic_session(tmp_path_factory.mktemp("warehouse"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real point sets, where they are at hand."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared point sets are not beside this checkout")
    return SHARED_DATA


def _classic_session(folder: Path) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").appName("dpkm-tests")
    for key, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _connect_session(folder: Path) -> Iterator[SparkSession]:
    port = free_port()
    conf = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(folder),
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
    }
    command = [spark_script("spark-submit"), "--master", "local[2]"]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += [
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        wait_for_port(port, server)
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        yield session
        session.stop()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def spark_script(name: str) -> str:
    """Path of a script of the installed pyspark, such as spark-submit."""
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def free_port() -> int:
    """A TCP port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Wait until somebody listens, or fail if the process ends first."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"the server on port {port} ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"nobody listens on port {port} after {seconds} s")


def run_job(*arguments: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run jobs/eugkm.py by the Python of the tests, as a user's own process."""
    command = [sys.executable, str(ROOT / "jobs" / "eugkm.py"), *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )
