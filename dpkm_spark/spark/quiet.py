"""Keeping what travels between the driver and Spark out of Python's own logs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: At DEBUG these write each message, un-noised counts included.
_WIRE_LOGGERS = ("py4j", "py4j.clientserver", "py4j.java_gateway")
#: pyspark 4 writes the text of a failure to stderr before anybody can catch it, and that text can
#: quote a row; its Connect client tells at DEBUG how many rows came.
_PYSPARK_LOGGERS = (
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
    "pyspark.sql.connect.logging",
    "pyspark.sql.connect.client.core",  # Spark 3.5
)
_SILENT = logging.CRITICAL + 1


@contextmanager
def wire_logs_off() -> Iterator[None]:
    """Silence the loggers through which an exact number or a row could leave, for a while."""
    _enter()
    try:
        yield
    finally:
        _leave()


#: Levels are global to the process, so the first thread in saves them and the last one out
#: restores them.
_lock = threading.Lock()
_inside = 0
_saved: list[tuple[logging.Logger, int]] = []


def _enter() -> None:
    global _inside  # noqa: PLW0603 - mirrors logging, whose levels are global as well
    with _lock:
        _inside += 1
        if _inside > 1:
            return
        get = _pyspark_getter()
        loggers = [logging.getLogger(name) for name in _WIRE_LOGGERS]
        loggers += [get(name) for name in _PYSPARK_LOGGERS]
        _saved[:] = [(logger, logger.level) for logger in loggers]
        for logger in loggers:
            logger.setLevel(_SILENT)


def _leave() -> None:
    global _inside  # noqa: PLW0603 - see _enter
    with _lock:
        _inside -= 1
        if not _inside:
            for logger, level in _saved:
                logger.setLevel(level)


def _pyspark_getter() -> Callable[[str], logging.Logger]:
    """Get pyspark's own way of making loggers: it hands them keywords that plain ones refuse."""
    try:
        from pyspark.logger import PySparkLogger  # noqa: PLC0415 - Spark 3.5 has none
    except ImportError:
        return logging.getLogger
    getter: Callable[[str], logging.Logger] = PySparkLogger.getLogger
    return getter
