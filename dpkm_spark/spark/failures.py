"""Naming a Spark failure without a word of its text, which may quote a row."""

from __future__ import annotations

import contextlib
from typing import Any

#: Links of a Java chain of causes that are looked at.
_LONGEST_CHAIN = 10


def error_condition(error: Exception) -> str | None:
    """Give Spark's error condition, such as PATH_NOT_FOUND, if the failure has one."""
    found = _condition(error)
    # Classic leaves some failures untranslated (Py4JJavaError): the first Java cause that has a
    # condition is the one that Connect reports.
    cause = getattr(error, "java_exception", None)
    with contextlib.suppress(Exception):
        for _ in range(_LONGEST_CHAIN):
            if found or cause is None:
                break
            found, cause = _condition(cause), cause.getCause()
    return found


def _condition(error: Any) -> str | None:
    """Ask by both names: getErrorClass is Spark 3.5's, and deprecated after it."""
    for name in ("getCondition", "getErrorClass"):
        # A Java object answers an unknown method with an exception, not an AttributeError.
        with contextlib.suppress(Exception):
            condition = getattr(error, name)()
            return str(condition) if condition else None
    return None
