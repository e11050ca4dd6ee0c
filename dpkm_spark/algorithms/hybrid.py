"""The hybrid: EUGkM on half the budget, then one round of DPLloyd (the paper, Section 5)."""

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
from dpkm_spark.algorithms.dplloyd import moved
from dpkm_spark.algorithms.eugkm import (
    GRID_SETTINGS,
    EUGKMParameters,
    EUGKMResult,
    buy_synopsis,
    cells_in_words,
    choose_grid,
    cluster_synopsis,
    grid_rule,
)
from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.algorithms.settings import (
    COUNT_SHARE,
    DEFAULT_COUNT_SHARE,
    MAX_ITER,
    PUBLIC_COUNT,
    RESTARTS,
    K,
    Setting,
    one_of,
)
from dpkm_spark.analysis import HybridDecision, decide_hybrid
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import GridRule
from dpkm_spark.private_table import PrivateTable

RULES = ("auto", "always", "never")
ONE_CELL_BEFORE = (
    "The grid has a single cell, so the last round began anywhere: use fewer columns, or dplloyd."
)


@dataclass(frozen=True)
class HybridParameters(CountParameters):
    """What the hybrid needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    rule : GridRule
        How the number of cells is chosen.
    hybrid_rule : {"auto", "always", "never"}
        When to end with a round of DPLloyd: ``auto`` where Eq. 14 and Eq. 15 both hold.
    public_count : int, optional
        N, if the user declares it public.
    count_share : Fraction
        Share of epsilon for a noisy N, where the decision or the grid needs N and it is not public.
    restarts : int
        Sets of sphere-packed starting centroids, 30 in the paper.
    max_iter : int
        Limit on Lloyd's rounds for each restart.
    """

    k: int
    rule: GridRule = field(default_factory=GridRule)
    hybrid_rule: str = "auto"
    public_count: int | None = None
    count_share: Fraction = DEFAULT_COUNT_SHARE
    restarts: int = 30
    max_iter: int = 300

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.hybrid_rule not in RULES:
            allowed = ", ".join(RULES)
            raise ParameterError(f"hybrid_rule: got {self.hybrid_rule!r}; must be one of {allowed}")
        # EUGkM's parameters check themselves.
        _ = self.grid_part

    @property
    def grid_part(self) -> EUGKMParameters:
        """Parameters of EUGkM, as the hybrid runs it."""
        return EUGKMParameters(
            k=self.k,
            rule=self.rule,
            public_count=self.public_count,
            count_share=self.count_share,
            restarts=self.restarts,
            max_iter=self.max_iter,
        )

    @property
    def needs_count(self) -> bool:
        """Whether the decision or the grid depends on N."""
        return self.hybrid_rule == "auto" or self.rule.needs_count

    def decide(self, epsilon: Fraction, dimension: int, count: int | None) -> HybridDecision | None:
        """Evaluate Eq. 14 and Eq. 15 for what is left after N; None where N is not known."""
        if count is None:
            return None
        return decide_hybrid(
            n=count, d=dimension, k=self.k, epsilon=float(epsilon), theta=self.rule.theta
        )

    def ends_with_round(self, decision: HybridDecision | None) -> bool:
        """Tell whether a round of DPLloyd comes last."""
        if self.hybrid_rule == "auto" and decision is not None:
            return decision.holds
        return self.hybrid_rule == "always"

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries in order; see `Parameters.plan`."""
        rest = epsilon - self.count_epsilon(epsilon)
        queries = [*self.count_plan(epsilon)]
        if self.ends_with_round(self.decide(rest, dimension, count)):
            queries.append(PlannedQuery("cell_histogram", rest / 2, 1))
            queries.append(PlannedQuery("cluster_sums", rest / 2, dimension + 1))
        else:
            queries.append(PlannedQuery("cell_histogram", rest, 1))
        return tuple(queries)

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {**self.grid_part.record(), "hybrid_rule": self.hybrid_rule}


@dataclass(frozen=True, eq=False, kw_only=True)
class HybridResult(Clustering):
    """What the hybrid releases; the synopsis is that of EUGkM's part.

    Parameters
    ----------
    hybrid_rule : str
        As asked for.
    last_round : bool
        Whether a round of DPLloyd came last. Sizes are then those of that round, of the clusters
        around EUGkM's centroids; else they are EUGkM's.
    decision : HybridDecision or None
        What Eq. 14 and Eq. 15 said, also where the user had decided; None if N was not known.
    on_grid : EUGKMResult
        EUGkM's part: centroids before the last round, and how they were found.
    """

    hybrid_rule: str
    last_round: bool
    decision: HybridDecision | None
    on_grid: EUGKMResult

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays, the decision with both sides among it."""
        decision: dict[str, Any] = {"rule": self.hybrid_rule, "last_round": self.last_round}
        if self.decision is not None:
            decision |= {
                "equation_14": self.decision.against_dplloyd.record(),
                "equation_15": self.decision.against_eugkm.record(),
                "n_epsilon": self.decision.work,
                "threshold": self.decision.threshold,
            }
        return {**self.on_grid.record(), **super().record(), "hybrid": decision}

    def facts(self) -> dict[str, str]:
        """Give lines for the report, the decision in words among them."""
        return {**self.on_grid.facts(), "Last round": self._decision_in_words()}

    def warnings(self) -> list[str]:
        """Say so if the grid cannot tell clusters apart."""
        alone = self.on_grid.warnings()
        return [ONE_CELL_BEFORE] if alone and self.last_round else alone

    def _decision_in_words(self) -> str:
        taken = "one round of DPLloyd" if self.last_round else "none, EUGkM alone"
        if self.hybrid_rule != "auto":
            taken += f", as asked for (--hybrid-rule {self.hybrid_rule})"
        if self.decision is None:
            return taken
        dplloyd, eugkm = self.decision.against_dplloyd, self.decision.against_eugkm
        return (
            f"{taken}. Predicted squared error of a centroid after it {dplloyd.left:.3g}: "
            f"{_compared(dplloyd.holds)} DPLloyd's {dplloyd.right:.3g} (Eq. 14), "
            f"{_compared(eugkm.holds)} EUGkM's {eugkm.right:.3g} (Eq. 15)"
        )


