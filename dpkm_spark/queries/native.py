"""Nearest centroids as Spark SQL, which Spark compiles to machine code on the executors.

The scores are those of `nearest`, integers held in double: arithmetic on double is plain machine
code, whereas arithmetic on bigint is checked for overflow under ANSI mode. ``floor`` gives a bigint
without such a check.

The least of two such integers is (a + b - |a - b|) / 2: no branch that a processor could guess
wrong, where ``least`` has one for each centroid. A tournament of these finds the least of all.

The JVM compiles no method of more than 8,000 bytes of code, and interprets what is longer. Spark
makes a method of a projection whose inputs are all used more than once, so centroids come in groups
that fit a method, each a tournament that the least of the groups before takes part in.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.queries import nearest

#: Most numbers k (d + 1) in one query, as planning and compiling grow with them: there,
#: benchmarks/lloyd.py finds SQL at 0.6 of the time of Python workers. And most columns: with more,
#: even two centroids outgrow a method.
_MOST_NUMBERS, _MOST_COLUMNS = 1000, 50
#: Most centroids of a group, and most numbers: some 40 bytes of code for each.
_MOST_IN_GROUP, _NUMBERS_IN_GROUP = 32, 150


def fits(k: int, d: int) -> bool:
    """Tell whether SQL is the better way for k centroids."""
    return k * (d + 1) <= _MOST_NUMBERS and d <= _MOST_COLUMNS


def cluster_sums(steps: DataFrame, centroids: IntArray) -> DataFrame:
    """Sum coordinates by nearest centroid.

    Parameters
    ----------
    steps : DataFrame
        Columns s0, s1, ... of bigint in [0, 2 SCALE], never null.
    centroids : ndarray of int64, shape (k, d)
        Coordinates in [-SCALE, SCALE].

    Returns
    -------
    DataFrame
        ``cluster``, the sums ``n0``, ``n1``, ... and the count last; no row for an empty cluster.
    """
    k, d = centroids.shape
    found = _least(steps, nearest.code_rows(centroids).tolist())
    cluster = f"{_whole('least')} & {nearest.stride(k) - 1}L AS cluster"
    keyed = found.selectExpr(*[f"{_whole(f'd{i}')} AS s{i}" for i in range(d)], cluster)
    # Steps are summed, and SCALE taken off once a cluster rather than once a row.
    sums = [F.expr(f"sum(s{i}) - count(1) * {SCALE}L AS n{i}") for i in range(d)]
    return keyed.groupBy("cluster").agg(*sums, F.expr(f"count(1) AS n{d}"))


def costs(steps: DataFrame, centroids: IntArray) -> DataFrame:
    """Sum squared distances to the nearest centroid; see `nearest.candidate_costs`.

    Returns
    -------
    DataFrame
        One row: ``candidate`` 0, and the sums ``high`` and ``low``.
    """
    _, d = centroids.shape
    rows = [[*(-2 * c).tolist(), int((c * c).sum())] for c in centroids]
    square = " + ".join(f"(d{i} - {SCALE}D) * (d{i} - {SCALE}D)" for i in range(d))
    value = _least(steps, rows).selectExpr(f"{_whole(f'{square} + least')} AS v")
    return value.selectExpr(
        "0L AS candidate",
        f"coalesce(sum(shiftright(v, {nearest.SCALE_BITS})), 0L) AS high",
        f"coalesce(sum(v & {SCALE - 1}L), 0L) AS low",
    )


def _least(steps: DataFrame, rows: list[list[int]]) -> DataFrame:
    """Find the least of row . (x, 1) for many rows, integers of at most 2^52.

    Returns
    -------
    DataFrame
        Columns d0, d1, ...: the steps as double; and ``least``, a double.
    """
    d = len(rows[0]) - 1
    kept = [f"d{i}" for i in range(d)]
    frame = steps.selectExpr(*[f"cast(s{i} AS double) AS d{i}" for i in range(d)])
    size = min(max(_NUMBERS_IN_GROUP // (d + 2), 2), _MOST_IN_GROUP)
    winner: list[str] = []
    for start in range(0, len(rows), size):
        dots = [_dot(row) for row in rows[start : start + size]]
        frame = frame.selectExpr(*kept, *_named([*winner, *dots]))
        frame = _tournament(frame, kept, len(winner) + len(dots))
        winner = ["c0"]
    return frame.selectExpr(*kept, "c0 AS least")


def _tournament(frame: DataFrame, kept: list[str], count: int) -> DataFrame:
    """Leave the least of c0, c1, ... as c0.

    Each round is a projection of its own: there, a column that is used twice is computed once.
    """
    while count > 1:
        pairs = [(f"c{i}", f"c{i + 1}") for i in range(0, count - 1, 2)]
        least = [f"({a} + {b} - abs({a} - {b})) * 0.5D" for a, b in pairs]
        odd = [f"c{count - 1}"] if count % 2 else []
        frame = frame.selectExpr(*kept, *_named([*least, *odd]))
        count = len(least) + len(odd)
    return frame


def _named(expressions: Sequence[str]) -> list[str]:
    return [f"{sql} AS c{i}" for i, sql in enumerate(expressions)]


def _dot(row: list[int]) -> str:
    """Write row . (x, 1) for the steps d0, d1, ... of x.

    The constant comes last: sums of products of steps are below 2^53 and so exact, and the final
    sum is the code itself.
    """
    *factors, constant = row
    constant -= SCALE * sum(factors)
    terms = [f"d{i} * ({factor}D)" for i, factor in enumerate(factors)]
    return " + ".join([*terms, f"({constant}D)"])


def _whole(double: str) -> str:
    """Write a double as bigint; Spark takes ``floor`` for nullable, and doubles code for that."""
    return f"coalesce(floor({double}), 0L)"
