"""The released synopsis: a grid, its noisy counts, and the domain they stand in.

A synopsis is the publishable product of the non-interactive method: it has been paid for, so
anything may be computed from it without further cost.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpkm_spark.domain import Domain, FloatArray, IntArray
from dpkm_spark.errors import InputError, ParameterError
from dpkm_spark.grid import Grid
from dpkm_spark.spark.frames import select_sql, table_to_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class Synopsis:
    """Noisy counts of the cells of a uniform grid.

    Parameters
    ----------
    domain : Domain
        Columns and bounds, in the table's units.
    grid : Grid
        The cells.
    counts : ndarray of int64, shape (grid.size,)
        Noisy counts, row-major; may be negative.
    epsilon : str
        What the counts cost, as an exact fraction.
    private : bool
        False if the noise was seeded.
    """

    domain: Domain
    grid: Grid
    counts: IntArray
    epsilon: str
    private: bool = True

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        if self.domain.dimension != self.grid.dimension:
            raise ParameterError("synopsis: domain and grid differ in dimension")
        if self.counts.shape != (self.grid.size,):
            raise ParameterError(
                f"synopsis: {self.grid.size} cells need as many counts, got {self.counts.shape}"
            )

    def boxes(self) -> tuple[FloatArray, FloatArray]:
        """Give lower and upper corners of all cells in the table's units, each (M, d)."""
        indices = self.grid.indices()
        edges = [self.edges(i) for i in range(self.grid.dimension)]
        # Out of `edges`, so that neighbours share an edge to the last bit, and Spark's do as well.
        lower = np.stack([edge[indices[:, i]] for i, edge in enumerate(edges)], axis=1)
        upper = np.stack([edge[indices[:, i] + 1] for i, edge in enumerate(edges)], axis=1)
        return lower, upper

    def edges(self, dimension: int) -> FloatArray:
        """Give the m + 1 cell edges of one dimension in the table's units."""
        m = self.grid.cells_per_dimension
        share = np.arange(m + 1) / m
        low, high = self.domain.lower[dimension], self.domain.upper[dimension]
        result: FloatArray = np.clip(low * (1.0 - share) + high * share, low, high)
        return result

    def marginal(self, *dimensions: int) -> IntArray:
        """Sum the counts over all other dimensions, shape (m,) * len(dimensions)."""
        cube = self.counts.reshape((self.grid.cells_per_dimension,) * self.grid.dimension)
        others = tuple(i for i in range(self.grid.dimension) if i not in dimensions)
        order = np.argsort(np.argsort(dimensions))
        result: IntArray = np.asarray(cube.sum(axis=others), dtype=np.int64).transpose(order)
        return result

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Give one row a cell as a Spark DataFrame, in the table's units.

        Parameters
        ----------
        spark : SparkSession
            Classic or Connect.

        Returns
        -------
        DataFrame
            ``cell`` bigint, ``<column>_lower`` and ``<column>_upper`` double for each column
            (arrays of double for a packed column), ``noisy_count`` bigint.
        """
        columns = {"cell": np.arange(self.grid.size), "noisy_count": self.counts}
        cells = pa.table({name: pa.array(values) for name, values in columns.items()})
        frame = table_to_frame(spark, cells)
        return select_sql(frame, ["cell", *self._bound_columns(), "noisy_count"])

    def _bound_columns(self) -> list[tuple[str, str]]:
        """Name and SQL of the cell bounds; Spark computes them from ``cell`` alone."""
        m, d = self.grid.cells_per_dimension, self.grid.dimension
        lower, upper = [], []
        for i in range(d):
            index = f"(cell div {m ** (d - 1 - i)}L) % {m}L"
            lower.append(self._edge_sql(i, index))
            upper.append(self._edge_sql(i, f"({index} + 1L)"))
        if self.domain.packed:
            name = self.domain.columns[0]
            return [
                (f"{name}_lower", f"array({', '.join(lower)})"),
                (f"{name}_upper", f"array({', '.join(upper)})"),
            ]
        pairs = zip(self.domain.columns, lower, upper, strict=True)
        named = [[(f"{name}_lower", a), (f"{name}_upper", b)] for name, a, b in pairs]
        return [bound for both in named for bound in both]

    def _edge_sql(self, i: int, index: str) -> str:
        """Give the SQL twin of `edges`, with the same IEEE operations."""
        low, high = self.domain.lower[i], self.domain.upper[i]
        share = f"(cast({index} as double) / {self.grid.cells_per_dimension}D)"
        edge = f"(({low!r}D) * (1.0D - {share}) + ({high!r}D) * {share})"
        return f"least(greatest({edge}, ({low!r}D)), ({high!r}D))"

    def save(self, path: str | Path) -> None:
        """Write the synopsis to one local file (npz), to be read by `Synopsis.load`."""
        header = {
            "format": "dpkm-spark synopsis",
            "version": _FORMAT_VERSION,
            "columns": self.domain.columns,
            "lower": self.domain.lower,
            "upper": self.domain.upper,
            "packed": self.domain.packed,
            "cells_per_dimension": self.grid.cells_per_dimension,
            "epsilon": self.epsilon,
            "private": self.private,
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, header=np.array(json.dumps(header)), counts=self.counts)
        Path(path).write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Synopsis:
        """Read a synopsis that `save` wrote.

        Raises
        ------
        InputError
            If the file is missing, no synopsis, or of a newer format.
        """
        try:
            header, counts = _read_parts(path)
        # A damaged zip file raises half a dozen unrelated types; what went wrong is no help.
        except Exception:
            raise InputError(f"synopsis: {str(path)!r} is not a readable synopsis file") from None
        if header.get("version") != _FORMAT_VERSION:
            raise InputError(
                f"synopsis: {str(path)!r} has format version {header.get('version')!r}; "
                f"this release reads version {_FORMAT_VERSION}"
            )
        try:
            domain = Domain(
                tuple(header["columns"]),
                tuple(header["lower"]),
                tuple(header["upper"]),
                packed=header["packed"],
            )
            grid = Grid(domain.dimension, header["cells_per_dimension"])
            return cls(domain, grid, counts, header["epsilon"], header["private"])
        except (KeyError, TypeError, ParameterError):
            raise InputError(f"synopsis: the parts of {str(path)!r} do not fit together") from None


def _read_parts(path: str | Path) -> tuple[dict[str, Any], IntArray]:
    """Read the header and the counts of a synopsis file, or raise one of many exceptions."""
    with np.load(path, allow_pickle=False) as parts:
        header = json.loads(str(parts["header"]))
        counts = parts["counts"]
    if not isinstance(header, dict) or counts.dtype != np.int64:
        raise ValueError
    return header, counts
