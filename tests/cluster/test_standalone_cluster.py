"""Every job on a real standalone cluster whose executors have neither our code nor our Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_case import (
    NO_PYTHON,
    Cluster,
    codes_of,
    parts,
    run_here,
    running_cluster,
    several,
    submit,
    submit_bare,
)
from conftest import ROOT

from dpkm_spark.algorithms.registry import ALGORITHMS

pytestmark = pytest.mark.cluster

COLUMNS = ("--columns", "x,y", "--bounds", "-1:1")
_GRID = ("--grid", "fixed", "--cells-per-dimension", "12", "--restarts", "3")
#: Runs that native SQL serves: name of the run, job, k and flags.
NATIVE = (
    ("eugkm", "eugkm", 3, ("--restarts", "3")),
    ("dplloyd", "dplloyd", 3, ("--rounds", "2")),
    ("hybrid", "hybrid", 3, (*_GRID, "--hybrid-rule", "always")),
    ("lloyd", "lloyd", 3, ("--restarts", "1", "--max-iter", "3")),
)
#: Runs that need Python on the executors.
HEAVY = (
    ("gkm", "gkm", 3, ("--block-size", "3k")),
    ("pgkm", "pgkm", 3, ("--generations", "2")),
    ("gene", "gene", 3, ("--generations", "2")),
    ("dplloyd of many clusters", "dplloyd", 334, ("--rounds", "2")),
)


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


def flags_of(which: str, points: Path, folder: Path) -> tuple[str, list[str]]:
    """Give the job of a run, and its flags for a run that can be repeated."""
    ((name, k, more),) = [rest for known, *rest in (*NATIVE, *HEAVY) if known == which]
    seeded = ("--epsilon", "1", "--seed", "1") if ALGORITHMS[name].private else ()
    needed = ("--input", str(points), *COLUMNS, "--k", str(k), "--run-id", "same")
    return name, [*needed, *seeded, *more, "--output", str(folder / which)]


def runs_of(kind: tuple[tuple[Any, ...], ...], points: Path, folder: Path) -> list[list[str]]:
    """Give runs, each as a list of its name, its job and flags."""
    runs = []
    for which, *_ in kind:
        name, flags = flags_of(which, points, folder)
        runs.append([which, name, *flags])
    return runs


@pytest.fixture(scope="module")
def here(points: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run everything on this machine, each into a folder of its name."""
    folder = tmp_path_factory.mktemp("here")
    codes = codes_of(run_here(folder, *runs_of((*NATIVE, *HEAVY), points, folder)))
    assert codes == {which: 0 for which, *_ in (*NATIVE, *HEAVY)}
    return folder


def check(which: str, found: Path, expected: Path) -> None:
    """Check that a run gave what the same run gave on this machine, to the bit."""
    tables, wanted = parts(found / which), parts(expected / which)
    assert tables.keys() == wanted.keys()
    for name, table in tables.items():
        assert table.num_rows > 0
        assert table.equals(wanted[name]), (which, name)
    assert (found / which / "run.json").is_file()
    assert (found / which / "report.html").is_file()


def test_every_job_is_run_here() -> None:
    assert {name for _, name, *_ in (*NATIVE, *HEAVY)} == set(ALGORITHMS)


def test_both_executors_work_without_python_and_give_the_local_result(
    cluster: Cluster, points: Path, here: Path, tmp_path: Path
) -> None:
    name, flags = flags_of("eugkm", points, tmp_path)
    done = submit(cluster, tmp_path, name, *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    check("eugkm", tmp_path, here)
    assert cluster.executors() == [1, 1]
    finished = cluster.state()["completedapps"]
    assert [(app["state"], app["cores"]) for app in finished] == [("FINISHED", 2)]


@pytest.fixture(scope="module")
def without_python(
    cluster: Cluster, points: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, int], Path]:
    """Run the other jobs that SQL serves in one application, whose executors have no Python."""
    folder = tmp_path_factory.mktemp("without")
    script = several(folder, *runs_of(NATIVE[1:], points, folder))
    return codes_of(submit_bare(cluster, folder, *script, python=NO_PYTHON)), folder


@pytest.mark.parametrize("which", [which for which, *_ in NATIVE[1:]])
def test_other_jobs_work_without_python_and_give_the_local_result(
    which: str, without_python: tuple[dict[str, int], Path], here: Path
) -> None:
    codes, folder = without_python
    assert codes[which] == 0
    check(which, folder, here)


def test_executors_with_python_but_without_our_package_give_the_local_result(
    cluster: Cluster, points: Path, here: Path, tmp_path: Path
) -> None:
    name, flags = flags_of("gkm", points, tmp_path)
    done = submit_bare(cluster, tmp_path, ROOT / "jobs" / f"{name}.py", *flags)
    assert done.returncode == 0, done.stderr[-3000:]
    check("gkm", tmp_path, here)


def test_other_jobs_work_with_python_but_without_our_package(
    cluster: Cluster, points: Path, here: Path, tmp_path: Path
) -> None:
    script = several(tmp_path, *runs_of(HEAVY[1:], points, tmp_path))
    codes = codes_of(submit_bare(cluster, tmp_path, *script))
    assert codes == {which: 0 for which, *_ in HEAVY[1:]}
    for which in codes:
        check(which, tmp_path, here)


def test_without_python_a_job_that_needs_it_ends_before_it_pays(
    cluster: Cluster, points: Path, tmp_path: Path
) -> None:
    # GkM buys N and a range before it comes to its blocks; test_no_python has the others.
    name, flags = flags_of("gkm", points, tmp_path)
    done = submit(cluster, tmp_path, name, *flags)
    assert done.returncode == 69, done.stderr[-3000:]
    (message,) = [line for line in done.stderr.splitlines() if line.startswith(f"{name}: ")]
    assert "needs Python with numpy and pyarrow on the executors" in message
    assert "before any row was read" in message
    assert "asking for" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "gkm").exists()


def test_executors_have_python_and_not_our_package(cluster: Cluster, tmp_path: Path) -> None:
    # Or functions that travel by name would pass the tests above.
    script = tmp_path / "imports.py"
    script.write_text(_IMPORTS, encoding="utf-8")
    done = submit_bare(cluster, tmp_path, script)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == str(["No module named 'dpkm_spark'", "numpy", "pyarrow"])


_IMPORTS = """\
import pyarrow as pa
from pyspark.sql import SparkSession
def check(batches):
    for batch in batches:
        found = []
        for name in ("pyarrow", "numpy", "dpkm_spark"):
            try:
                __import__(name)
                found.append(name)
            except ModuleNotFoundError as error:
                found.append(str(error))
        yield pa.RecordBatch.from_pydict({"found": found})
spark = SparkSession.builder.getOrCreate()
rows = spark.range(0, 8, 1, 4).mapInArrow(check, "found string").distinct().collect()
print(sorted(row.found for row in rows))
"""


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
