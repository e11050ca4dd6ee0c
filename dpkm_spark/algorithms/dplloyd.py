"""DPLloyd: Lloyd's algorithm on noisy sums and counts (the paper, Section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpkm_spark.algorithms.algorithm import (
    Algorithm,
    Clustering,
    PlannedQuery,
    by_size,
    is_private,
    require_budget,
)
from dpkm_spark.algorithms.count import CountParameters, learn_count
from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.algorithms.settings import (
    COUNT_SHARE,
    DEFAULT_COUNT_SHARE,
    LARGEST_K,
    PUBLIC_COUNT,
    K,
    Setting,
    by_name,
    check_count,
    check_range,
    one_of,
    whole,
)
from dpkm_spark.analysis import (
    DEFAULT_ROUNDS,
    MOST_OPTIMAL_ROUNDS,
    count_weight,
    optimal_rounds,
)
from dpkm_spark.domain import SCALE, FloatArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.private_table import NoisySums, PrivateTable

SPLITS = ("equal", "optimal")


@dataclass(frozen=True)
class DPLloydParameters(CountParameters):
    """What DPLloyd needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    rounds : int, optional
        t. By default 5; with the optimal split, from N, k, d and epsilon, between 2 and 7.
    split : {"equal", "optimal"}
        How a round's share is split: ``equal`` gives every sum and the count the same noise, as the
        paper does; ``optimal`` gives the count the share that makes the error least.
    public_count : int, optional
        N, if the user declares it public.
    count_share : Fraction
        Share of epsilon for a noisy N, where t depends on N and N is not public.
    """

    k: int
    rounds: int | None = None
    split: str = "equal"
    public_count: int | None = None
    count_share: Fraction = DEFAULT_COUNT_SHARE

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        if self.rounds is not None:
            check_range("rounds", self.rounds, 1, 1000)
        if self.split not in SPLITS:
            raise ParameterError(f"split: got {self.split!r}; must be one of {', '.join(SPLITS)}")
        check_count(self.public_count, self.count_share)

    @property
    def needs_count(self) -> bool:
        """Whether the number of rounds depends on N."""
        return self.split == "optimal" and self.rounds is None

    def rounds_for(self, epsilon: Fraction, dimension: int, count: int) -> int:
        """Give t for the epsilon that all rounds share."""
        if self.rounds is not None:
            return self.rounds
        if self.split == "equal":
            return DEFAULT_ROUNDS
        return optimal_rounds(n=count, d=dimension, k=self.k, epsilon=float(epsilon))

    def weight(self, dimension: int) -> int:
        """Give how many units of 1 / SCALE a count of one weighs."""
        return SCALE if self.split == "equal" else count_weight(dimension)

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries in order; see `Parameters.plan`."""
        rest = epsilon - self.count_epsilon(epsilon)
        times = self.rounds_for(rest, dimension, count)
        sensitivity = dimension + self.weight(dimension) / SCALE
        rounds = PlannedQuery("cluster_sums", rest / times, sensitivity, times)
        return (*self.count_plan(epsilon), rounds)

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {"k": self.k, "split": self.split, "count_share": str(self.count_share)}


@dataclass(frozen=True, eq=False, kw_only=True)
class DPLloydResult(Clustering):
    """What DPLloyd releases.

    Parameters
    ----------
    rounds : int
        t.
    trail : ndarray of float64, shape (t + 1, k, d)
        Normalised centroids before the first round and after each, in the order of the starts.
    """

    rounds: int
    trail: FloatArray

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        return {**super().record(), "rounds": self.rounds}

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        return {"Rounds": str(self.rounds)}


def dplloyd(
    table: PrivateTable, parameters: DPLloydParameters, notify: Notify = silent
) -> DPLloydResult:
    """Cluster a table with DPLloyd, spending all the epsilon the table has left.

    From one set of sphere-packed centroids, t rounds ask for the noisy sum and size of every
    cluster, each round with the same share of epsilon. A centroid becomes noisy sum / noisy size,
    clipped to the domain; it stays where the noisy size is below 1. Sizes are those of the last
    round, of the clusters around the centroids before it.

    Neighbours: one row added or removed. Cost: ``table.remaining``, pure epsilon-DP.

    Parameters
    ----------
    table : PrivateTable
        The door to the records.
    parameters : DPLloydParameters
        k, rounds, split.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    DPLloydResult

    Raises
    ------
    BudgetExceededError
        If the table's budget is spent.
    EpsilonError
        If so small a share could overflow the noise.

    References
    ----------
    Su et al., 2016, Section 3.1; the optimal split is that of Su, Cao, Li, Bertino, Lyu, Jin,
    "Differentially Private K-Means Clustering and a Hybrid Approach to Private Optimization", 2017.
    """
    epsilon = require_budget(table)
    d = table.domain.dimension
    if parameters.buys_count:
        # Before a count is paid for: the least share that a round can get.
        least = (epsilon - parameters.count_epsilon(epsilon)) / MOST_OPTIMAL_ROUNDS
        table.require_cluster_sums(parameters.k, least, parameters.weight(d))
    count = learn_count(table, parameters, epsilon, notify)
    left = table.remaining
    rounds = parameters.rounds_for(left, d, count or 0)
    centroids = sphere_packed_starts(1, parameters.k, d, table.public_random("starts"))[0]
    trail = [centroids]
    for i in range(rounds):
        notify(f"round {i + 1} of {rounds}: asking for noisy sums of {parameters.k:,} clusters")
        noisy = table.noisy_cluster_sums(centroids, left / rounds, parameters.weight(d))
        centroids = moved(centroids, noisy)
        trail.append(centroids)
    ordered, sizes = by_size(table.domain, centroids, noisy.sizes)
    return DPLloydResult(
        centroids=ordered,
        noisy_sizes=sizes,
        how=f"by {rounds} noisy rounds of Lloyd",
        private=is_private(table),
        count=count if parameters.needs_count else None,
        count_is_public=parameters.public_count is not None,
        rounds=rounds,
        trail=np.stack(trail),
    )


def moved(centroids: FloatArray, noisy: NoisySums) -> FloatArray:
    """Move centroids to noisy means, clipped to the domain; those of light clusters stay.

    Parameters
    ----------
    centroids : ndarray of float64, shape (k, d)
        Normalised.
    noisy : NoisySums
        Of their clusters.

    Returns
    -------
    ndarray of float64, shape (k, d)
    """
    heavy = (noisy.sizes >= 1.0)[:, None]
    means = noisy.sums / np.where(heavy, noisy.sizes[:, None], 1.0)
    result: FloatArray = np.where(heavy, np.clip(means, -1.0, 1.0), centroids)
    return result


def _outlook(parameters: DPLloydParameters, epsilon: Fraction, dimension: int, count: int) -> str:
    rest = epsilon - parameters.count_epsilon(epsilon)
    rounds = parameters.rounds_for(rest, dimension, count)
    return f"{rounds} rounds of {parameters.k:,} clusters"


ALGORITHM = Algorithm(
    name="dplloyd",
    title="DPLloyd",
    about="Private k-means by Lloyd's algorithm on noisy sums and counts.",
    settings=(
        K,
        Setting("rounds", whole("rounds"), "rounds t (default: 5, or 2 to 7 by --split optimal)",
                "T"),
        Setting("split", one_of("split", SPLITS), "share of sums and counts: equal, as the paper "
                "has it, or optimal (default: equal)", "NAME", default="equal"),
        PUBLIC_COUNT,
        COUNT_SHARE,
    ),
    configure=by_name(DPLloydParameters),
    run=dplloyd,
    outlook=_outlook,
)  # fmt: skip
