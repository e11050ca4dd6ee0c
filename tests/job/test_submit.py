"""The commands of the README, through the real launcher: the sample, and real point sets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from job_case import PRIVATE, TINY, input_flags, read_part, read_run

from dpkm_spark.algorithms.registry import ALGORITHMS

pytestmark = pytest.mark.slow


def submit(folder: Path, *arguments: str, job: str = "eugkm") -> subprocess.CompletedProcess[str]:
    """Run the launcher from another working directory."""
    command = [str(ROOT / "spark-submit.sh"), str(ROOT / "jobs" / f"{job}.py"), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )


def check_silence(done: subprocess.CompletedProcess[str], job: str) -> None:
    """Spark's own log noise is off, so that the result is what a person sees."""
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line for line in done.stderr.splitlines() if not line.startswith(f"[{job} ")] == []


@pytest.mark.parametrize("job", ALGORITHMS)
def test_every_job_clusters_the_sample_from_any_folder(job: str, tmp_path: Path) -> None:
    # EUGkM without any option: the first command of the README.
    done = submit(tmp_path, *(() if job == "eugkm" else TINY[job]), job=job)
    check_silence(done, job)
    price = " at epsilon = 1" if job in PRIVATE else ""
    assert f"15 clusters of the embedded sample{price}" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.split()[:1] == ["14"]]) == 1
    (output,) = (tmp_path / "dpkm-out").iterdir()
    written = ["centroids", "run.json", "report.html"]
    written += ["synopsis"] if ALGORITHMS[job].synopsis else []
    assert {path.name for path in output.iterdir()} == set(written)
    for name in written:
        assert f"dpkm-out/{output.name}/{name}" in done.stdout


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--epsilon", "0"], 2, "epsilon: got 0"),
        (["--input", "points.parquet", "--bounds", "z=0:1", "--k", "3"], 3, "no 'z' in the table"),
    ],
)
def test_exit_codes_pass_through_spark_submit(
    flags: list[str], code: int, message: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "points.parquet")
    done = submit(tmp_path, *flags, *([] if "--epsilon" in flags else ["--epsilon", "1"]))
    assert done.returncode == code, done.stderr[-3000:]
    assert message in done.stderr
    assert done.stdout == ""


def test_arguments_keep_their_blanks_and_signs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a b": [-0.5], "c$d": [0.5]}), tmp_path / "my points.parquet")
    flags = ["--input", "my points.parquet", "--bounds", "a b=-1e0:1", "--bounds", "c$d=0:1"]
    done = submit(tmp_path, *flags, "--k", "2", "--epsilon", "1", "--dry-run")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a b: -1.0 to 1.0" in done.stdout
    assert "c$d: 0.0 to 1.0" in done.stdout


# --- real data ------------------------------------------------------------------------------------

#: k, dimensions, and bounds that hold the values of the set.
SETS = {"s1": (15, 2, (0.0, 1e6)), "lifesci": (3, 10, (-14.0, 7.0))}
REAL = [
    ("eugkm", "s1", ()),
    ("dplloyd", "lifesci", ()),
    ("dplloyd", "s1", ("--split", "optimal")),
    ("gkm", "lifesci", ("--block-size", "3k")),
    ("pgkm", "s1", ()),
    ("hybrid", "lifesci", ()),
]


def test_every_private_job_meets_real_data() -> None:
    assert {name for name, _, _ in REAL} == set(PRIVATE)


@pytest.mark.parametrize(("name", "points", "more"), REAL)
def test_private_jobs_cluster_real_data(
    name: str, points: str, more: tuple[str, ...], shared_data: Path, tmp_path: Path
) -> None:
    k, d, (low, high) = SETS[points]
    columns = [f"x{i}" for i in range(d)]
    table = shared_data / f"{points}.parquet"
    flags = (*input_flags(table, k=k), "--columns", ",".join(columns), f"--bounds={low}:{high}")
    done = submit(tmp_path, *flags, *more, "--output", "out", job=name)
    check_silence(done, name)
    centroids = read_part(tmp_path / "out")
    assert centroids.column_names == ["cluster", *columns, "noisy_size"]
    assert centroids.num_rows == k
    values = np.array([centroids[column].to_numpy() for column in columns])
    assert np.isfinite(values).all()
    assert (low <= values).all()
    assert (values <= high).all()
    record = read_run(tmp_path / "out")
    assert record["private"] is True
    assert record["privacy"]["spent"] == record["privacy"]["epsilon"] == "1"
    # 2 % of epsilon buys N where it is needed: noise of scale 50.
    rows = pq.read_metadata(table).num_rows
    assert record["result"]["count"] is None or abs(record["result"]["count"] - rows) < 2000
