"""Genetic search for k centroids: the loop that PGkM and Gene share (PrivGene).

It never sees rows: whoever calls it scores the candidates and says which of them live on. All
randomness is public, so a run can be repeated from the selections alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpkm_spark.domain import FloatArray, IntArray

#: Takes candidates of shape (m, k, d), how many to choose, and the generation from 0 on; gives the
#: indices of the chosen, shape (chosen,).
Select = Callable[[FloatArray, int, int], IntArray]


@dataclass(frozen=True)
class Breeding:
    """How one generation follows from the one before.

    Parameters
    ----------
    population : int
        Candidates m; each is a list of k centroids.
    parents : int
        Candidates m' that are chosen to breed, at most m.
    sigma : float
        Deviation of the first mutations, in normalised units: 5 % of the width 2.
    decay : float
        Factor on sigma from one generation to the next.
    """

    population: int = 200
    parents: int = 10
    sigma: float = 0.1
    decay: float = 0.95


DEFAULT_BREEDING = Breeding()


def genetic_search(
    *,
    k: int,
    dimension: int,
    generations: int,
    select: Select,
    random: np.random.Generator,
    breeding: Breeding = DEFAULT_BREEDING,
) -> FloatArray:
    """Breed candidates for some generations and give the one that is chosen at the end.

    The first candidates are uniform in the domain. Each generation but the last chooses parents,
    whose offspring replace all candidates; the last chooses one candidate, which is the result.

    Parameters
    ----------
    k : int
        Centroids per candidate.
    dimension : int
        d.
    generations : int
        R, at least 1: how often ``select`` is asked.
    select : callable
        Chooses candidates; see `Select`.
    random : numpy.random.Generator
        Public randomness.
    breeding : Breeding
        Sizes and mutations.

    Returns
    -------
    ndarray of float64, shape (k, d)
        Normalised centroids in [-1, 1]^d.

    References
    ----------
    Zhang, Xiao, Yang, Zhang, Winslett, "PrivGene: Differentially Private Model Fitting Using
    Genetic Algorithms", 2013; Su et al., 2016, Section 3.3.
    """
    candidates = random.uniform(-1.0, 1.0, size=(breeding.population, k, dimension))
    sigma = breeding.sigma
    for generation in range(generations - 1):
        parents = candidates[select(candidates, breeding.parents, generation)]
        candidates = offspring(parents, breeding.population, sigma, random)
        sigma *= breeding.decay
    result: FloatArray = candidates[int(select(candidates, 1, generations - 1)[0])]
    return result


def offspring(
    parents: FloatArray, population: int, sigma: float, random: np.random.Generator
) -> FloatArray:
    """Breed a population: couples of different parents, crossover, one mutation each.

    Parameters
    ----------
    parents : ndarray of float64, shape (p, k, d)
        Normalised.
    population : int
        Number of offspring m.
    sigma : float
        Deviation of a mutation.
    random : numpy.random.Generator
        Public randomness.

    Returns
    -------
    ndarray of float64, shape (m, k, d)
        In [-1, 1].
    """
    p, k, _ = parents.shape
    couples = -(-population // 2)
    first = random.integers(0, p, size=couples)
    # A step of 1 to p - 1 leads to another parent; a sole parent couples with itself.
    second = (first + random.integers(1, max(p, 2), size=couples)) % p
    # Both children differ from both parents, except for k = 1, where nothing can be swapped.
    split = random.integers(1, k, size=couples) if k > 1 else np.zeros(couples, dtype=np.int64)
    children = crossover(parents[first], parents[second], split)[:population]
    return mutate(children, sigma, random)


def crossover(first: FloatArray, second: FloatArray, split: IntArray) -> FloatArray:
    """Swap the first ``split`` centroids of each couple: two children, one after the other.

    Parameters
    ----------
    first, second : ndarray of float64, shape (c, k, d)
        Parents of c couples.
    split : ndarray of int64, shape (c,)
        Between 0 and k.

    Returns
    -------
    ndarray of float64, shape (2 c, k, d)
    """
    c, k, d = first.shape
    swapped = (np.arange(k) < split[:, None])[:, :, None]
    couples = np.stack([np.where(swapped, second, first), np.where(swapped, first, second)], axis=1)
    result: FloatArray = couples.reshape(2 * c, k, d)
    return result


def mutate(candidates: FloatArray, sigma: float, random: np.random.Generator) -> FloatArray:
    """Move one random centroid of each candidate by Gaussian noise, clipped to the domain.

    Parameters
    ----------
    candidates : ndarray of float64, shape (m, k, d)
        Normalised.
    sigma : float
        Deviation per coordinate.
    random : numpy.random.Generator
        Public randomness: this noise hides nothing.

    Returns
    -------
    ndarray of float64, shape (m, k, d)
        A new array.
    """
    m, k, d = candidates.shape
    which = random.integers(0, k, size=m)
    result: FloatArray = candidates.copy()
    result[np.arange(m), which] += random.normal(0.0, sigma, size=(m, d))
    return np.clip(result, -1.0, 1.0, out=result)
