"""The uniform grid: m cells per dimension, row-major cell ids, and the rules that choose m."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpkm_spark.domain import SCALE, FloatArray, IntArray
from dpkm_spark.errors import ParameterError

#: Default cap on the number of cells M; it bounds the driver's memory and k-means time.
DEFAULT_MAX_CELLS = 1 << 20
#: Cells per dimension may not outnumber half the integer steps of a coordinate.
MAX_CELLS_PER_DIMENSION = SCALE
#: A dense histogram of int64 beyond this does not fit a driver.
LARGEST_MAX_CELLS = 1 << 28
DEFAULT_THETA = 10.0

RuleName = Literal["eug", "mkm", "fixed"]


@dataclass(frozen=True)
class Grid:
    """A uniform grid on [-1, 1]^d.

    Cell ids are row-major int64: the last dimension varies fastest. Cell j of one dimension
    covers [-1 + 2 j / m, -1 + 2 (j + 1) / m).

    Parameters
    ----------
    dimension : int
        Number of dimensions d.
    cells_per_dimension : int
        m, between 1 and 2^20.

    Raises
    ------
    ParameterError
        If m is out of range or m^d cells do not fit an int64 id.
    """

    dimension: int
    cells_per_dimension: int

    def __post_init__(self) -> None:
        """Refuse a grid whose ids would overflow."""
        if self.dimension < 1:
            raise ParameterError(f"dimension: got {self.dimension}; must be at least 1")
        if not 1 <= self.cells_per_dimension <= MAX_CELLS_PER_DIMENSION:
            raise ParameterError(
                f"cells_per_dimension: got {self.cells_per_dimension}; "
                f"must be between 1 and {MAX_CELLS_PER_DIMENSION}"
            )
        if self.size > 1 << 62:
            raise ParameterError(
                f"grid: {self.cells_per_dimension} cells in each of {self.dimension} dimensions "
                "overflow a 64-bit cell id; use fewer cells per dimension"
            )

    @property
    def size(self) -> int:
        """Number of cells M = m^d, exact."""
        return int(self.cells_per_dimension**self.dimension)

    def cell_sql(self, steps: Sequence[str]) -> str:
        """Give SQL of bigint type for the cell id.

        Parameters
        ----------
        steps : sequence of str, length d
            SQL of bigint type in [0, 2 SCALE], as `Domain.steps_sql` gives it.
        """
        m = self.cells_per_dimension
        if m == 1:
            return "0L"
        cell = ""
        for step in steps:
            # The last step, 2 SCALE, is the upper bound itself: it belongs to the last cell.
            index = f"least(shiftright({step} * {m}L, {_SHIFT}), {m - 1}L)"
            cell = f"({cell}) * {m}L + {index}" if cell else index
        return cell

    def cells(self, steps: IntArray) -> IntArray:
        """Map steps to cell ids; the numpy twin of `cell_sql`.

        Parameters
        ----------
        steps : ndarray of int64, shape (n, d)

        Returns
        -------
        ndarray of int64, shape (n,)
        """
        m = self.cells_per_dimension
        ids = np.zeros(len(steps), dtype=np.int64)
        for column in steps.T:
            ids = ids * m + np.minimum((column * m) >> _SHIFT, m - 1)
        return ids

    def indices(self, cells: npt.ArrayLike | None = None) -> IntArray:
        """Give the index per dimension of the named cells (all by default), shape (n, d)."""
        rest = np.arange(self.size) if cells is None else np.asarray(cells, dtype=np.int64)
        result = np.empty((len(rest), self.dimension), dtype=np.int64)
        for i in range(self.dimension - 1, -1, -1):
            rest, result[:, i] = np.divmod(rest, self.cells_per_dimension)
        return result

    def centres(self, cells: npt.ArrayLike | None = None) -> FloatArray:
        """Give cell centres in [-1, 1]^d, shape (n, d)."""
        m = self.cells_per_dimension
        return (2.0 * self.indices(cells) + 1.0) / m - 1.0

    def boxes(self, cells: npt.ArrayLike | None = None) -> tuple[FloatArray, FloatArray]:
        """Give the lower and upper corners of cells in [-1, 1]^d, each of shape (n, d)."""
        m = self.cells_per_dimension
        indices = self.indices(cells)
        return 2.0 * indices / m - 1.0, 2.0 * (indices + 1) / m - 1.0


#: (step * m) >> _SHIFT is floor(step * m / (2 SCALE)); the product is at most 2^41.
_SHIFT = (2 * SCALE).bit_length() - 1


@dataclass(frozen=True)
class GridRule:
    """How the number of cells is chosen, and the cap on it.

    Parameters
    ----------
    name : {"eug", "mkm", "fixed"}
        ``eug``: M = (N epsilon / theta)^(2d / (2 + d)) (the paper, Section 4.2).
        ``mkm``: M = (N / sqrt(log N))^(2d / (d + 3)), without epsilon (Lei's M-estimators).
        ``fixed``: ``cells_per_dimension`` as given.
    theta : float
        The constant of ``eug``; 10 in the paper.
    cells_per_dimension : int, optional
        m of ``fixed``.
    max_cells : int
        Cap on M; a rule that asks for more gets the largest m with m^d <= max_cells.
    """

    name: RuleName = "eug"
    theta: float = DEFAULT_THETA
    cells_per_dimension: int | None = None
    max_cells: int = DEFAULT_MAX_CELLS

    def __post_init__(self) -> None:
        """Check the rule's own parameters."""
        if self.name not in ("eug", "mkm", "fixed"):
            raise ParameterError(f"grid: got {self.name!r}; must be eug, mkm or fixed")
        if not (math.isfinite(self.theta) and self.theta > 0):
            raise ParameterError(f"theta: got {self.theta!r}; must be a positive number")
        if not 1 <= self.max_cells <= LARGEST_MAX_CELLS:
            raise ParameterError(
                f"max_cells: got {self.max_cells}; must be between 1 and {LARGEST_MAX_CELLS}"
            )
        if self.name == "fixed" and self.cells_per_dimension is None:
            raise ParameterError("cells_per_dimension: the fixed rule needs it")
        if self.cells_per_dimension is not None and self.cells_per_dimension < 1:
            raise ParameterError(
                f"cells_per_dimension: got {self.cells_per_dimension}; must be at least 1"
            )

    @property
    def needs_count(self) -> bool:
        """Whether the rule depends on the number of rows N."""
        return self.name != "fixed"

    def choose(
        self, *, dimension: int, count: int, epsilon: float, most: int = MAX_CELLS_PER_DIMENSION
    ) -> GridChoice:
        """Choose the grid.

        Parameters
        ----------
        dimension : int
            d.
        count : int
            N: declared public, or a noisy count. Values below 1 count as 1.
        epsilon : float
            The share that the histogram will get.
        most : int
            Another cap, on the cells per dimension.

        Returns
        -------
        GridChoice
        """
        wanted = self._wanted(dimension, max(count, 1), epsilon)
        side = min(most, MAX_CELLS_PER_DIMENSION)
        m = min(wanted, _largest_side(self.max_cells, dimension), side)
        return GridChoice(grid=Grid(dimension, m), wanted=wanted)

    def _wanted(self, d: int, count: int, epsilon: float) -> int:
        """Give the cells per dimension before the cap: M^(1/d), rounded half up, at least 1."""
        if self.name == "fixed":
            return self.cells_per_dimension or 1
        if self.name == "eug":
            # A huge epsilon or a tiny theta may overflow to infinity; the cap follows anyway.
            budget = min(count * epsilon / self.theta, sys.float_info.max)
            side = budget ** (2 / (2 + d))
        else:
            side = (count / math.sqrt(math.log(max(count, 2)))) ** (2 / (d + 3))
        return max(math.floor(float(side) + 0.5), 1)


@dataclass(frozen=True)
class GridChoice:
    """The grid a rule chose, and what it wanted before the cap.

    Parameters
    ----------
    grid : Grid
        The grid to use.
    wanted : int
        Cells per dimension that the rule asked for.
    """

    grid: Grid
    wanted: int

    @property
    def capped(self) -> bool:
        """Whether the cap lowered m."""
        return self.grid.cells_per_dimension < self.wanted


def most_cells_per_dimension(dimension: int, k: int) -> int:
    """Give the finest grid on which `kmeans.lloyd` scores k centroids exactly.

    Scores are integers below 4 d m^2 k, and float64 holds every integer up to 2^53. Only a k above
    2,047 / d keeps a grid from 2^20 cells per dimension.
    """
    return math.isqrt(((1 << 53) - 1) // (4 * dimension * k))


def _largest_side(max_cells: int, dimension: int) -> int:
    """Give the largest m with m^d <= max_cells, in exact integers."""
    m = max(int(max_cells ** (1 / dimension)), 1)
    while (m + 1) ** dimension <= max_cells:
        m += 1
    while m > 1 and m**dimension > max_cells:
        m -= 1
    return m
