"""EUGkM: k-means on an extended uniform grid (the paper, Section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.domain import FloatArray
from dpkm_spark.errors import BudgetExceededError, ParameterError
from dpkm_spark.grid import GridChoice, GridRule
from dpkm_spark.kmeans.lloyd import lloyd_on_grid, require_exact_scores
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.synopsis import Synopsis

#: Share of epsilon that buys the noisy N for the grid's size: 2 %.
DEFAULT_COUNT_SHARE = Fraction(1, 50)
LARGEST_K = 10_000


@dataclass(frozen=True)
class EUGKMParameters:
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
        _check_range("k", self.k, 1, LARGEST_K)
        _check_range("restarts", self.restarts, 1, 10_000)
        _check_range("max_iter", self.max_iter, 1, 1_000_000)
        if self.public_count is not None:
            _check_range("public_count", self.public_count, 0, 1 << 62)
        if not 0 < self.count_share < 1:
            raise ParameterError(
                f"count_share: got {float(self.count_share):g}; must be between 0 and 1"
            )

    @property
    def buys_count(self) -> bool:
        """Whether a share of the budget goes to a noisy N."""
        return self.rule.needs_count and self.public_count is None

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """Split epsilon into the shares of the count and of the histogram; they add up to it."""
        # Fraction() for a caller who gave a float: the shares must still add up exactly.
        count = epsilon * Fraction(self.count_share) if self.buys_count else Fraction(0)
        return count, epsilon - count


@dataclass(frozen=True, eq=False)
class EUGKMResult:
    """What EUGkM releases.

    Parameters
    ----------
    centroids : ndarray of float64, shape (k, d)
        In the table's units, largest cluster first.
    noisy_sizes : ndarray of float64, shape (k,)
        Noisy number of rows per cluster; may be negative.
    synopsis : Synopsis
        The noisy histogram all this comes from.
    grid_choice : GridChoice
        The grid, and what the rule wanted before the cap.
    count : int or None
        The N the rule used: noisy, or as declared; None if the rule needs none.
    count_is_public : bool
        Whether N was declared.
    best_restart, rounds : int
        The restart that was kept, and its rounds.
    converged : bool
        Whether it ended before the limit on rounds.
    objective : float
        Its sum of squared distances on the synopsis, in normalised units; may be negative.
    """

    centroids: FloatArray
    noisy_sizes: FloatArray
    synopsis: Synopsis
    grid_choice: GridChoice
    count: int | None
    count_is_public: bool
    best_restart: int
    rounds: int
    converged: bool
    objective: float


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
    ParameterError
        If k is too large for the grid; the histogram is not paid for then.

    References
    ----------
    Su, Cao, Li, Bertino, Jin, "Differentially Private k-Means Clustering", 2016, Section 4.2.
    """
    if not table.remaining:
        raise BudgetExceededError("epsilon: the whole budget of the table is spent")
    count_epsilon, grid_epsilon = parameters.split(table.remaining)
    count = parameters.public_count
    if parameters.buys_count:
        notify("asking for a noisy number of rows")
        count = table.noisy_count(count_epsilon)
    choice = parameters.rule.choose(
        dimension=table.domain.dimension, count=count or 0, epsilon=float(grid_epsilon)
    )
    require_exact_scores(choice.grid, parameters.k)
    notify(f"asking for a noisy histogram of {choice.grid.size:,} cells")
    counts = table.noisy_histogram(choice.grid, grid_epsilon)
    private = all(answer.private for answer in table.transcript.answers)
    synopsis = Synopsis(table.domain, choice.grid, counts, str(grid_epsilon), private)
    return _cluster(
        table,
        parameters=parameters,
        synopsis=synopsis,
        choice=choice,
        count=count,
        notify=notify,
    )


def _cluster(
    table: PrivateTable,
    *,
    parameters: EUGKMParameters,
    synopsis: Synopsis,
    choice: GridChoice,
    count: int | None,
    notify: Notify,
) -> EUGKMResult:
    """Cluster the synopsis from all starts and keep the best by its own score."""
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
    order = np.argsort(-runs.weights[best], kind="stable")
    return EUGKMResult(
        centroids=table.domain.to_table_units(runs.centroids[best][order]),
        noisy_sizes=runs.weights[best][order],
        synopsis=synopsis,
        grid_choice=choice,
        count=count if parameters.rule.needs_count else None,
        count_is_public=parameters.public_count is not None,
        best_restart=best,
        rounds=int(runs.rounds[best]),
        converged=bool(runs.converged[best]),
        objective=float(runs.objective[best]),
    )


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name}: got {value!r}; must be a whole number from {low} to {high}")
