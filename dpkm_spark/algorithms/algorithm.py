"""What every algorithm is made of: settings, parameters, a plan of its budget, and a clustering.

An algorithm is one file that ends in an `Algorithm`, and one line in `registry.py`. The job, the
dry run, the outputs and the report know algorithms through these types only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from dpkm_spark.algorithms.notify import Notify
from dpkm_spark.algorithms.settings import Setting
from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.errors import BudgetExceededError
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.synopsis import Synopsis


@dataclass(frozen=True)
class PlannedQuery:
    """One kind of query that a run will ask.

    Parameters
    ----------
    name : str
        As in the transcript.
    epsilon : Fraction
        Share of one of them.
    sensitivity : float
        In the units a person thinks in: rows, and coordinates in [-1, 1].
    times : int
        How many of them.
    """

    name: str
    epsilon: Fraction
    sensitivity: float
    times: int = 1


class Parameters(Protocol):
    """What an algorithm needs to know besides the table; checked when it is made."""

    @property
    def k(self) -> int:
        """Number of clusters."""

    @property
    def public_count(self) -> int | None:
        """N, if the user declares it public."""

    @property
    def buys_count(self) -> bool:
        """Whether a share of the budget goes to a noisy N."""

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries of a run in order; their shares add up to epsilon exactly.

        Parameters
        ----------
        epsilon : Fraction
            The whole budget.
        dimension : int
            d.
        count : int
            N as declared, or as the run may measure it: some plans depend on it.
        """

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Clustering:
    """What an algorithm releases.

    Parameters
    ----------
    centroids : ndarray of float64, shape (k, d)
        In the table's units; largest cluster first where sizes are known.
    noisy_sizes : ndarray of float64, shape (k,), or None
        Noisy number of rows per cluster, possibly negative; None where a method releases none.
    how : str
        What they were made from, as the end of a sentence for people.
    private : bool
        False if the noise was seeded or there was none.
    count : int or None
        The N the method used: noisy, or as declared; None if it needs none.
    count_is_public : bool
        Whether N was declared.
    synopsis : Synopsis or None
        The noisy grid, for the methods that release one.
    """

    centroids: FloatArray
    noisy_sizes: FloatArray | None
    how: str
    private: bool
    count: int | None = None
    count_is_public: bool = False
    synopsis: Synopsis | None = None

    def record(self) -> dict[str, Any]:
        """Give what the method found besides the arrays, for `run.json`: released values only."""
        return {"count": self.count, "count_is_public": self.count_is_public}

    def facts(self) -> dict[str, str]:
        """Give lines for the technical part of the report."""
        return {}

    def warnings(self) -> list[str]:
        """Say what a reader must know before believing the result."""
        return []


def no_outlook(parameters: Any, epsilon: Fraction, dimension: int, count: int) -> str:
    """Say nothing."""
    return ""


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the job knows it.

    Parameters
    ----------
    name : str
        In flags, file names and `run.json`.
    title : str
        For people.
    about : str
        One line for help.
    settings : tuple of Setting
        What a user can set, k first.
    configure : callable
        Makes the parameters from the settings' values by key.
    run : callable
        Clusters a table and spends all the epsilon it has left.
    private : bool
        False for the methods that see exact answers, for comparison only.
    synopsis : bool
        Whether every result has a synopsis.
    outlook : callable
        Says in a line what parameters, epsilon, d and N lead to, for a dry run.
    """

    name: str
    title: str
    about: str
    settings: tuple[Setting, ...]
    configure: Callable[[Mapping[str, Any]], Parameters]
    run: Callable[[Any, Any, Notify], Clustering]
    private: bool = True
    synopsis: bool = False
    outlook: Callable[[Any, Fraction, int, int], str] = no_outlook


def require_budget(table: PrivateTable) -> Fraction:
    """Give what the table has left to spend.

    Raises
    ------
    BudgetExceededError
        If that is nothing.
    """
    if not table.remaining:
        raise BudgetExceededError("epsilon: the whole budget of the table is spent")
    return table.remaining


def is_private(table: PrivateTable) -> bool:
    """Tell whether all answers so far were drawn from noise that protects."""
    return all(answer.private for answer in table.transcript.answers)


def in_order(centroids: FloatArray) -> FloatArray:
    """Sort centroids by their first coordinate, then the second, and so on, shape (k, d)."""
    result: FloatArray = centroids[np.lexsort(centroids.T[::-1])]
    return result


def by_size(
    domain: Domain, centroids: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Give normalised centroids in the table's units, and their sizes, largest cluster first."""
    order = np.argsort(-sizes, kind="stable")
    return domain.to_table_units(centroids[order]), sizes[order]
