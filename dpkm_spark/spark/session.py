"""The job's Spark session, classic or Connect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

#: A table may have ``X`` beside ``x``; and folders ``zone=01`` and ``zone=1`` are two zones.
_RUNTIME_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


@contextlib.contextmanager
def job_session(name: str) -> Iterator[SparkSession]:
    """Get the platform's session, or start one, with the job's reading rules.

    A session that was there before, such as Databricks', is left running; one of our own is
    stopped, since on Kubernetes a driver that forgets to stop it does not end.

    Parameters
    ----------
    name : str
        Application name.

    Yields
    ------
    SparkSession
    """
    active = SparkSession.getActiveSession()
    spark = active or SparkSession.builder.appName(name).getOrCreate()
    for key, value in _RUNTIME_SETTINGS.items():
        # Serverless platforms refuse some settings; each only widens what can be read.
        with contextlib.suppress(Exception):
            spark.conf.set(key, value)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()
