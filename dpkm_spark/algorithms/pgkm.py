"""PGkM: genetic search by private selection (the paper, Section 3.3; PrivGene)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpkm_spark.algorithms.algorithm import (
    Algorithm,
    Clustering,
    PlannedQuery,
    in_order,
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
    whole,
)
from dpkm_spark.domain import SCALE, FloatArray, IntArray
from dpkm_spark.kmeans.genetic import DEFAULT_BREEDING, genetic_search
from dpkm_spark.private_table import PrivateTable

#: R is at least this, as in the paper.
LEAST_GENERATIONS = 8
#: R is at most this by default: 0.95^100 leaves a mutation 0.6 % of its first size, so a further
#: generation could find nothing new, while it would cost one more reading of the table.
DEFAULT_MAX_GENERATIONS = 100
#: 1.25e-3 / 10: R = N epsilon / 8,000 where that is more.
_GENERATIONS_PER_ROW = Fraction(1, 8000)


@dataclass(frozen=True)
class PGKMParameters(CountParameters):
    """What PGkM needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    generations : int, optional
        R. By default max(8, N epsilon / 8,000), at most ``max_generations``.
    max_generations : int
        Cap on that rule; each generation reads the table once.
    public_count : int, optional
        N, if the user declares it public.
    count_share : Fraction
        Share of epsilon for a noisy N, where R depends on N and N is not public.
    """

    k: int
    generations: int | None = None
    max_generations: int = DEFAULT_MAX_GENERATIONS
    public_count: int | None = None
    count_share: Fraction = DEFAULT_COUNT_SHARE

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        if self.generations is not None:
            check_range("generations", self.generations, 1, 10_000)
        check_range("max_generations", self.max_generations, LEAST_GENERATIONS, 10_000)
        check_count(self.public_count, self.count_share)

    @property
    def needs_count(self) -> bool:
        """Whether the number of generations depends on N."""
        return self.generations is None

    def generations_for(self, epsilon: Fraction, count: int) -> int:
        """Give R for the epsilon that all generations share."""
        if self.generations is not None:
            return self.generations
        wanted = int(count * epsilon * _GENERATIONS_PER_ROW)
        return min(max(wanted, LEAST_GENERATIONS), self.max_generations)

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries in order; see `Parameters.plan`.

        The sensitivity is the most it can be, 4 d, times the choices that divide a share among
        them; a run's own is that of its candidates.
        """
        rest = epsilon - self.count_epsilon(epsilon)
        times = self.generations_for(rest, count)
        sensitivity = 4 * dimension * DEFAULT_BREEDING.parents
        selections = PlannedQuery("private_select", rest / times, sensitivity, times)
        return (*self.count_plan(epsilon), selections)

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {
            "k": self.k,
            "max_generations": self.max_generations,
            "candidates": DEFAULT_BREEDING.population,
            "selected": DEFAULT_BREEDING.parents,
            "count_share": str(self.count_share),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class PGKMResult(Clustering):
    """What PGkM releases: centroids in lexicographic order, and no sizes.

    Parameters
    ----------
    generations : int
        R.
    last_sensitivity : float
        Sensitivity of the last selection, a squared distance in normalised units.
    """

    generations: int
    last_sensitivity: float

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        return {
            **super().record(),
            "generations": self.generations,
            "last_sensitivity": self.last_sensitivity,
        }

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        return {
            "Generations": str(self.generations),
            "Candidates": f"{DEFAULT_BREEDING.population} each, "
            f"{DEFAULT_BREEDING.parents} of them chosen to breed",
        }


def pgkm(table: PrivateTable, parameters: PGKMParameters, notify: Notify = silent) -> PGKMResult:
    """Cluster a table with PGkM, spending all the epsilon the table has left.

    A share of epsilon buys a noisy N (unless N is public or R given). Of the rest, every
    generation gets an equal share: it pays for choosing 10 of 200 candidates to breed, one after
    the other, and in the last generation for choosing the one that is released. A choice is
    random, the likelier for sets of centroids the less their sum of squared distances; see
    `PrivateTable.private_select`.

    Neighbours: one row added or removed. Cost: ``table.remaining``, pure epsilon-DP.

    Parameters
    ----------
    table : PrivateTable
        The door to the records.
    parameters : PGKMParameters
        k, generations.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    PGKMResult

    Raises
    ------
    BudgetExceededError
        If the table's budget is spent.
    EpsilonError
        If a share is too small to be served.

    References
    ----------
    Su et al., 2016, Section 3.3; Zhang et al., "PrivGene", 2013.
    """
    epsilon = require_budget(table)
    if parameters.buys_count:
        # Before a count is paid for: the least share that a generation can get.
        least = (epsilon - parameters.count_epsilon(epsilon)) / parameters.max_generations
        table.require_selection(DEFAULT_BREEDING.parents, least)
    count = learn_count(table, parameters, epsilon, notify)
    left = table.remaining
    generations = parameters.generations_for(left, count or 0)
    size = DEFAULT_BREEDING.population

    def select(candidates: FloatArray, chosen: int, generation: int) -> IntArray:
        notify(
            f"generation {generation + 1} of {generations}: "
            f"choosing {chosen} of {size} candidates privately"
        )
        return table.private_select(candidates, chosen, left / generations)

    found = genetic_search(
        k=parameters.k,
        dimension=table.domain.dimension,
        generations=generations,
        select=select,
        random=table.public_random("generations"),
    )
    return PGKMResult(
        centroids=in_order(table.domain.to_table_units(found)),
        noisy_sizes=None,
        how=f"by {generations} generations of a genetic search with private selection",
        private=is_private(table),
        count=count if parameters.needs_count else None,
        count_is_public=parameters.public_count is not None,
        generations=generations,
        last_sensitivity=table.transcript.answers[-1].query.sensitivity / SCALE,
    )


def _outlook(parameters: PGKMParameters, epsilon: Fraction, dimension: int, count: int) -> str:
    left = epsilon - parameters.count_epsilon(epsilon)
    return f"{parameters.generations_for(left, count)} generations, each reads the table once"


ALGORITHM = Algorithm(
    name="pgkm",
    title="PGkM",
    about="Private k-means by a genetic search with private selection.",
    settings=(
        K,
        Setting("generations", whole("generations"), "generations R (default: 8, or more for "
                "large tables: N epsilon / 8000)", "R"),
        Setting("max-generations", whole("max-generations"), "cap on generations; each reads the "
                "table once (default: 100)", "R", default=DEFAULT_MAX_GENERATIONS),
        PUBLIC_COUNT,
        COUNT_SHARE,
    ),
    configure=by_name(PGKMParameters),
    run=pgkm,
    outlook=_outlook,
)  # fmt: skip
