"""The job's Spark session, classic or Connect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from dpkm_spark.errors import QueryError

#: Folders ``zone=01`` and ``zone=1`` are two zones.
_NO_INFERENCE = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
#: For a table that has ``X`` beside ``x``. Not otherwise: tables of Hive have lower-case names
#: over files that may not, and would read as null.
_CASE_SENSITIVE = {"spark.sql.caseSensitive": "true"}


@contextlib.contextmanager
def job_session(name: str, columns: Sequence[str]) -> Iterator[SparkSession]:
    """Get the platform's session, or start one, with the job's reading rules.

    A session that was there before, such as Databricks', is left running, with its settings as
    they were; one of our own is stopped, since on Kubernetes a driver that forgets to stop it
    does not end.

    Parameters
    ----------
    name : str
        Application name.
    columns : sequence of str
        Names that the job reads and writes.

    Yields
    ------
    SparkSession

    Raises
    ------
    QueryError
        If Spark does not start.
    """
    active = SparkSession.getActiveSession()
    spark = active or _start(name)
    clash = len({column.lower() for column in columns}) < len(columns)
    settings = {**_NO_INFERENCE, **(_CASE_SENSITIVE if clash else {})}
    before: dict[str, str | None] = {}
    try:
        before = {key: spark.conf.get(key, None) for key in settings}
        _set(spark, settings)
        yield spark
    finally:
        if active is None:
            spark.stop()
        else:
            _set(spark, {key: value for key, value in before.items() if value is not None})


def _start(name: str) -> SparkSession:
    try:
        return SparkSession.builder.appName(name).getOrCreate()
    except Exception as error:
        # No row has been read yet, so the text is safe to show.
        text = str(error).strip() or type(error).__name__
    raise QueryError(f"spark: cannot start a session: {text.splitlines()[0]}")


def _set(spark: SparkSession, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        # Serverless platforms refuse some settings; each only widens what can be read.
        with contextlib.suppress(Exception):
            spark.conf.set(key, value)
