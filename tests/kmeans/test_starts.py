"""Starting centroids: apart from each other and from the faces, by public randomness alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpkm_spark.domain import FloatArray
from dpkm_spark.kmeans.starts import sphere_packed_starts


def _starts(restarts: int, k: int, d: int, seed: int = 1) -> FloatArray:
    return sphere_packed_starts(restarts, k, d, np.random.default_rng(seed))


def _separation(points: FloatArray) -> float:
    """Least distance between two points of a set."""
    squared = ((points[:, np.newaxis] - points[np.newaxis]) ** 2).sum(axis=2)
    return float(np.sqrt(squared[~np.eye(len(points), dtype=bool)].min()))


@pytest.mark.parametrize(("k", "d"), [(1, 1), (1, 10), (2, 1), (15, 2), (200, 2), (9, 1), (5, 10)])
def test_there_are_always_k_starts_inside_the_domain(k: int, d: int) -> None:
    starts = _starts(3, k, d)
    assert starts.shape == (3, k, d)
    assert starts.dtype == np.float64
    assert (np.abs(starts) < 1).all()


@pytest.mark.parametrize(("k", "d"), [(2, 1), (9, 1), (15, 2), (200, 2), (5, 10)])
def test_starts_keep_twice_a_radius_apart_and_a_radius_from_the_faces(k: int, d: int) -> None:
    for points in _starts(3, k, d):
        radius = min(_separation(points) / 2, 1 - np.abs(points).max())
        # k cubes tile the domain at a radius of 1 / k^(1/d); random packing reaches two thirds.
        assert radius > 0.5 / k ** (1 / d)


@pytest.mark.parametrize(("k", "d"), [(9, 1), (15, 2), (200, 2), (5, 3)])
def test_packed_starts_are_further_apart_than_uniform_draws(k: int, d: int) -> None:
    random = np.random.default_rng(2)
    packed = [_separation(points) for points in _starts(5, k, d)]
    uniform = [_separation(random.uniform(-1, 1, size=(k, d))) for _ in range(50)]
    assert min(packed) > 1.3 * np.mean(uniform)
    assert min(packed) > max(uniform) or k < 10


def test_one_start_lies_at_the_centre() -> None:
    # The largest ball in the domain is the domain's own.
    assert np.abs(_starts(1, 1, 3)).max() < 1e-3


def test_starts_repeat_for_a_generator_and_differ_between_sets_and_generators() -> None:
    np.testing.assert_array_equal(_starts(3, 15, 2), _starts(3, 15, 2))
    assert (_starts(1, 15, 2) != _starts(1, 15, 2, seed=2)).any()
    first, second, _ = _starts(3, 15, 2)
    assert (first != second).any()


def test_the_first_sets_do_not_depend_on_how_many_follow() -> None:
    np.testing.assert_array_equal(_starts(2, 7, 2), _starts(5, 7, 2)[:2])


def test_a_thousand_starts_are_found() -> None:
    points = _starts(1, 1000, 3)[0]
    assert len(np.unique(points, axis=0)) == 1000
