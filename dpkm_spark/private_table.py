"""The door. An algorithm holds a `PrivateTable` and nothing else that leads to the records."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from dpkm_spark.domain import SCALE, Domain, FloatArray, IntArray
from dpkm_spark.errors import ParameterError, TranscriptError
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import (
    MECHANISM,
    SELECTION,
    NoiseSource,
    SystemNoise,
    calibrate,
    calibrate_selection,
)
from dpkm_spark.privacy.questions import (
    blocks_query,
    digest,
    largest_cost,
    make_query,
    selection_query,
    sums_query,
    weighted,
)
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript, Query, Transcript, public_seed
from dpkm_spark.queries import nearest
from dpkm_spark.queries.blocks import BlockPlan
from dpkm_spark.queries.engine import QueryEngine

# Algorithms know plans through the door: they may not import the queries themselves.
__all__ = ["BlockPlan", "NoisySums", "PrivateTable"]


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums and sizes of clusters, in normalised units.

    Parameters
    ----------
    sums : ndarray of float64, shape (k, d)
        Noisy sums of the coordinates in [-1, 1] of each cluster's rows.
    sizes : ndarray of float64, shape (k,)
        Noisy number of rows; may be negative.
    """

    sums: FloatArray
    sizes: FloatArray


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
        query = make_query("count", {}, 1, epsilon)
        return int(self._ask_sums(query, lambda: np.array([self.__engine.count()]))[0])

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
        if grid.dimension != self.domain.dimension:
            raise ParameterError(
                f"grid: got {grid.dimension} dimensions; must be {self.domain.dimension}"
            )
        shape = {"dimension": grid.dimension, "cells_per_dimension": grid.cells_per_dimension}
        query = make_query("cell_histogram", shape, 1, epsilon)
        return self._ask_sums(query, lambda: self.__engine.cell_histogram(grid))

    def noisy_marginals(self, bins: int, epsilon: Fraction) -> IntArray:
        """Count the rows of every bin of every dimension, with noise on each.

        A row is in one bin of each dimension, so the sensitivity is d; costs ``epsilon``.

        Parameters
        ----------
        bins : int
            Equal bins per dimension.
        epsilon : Fraction
            The share to charge.

        Returns
        -------
        ndarray of int64, shape (d, bins)
            Noisy counts, possibly negative; read-only.

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        """
        d = self.domain.dimension
        query = make_query("marginals", {"bins": bins, "dimension": d}, d, epsilon)
        flat = self._ask_sums(query, lambda: self.__engine.marginals(bins).reshape(-1))
        return flat.reshape(d, bins)

    def noisy_cluster_sums(
        self, centroids: FloatArray, epsilon: Fraction, count_weight: int = SCALE
    ) -> NoisySums:
        """Sum and count the rows nearest to each centroid, with noise on each, empty ones too.

        A row is in one cluster, where it changes each of d sums by at most 1 and the count by 1. In
        integers: sums in units of 1 / SCALE, and counts times ``count_weight``. So the sensitivity
        is d SCALE + ``count_weight``, and one noise scale serves the whole: with the default, noise
        of scale (d + 1) / epsilon on every sum and count; with W, of scale (d + W / SCALE) /
        epsilon on sums and SCALE / W times that on counts. Costs ``epsilon``.

        Parameters
        ----------
        centroids : ndarray of float64, shape (k, d)
            Normalised, in [-1, 1].
        epsilon : Fraction
            The share to charge.
        count_weight : int
            W, how many units a count of one weighs, 1 to 2^24.

        Returns
        -------
        NoisySums

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        EpsilonError
            If so small a share could overflow the noise.

        References
        ----------
        Su et al., 2016, Section 3.1 (one round of DPLloyd).
        """
        points = self._points("centroids", centroids, 2)
        k, d = points.shape
        query = sums_query(d, count_weight, epsilon, clusters=k, points_digest=digest(points))

        def exact() -> IntArray:
            sums = self.__engine.cluster_sums(points)
            sums[:, d] = weighted(sums[:, d], count_weight)
            return sums.reshape(-1)

        prepare = partial(self.__engine.prepare_sums, k)
        noisy = self._ask_sums(query, exact, prepare).reshape(k, d + 1)
        return NoisySums(noisy[:, :d] / SCALE, noisy[:, d] / count_weight)

    def noisy_block_mean(self, plan: BlockPlan, epsilon: Fraction) -> FloatArray:
        """Average the k centroids that k-means finds in each of l blocks, with noise on each.

        A row is in one block, whose k d output coordinates are clamped to the plan's box and
        written as integers in [0, SCALE]. So a row changes the sum over all blocks by at most
        k d SCALE in L1; noise of that scale on the sum is, on coordinate i of a mean, noise of
        scale (high_i - low_i) k d / (l epsilon). Empty blocks count too. Costs ``epsilon``.

        Parameters
        ----------
        plan : BlockPlan
            Blocks, starts and box: all public.
        epsilon : Fraction
            The share to charge.

        Returns
        -------
        ndarray of float64, shape (k, d)
            Normalised means, clipped to the box.

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        ParameterError
            If the plan is for another number of dimensions.
        EpsilonError
            If so small a share could overflow the noise.

        References
        ----------
        Su et al., 2016, Section 3.2 and Equation 3; Mohan et al., GUPT, SIGMOD 2012.
        """
        k, d = plan.starts.shape
        if d != self.domain.dimension:
            raise ParameterError(f"plan: got {d} dimensions; must be {self.domain.dimension}")
        named = {"blocks": plan.blocks, "rounds": plan.rounds}
        query = blocks_query(k, d, epsilon, **named, plan_digest=digest(plan.numbers()))
        noisy = self._ask_sums(
            query,
            lambda: self.__engine.block_sums(plan).reshape(-1),
            self.__engine.prepare_heavy,
        )
        return plan.means(noisy.reshape(k, d))

    def require_block_mean(self, k: int, epsilon: Fraction) -> None:
        """Raise what `noisy_block_mean` would raise on its way to the rows; costs nothing.

        For an algorithm that pays for something else first.
        """
        d = self.domain.dimension
        _require_at_most(d, nearest.MOST_DIMENSIONS)
        blocks_query(k, d, epsilon)
        self._require(self.__engine.prepare_heavy)

    def require_cluster_sums(self, k: int, epsilon: Fraction, count_weight: int = SCALE) -> None:
        """Raise what `noisy_cluster_sums` would raise on its way to the rows; costs nothing."""
        sums_query(self.domain.dimension, count_weight, epsilon)
        self._require(partial(self.__engine.prepare_sums, k))

    def require_selection(self, chosen: int, epsilon: Fraction) -> None:
        """Raise what `private_select` could raise on its way to the rows; costs nothing."""
        d = self.domain.dimension
        _require_at_most(d, nearest.MOST_SELECTION_DIMENSIONS)
        selection_query(4 * d * SCALE, chosen, epsilon)
        self._require(self.__engine.prepare_heavy)

    def _points(self, name: str, points: FloatArray, axes: int) -> IntArray:
        """Round public points; a wrong shape must not wait to be found among the rows."""
        shape, d = np.shape(points), self.domain.dimension
        if len(shape) != axes or shape[-1] != d or 0 in shape:
            raise ParameterError(f"{name}: got shape {shape}; must end in (k, {d}), k at least 1")
        return nearest.to_coordinates(points)

    def _require(self, prepare: Callable[[], None]) -> None:
        # What is replayed is paid for already.
        if self._position >= len(self._transcript.answers):
            prepare()

    def private_select(self, candidates: FloatArray, chosen: int, epsilon: Fraction) -> IntArray:
        """Choose sets of centroids of low cost, one after the other, without replacement.

        The cost of a set is the sum of squared distances to the nearest of its centroids. Adding a
        row raises every cost by at most max_w min_j of the squared distance from centroid j of
        candidate w to the corner opposite to it, as no row can be farther away; so noise on that
        scale serves, which depends on the candidates only and shrinks with them (the enhanced
        exponential mechanism). One selection costs ``epsilon / chosen``, all of them ``epsilon``.

        Parameters
        ----------
        candidates : ndarray of float64, shape (m, k, d)
            Normalised sets of centroids, public.
        chosen : int
            Number of selections, at most m.
        epsilon : Fraction
            The share to charge for all selections together.

        Returns
        -------
        ndarray of int64, shape (chosen,)
            Indices into ``candidates``, in the order of selection; read-only.

        Raises
        ------
        BudgetExceededError
            If less than ``epsilon`` is left; nothing is computed then.
        EpsilonError
            If the share of one selection is below 2^-40.
        ParameterError
            If ``chosen`` is out of range, or squared distances in so many dimensions would not be
            exact; nothing is charged then.

        References
        ----------
        Su et al., 2016, Section 3.3; the bound is derived in docs/algorithms/pgkm.md.
        """
        points = self._points("candidates", candidates, 3)
        m, _, d = points.shape
        if not 1 <= chosen <= m:
            raise ParameterError(f"chosen: got {chosen}; must be between 1 and {m}")
        _require_at_most(d, nearest.MOST_SELECTION_DIMENSIONS)
        named = {"candidates": m, "points_digest": digest(points)}
        query = selection_query(largest_cost(points), chosen, epsilon, **named)
        calibration = calibrate_selection(query.sensitivity, query.epsilon / chosen)

        def answer() -> Answer:
            costs = self.__engine.candidate_costs(points)[:, 0]
            return Answer(
                query=query,
                mechanism=SELECTION,
                scale=calibration.scale,
                epsilon_used=_times(calibration.epsilon_used, chosen, query.epsilon),
                private=self.__noise.private,
                values=self.__noise.least(costs, chosen, calibration),
            )

        return self._ask(query, answer, self.__engine.prepare_heavy)

    def _ask_sums(
        self,
        query: Query,
        exact: Callable[[], IntArray],
        prepare: Callable[[], None] = lambda: None,
    ) -> IntArray:
        """Answer a query by exact integers plus discrete Laplace noise."""
        # Whatever can go wrong without the rows goes wrong before they are paid for.
        calibration = calibrate(query.sensitivity, query.epsilon)

        def answer() -> Answer:
            return Answer(
                query=query,
                mechanism=MECHANISM,
                scale=calibration.scale,
                epsilon_used=calibration.epsilon_used,
                private=self.__noise.private,
                values=self.__noise.add(exact(), calibration),
            )

        return self._ask(query, answer, prepare)

    def _ask(
        self, query: Query, answer: Callable[[], Answer], prepare: Callable[[], None]
    ) -> IntArray:
        """Debit, then replay the stored answer or compute, add noise and store."""
        with self._lock:
            return self._ask_next(query, answer, prepare)

    def _ask_next(
        self, query: Query, answer: Callable[[], Answer], prepare: Callable[[], None]
    ) -> IntArray:
        position = self._position
        stored = self._transcript.answers
        if position < len(stored):
            if stored[position].query != query:
                raise TranscriptError(
                    f"run {self._transcript.run_id!r}: stored answer {position} is to another "
                    "query; the configuration has changed, so use another run id"
                )
            self._budget.charge(query.epsilon, query.name)
            self._position += 1
            return stored[position].values
        prepare()
        self._budget.charge(query.epsilon, query.name)
        self._transcript.reserve(position, query)
        new = answer()
        self._transcript.release(position, new)
        self._position += 1
        return new.values


def _times(epsilon_used: float, times: int, most: Fraction) -> float:
    """Multiply what one selection costs, never rounding past the share that bounds the product."""
    product = epsilon_used * times
    return math.nextafter(product, 0.0) if Fraction(product) > most else product


def _require_at_most(d: int, most: int) -> None:
    if d > most:
        raise ParameterError(f"columns: got {d}; this method can use at most {most}")
