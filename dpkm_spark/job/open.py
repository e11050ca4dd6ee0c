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

#: Queries that need Python on the executors whatever their size.
_HEAVY = ("block_sums", "private_select")
#: Ns at which a plan is looked at where N is a secret: it may depend on the noisy one.
_ANY_COUNT = tuple(10**power for power in range(13))


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
    ExecutorError
        If a query of the plan would need Python on the executors, and it does not work there.
    """
    if request.source is None:
        frame = table_to_frame(spark, sample_table())
    else:
        frame = read_input(spark, request.source, request.domain)
    engine = SparkEngine(frame, request.domain)
    if not request.algorithm.private:
        return OpenedInput(engine, OpenTable(engine, request.run_id))
    _prepare(engine, request)
    noise = SystemNoise() if request.seed is None else SeededNoise(request.seed)
    transcript = MemoryTranscript(request.run_id)
    return OpenedInput(engine, PrivateTable(engine, Budget(request.budget), transcript, noise))


def _prepare(engine: SparkEngine, request: Request) -> None:
    """Check that all queries can be served: the door checks each, when others are paid for."""
    known = request.parameters.public_count
    counts = _ANY_COUNT if known is None else (known,)
    names = {
        query.name
        for count in counts
        for query in request.parameters.plan(request.budget, request.domain.dimension, count)
    }
    if names.intersection(_HEAVY):
        engine.prepare_heavy()
    if "cluster_sums" in names:
        engine.prepare_sums(request.parameters.k)
