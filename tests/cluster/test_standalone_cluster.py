"""Every job on a real standalone cluster whose executors have neither our code nor our Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_case import (
    NO_PYTHON,
    Cluster,
    Done,
    parts,
    run_here,
    running_cluster,
    submit,
    submit_bare,
)
from conftest import ROOT

from dpkm_spark.algorithms.registry import ALGORITHMS

pytestmark = pytest.mark.cluster

COLUMNS = ("--columns", "x,y", "--bounds", "-1:1")
_GRID = ("--grid", "fixed", "--cells-per-dimension", "12", "--restarts", "3")
#: Runs that native SQL serves: k and flags.
NATIVE: dict[str, tuple[int, tuple[str, ...]]] = {
    "eugkm": (3, ("--restarts", "3")),
    "dplloyd": (3, ("--rounds", "2")),
    "hybrid": (3, (*_GRID, "--hybrid-rule", "always")),
    "lloyd": (3, ("--restarts", "1", "--max-iter", "3")),
}
#: Runs that need Python on the executors: job, k and flags.
HEAVY: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "gkm": ("gkm", 3, ("--block-size", "3k")),
    "pgkm": ("pgkm", 3, ("--generations", "2")),
    "gene": ("gene", 3, ("--generations", "2")),
    "dplloyd of many clusters": ("dplloyd", 70, ("--rounds", "2")),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster for all tests."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
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


def flags_of(name: str, k: int, more: tuple[str, ...], points: Path) -> list[str]:
    """Give the flags of a run that can be repeated."""
    seeded = ("--epsilon", "1", "--seed", "1") if ALGORITHMS[name].private else ()
    needed = ("--input", str(points), *COLUMNS, "--k", str(k), "--run-id", "same")
    return [*needed, *seeded, *more]


@pytest.fixture(scope="module")
def here(points: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run everything on this machine as well, in one session, each into a folder of its name."""
    folder = tmp_path_factory.mktemp("here")
    runs = [
        [name, *flags_of(name, k, more, points), "--output", str(folder / which), "--no-report"]
        for which, (name, k, more) in {
            **{name: (name, *rest) for name, rest in NATIVE.items()},
            **HEAVY,
        }.items()
    ]
    done = run_here(folder, *runs)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def check(done: Done, output: Path, expected: Path) -> None:
    """Check that a run went well and gave what the same run gave on this machine, to the bit."""
    assert done.returncode == 0, done.stderr[-3000:]
    found, wanted = parts(output), parts(expected)
    assert found.keys() == wanted.keys()
    for name, table in found.items():
        assert table.num_rows > 0
        assert table.equals(wanted[name]), name
    assert (output / "run.json").is_file()
    assert (output / "report.html").is_file()


def test_every_job_is_run_here() -> None:
    assert {*NATIVE, *(name for name, _, _ in HEAVY.values())} == set(ALGORITHMS)


@pytest.mark.parametrize("name", NATIVE)
def test_executors_without_python_give_the_local_result(
    name: str, cluster: Cluster, points: Path, here: Path, tmp_path: Path
) -> None:
    k, more = NATIVE[name]
    before = cluster.executors()
    output = tmp_path / "out"
    done = submit(
        cluster, tmp_path, name, *flags_of(name, k, more, points), "--output", str(output)
    )
    check(done, output, here / name)
    # Both workers had an executor of this run, and the run ended as it should.
    assert [n - b for n, b in zip(cluster.executors(), before, strict=True)] == [1, 1]
    app = max(cluster.state()["completedapps"], key=lambda app: app["starttime"])
    assert (app["state"], app["cores"]) == ("FINISHED", 2)


@pytest.mark.parametrize("which", HEAVY)
def test_executors_with_python_but_without_our_package_give_the_local_result(
    which: str, cluster: Cluster, points: Path, here: Path, tmp_path: Path
) -> None:
    name, k, more = HEAVY[which]
    output = tmp_path / "out"
    flags = (*flags_of(name, k, more, points), "--output", str(output))
    done = submit_bare(cluster, tmp_path, ROOT / "jobs" / f"{name}.py", *flags)
    check(done, output, here / which)


@pytest.mark.parametrize("which", ["gkm", "pgkm", "dplloyd of many clusters"])
def test_without_python_a_job_that_needs_it_ends_before_it_pays(
    which: str, cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    name, k, more = HEAVY[which]
    flags = flags_of(name, k, more, points)
    done = submit(cluster, tmp_path, name, *flags, "--output", str(tmp_path / "out"))
    assert done.returncode == 6, done.stderr[-3000:]
    (message,) = [line for line in done.stderr.splitlines() if line.startswith(f"{name}: ")]
    assert "needs Python with numpy and pyarrow on the executors" in message
    assert "before any row was read" in message
    assert "asking for" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("module", "there"), [("pyarrow", True), ("dpkm_spark", False)])
def test_executors_have_python_and_not_our_package(
    module: str, there: bool, cluster: Cluster, tmp_path: Path
) -> None:
    # Or functions that travel by name would pass the tests above.
    script = tmp_path / "imports.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "def check(batches):\n"
        "    for batch in batches:\n"
        f"        import {module}\n"
        "        yield batch\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "frame = spark.range(0, 8, 1, 4).mapInArrow(check, 'id bigint')\n"
        "print('rows:', len(frame.collect()))\n",
        encoding="utf-8",
    )
    done = submit_bare(cluster, tmp_path, script)
    if there:
        assert done.returncode == 0, done.stderr[-3000:]
        assert "rows: 8" in done.stdout
    else:
        assert done.returncode != 0
        assert f"No module named '{module}'" in done.stderr + done.stdout


def test_an_executor_that_needs_python_would_fail_where_there_is_none(
    cluster: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "needs_python.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "from pyspark.sql.functions import udf\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "spark.range(4).select(udf(str)('id')).collect()\n",
        encoding="utf-8",
    )
    done = submit_bare(cluster, tmp_path, script, python=NO_PYTHON)
    assert done.returncode != 0
    assert NO_PYTHON in done.stderr + done.stdout


def test_a_failure_of_the_job_is_its_exit_code_on_a_cluster_too(
    cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    flags = ("--input", str(points), "--bounds", "z=0:1", "--k", "3", "--epsilon", "1")
    done = submit(cluster, tmp_path, "eugkm", *flags, "--output", str(tmp_path / "out"))
    assert done.returncode == 3, done.stderr[-3000:]
    assert "no 'z' in the table" in done.stderr
