"""Tables with little in them, through every private job: always k finite centroids, no hint why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from job_case import PRIVATE, TINY, input_flags, read_part, read_run, run_ok
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SQUARE = ("--columns", "x,y", "--bounds", "-1:1", "--input-format", "table")
#: test_job_runs has these and more for EUGkM.
OTHERS = [name for name in PRIVATE if name != "eugkm"]
#: (SQL, k). One row is fewer than there are clusters, and all rows are equal.
QUICK = {
    "empty": ("SELECT 0.0D AS x, 0.0D AS y WHERE false", 3),
    "one row": ("SELECT 0.3D AS x, -0.2D AS y", 3),
    "constant column, k = 1": ("SELECT 0.3D AS x, id / 250.0D - 1 AS y FROM range(500)", 1),
}
MORE = {
    "all rows equal": ("SELECT 0.3D AS x, -0.2D AS y FROM range(500)", 3),
    "null, NaN and infinite": (
        "SELECT * FROM VALUES (double('NaN'), 0D), (0D, double('inf')), (null, 0D), "
        "(double('-inf'), double('NaN')), (-0D, 1e308D), (1e-320D, 0D) AS t(x, y)",
        3,
    ),
}
TABLES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", OTHERS)
def test_every_odd_table_has_k_finite_centroids(
    name: str, table: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql, k = (QUICK | MORE)[table]
    spark.sql(sql).createOrReplaceTempView("dpkm_odd_table")
    flags = (*input_flags("dpkm_odd_table", k=k), *SQUARE, *TINY[name], "--no-report")
    outcome = run_ok(capsys, tmp_path / "out", *flags, algorithm=name)
    centroids = read_part(tmp_path / "out")
    assert centroids["cluster"].to_pylist() == list(range(k))
    values = np.array([centroids["x"].to_numpy(), centroids["y"].to_numpy()])
    assert np.isfinite(values).all()
    assert np.abs(values).max() <= 1
    record = read_run(tmp_path / "out")
    assert record["private"] is True
    assert record["privacy"]["spent"] == "1"
    # No line tells how many rows were dropped, or that there are none.
    shown = outcome.shown.replace(str(tmp_path), "").replace("dpkm_odd_table", "").lower()
    assert not any(word in shown for word in ("drop", "null", "nan", "empty", "warn"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "gkm" else pytest.mark.slow) for n in OTHERS]
)
def test_no_single_row_changes_the_steps_that_a_person_sees(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With N declared, and so the same for both, every step is public.
    steps = []
    for rows in ("range(40)", "range(40) UNION ALL SELECT double('inf'), double('NaN')"):
        first, *rest = rows.split(" UNION")
        more = f" UNION{rest[0]}" if rest else ""
        sql = f"SELECT id / 20D - 1 AS x, 0.5D AS y FROM {first}{more}"  # noqa: S608
        spark.sql(sql).createOrReplaceTempView("dpkm_odd_row")
        flags = (*input_flags("dpkm_odd_row"), *SQUARE, *TINY[name], "--no-report", "--overwrite")
        outcome = run_ok(capsys, tmp_path / "out", *flags, "--public-count", "40", algorithm=name)
        steps.append(outcome.steps)
    assert steps[0] == steps[1]
    assert len(steps[0]) >= 4
