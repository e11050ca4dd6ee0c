"""The door. An algorithm holds a `PrivateTable` and nothing else that leads to the records."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dpkm_spark.domain import Domain, IntArray
from dpkm_spark.errors import InvariantError, TranscriptError
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget, parse_epsilon
from dpkm_spark.privacy.mechanisms import MECHANISM, NoiseSource, SystemNoise, calibrate
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript, Query, Transcript, public_seed
from dpkm_spark.queries.engine import QueryEngine


class PrivateTable:
    """Noisy answers about one table, each debited before it is computed.

    Neighbouring tables differ by one row, added or removed. An answer is epsilon-DP with the
    epsilon its caller names, and answers compose by adding up.

    Parameters
    ----------
    engine : QueryEngine
        Exact aggregates; reachable through this object only.
    budget : Budget
        The run's epsilon.
    transcript : Transcript, optional
        Where answers are stored. Stored answers are replayed in order instead of drawn anew.
    noise : NoiseSource, optional
        Source of noise; the operating system's entropy by default.
    """

    def __init__(
        self,
        engine: QueryEngine,
        budget: Budget,
        transcript: Transcript | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self.__engine = engine
        self.__noise: NoiseSource = SystemNoise() if noise is None else noise
        self._budget = budget
        self._transcript: Transcript = MemoryTranscript("") if transcript is None else transcript
        self._position = 0
        # Answers have an order, so queries of several threads take turns.
        self._lock = threading.Lock()

    @property
    def domain(self) -> Domain:
        """The public domain."""
        return self.__engine.domain

    @property
    def remaining(self) -> Fraction:
        """Epsilon that is left."""
        return self._budget.remaining

    @property
    def transcript(self) -> Transcript:
        """Every answer given so far."""
        return self._transcript

    def public_random(self, purpose: str) -> np.random.Generator:
        """Give a generator of public randomness, the same for each attempt of the run."""
        return np.random.default_rng(public_seed(self._transcript.run_id, purpose))

    def noisy_count(self, epsilon: Fraction) -> int:
        """Count the rows in the domain, with noise.

        Sensitivity 1; costs ``epsilon``.

        Parameters
        ----------
        epsilon : Fraction
            The share to charge.

        Returns
        -------
        int
            Possibly negative.

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        """
        return int(self._ask(_query("count", {}, epsilon))[0])

    def noisy_histogram(self, grid: Grid, epsilon: Fraction) -> IntArray:
        """Count the rows of every cell, with noise on each, empty ones too.

        A row is in one cell, so the sensitivity of the whole histogram is 1; costs ``epsilon``.

        Parameters
        ----------
        grid : Grid
            Cells to count.
        epsilon : Fraction
            The share to charge.

        Returns
        -------
        ndarray of int64, shape (grid.size,)
            Noisy counts, possibly negative; read-only.

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        """
        shape = {"dimension": grid.dimension, "cells_per_dimension": grid.cells_per_dimension}
        return self._ask(_query("cell_histogram", shape, epsilon))

    def _ask(self, query: Query) -> IntArray:
        """Debit, then replay the stored answer or compute, add noise and store."""
        with self._lock:
            return self._ask_next(query)

    def _ask_next(self, query: Query) -> IntArray:
        position = self._position
        stored = self._transcript.answers
        if position < len(stored) and stored[position].query != query:
            raise TranscriptError(
                f"run {self._transcript.run_id!r}: stored answer {position} is to another query; "
                "the configuration has changed, so use another run id"
            )
        self._budget.charge(query.epsilon, query.name)
        if position < len(stored):
            self._position += 1
            return stored[position].values
        calibration = calibrate(query.sensitivity, query.epsilon)
        self._transcript.reserve(position, query)
        answer = Answer(
            query=query,
            mechanism=MECHANISM,
            scale=calibration.scale,
            epsilon_used=calibration.epsilon_used,
            private=self.__noise.private,
            values=self.__noise.add(self._exact(query), calibration),
        )
        self._transcript.release(position, answer)
        self._position += 1
        return answer.values

    def _exact(self, query: Query) -> IntArray:
        """Compute the exact aggregate a query names; the caller adds noise at once."""
        if query.name == "count":
            return np.array([self.__engine.count()], dtype=np.int64)
        if query.name == "cell_histogram":
            return self.__engine.cell_histogram(Grid(**query.parameters))
        raise InvariantError(f"query: {query.name!r} has no exact aggregate")


def _query(name: str, parameters: Mapping[str, int], epsilon: Fraction) -> Query:
    """Make a query of sensitivity 1, of the very epsilon that the budget will charge.

    A caller may pass a float in spite of the types. The budget reads 0.1 as 1/10, so the noise
    must be drawn for 1/10 too, not for the slightly larger binary number.
    """
    exact = parse_epsilon(epsilon, f"epsilon of {name}")
    return Query(name, parameters, sensitivity=1, epsilon=exact)