def _compared(holds: bool) -> str:
    return "at most" if holds else "above"


def hybrid(
    table: PrivateTable, parameters: HybridParameters, notify: Notify = silent
) -> HybridResult:
    """Cluster a table with the hybrid, spending all the epsilon the table has left.

    A share of epsilon buys a noisy N, unless N is public. With that N and what is left, Eq. 14 and
    Eq. 15 predict whether a round of DPLloyd pays. If both hold, half of what is left buys EUGkM's
    synopsis, on the grid that its rule chooses for that half, and the other half one round of
    DPLloyd from the k centroids that score best on the synopsis. Else EUGkM has all that is left.

    Neighbours: one row added or removed. Cost: ``table.remaining``, pure epsilon-DP. The decision
    depends on public numbers and the noisy N alone.

    Parameters
    ----------
    table : PrivateTable
        The door to the records.
    parameters : HybridParameters
        k, grid rule, hybrid rule, restarts.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    HybridResult

    Raises
    ------
    BudgetExceededError
        If the table's budget is spent.
    EpsilonError
        If so small a share could overflow the noise.

    References
    ----------
    Su, Cao, Li, Bertino, Jin, "Differentially Private k-Means Clustering", 2016, Section 5.
    """
    epsilon = require_budget(table)
    count = learn_count(table, parameters, epsilon, notify)
    left = table.remaining
    decision = parameters.decide(left, table.domain.dimension, count)
    last_round = parameters.ends_with_round(decision)
    if last_round:
        # Before the synopsis is paid for.
        table.require_cluster_sums(parameters.k, left / 2)
    on_grid = _on_grid(table, parameters, count, left / 2 if last_round else left, notify)
    centroids, sizes = on_grid.centroids, on_grid.noisy_sizes
    how = on_grid.how
    if last_round:
        notify(f"a last round: asking for noisy sums of {parameters.k:,} clusters")
        before = table.domain.to_normalised(centroids)
        noisy = table.noisy_cluster_sums(before, left / 2)
        centroids, sizes = by_size(table.domain, moved(before, noisy), noisy.sizes)
        how += ", and one noisy round of Lloyd"
    return HybridResult(
        centroids=centroids,
        noisy_sizes=sizes,
        how=how,
        private=is_private(table),
        count=count if parameters.needs_count else None,
        count_is_public=parameters.public_count is not None,
        synopsis=on_grid.synopsis,
        hybrid_rule=parameters.hybrid_rule,
        last_round=last_round,
        decision=decision,
        on_grid=on_grid,
    )


def _on_grid(
    table: PrivateTable,
    parameters: HybridParameters,
    count: int | None,
    epsilon: Fraction,
    notify: Notify,
) -> EUGKMResult:
    """Run EUGkM's part on its share of epsilon."""
    synopsis, choice = buy_synopsis(
        table, parameters.rule, k=parameters.k, count=count or 0, epsilon=epsilon, notify=notify
    )
    return cluster_synopsis(
        table,
        parameters.grid_part,
        synopsis=synopsis,
        choice=choice,
        count=count,
        notify=notify,
    )


def _outlook(parameters: HybridParameters, epsilon: Fraction, dimension: int, count: int) -> str:
    left = epsilon - parameters.count_epsilon(epsilon)
    last_round = parameters.ends_with_round(parameters.decide(left, dimension, count))
    share = left / 2 if last_round else left
    choice = choose_grid(parameters.rule, parameters.k, dimension, count, share)
    end = "; then a round of DPLloyd" if last_round else "; no last round"
    return cells_in_words(choice) + end


def _configure(values: Mapping[str, Any]) -> HybridParameters:
    return HybridParameters(
        k=values["k"],
        rule=grid_rule(values),
        hybrid_rule=values["hybrid_rule"],
        public_count=values["public_count"],
        count_share=values["count_share"],
        restarts=values["restarts"],
        max_iter=values["max_iter"],
    )


HYBRID_RULE = Setting(
    "hybrid-rule",
    one_of("hybrid-rule", RULES),
    "when to end with a round of DPLloyd: auto (by Eq. 14 and 15), always or never (default: auto)",
    "RULE",
    default="auto",
)

ALGORITHM = Algorithm(
    name="hybrid",
    title="Hybrid",
    about="Private k-means by a noisy grid (EUGkM) and, where it pays, one noisy round of Lloyd.",
    settings=(
        K,
        HYBRID_RULE,
        *GRID_SETTINGS,
        RESTARTS,
        MAX_ITER,
        PUBLIC_COUNT,
        COUNT_SHARE,
    ),
    configure=_configure,
    run=hybrid,
    synopsis=True,
    outlook=_outlook,
)
