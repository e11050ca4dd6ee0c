"""The public domain: named columns, their bounds, and the integer coordinates of a row.

Both engines map a row to the same integers, because they evaluate the same IEEE 754 double
operations in the same order: clip, subtract, multiply, add one half, floor. The formula is written
twice, once as Spark SQL text and once in numpy, side by side in this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpkm_spark.errors import DomainError

#: Half the number of integer steps across one column: coordinates lie in [-SCALE, SCALE].
SCALE = 1 << 20

Bounds = tuple[float, float]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Domain:
    """Columns and the public bounds that rows are clipped to.

    Bounds are given by the user and never read off the data. A row with a null or NaN in any
    column, or with a vector of another length than declared, is outside the domain and dropped;
    an infinite value is clipped like any other.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns, each once. With ``packed``, the one array or vector column.
    lower, upper : tuple of float, length d
        Bounds per dimension, in the table's own units, ``lower < upper``.
    packed : bool
        Whether the d dimensions are the entries of a single array or vector column.

    Raises
    ------
    DomainError
        If a bound is missing, not finite, or not below its partner.
    """

    columns: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    packed: bool = False

    def __post_init__(self) -> None:
        """Check the bounds; every later formula relies on these checks."""
        _check_columns(self.columns)
        if len(self.lower) != len(self.upper) or not self.lower:
            raise DomainError("bounds: each dimension needs a lower and an upper bound")
        if self.packed and len(self.columns) != 1:
            raise DomainError("columns: an array or vector domain has exactly one column")
        if not self.packed and len(self.columns) != len(self.lower):
            raise DomainError(
                f"bounds: {len(self.columns)} columns need as many bounds, got {len(self.lower)}"
            )
        for label, low, high in zip(self.labels, self.lower, self.upper, strict=True):
            _check_bounds(label, low, high)

    @classmethod
    def of(cls, columns: Sequence[str], bounds: Bounds | Mapping[str, Bounds]) -> Domain:
        """Make a domain of scalar columns.

        Parameters
        ----------
        columns : sequence of str
            Column names, in the order of the dimensions.
        bounds : (lower, upper) or mapping of column to (lower, upper)
            One pair for all columns, or one for each.

        Returns
        -------
        Domain
        """
        pairs = _pairs(columns, bounds)
        return cls(tuple(columns), tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))

    @classmethod
    def of_vector(cls, column: str, bounds: Sequence[Bounds]) -> Domain:
        """Make a domain of one array or vector column with ``len(bounds)`` entries."""
        pairs = [(float(low), float(high)) for low, high in bounds]
        lower, upper = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
        return cls((column,), lower, upper, packed=True)

    @property
    def dimension(self) -> int:
        """Number of dimensions d."""
        return len(self.lower)

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per dimension: the column, or ``column[i]`` for a packed column."""
        if self.packed:
            return tuple(f"{self.columns[0]}[{i}]" for i in range(len(self.lower)))
        return self.columns

    def steps_sql(self, values: Sequence[str]) -> list[str]:
        """Give SQL for the steps of each dimension.

        Parameters
        ----------
        values : sequence of str, length d
            SQL of double type, not null and not NaN where it is evaluated.

        Returns
        -------
        list of str, length d
            SQL of bigint type in [0, 2 SCALE], never null; subtract SCALE for the coordinate.
        """
        # Spark takes floor for nullable whatever it is given, and doubles all code that follows.
        return [
            f"coalesce(floor((least(greatest({value}, {_sql(low)}), {_sql(high)}) - {_sql(low)})"
            f" * {_sql(_scale(low, high))} + 0.5D), 0L)"
            for value, low, high in zip(values, self.lower, self.upper, strict=True)
        ]

    def valid_sql(self, values: Sequence[str]) -> str:
        """Give SQL that is true for exactly the rows in the domain, and never null."""
        return " AND ".join(f"({value} IS NOT NULL AND NOT isnan({value}))" for value in values)

    def steps(self, rows: npt.ArrayLike) -> IntArray:
        """Map rows to integer steps; the numpy twin of `steps_sql` and `valid_sql`.

        Parameters
        ----------
        rows : array-like of float, shape (n, d)
            Values in the table's units; NaN stands for null as well.

        Returns
        -------
        ndarray of int64, shape (n', d)
            Steps in [0, 2 SCALE] of the rows without NaN, in order.
        """
        values = np.asarray(rows, dtype=np.float64).reshape(-1, self.dimension)
        values = values[~np.isnan(values).any(axis=1)]
        low, high = np.array(self.lower), np.array(self.upper)
        scale = np.array([_scale(a, b) for a, b in zip(self.lower, self.upper, strict=True)])
        clipped = np.minimum(np.maximum(values, low), high)
        result: IntArray = np.floor((clipped - low) * scale + 0.5).astype(np.int64)
        return result

    def to_table_units(self, points: npt.ArrayLike) -> FloatArray:
        """Map normalised points in [-1, 1]^d to the table's own units, shape (..., d)."""
        low, high = np.array(self.lower), np.array(self.upper)
        # Weighted mean rather than low + t * width: it hits both bounds exactly.
        share = (np.asarray(points, dtype=np.float64) + 1.0) / 2.0
        result: FloatArray = np.clip(low * (1.0 - share) + high * share, low, high)
        return result

    def to_normalised(self, points: npt.ArrayLike) -> FloatArray:
        """Map points in the table's units to [-1, 1]^d without clipping, shape (..., d)."""
        low, high = np.array(self.lower), np.array(self.upper)
        result: FloatArray = (np.asarray(points, dtype=np.float64) - low) / (high - low) * 2.0 - 1.0
        return result


def _scale(low: float, high: float) -> float:
    """Give the steps per unit of one column.

    With x in [low, high], rounding is monotone, so fl(x - low) <= fl(high - low) =: w, and
    fl(w * fl(2 SCALE / w)) < 2 SCALE + 0.5: after adding one half, floor gives at most 2 SCALE.
    """
    return 2 * SCALE / (high - low)


def _sql(number: float) -> str:
    """Write a double so that Spark's parser reads back the very same bits."""
    return f"({float(number)!r}D)"


def _check_columns(columns: tuple[str, ...]) -> None:
    if not columns:
        raise DomainError("columns: at least one column is needed")
    seen: set[str] = set()
    for name in columns:
        if not isinstance(name, str) or not name:
            raise DomainError("columns: names are non-empty strings")
        if name in seen:
            raise DomainError(f"columns: {name!r} is given twice")
        seen.add(name)


def _check_bounds(label: str, low: float, high: float) -> None:
    given = f"bounds of {label!r}: got {low!r}:{high!r}"
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DomainError(f"{given}; both must be finite numbers")
    if low >= high:
        raise DomainError(f"{given}; the lower bound must be below the upper")
    if not (math.isfinite(high - low) and math.isfinite(2 * SCALE / (high - low))):
        raise DomainError(f"{given}; the width must lie between about 1e-302 and 1.8e308")


def _pairs(columns: Sequence[str], bounds: Bounds | Mapping[str, Bounds]) -> list[Bounds]:
    if not isinstance(bounds, Mapping):
        low, high = bounds
        return [(float(low), float(high))] * len(columns)
    missing = [name for name in columns if name not in bounds]
    if missing:
        raise DomainError(f"bounds: none given for column {missing[0]!r}; every column needs some")
    unknown = [name for name in bounds if name not in columns]
    if unknown:
        raise DomainError(
            f"bounds: {unknown[0]!r} is not among the columns {', '.join(map(repr, columns))}"
        )
    return [(float(bounds[name][0]), float(bounds[name][1])) for name in columns]
