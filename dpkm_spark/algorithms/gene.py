"""Gene: PGkM's genetic search without privacy, for comparison. NOT private."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpkm_spark.algorithms.algorithm import Algorithm, Clustering, PlannedQuery, by_size
from dpkm_spark.algorithms.exact_table import ExactTable, nicv_of, number_or_none
from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.algorithms.settings import LARGEST_K, K, Setting, by_name, check_range, whole
from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.kmeans.genetic import genetic_search

DEFAULT_GENERATIONS = 30


@dataclass(frozen=True)
class GeneParameters:
    """What Gene needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    generations : int
        R, 1 to 10,000.
    """

    k: int
    generations: int = DEFAULT_GENERATIONS

    #: No epsilon, so N is not bought with any.
    public_count = None
    buys_count = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        check_range("generations", self.generations, 1, 10_000)

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """Give nothing: exact answers have no price that could be paid."""
        return ()

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {"k": self.k, "generations": self.generations}


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneResult(Clustering):
    """What Gene gives. Not private: sizes are exact.

    Parameters
    ----------
    trail : tuple of float
        NICV of the best candidate of each generation; NaN for an empty table. The last one is the
        outcome's. It may rise on the way, since offspring replace their parents.
    """

    trail: tuple[float, ...]

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        return {
            **super().record(),
            "generations": len(self.trail),
            "exact_nicv": number_or_none(self.trail[-1]),
            "exact_nicv_by_generation": [number_or_none(value) for value in self.trail],
        }

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        return {"Generations": str(len(self.trail)), "Exact NICV": f"{self.trail[-1]:.6g}"}


def gene(table: ExactTable, parameters: GeneParameters, notify: Notify = silent) -> GeneResult:
    """Cluster a table by PGkM's genetic search with exact selection. NOT private.

    Every generation scores 200 candidates exactly and breeds from the best 10; the last keeps the
    best. Each generation reads the table once.

    Parameters
    ----------
    table : ExactTable
        Exact answers.
    parameters : GeneParameters
        k and generations.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    GeneResult
        With exact sizes, ``private`` False.

    References
    ----------
    Su et al., 2016, Section 5: PGkM's non-private version.
    """
    best: list[float] = []

    def select(candidates: FloatArray, chosen: int, generation: int) -> IntArray:
        notify(f"generation {generation + 1} of {parameters.generations}: scoring candidates")
        costs = table.candidate_costs(candidates)
        best.append(float(costs.min()))
        return np.argsort(costs, kind="stable")[:chosen]

    found = genetic_search(
        k=parameters.k,
        dimension=table.domain.dimension,
        generations=parameters.generations,
        select=select,
        random=table.public_random("generations"),
    )
    count = table.count()
    centroids, sizes = by_size(table.domain, found, table.cluster_sums(found).sizes)
    return GeneResult(
        centroids=centroids,
        noisy_sizes=sizes,
        how=f"without privacy, by {parameters.generations} generations of a genetic search",
        private=False,
        trail=tuple(nicv_of(cost, count) for cost in best),
    )


ALGORITHM = Algorithm(
    name="gene",
    title="Gene (not private)",
    about="k-means clusters by a genetic search, WITHOUT privacy: for comparison only.",
    settings=(
        K,
        Setting("generations", whole("generations"), "generations R (default: 30)", "R",
                default=DEFAULT_GENERATIONS),
    ),
    configure=by_name(GeneParameters),
    run=gene,
    private=False,
)  # fmt: skip
