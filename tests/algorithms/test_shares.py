"""Every private algorithm of the registry spends exactly its budget, as its plan says it will."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpkm_spark.algorithms.algorithm import Algorithm, PlannedQuery
from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.domain import SCALE, Domain
from dpkm_spark.errors import BudgetExceededError
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise
from dpkm_spark.privacy.transcript import MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

PRIVATE = {name: algorithm for name, algorithm in ALGORITHMS.items() if algorithm.private}

#: Other values of settings that change what is asked. An algorithm has those that it knows.
VARIANTS: dict[str, list[Any]] = {
    "split": ["equal", "optimal"],
    "rounds": [None, 1, 3, 7],
    "grid": ["eug", "mkm"],
    "hybrid_rule": ["auto", "always", "never"],
    "generations": [None, 1, 2],
}
#: Values that keep a real run short. They change no query.
QUICK = {"restarts": 2, "max_iter": 5, "max_cells": 4096}


def configurations(algorithm: Algorithm) -> list[dict[str, Any]]:
    """Give the settings' defaults, once for every combination of variants that it knows."""
    defaults = {setting.key: setting.default for setting in algorithm.settings}
    known = [[(key, value) for value in VARIANTS[key]] for key in VARIANTS if key in defaults]
    return [defaults | dict(chosen) for chosen in itertools.product(*known)]


def with_numbers(
    values: dict[str, Any], k: int, public_count: int | None, count_share: Fraction
) -> dict[str, Any]:
    """Set k, and N and its share where the algorithm knows them."""
    numbers = {"k": k, "public_count": public_count, "count_share": count_share}
    return values | {key: value for key, value in numbers.items() if key in values}


shares = st.fractions(min_value=Fraction(1, 1000), max_value=Fraction(999, 1000))
public_counts = st.integers(0, 10**6)


def total(plan: tuple[PlannedQuery, ...]) -> Fraction:
    return sum((query.epsilon * query.times for query in plan), Fraction(0))


def test_the_registry_has_private_algorithms_under_their_own_names() -> None:
    assert {"eugkm", "dplloyd"} <= set(PRIVATE)
    assert all(name == algorithm.name for name, algorithm in ALGORITHMS.items())


@pytest.mark.parametrize("algorithm", PRIVATE.values(), ids=PRIVATE.keys())
@given(
    epsilon=st.fractions(min_value=Fraction(1, 10**6), max_value=10**9),
    share=shares,
    k=st.integers(1, 200),
    public=public_counts,
    dimensions=st.tuples(st.integers(1, 4), st.integers(5, 40)),
    count=st.integers(-(10**6), 10**9),
)
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
def test_the_shares_of_a_plan_add_up_to_epsilon_exactly(
    *,
    algorithm: Algorithm,
    epsilon: Fraction,
    share: Fraction,
    k: int,
    public: int,
    dimensions: tuple[int, int],
    count: int,
) -> None:
    # At least four sets of parameters an example, so a thousand for each algorithm.
    sets = itertools.product(configurations(algorithm), (None, public), dimensions)
    for values, declared, dimension in sets:
        parameters = algorithm.configure(with_numbers(values, k, declared, share))
        plan = parameters.plan(epsilon, dimension, count if declared is None else declared)
        assert total(plan) == epsilon
        assert all(isinstance(q.epsilon, Fraction) and q.epsilon > 0 for q in plan)
        assert all(q.times >= 1 for q in plan)
        assert parameters.k == k
        assert parameters.buys_count == (plan[0].name == "count")


def tiny_table(rows: int, dimension: int, epsilon: Fraction, seed: int) -> PrivateTable:
    domain = Domain.of([f"x{i}" for i in range(dimension)], (-1.0, 1.0))
    points = np.random.default_rng(seed).uniform(-1, 1, (rows, dimension))
    return PrivateTable(
        LocalEngine(points, domain), Budget(epsilon), MemoryTranscript("run"), SeededNoise(seed)
    )


