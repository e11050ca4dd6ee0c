"""Every exact aggregate, with and without tasks that are killed on their first attempt.

Run as a process of its own, since a session of ``local[2]`` tries each task once only:
``python killed_tasks.py FOLDER``. Writes ``FOLDER/answers.json``, and one file a task's attempt.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import SCALE, Domain
from dpkm_spark.grid import Grid
from dpkm_spark.queries import blocks, nearest
from dpkm_spark.queries.blocks import BlockPlan
from dpkm_spark.queries.local import LocalEngine
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame

D = 3
PARTITIONS = 5
#: Partitions whose first attempt is killed.
DOOMED = (0, 3)
#: Batches of 48 kB: each is sent off before the next is made.
BATCH = 2000
ROWS = PARTITIONS * 6 * BATCH
DOMAIN = Domain.of([f"x{i}" for i in range(D)], (float(-SCALE), float(SCALE)))

Ask = Callable[[Any], Any]


def points(count: int, seed: int) -> Any:
    """Integer coordinates, some of them many times."""
    random = np.random.default_rng(seed)
    found = random.integers(-SCALE, SCALE, (count, D), endpoint=True)
    found[::3] = found[0]
    return found


def plan(method: str) -> BlockPlan:
    """Blocks of some fifty rows, in seven partitions."""
    return BlockPlan(
        blocks=1000, key=11, starts=points(3, 5), low=np.full(D, -SCALE), high=np.full(D, SCALE),
        method=method, rounds=3, expected_rows=3_000_000,
    )  # fmt: skip


ASK: dict[str, Ask] = {
    "count": lambda engine: engine.count(),
    "cell_histogram": lambda engine: engine.cell_histogram(Grid(D, 4)),
    "marginals": lambda engine: engine.marginals(16),
    "cluster_sums by SQL": lambda engine: engine.cluster_sums(points(5, 1)),
    "cluster_sums by Python": lambda engine: engine.cluster_sums(points(334, 2)),
    "candidate_costs by SQL": lambda engine: engine.candidate_costs(points(4, 3)[None]),
    "candidate_costs by Python": lambda engine: engine.candidate_costs(
        points(40, 4).reshape(10, 4, D)
    ),
    "block_sums, public": lambda engine: engine.block_sums(plan("public")),
    "block_sums, gupt": lambda engine: engine.block_sums(plan("gupt")),
}
#: Where the kernels that Python workers run are looked up.
KERNELS: dict[str, tuple[Any, str]] = {
    "cluster_sums by Python": (nearest, "cluster_sums"),
    "candidate_costs by Python": (nearest, "candidate_costs"),
    "block_sums, public": (blocks, "block_outputs"),
    "block_sums, gupt": (blocks, "block_outputs"),
}


def make_attempt(folder: Path, doomed: Iterable[int]) -> Callable[[int], None]:
    """Make a function for executors: it notes an attempt and its rows, and kills its first ones."""
    folder.mkdir(parents=True)
    place, chosen = str(folder), tuple(doomed)

    def attempt(rows: int) -> None:
        import os
        import signal

        from pyspark import TaskContext

        context = TaskContext.get()
        part, number = context.partitionId(), context.attemptNumber()
        with open(f"{place}/{part}-{number}", "a", encoding="utf-8") as file:
            file.write(f"{rows}\n")
        if number == 0 and part in chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    return attempt


def fragile(frame: DataFrame, folder: Path) -> DataFrame:
    """Pass rows through Python that dies in the doomed partitions' first attempts, halfway."""
    attempt = make_attempt(folder, DOOMED)

    def passed(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows = 0
        for i, batch in enumerate(batches):
            yield batch
            rows += batch.num_rows
            if i == 3:
                attempt(rows)

    return frame.mapInArrow(passed, frame.schema)


@contextmanager
def fragile_kernel(which: str, folder: Path, *, careless: bool = False) -> Any:
    """Let the kernel of an aggregate die after its work, where it runs for the first time.

    A careless one, which plants a fault, lets the number of the attempt into its answer.
    """
    module, name = KERNELS[which]
    attempt, real = make_attempt(folder, DOOMED), getattr(module, name)

    def kernel(coordinates: Any, *arguments: Any, **options: Any) -> Any:
        from pyspark import TaskContext

        answer = real(coordinates, *arguments, **options)
        attempt(len(coordinates))
        return answer + TaskContext.get().attemptNumber() if careless else answer

    with mock.patch.object(module, name, kernel):
        yield


def attempts_of(folder: Path) -> dict[str, list[int]]:
    """Give the rows that each attempt noted, by ``partition-attempt``."""
    return {
        path.name: [int(line) for line in path.read_text().split()]
        for path in sorted(folder.iterdir())
    }


def main(folder: Path) -> None:
    """Ask everything, and write it down."""
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = points(ROWS, 0)
    columns = {f"x{i}": rows[:, i].astype(np.float64) for i in range(D)}
    path = str(folder / "rows.parquet")
    table_to_frame(spark, pa.table(columns)).write.parquet(path)
    frame = spark.read.parquet(path).repartition(PARTITIONS)
    calm, local = SparkEngine(frame, DOMAIN), LocalEngine(rows, DOMAIN)
    told: dict[str, Any] = {}
    for number, (name, ask) in enumerate(ASK.items()):
        source = folder / f"source-{number}"
        answers = {"local": ask(local), "calm": ask(calm)}
        answers["killed source"] = ask(SparkEngine(fragile(frame, source), DOMAIN))
        attempts = {"killed source": attempts_of(source)}
        if name in KERNELS:
            kernel = folder / f"kernel-{number}"
            with fragile_kernel(name, kernel):
                answers["killed kernel"] = ask(calm)
            attempts["killed kernel"] = attempts_of(kernel)
        told[name] = {
            "answers": {how: np.asarray(a).tolist() for how, a in answers.items()},
            "attempts": attempts,
        }
    planted = "cluster_sums by Python"
    with fragile_kernel(planted, folder / "careless", careless=True):
        told[planted]["planted fault"] = ASK[planted](calm).tolist()
    (folder / "answers.json").write_text(json.dumps(told), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
