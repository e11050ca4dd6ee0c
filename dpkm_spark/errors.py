"""Errors that users of this project can meet: one class per kind of failure.

A message names the parameter, what was given and what is allowed. It never quotes a value of the
data, a count, or the text of an exception that Spark raised while it read the data, since each of
these could reveal a row.
"""

from __future__ import annotations


class DPKMeansError(Exception):
    """Base of every error this project raises on purpose."""


class ParameterError(DPKMeansError, ValueError):
    """A parameter is missing, malformed or outside its allowed range."""


class DomainError(ParameterError):
    """The public bounds do not describe a domain."""


class EpsilonError(ParameterError):
    """An epsilon is not a positive, finite number that the noise generator can serve."""


class InputError(DPKMeansError):
    """The input table cannot be found or read."""


class ColumnError(InputError):
    """A column is missing, ambiguous, or of a type that has no numeric meaning."""


class OutputError(DPKMeansError):
    """The output cannot be written, or would overwrite something."""


class BudgetExceededError(DPKMeansError):
    """A query asks for more epsilon than is left."""


class TranscriptError(DPKMeansError):
    """A stored answer belongs to another question than the one asked."""


class QueryError(DPKMeansError):
    """Spark failed while it computed an aggregate; a retry may help."""


class ExecutorError(QueryError):
    """Executors cannot run Python as a query needs it, which a probe found before it was asked."""


class InvariantError(DPKMeansError):
    """A privacy invariant does not hold, so nothing was released. Please report it."""
