"""Nearest centroids as Spark SQL, for as many centroids as the JVM compiles well.

The scores are those of `nearest`, integers held in double: arithmetic on double is plain machine
code, whereas arithmetic on bigint is checked for overflow under ANSI mode, which costs twice a
scan. ``floor`` gives a bigint without such a check, and once a row is enough: to take the least of
doubles and then its floor is faster than the other way round.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from dpkm_spark.domain import SCALE, IntArray
from dpkm_spark.queries import nearest

#: Most numbers k (d + 1) in one expression. The JVM compiles no method of more than 8,000 bytes of
#: code; beyond it each row is interpreted. Measured by benchmarks/lloyd.py.
_MOST_NUMBERS = 100


def fits(k: int, d: int) -> bool:
    """Tell whether the SQL for k centroids stays well before the JVM's limit."""
    return k * (d + 1) <= _MOST_NUMBERS


def cluster_sums(steps: DataFrame, centroids: IntArray) -> DataFrame:
    """Sum coordinates by nearest centroid.

    Parameters
    ----------
    steps : DataFrame
        Columns s0, s1, ... of bigint in [0, 2 SCALE].
    centroids : ndarray of int64, shape (k, d)
        Coordinates in [-SCALE, SCALE].

    Returns
    -------
    DataFrame
        ``cluster``, the sums ``n0``, ``n1``, ... and the count last; no row for an empty cluster.
    """
    k, d = centroids.shape
    codes = [_dot(row) for row in nearest.code_rows(centroids).tolist()]
    cluster = f"{_least(codes)} & {nearest.stride(k) - 1}L"
    keyed = _doubles(steps).selectExpr(*_names("s", d), f"{cluster} AS cluster")
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
    nearest_sql = _least([_dot(row) for row in rows])
    value = _doubles(steps).selectExpr(f"floor({square}) + {nearest_sql} AS v")
    return value.selectExpr(
        "0L AS candidate",
        f"coalesce(sum(shiftright(v, {nearest.SCALE_BITS})), 0L) AS high",
        f"coalesce(sum(v & {SCALE - 1}L), 0L) AS low",
    )


def _doubles(steps: DataFrame) -> DataFrame:
    """Add columns d0, d1, ...: the steps as double."""
    names = steps.columns
    return steps.selectExpr(
        *names, *[f"cast({name} AS double) AS d{i}" for i, name in enumerate(names)]
    )


def _dot(row: list[int]) -> str:
    """Write row . (x, 1) for the steps d0, d1, ... of x.

    The constant comes last: sums of products of steps are below 2^53 and so exact, and the final
    sum is the code itself.
    """
    *factors, constant = row
    constant -= SCALE * sum(factors)
    terms = [f"d{i} * ({factor}D)" for i, factor in enumerate(factors)]
    return " + ".join([*terms, f"({constant}D)"])


def _least(codes: list[str]) -> str:
    """Write the least of exact integers in double, as bigint."""
    # least() takes two arguments or more.
    least = codes[0] if len(codes) == 1 else f"least({', '.join(codes)})"
    return f"floor({least})"


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]
