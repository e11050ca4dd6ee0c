"""EUGkM: k-means on an extended uniform grid (the paper, Section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

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
    MAX_ITER,
    PUBLIC_COUNT,
    RESTARTS,
    K,
    Setting,
    check_count,
    check_range,
    one_of,
    real,
    whole,
)
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import (
    DEFAULT_MAX_CELLS,
    DEFAULT_THETA,
    GridChoice,
    GridRule,
    most_cells_per_dimension,
)
from dpkm_spark.kmeans.lloyd import lloyd_on_grid
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.synopsis import Synopsis

ONE_CELL = "The grid has a single cell, so these centroids say nothing: use fewer columns."


@dataclass(frozen=True)
class EUGKMParameters(CountParameters):
    """What EUGkM needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    rule : GridRule
        How the number of cells is chosen.
    public_count : int, optional
        N, if the user declares it public; then no budget goes to it.
    count_share : Fraction
        Share of epsilon for a noisy N, where the rule needs N and it is not public.
    restarts : int
        Sets of sphere-packed starting centroids, 30 in the paper.
    max_iter : int
        Limit on Lloyd's rounds for each restart.
    """

    k: int
    rule: GridRule = field(default_factory=GridRule)
    public_count: int | None = None
    count_share: Fraction = DEFAULT_COUNT_SHARE
    restarts: int = 30
    max_iter: int = 300

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        check_range("restarts", self.restarts, 1, 10_000)
        check_range("max_iter", self.max_iter, 1, 1_000_000)
        check_count(self.public_count, self.count_share)

    @property
    def needs_count(self) -> bool:
        """Whether the grid depends on N."""
        return self.rule.needs_count

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """Split epsilon into the shares of the count and of the histogram; they add up to it."""
        count = self.count_epsilon(epsilon)
        return count, epsilon - count

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries in order; see `Parameters.plan`."""
        _, rest = self.split(epsilon)
        return (*self.count_plan(epsilon), PlannedQuery("cell_histogram", rest, 1))

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {
            "k": self.k,
            "grid_rule": self.rule.name,
            "theta": self.rule.theta,
            "max_cells": self.rule.max_cells,
            "restarts": self.restarts,
            "max_iter": self.max_iter,
            "count_share": str(self.count_share),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class EUGKMResult(Clustering):
    """What EUGkM releases, a synopsis among it.

    Parameters
    ----------
    grid_choice : GridChoice
        The grid, and what the rule wanted before the cap.
    best_restart, rounds : int
        The restart that was kept, and its rounds.
    converged : bool
        Whether it ended before the limit on rounds.
    objective : float
        Its sum of squared distances on the synopsis, in normalised units; may be negative.
    """

    synopsis: Synopsis
    grid_choice: GridChoice
    best_restart: int
    rounds: int
    converged: bool
    objective: float

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        choice = self.grid_choice
        return {
            **super().record(),
            "grid": {
                "cells_per_dimension": choice.grid.cells_per_dimension,
                "cells": choice.grid.size,
                "wanted_cells_per_dimension": choice.wanted,
                "capped": choice.capped,
            },
            "best_restart": self.best_restart,
            "rounds": self.rounds,
            "converged": self.converged,
            "objective_on_synopsis": self.objective,
        }

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        choice = self.grid_choice
        capped = f", capped from {choice.wanted:,} a dimension" if choice.capped else ""
        cells = f"{choice.grid.cells_per_dimension:,} a dimension, {choice.grid.size:,} in all"
        return {"Cells": cells + capped, "Chosen": "the best start by its score on the noisy cells"}

    def warnings(self) -> list[str]:
        """Say so if the grid cannot tell clusters apart."""
        alone = self.grid_choice.grid.size == 1 and len(self.centroids) > 1
        return [ONE_CELL] if alone else []


def eugkm(
    table: PrivateTable,
    parameters: EUGKMParameters,
    notify: Notify = silent,
) -> EUGKMResult:
    """Cluster a table with EUGkM, spending all the epsilon the table has left.

    A share of epsilon buys a noisy N (unless N is public or the rule needs none), the rest one
    noisy histogram on the grid that the rule chooses for N. Everything after that, all restarts
    of Lloyd and the choice among them by their score on the synopsis, is post-processing.

    Neighbours: one row added or removed. Cost: ``table.remaining``, pure epsilon-DP.

    Parameters
    ----------
    table : PrivateTable
        The door to the records.
    parameters : EUGKMParameters
        k, grid rule, restarts.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    EUGKMResult

    Raises
    ------
    BudgetExceededError
        If the table's budget is spent.
    EpsilonError
        If so small a share could overflow the noise.

    References
    ----------
    Su, Cao, Li, Bertino, Jin, "Differentially Private k-Means Clustering", 2016, Section 4.2.
    """
    epsilon = require_budget(table)
    _, grid_epsilon = parameters.split(epsilon)
    count = learn_count(table, parameters, epsilon, notify)
    synopsis, choice = buy_synopsis(
        table,
        parameters.rule,
        k=parameters.k,
        count=count or 0,
        epsilon=grid_epsilon,
        notify=notify,
    )
    return cluster_synopsis(
        table, parameters, synopsis=synopsis, choice=choice, count=count, notify=notify
    )


def buy_synopsis(
    table: PrivateTable,
    rule: GridRule,
    *,
    k: int,
    count: int,
    epsilon: Fraction,
    notify: Notify = silent,
) -> tuple[Synopsis, GridChoice]:
    """Ask for the noisy histogram on the grid that the rule chooses; costs ``epsilon``."""
    choice = choose_grid(rule, k, table.domain.dimension, count, epsilon)
    notify(f"asking for a noisy histogram of {choice.grid.size:,} cells")
    counts = table.noisy_histogram(choice.grid, epsilon)
    return Synopsis(table.domain, choice.grid, counts, str(epsilon), is_private(table)), choice


def choose_grid(
    rule: GridRule, k: int, dimension: int, count: int, epsilon: Fraction
) -> GridChoice:
    """Choose the grid by its rule, no finer than k centroids can be told apart on exactly."""
    most = most_cells_per_dimension(dimension, k)
    return rule.choose(dimension=dimension, count=count, epsilon=float(epsilon), most=most)


def cells_in_words(choice: GridChoice) -> str:
    """Describe a grid for a dry run."""
    capped = f", capped from {choice.wanted:,} a dimension" if choice.capped else ""
    side = choice.grid.cells_per_dimension
    return f"{side:,} cells a dimension, {choice.grid.size:,} in all{capped}"


def cluster_synopsis(
    table: PrivateTable,
    parameters: EUGKMParameters,
    *,
    synopsis: Synopsis,
    choice: GridChoice,
    count: int | None,
    notify: Notify = silent,
) -> EUGKMResult:
    """Cluster the synopsis from all starts and keep the best by its own score; costs nothing."""
    notify(f"clustering the histogram from {parameters.restarts} starts")
    starts = sphere_packed_starts(
        parameters.restarts, parameters.k, choice.grid.dimension, table.public_random("starts")
    )
    runs = lloyd_on_grid(
        choice.grid,
        synopsis.counts,
        starts,
        max_iter=parameters.max_iter,
        notify=lambda rounds, active: notify(
            f"round {rounds}: {active} of {parameters.restarts} starts still improve", brief=True
        ),
    )
    best = runs.best
    centroids, sizes = by_size(table.domain, runs.centroids[best], runs.weights[best])
    side = f"{choice.grid.cells_per_dimension:,} a dimension"
    capped = f" (capped from {choice.wanted:,})" if choice.capped else ""
    return EUGKMResult(
        centroids=centroids,
        noisy_sizes=sizes,
        how=f"from {choice.grid.size:,} noisy cells, {side}{capped}",
        private=synopsis.private,
        synopsis=synopsis,
        grid_choice=choice,
        count=count if parameters.needs_count else None,
        count_is_public=parameters.public_count is not None,
        best_restart=best,
        rounds=int(runs.rounds[best]),
        converged=bool(runs.converged[best]),
        objective=float(runs.objective[best]),
    )


GRID_SETTINGS = (
    Setting("grid", one_of("grid", ("eug", "mkm", "fixed")), "rule for the number of cells: eug, "
            "mkm or fixed (default: eug)", "RULE", default="eug"),
    Setting("theta", real("theta"), "constant of eug (default: 10)", "T", default=DEFAULT_THETA),
    Setting("cells-per-dimension", whole("cells-per-dimension"), "cells of --grid fixed", "M"),
    Setting("max-cells", whole("max-cells"), "cap on the number of cells (default: 1048576)",
            "M", default=DEFAULT_MAX_CELLS),
)  # fmt: skip


def grid_rule(values: Mapping[str, Any]) -> GridRule:
    """Make the grid rule of `GRID_SETTINGS`."""
    if values["cells_per_dimension"] is not None and values["grid"] != "fixed":
        raise ParameterError("cells-per-dimension: goes with --grid fixed")
    return GridRule(
        name=values["grid"],
        theta=values["theta"],
        cells_per_dimension=values["cells_per_dimension"],
        max_cells=values["max_cells"],
    )


def _outlook(parameters: EUGKMParameters, epsilon: Fraction, dimension: int, count: int) -> str:
    _, share = parameters.split(epsilon)
    return cells_in_words(choose_grid(parameters.rule, parameters.k, dimension, count, share))


def _configure(values: Mapping[str, Any]) -> EUGKMParameters:
    return EUGKMParameters(
        k=values["k"],
        rule=grid_rule(values),
        public_count=values["public_count"],
        count_share=values["count_share"],
        restarts=values["restarts"],
        max_iter=values["max_iter"],
    )


ALGORITHM = Algorithm(
    name="eugkm",
    title="EUGkM",
    about="Private k-means clusters of a table, by a noisy grid (EUGkM).",
    settings=(K, *GRID_SETTINGS, RESTARTS, MAX_ITER, PUBLIC_COUNT, COUNT_SHARE),
    configure=_configure,
    run=eugkm,
    synopsis=True,
    outlook=_outlook,
)
