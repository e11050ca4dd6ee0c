"""Exit codes by kind of failure, for schedulers: which failures are worth a retry."""

from __future__ import annotations

from dpkm_spark.errors import (
    BudgetExceededError,
    DPKMeansError,
    ExecutorError,
    InputError,
    InvariantError,
    OutputError,
    ParameterError,
    QueryError,
    TranscriptError,
)

OK = 0
#: A fault of ours, or one nobody foresaw.
FAILED = 1
#: Options or configuration are wrong; a retry fails alike.
USAGE = 2
#: The input cannot be found, opened, or has not the columns; a retry fails alike.
INPUT = 3
#: The output exists already or cannot be written.
OUTPUT = 4
#: The budget is spent, or the stored run has another configuration; never retry.
REFUSED = 5
#: Spark failed while it worked; a retry may help.
SPARK = 6
#: The launcher cannot set up what it needs, or executors cannot run Python; mend that first.
ENVIRONMENT = 69
#: Ctrl-C.
INTERRUPTED = 130

_BY_KIND: tuple[tuple[type[DPKMeansError], int], ...] = (
    (InvariantError, FAILED),
    (BudgetExceededError, REFUSED),
    (TranscriptError, REFUSED),
    (ParameterError, USAGE),
    (InputError, INPUT),
    (OutputError, OUTPUT),
    (ExecutorError, ENVIRONMENT),
    (QueryError, SPARK),
)

HELP = """\
exit codes:
  0 done    1 unexpected fault    2 wrong options (do not retry)
  3 input not found, or its columns do not fit (do not retry)
  4 output exists or cannot be written    5 budget refused (do not retry)
  6 Spark failed while working (a retry may help)
  69 executors cannot run Python with numpy and pyarrow (mend that first)
  130 interrupted
"""


def exit_code(error: DPKMeansError) -> int:
    """Give the exit code of an error."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), FAILED)
