"""The genetic search: what crossover and mutation may do, and the order of the loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.kmeans.genetic import (
    Breeding,
    Select,
    crossover,
    genetic_search,
    mutate,
    offspring,
)


def _random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


shapes = st.tuples(st.integers(1, 6), st.integers(1, 7), st.integers(1, 4))
seeds = st.integers(0, 2**32 - 1)


# --- crossover ------------------------------------------------------------------------------------


@given(shapes, seeds)
def test_children_share_out_their_parents_centroids_place_by_place(
    shape: tuple[int, int, int], seed: int
) -> None:
    random = _random(seed)
    first, second = random.uniform(-1, 1, size=(2, *shape))
    c, k, _ = shape
    split = random.integers(0, k + 1, size=c)
    children = crossover(first, second, split)
    for i in range(c):
        one, other = children[2 * i], children[2 * i + 1]
        s = split[i]
        np.testing.assert_array_equal(one, np.concatenate([second[i, :s], first[i, s:]]))
        np.testing.assert_array_equal(other, np.concatenate([first[i, :s], second[i, s:]]))


def _marked(parents: int, k: int) -> FloatArray:
    """Parents that can be told apart: all coordinates of parent i are i / 100."""
    return np.broadcast_to(np.arange(parents)[:, None, None] / 100, (parents, k, 2)).copy()


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("parents", [2, 10])
def test_without_mutation_every_child_mixes_two_different_parents(parents: int, k: int) -> None:
    children = offspring(_marked(parents, k), 400, 0.0, _random())
    assert children.shape == (400, k, 2)
    seen = set()
    for child in children:
        marks = child[:, 0]
        # One split point: a run of one parent, then a run of the other, neither of them empty.
        assert np.count_nonzero(np.diff(marks)) == 1
        seen.add((marks[0], marks[-1], int(np.argmax(marks != marks[0]))))
    # Every ordered couple of parents and every split point has its turn.
    assert len({s for _, _, s in seen}) == k - 1
    if parents == 2:
        assert len(seen) == 2 * (k - 1)
    else:
        assert len({a for a, _, _ in seen}) == len({b for _, b, _ in seen}) == parents


def test_couples_are_as_likely_as_each_other() -> None:
    # 3,000 couples over 20 ordered ones: 150 each, and six deviations are 72.
    children = offspring(_marked(5, 2), 6000, 0.0, _random())[::2, :, 0]
    pairs, counts = np.unique(children, axis=0, return_counts=True)
    assert len(pairs) == 20
    assert (np.abs(counts - 150) < 72).all()


def test_a_single_centroid_or_a_single_parent_is_handed_on() -> None:
    np.testing.assert_array_equal(
        np.unique(offspring(_marked(4, 1), 100, 0.0, _random())), np.arange(4) / 100
    )
    np.testing.assert_array_equal(
        offspring(_marked(1, 3) + 0.5, 7, 0.0, _random()), np.full((7, 3, 2), 0.5)
    )


@given(st.integers(1, 9))
def test_any_number_of_offspring_is_bred(population: int) -> None:
    assert offspring(_marked(3, 2), population, 0.1, _random()).shape == (population, 2, 2)


# --- mutation -------------------------------------------------------------------------------------


@given(shapes, seeds, st.floats(0.001, 10))
def test_a_mutation_moves_one_centroid_of_each_candidate_within_the_domain(
    shape: tuple[int, int, int], seed: int, sigma: float
) -> None:
    candidates = _random(seed).uniform(-1, 1, size=shape)
    before = candidates.copy()
    mutants = mutate(candidates, sigma, _random(seed + 1))
    np.testing.assert_array_equal(candidates, before)
    assert (np.abs(mutants) <= 1).all()
    moved = (mutants != candidates).any(axis=2).sum(axis=1)
    # Both at a corner is the one way to stay: noise that points out of the domain.
    at_corner = (np.abs(candidates) == 1).all(axis=2).any(axis=1)
    assert ((moved == 1) | ((moved == 0) & at_corner)).all()


def test_a_mutation_is_gaussian_of_the_given_deviation_and_hits_all_centroids_alike() -> None:
    moves = mutate(np.zeros((20_000, 4, 2)), 0.05, _random())
    which = (moves != 0).any(axis=2).argmax(axis=1)
    # 5,000 each, with a deviation of 61.
    assert (np.abs(np.bincount(which, minlength=4) - 5000) < 370).all()
    steps = moves[np.arange(20_000), which].reshape(-1)
    assert abs(steps.mean()) < 6 * 0.05 / 200
    assert steps.std() == pytest.approx(0.05, rel=6 / np.sqrt(2 * 40_000))
    assert np.mean(np.abs(steps) > 2 * 0.05) == pytest.approx(0.0455, abs=0.006)


# --- the loop -------------------------------------------------------------------------------------


class Keeper:
    """Selects what a rule says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[FloatArray, int, int]] = []

    def __call__(self, candidates: FloatArray, chosen: int, generation: int) -> IntArray:
        self.asked.append((candidates.copy(), chosen, generation))
        # The candidate deepest inside the domain, so that mutations are hardly clipped.
        depth = np.abs(candidates).max(axis=(1, 2))
        return np.repeat(np.argmin(depth), chosen)


