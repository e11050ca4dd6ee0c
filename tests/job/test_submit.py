"""The command of the README, through the real launcher and spark-submit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow


def submit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the launcher from another working directory."""
    command = [str(ROOT / "spark-submit.sh"), str(ROOT / "jobs" / "eugkm.py"), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )


def test_the_first_command_clusters_the_sample_from_any_folder(tmp_path: Path) -> None:
    done = submit(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "15 clusters of the embedded sample at epsilon = 1" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.split()[:1] == ["14"]]) == 1
    (output,) = (tmp_path / "dpkm-out").iterdir()
    for name in ("centroids", "synopsis", "run.json", "report.html"):
        assert (output / name).exists()
        assert f"dpkm-out/{output.name}/{name}" in done.stdout
    # Spark's own log noise is off, so that the result is what a person sees.
    assert "WARN" not in done.stderr
    assert "INFO" not in done.stderr


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
