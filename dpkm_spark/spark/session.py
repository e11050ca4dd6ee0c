"""The job's Spark session, classic or Connect."""

from __future__ import annotations

import contextlib

from pyspark.sql import SparkSession

#: A table may have ``X`` beside ``x``; and folders ``zone=01`` and ``zone=1`` are two zones.
_RUNTIME_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def job_session(name: str) -> SparkSession:
    """Get the session that spark-submit set up, or a new one, with the job's reading rules.

    Parameters
    ----------
    name : str
        Application name.

    Returns
    -------
    SparkSession
    """
    spark = SparkSession.builder.appName(name).getOrCreate()
    for key, value in _RUNTIME_SETTINGS.items():
        # Serverless platforms refuse some settings; each only widens what can be read.
        with contextlib.suppress(Exception):
            spark.conf.set(key, value)
    return spark