def _search(select: Select, generations: int, seed: int = 1, **breeding: float) -> FloatArray:
    return genetic_search(
        k=2,
        dimension=2,
        generations=generations,
        select=select,
        random=_random(seed),
        breeding=Breeding(**breeding),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("generations", [1, 2, 8])
def test_each_generation_is_asked_once_and_the_last_for_one_candidate(generations: int) -> None:
    keeper = Keeper()
    found = _search(keeper, generations)
    assert [(chosen, g) for _, chosen, g in keeper.asked] == [
        *((10, g) for g in range(generations - 1)),
        (1, generations - 1),
    ]
    assert all(candidates.shape == (200, 2, 2) for candidates, _, _ in keeper.asked)
    last = keeper.asked[-1][0]
    np.testing.assert_array_equal(found, last[np.argmin(np.abs(last).max(axis=(1, 2)))])


def test_the_first_candidates_are_uniform_in_the_domain() -> None:
    keeper = Keeper()
    _search(keeper, 1, population=20_000)
    values = keeper.asked[0][0].reshape(-1)
    assert (np.abs(values) <= 1).all()
    # 80,000 values in 10 bins: 8,000 each, with a deviation of 85.
    assert (np.abs(np.histogram(values, 10, (-1, 1))[0] - 8000) < 510).all()


def test_mutations_shrink_by_a_twentieth_each_generation() -> None:
    keeper = Keeper()
    _search(keeper, 12, population=4000)
    for generation in range(1, 12):
        before, candidates = keeper.asked[generation - 1][0], keeper.asked[generation][0]
        parent = before[np.argmin(np.abs(before).max(axis=(1, 2)))]
        moves = (candidates - parent).reshape(-1)
        # Of 4,000 candidates one centroid moved in two coordinates: half of all values.
        deviation = np.sqrt((moves**2).sum() / 8000)
        expected = 0.1 * 0.95 ** (generation - 1)
        # Six deviations of the estimate are 4.8 %, as much as one generation's decay.
        assert deviation == pytest.approx(expected, rel=0.045)


def test_the_search_is_repeated_by_the_same_public_randomness_and_selections() -> None:
    one, same, other = (_search(Keeper(), 5, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@given(st.integers(1, 3), seeds)
def test_a_selection_by_true_cost_finds_the_one_optimum(d: int, seed: int) -> None:
    point = _random(seed).uniform(-1, 1, size=d)

    def select(candidates: FloatArray, chosen: int, generation: int) -> IntArray:
        return np.argsort(((candidates[:, 0] - point) ** 2).sum(axis=1))[:chosen]

    found = genetic_search(
        k=1, dimension=d, generations=30, select=select, random=_random(seed + 1)
    )
    assert np.abs(found[0] - point).max() < 0.03


def test_a_selection_by_true_cost_finds_well_separated_points() -> None:
    # A search of this kind can end in a local optimum; from this seed it does not.
    points = np.array([[-0.8, -0.7], [0.7, -0.5], [0.0, 0.8]])

    def select(candidates: FloatArray, chosen: int, generation: int) -> IntArray:
        squared = ((candidates[:, :, None] - points) ** 2).sum(axis=3).min(axis=1).sum(axis=1)
        return np.argsort(squared)[:chosen]

    found = genetic_search(k=3, dimension=2, generations=60, select=select, random=_random(3))
    apart = np.abs(found[:, None] - points).max(axis=2)
    assert sorted(apart.argmin(axis=0)) == [0, 1, 2]
    assert apart.min(axis=0).max() < 0.03
