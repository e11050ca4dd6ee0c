"""Cell ids: row-major, exact in int64, and agreeing with indices, centres and boxes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpkm_spark.domain import SCALE, Domain
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import MAX_CELLS_PER_DIMENSION, Grid

STEP = st.integers(0, 2 * SCALE)


@st.composite
def grids_with_steps(draw: st.DrawFn) -> tuple[Grid, np.ndarray]:
    """Draw a grid of up to 2^62 cells and some rows of steps, bounds and cell edges among them."""
    d = draw(st.integers(1, 6))
    most = min(MAX_CELLS_PER_DIMENSION, int(2 ** (62 / d)) - 1)
    m = draw(st.one_of(st.sampled_from([1, 2, 3, min(most, 1024), most]), st.integers(1, most)))
    edge = st.integers(0, m).map(lambda j: min(-(-j * 2 * SCALE // m), 2 * SCALE))
    row = st.tuples(*[st.one_of(STEP, edge, st.sampled_from([0, 2 * SCALE]))] * d)
    steps = draw(st.lists(row, min_size=1, max_size=20))
    return Grid(d, m), np.array(steps, dtype=np.int64)


@given(grids_with_steps())
def test_ids_are_row_major_over_the_floor_of_each_step(case: tuple[Grid, np.ndarray]) -> None:
    grid, steps = case
    m = grid.cells_per_dimension
    # Exact integers of Python stand in for the shift.
    index = [[min(int(s) * m // (2 * SCALE), m - 1) for s in row] for row in steps]
    cells = grid.cells(steps)
    assert cells.dtype == np.int64
    assert cells.tolist() == [_ravel(row, m) for row in index]
    assert grid.indices(cells).tolist() == index


def _ravel(row: list[int], m: int) -> int:
    cell = 0
    for index in row:
        cell = cell * m + index
    return cell


@pytest.mark.parametrize(("d", "m"), [(1, 7), (2, 22), (3, 26), (4, 1), (6, 8)])
def test_ids_agree_with_numpys_ravel_multi_index(d: int, m: int) -> None:
    steps = np.random.default_rng(1).integers(0, 2 * SCALE + 1, (500, d))
    index = np.minimum(steps * m // (2 * SCALE), m - 1)
    expected = np.ravel_multi_index(tuple(index.T), (m,) * d)
    assert (Grid(d, m).cells(steps) == expected).all()


@pytest.mark.parametrize(("d", "m"), [(1, 5), (2, 4), (3, 3), (2, 1)])
def test_all_cells_are_listed_once_and_in_order(d: int, m: int) -> None:
    grid = Grid(d, m)
    index = grid.indices()
    assert index.shape == (grid.size, d)
    assert (index == np.array(np.unravel_index(np.arange(grid.size), (m,) * d)).T).all()
    assert (grid.indices([grid.size - 1]) == m - 1).all()


@given(grids_with_steps())
def test_a_row_lies_in_the_box_of_its_cell(case: tuple[Grid, np.ndarray]) -> None:
    grid, steps = case
    lower, upper = grid.boxes(grid.cells(steps))
    point = steps / SCALE - 1.0
    # Corners are rounded doubles; a step is 2^-20 wide, so 2^-50 tells none from its neighbour.
    assert (lower <= point + 2.0**-50).all()
    assert ((point < upper - 2.0**-50) | (steps == 2 * SCALE) | np.isclose(upper, point)).all()
    assert (upper <= 1.0).all()


@pytest.mark.parametrize(("d", "m"), [(1, 1), (1, 3), (2, 22), (3, 4), (1, 1 << 20)])
def test_boxes_tile_the_domain_and_centres_halve_them(d: int, m: int) -> None:
    grid = Grid(d, m)
    lower, upper = grid.boxes()
    assert lower.min() == -1.0
    assert upper.max() == 1.0
    assert np.allclose((lower + upper) / 2, grid.centres(), rtol=0, atol=1e-15)
    # The upper edge of one cell is the very double of the next cell's lower edge.
    assert (upper[:-1, -1] == np.where(lower[1:, -1] > -1.0, lower[1:, -1], 1.0)).all()


@pytest.mark.parametrize("m", [2, 4, 22, 1 << 10, 1 << 20])
def test_a_centre_falls_into_its_own_cell(m: int) -> None:
    cells = np.unique(np.linspace(0, m - 1, 200).astype(np.int64))
    grid = Grid(1, m)
    domain = Domain.of(["x"], (-1, 1))
    assert (grid.cells(domain.steps(grid.centres(cells))) == cells).all()


def test_edges_belong_to_the_cell_above_and_the_upper_bound_to_the_last() -> None:
    domain, grid = Domain.of(["x"], (0, 4)), Grid(1, 4)
    values = [0, math.nextafter(1, 0) - 1e-5, 1, 2, 3, 4, 5, -1]
    assert grid.cells(domain.steps(values)).tolist() == [0, 0, 1, 2, 3, 3, 3, 0]


@pytest.mark.parametrize(("d", "m"), [(63, 2), (4, 1 << 16), (7, 1 << 9), (40, 3)])
def test_ids_that_would_overflow_are_refused(d: int, m: int) -> None:
    with pytest.raises(ParameterError, match="overflow a 64-bit cell id"):
        Grid(d, m)


@pytest.mark.parametrize(("d", "m"), [(62, 2), (2, 1 << 20), (3, 1 << 20), (500, 1)])
def test_the_largest_grids_have_exact_ids(d: int, m: int) -> None:
    grid = Grid(d, m)
    last = grid.cells(np.full((1, d), 2 * SCALE))
    assert int(last[0]) == m**d - 1 == grid.size - 1


@pytest.mark.parametrize(("d", "m"), [(0, 2), (-1, 2), (1, 0), (1, -3), (1, (1 << 20) + 1)])
def test_a_grid_without_cells_or_dimensions_is_refused(d: int, m: int) -> None:
    with pytest.raises(ParameterError):
        Grid(d, m)


def test_no_rows_fall_into_no_cells() -> None:
    assert Grid(3, 4).cells(np.empty((0, 3), dtype=np.int64)).tolist() == []