@pytest.mark.parametrize("algorithm", PRIVATE.values(), ids=PRIVATE.keys())
@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_charges_exactly_its_plan_query_by_query(
    algorithm: Algorithm, data: st.DataObject
) -> None:
    values = with_numbers(
        data.draw(st.sampled_from(configurations(algorithm))),
        k=data.draw(st.integers(1, 6)),
        public_count=data.draw(st.one_of(st.none(), public_counts)),
        count_share=data.draw(shares),
    )
    values |= {key: value for key, value in QUICK.items() if key in values}
    epsilon = data.draw(st.fractions(min_value=Fraction(1, 20), max_value=50))
    dimension, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 60))
    table = tiny_table(rows, dimension, epsilon, data.draw(st.integers(0, 100)))
    parameters = algorithm.configure(values)
    result = algorithm.run(table, parameters, lambda text, *, brief=False: None)
    answers = table.transcript.answers
    asked = [(answer.query.name, answer.query.epsilon) for answer in answers]
    # Some plans depend on N; a run without one has a plan that does not.
    plan = parameters.plan(epsilon, dimension, result.count or 0)
    assert asked == [(query.name, query.epsilon) for query in plan for _ in range(query.times)]
    assert table.remaining == 0
    assert all(Fraction(a.epsilon_used) <= a.query.epsilon for a in answers)
    # The plan may round a sensitivity up, as for candidates not known yet; never down.
    planned = [query.sensitivity for query in plan for _ in range(query.times)]
    for answer, most in zip(answers, planned, strict=True):
        unit = 1 if answer.query.name in ("count", "cell_histogram", "marginals") else SCALE
        assert answer.query.sensitivity <= most * unit * (1 + 1e-9) + 1
    assert result.centroids.shape == (parameters.k, dimension)


# --- an algorithm that asks for more --------------------------------------------------------------


class Counting(LocalEngine):
    """Notes how often it is asked."""

    asked = 0

    def count(self) -> int:
        self.asked += 1
        return super().count()

    def cell_histogram(self, grid: Grid) -> Any:
        self.asked += 1
        return super().cell_histogram(grid)

    def cluster_sums(self, centroids: Any) -> Any:
        self.asked += 1
        return super().cluster_sums(centroids)

    def candidate_costs(self, candidates: Any) -> Any:
        self.asked += 1
        return super().candidate_costs(candidates)


class CountingNoise(SeededNoise):
    """Notes how often it is drawn."""

    drawn = 0

    def add(self, values: Any, calibration: Any) -> Any:
        self.drawn += 1
        return super().add(values, calibration)

    def least(self, costs: Any, chosen: int, calibration: Any) -> Any:
        self.drawn += 1
        return super().least(costs, chosen, calibration)


CENTROIDS = np.zeros((2, 1))
QUESTIONS: Mapping[str, Any] = {
    "count": lambda table, epsilon: table.noisy_count(epsilon),
    "histogram": lambda table, epsilon: table.noisy_histogram(Grid(1, 4), epsilon),
    "sums": lambda table, epsilon: table.noisy_cluster_sums(CENTROIDS, epsilon),
    "selection": lambda table, epsilon: table.private_select(CENTROIDS[None], 1, epsilon),
}


@pytest.mark.parametrize("question", QUESTIONS)
@given(
    epsilon=st.fractions(min_value=Fraction(1, 1000), max_value=1000),
    more=st.fractions(min_value=Fraction(1, 10**30), max_value=1),
    first=st.fractions(min_value=Fraction(1, 100), max_value=Fraction(99, 100)),
)
@settings(max_examples=50)
def test_an_algorithm_that_asks_for_more_than_is_left_is_stopped_at_the_door(
    question: str, epsilon: Fraction, more: Fraction, first: Fraction
) -> None:
    engine = Counting(np.zeros((3, 1)), Domain.of(["x"], (-1.0, 1.0)))
    noise = CountingNoise(1)
    table = PrivateTable(engine, Budget(epsilon), MemoryTranscript("run"), noise)
    ask = QUESTIONS[question]

    def greedy() -> None:
        """Spend a part, then the rest and a little more."""
        ask(table, epsilon * first)
        ask(table, epsilon - epsilon * first + more)

    with pytest.raises(BudgetExceededError):
        greedy()
    # The first answer was given; for the second nothing was computed, drawn or charged.
    assert (engine.asked, noise.drawn, len(table.transcript.answers)) == (1, 1, 1)
    assert table.remaining == epsilon * (1 - first)
    # To the last bit of what is left it is served.
    ask(table, table.remaining)
    assert (engine.asked, table.remaining) == (2, 0)
