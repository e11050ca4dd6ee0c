"""Putting the door in front of the input, or, for a method without privacy, none."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dpkm_spark.algorithms.algorithm import Clustering
from dpkm_spark.algorithms.notify import Notify
from dpkm_spark.evaluation import OpenTable, exact_nicv
from dpkm_spark.job.request import Request
from dpkm_spark.job.sample import sample_table
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise, SystemNoise
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame
from dpkm_spark.spark.read import read_input


@dataclass(frozen=True)
class OpenedInput:
    """The input of a job, opened.

    Parameters
    ----------
    engine : SparkEngine
        Exact aggregates.
    table : PrivateTable or OpenTable
        What the algorithm gets: the door, unless the method is not private.
    """

    engine: SparkEngine
    table: PrivateTable | OpenTable

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The noisy answers given so far."""
        return self.table.transcript.answers if isinstance(self.table, PrivateTable) else ()

    def cluster(self, request: Request, notify: Notify) -> Clustering:
        """Run the algorithm; spends all of its epsilon."""
        return request.algorithm.run(self.table, request.parameters, notify)

    def exact_nicv(self, clustering: Clustering) -> float:
        """Evaluate a result on the raw rows. NOT private."""
        return exact_nicv(self.engine, clustering.centroids)


def open_input(spark: SparkSession, request: Request) -> OpenedInput:
    """Open the input; no row is read.

    Raises
    ------
    InputError, ColumnError
        If it cannot be opened or lacks the columns.
    """
    if request.source is None:
        frame = table_to_frame(spark, sample_table())
    else:
        frame = read_input(spark, request.source, request.domain)
    engine = SparkEngine(frame, request.domain)
    if not request.algorithm.private:
        return OpenedInput(engine, OpenTable(engine, request.run_id))
    noise = SystemNoise() if request.seed is None else SeededNoise(request.seed)
    transcript = MemoryTranscript(request.run_id)
    return OpenedInput(engine, PrivateTable(engine, Budget(request.budget), transcript, noise))
