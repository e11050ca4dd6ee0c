"""Putting the door in front of the input."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dpkm_spark.job.request import Request
from dpkm_spark.job.sample import sample_table
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise, SystemNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.spark import SparkEngine
from dpkm_spark.spark.frames import table_to_frame
from dpkm_spark.spark.read import read_input


def open_table(spark: SparkSession, request: Request) -> PrivateTable:
    """Open the input as a `PrivateTable`; no row is read.

    Raises
    ------
    InputError, ColumnError
        If it cannot be opened or lacks the columns.
    """
    if request.source is None:
        frame = table_to_frame(spark, sample_table())
    else:
        frame = read_input(spark, request.source, request.domain)
    return PrivateTable(
        SparkEngine(frame, request.domain),
        Budget(request.epsilon),
        MemoryTranscript(request.run_id),
        SystemNoise() if request.seed is None else SeededNoise(request.seed),
    )
