"""Plain Lloyd without privacy: the baseline of every figure. NOT private."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpkm_spark.algorithms.algorithm import Algorithm, Clustering, PlannedQuery, by_size
from dpkm_spark.algorithms.exact_table import ExactSums, ExactTable, nicv_of, number_or_none
from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.algorithms.settings import (
    LARGEST_K,
    MAX_ITER,
    K,
    Setting,
    by_name,
    check_range,
    whole,
)
from dpkm_spark.domain import FloatArray
from dpkm_spark.kmeans.starts import sphere_packed_starts


@dataclass(frozen=True)
class LloydParameters:
    """What Lloyd needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    restarts : int
        Sets of sphere-packed starting centroids, 30 in the paper.
    max_iter : int
        Limit on the rounds of each.
    """

    k: int
    restarts: int = 30
    max_iter: int = 300

    #: No epsilon, so N is not bought with any.
    public_count = None
    buys_count = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        check_range("restarts", self.restarts, 1, 10_000)
        check_range("max_iter", self.max_iter, 1, 1_000_000)

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """Give nothing: exact answers have no price that could be paid."""
        return ()

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {"k": self.k, "restarts": self.restarts, "max_iter": self.max_iter}


@dataclass(frozen=True, eq=False, kw_only=True)
class LloydResult(Clustering):
    """What Lloyd gives. Not private: sizes are exact.

    Parameters
    ----------
    best_restart, rounds : int
        The start that was kept, and its rounds.
    converged : bool
        Whether its last round changed nothing.
    nicvs : tuple of float
        NICV of the outcome of each start; NaN for an empty table.
    trail : tuple of float
        NICV of the start that was kept, before its first round and after each.
    """

    best_restart: int
    rounds: int
    converged: bool
    nicvs: tuple[float, ...]
    trail: tuple[float, ...]

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        return {
            **super().record(),
            "best_restart": self.best_restart,
            "rounds": self.rounds,
            "converged": self.converged,
            "exact_nicv": number_or_none(self.trail[-1]),
        }

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        return {"Rounds": str(self.rounds), "Exact NICV": f"{self.trail[-1]:.6g}"}


def lloyd(table: ExactTable, parameters: LloydParameters, notify: Notify = silent) -> LloydResult:
    """Cluster a table by plain Lloyd from many starts. NOT private: exact answers.

    From each set of sphere-packed centroids, a round moves every centroid to the mean of its rows,
    until a round changes nothing; one without rows stays where it is. The start with the least
    NICV is kept. Each round of each start reads the table once, and so does each score: a baseline.

    Parameters
    ----------
    table : ExactTable
        Exact answers.
    parameters : LloydParameters
        k, restarts, limit on rounds.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    LloydResult
        With exact sizes, ``private`` False.

    References
    ----------
    Su et al., 2016, Section 4.1: the non-private baseline.
    """
    d = table.domain.dimension
    starts = sphere_packed_starts(
        parameters.restarts, parameters.k, d, table.public_random("starts")
    )
    notify(f"running Lloyd from {len(starts)} starts, without privacy")
    trails = []
    for i, start in enumerate(starts):
        notify(f"start {i + 1} of {len(starts)}", brief=True)
        trails.append(_descend(table, start, parameters.max_iter))
    costs = [_cost(table, trail[-1]) for trail in trails]
    best = int(np.argmin(costs))
    trail = trails[best]
    before = [_cost(table, centroids) for centroids in trail[:-1]]
    count = table.count()
    centroids, sizes = by_size(table.domain, trail[-1], table.cluster_sums(trail[-1]).sizes)
    return LloydResult(
        centroids=centroids,
        noisy_sizes=sizes,
        how=f"without privacy, by {len(trail) - 1} exact rounds of Lloyd",
        private=False,
        best_restart=best,
        rounds=len(trail) - 1,
        converged=bool((trail[-1] == trail[-2]).all()),
        nicvs=tuple(nicv_of(cost, count) for cost in costs),
        trail=tuple(nicv_of(cost, count) for cost in (*before, costs[best])),
    )


def _descend(table: ExactTable, start: FloatArray, max_iter: int) -> list[FloatArray]:
    """Run rounds until one changes nothing; give the centroids before the first and after each."""
    trail = [start]
    for _ in range(max_iter):
        trail.append(_means(trail[-1], table.cluster_sums(trail[-1])))
        if (trail[-1] == trail[-2]).all():
            break
    return trail


def _cost(table: ExactTable, centroids: FloatArray) -> float:
    """Give the cost of one set of centroids; several at once would need Python on executors."""
    return float(table.candidate_costs(centroids[None])[0])


def _means(centroids: FloatArray, exact: ExactSums) -> FloatArray:
    """Give the mean of each cluster; those without rows stay."""
    filled = (exact.sizes > 0)[:, None]
    means = exact.sums / np.where(filled, exact.sizes[:, None], 1.0)
    result: FloatArray = np.where(filled, means, centroids)
    return result


ALGORITHM = Algorithm(
    name="lloyd",
    title="Lloyd (not private)",
    about="Plain k-means by Lloyd's algorithm, WITHOUT privacy: for comparison only.",
    settings=(
        K,
        Setting("restarts", whole("restarts"), "sets of starting centroids, each read with the "
                "table once a round (default: 30)", "R", default=30),
        MAX_ITER,
    ),
    configure=by_name(LloydParameters),
    run=lloyd,
    private=False,
)  # fmt: skip
