"""The released grid: files that come back whole, sums, and boxes that Spark computes alike."""

from __future__ import annotations

import io
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.errors import InputError, ParameterError
from dpkm_spark.grid import Grid
from dpkm_spark.synopsis import Synopsis

AWKWARD = ("a.b", "a b", "a`b", "ÄÖ", "order", "X", "x", "<script>alert(1)</script>", "y" * 200)


def _synopsis(d: int, m: int, columns: tuple[str, ...] | None = None) -> Synopsis:
    names = columns or tuple(f"c{i}" for i in range(d))
    # Bounds with no short binary form, of very different widths.
    bounds = [(-0.1 * 7**i, 0.7 * 3**i) for i in range(d)]
    domain = Domain(names, tuple(b[0] for b in bounds), tuple(b[1] for b in bounds))
    counts = np.random.default_rng(d).integers(-(2**40), 2**40, size=m**d)
    return Synopsis(domain, Grid(d, m), counts, "49/50")


def _packed(m: int) -> Synopsis:
    domain = Domain.of_vector("v.v", [(-0.1, 0.7), (3.3, 1e10), (-1e-5, 1e-7)])
    return Synopsis(domain, Grid(3, m), np.arange(m**3) - 7, "1", private=False)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "synopsis",
    [_synopsis(1, 1), _synopsis(3, 4), _synopsis(9, 2, AWKWARD), _packed(3)],
    ids=["one cell", "cube", "awkward names", "packed, seeded"],
)
def test_a_saved_synopsis_comes_back_whole(synopsis: Synopsis, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    synopsis.save(path)
    loaded = Synopsis.load(str(path))
    assert loaded.domain == synopsis.domain
    assert loaded.grid == synopsis.grid
    assert (loaded.epsilon, loaded.private) == (synopsis.epsilon, synopsis.private)
    assert loaded.counts.dtype == np.int64
    np.testing.assert_array_equal(loaded.counts, synopsis.counts)


def test_the_file_name_is_the_one_given(tmp_path: Path) -> None:
    # numpy's own savez would add .npz.
    _synopsis(1, 2).save(tmp_path / "plain")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def _file(header: Any, counts: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(json.dumps(header)), counts=counts)
    return buffer.getvalue()


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


HEADER = {
    "version": 1, "columns": ["x"], "lower": [0.0], "upper": [1.0], "packed": False,
    "cells_per_dimension": 3, "epsilon": "1", "private": True,
}  # fmt: skip
COUNTS = np.arange(3)

BROKEN = {
    "empty": b"",
    "text": b"not a synopsis",
    "another numpy file": _npy(),
    "header is no object": _file([1], COUNTS),
    "a part is missing": _file({k: v for k, v in HEADER.items() if k != "columns"}, COUNTS),
    "too few counts": _file(HEADER, COUNTS[:2]),
    "counts of two dimensions": _file(HEADER, COUNTS.reshape(3, 1)),
    "counts that are not whole": _file(HEADER, COUNTS / 2),
    "bounds that are none": _file({**HEADER, "upper": [-1.0]}, COUNTS),
    "cells that are none": _file({**HEADER, "cells_per_dimension": 0}, COUNTS),
    "more columns than bounds": _file({**HEADER, "columns": ["x", "y"]}, COUNTS),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="synopsis: "):
        Synopsis.load(path)


def test_the_plain_header_of_these_tests_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    path.write_bytes(_file(HEADER, COUNTS))
    np.testing.assert_array_equal(Synopsis.load(path).counts, COUNTS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent"):
        Synopsis.load(tmp_path / "absent.npz")


def test_a_newer_format_is_refused_by_its_version(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    path.write_bytes(_file({**HEADER, "version": 2}, COUNTS))
    with pytest.raises(InputError, match="format version 2; this release reads version 1"):
        Synopsis.load(path)


def test_a_damaged_file_is_an_input_error_or_still_right(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    synopsis = _synopsis(1, 40)
    synopsis.save(path)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 7)]
    damaged += [whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :] for i in range(len(whole))]
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            counts = Synopsis.load(path).counts
        except InputError:
            refused += 1
        else:  # damage to a time stamp, say
            np.testing.assert_array_equal(counts, synopsis.counts)
    assert refused > len(damaged) / 2


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


def test_code_hidden_in_a_file_is_not_run(tmp_path: Path) -> None:
    path, folder = tmp_path / "s.npz", tmp_path / "made"
    # numpy stores an array of objects as a pickle.
    counts = np.array([Trap(folder)], dtype=object)
    np.savez(path, header=np.array(json.dumps(HEADER)), counts=counts)
    with pytest.raises(InputError):
        Synopsis.load(path)
    assert not folder.exists()


def test_parts_of_different_shape_make_no_synopsis() -> None:
    domain = Domain.of(["x"], (0.0, 1.0))
    with pytest.raises(ParameterError, match="differ in dimension"):
        Synopsis(domain, Grid(2, 2), np.zeros(4, np.int64), "1")
    with pytest.raises(ParameterError, match="3 cells need as many counts"):
        Synopsis(domain, Grid(1, 3), np.zeros(4, np.int64), "1")


# --- sums and boxes -------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 4])
def test_marginals_are_the_sums_over_all_other_dimensions_in_the_order_asked(d: int) -> None:
    synopsis = _synopsis(d, 3)
    indices = synopsis.grid.indices()
    for n in range(1, d + 1):
        for chosen in itertools.permutations(range(d), n):
            expected = np.zeros((3,) * n, dtype=np.int64)
            for index, count in zip(indices, synopsis.counts, strict=True):
                expected[tuple(index[list(chosen)])] += count
            marginal = synopsis.marginal(*chosen)
            assert marginal.dtype == np.int64
            np.testing.assert_array_equal(marginal, expected)


def test_the_whole_is_a_marginal_too() -> None:
    synopsis = _synopsis(3, 3)
    assert synopsis.marginal() == synopsis.counts.sum()


@given(
    st.integers(1, 100),
    st.floats(-1e12, 1e12),
    st.floats(1e-6, 1e12),
)
def test_boxes_tile_the_domain_without_gap_or_overlap(m: int, low: float, width: float) -> None:
    # A cell narrower than a few doubles has no meaningful edges.
    assume(width / m > 8 * np.spacing(abs(low) + width))
    domain = Domain.of(["x"], (low, low + width))
    synopsis = Synopsis(domain, Grid(1, m), np.zeros(m, np.int64), "1")
    lower, upper = (corner[:, 0] for corner in synopsis.boxes())
    edges = synopsis.edges(0)
    # Equal to the last bit, or a row on an edge would be in two boxes or in none.
    np.testing.assert_array_equal(lower, edges[:-1])
    np.testing.assert_array_equal(upper, edges[1:])
    assert (edges[0], edges[-1]) == (low, low + width)
    assert (np.diff(edges) > 0).all()


def test_boxes_are_row_major_and_around_their_centres() -> None:
    synopsis = _synopsis(3, 4)
    lower, upper = synopsis.boxes()
    centres = synopsis.domain.to_table_units(synopsis.grid.centres())
    assert (lower < centres).all()
    assert (centres < upper).all()
    np.testing.assert_allclose(lower + upper, 2 * centres, rtol=1e-12, atol=1e-12)
    for i in range(3):
        np.testing.assert_array_equal(np.unique(lower[:, i]), synopsis.edges(i)[:-1])


# --- Spark ----------------------------------------------------------------------------------------


def _bits(values: FloatArray) -> list[int]:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64).ravel().tolist()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("synopsis", "cells"),
    [
        (_synopsis(1, 1), 1),
        (_synopsis(1, 7), 7),
        (_synopsis(2, 41), 1681),
        (_synopsis(3, 10), 1000),
        (_synopsis(9, 2, AWKWARD), 512),
    ],
    ids=["one cell", "line", "plane", "cube", "awkward names"],
)
def test_the_frame_holds_cells_boxes_and_counts_to_the_last_bit(
    spark: SparkSession, synopsis: Synopsis, cells: int
) -> None:
    frame = synopsis.to_frame(spark)
    names = [f"{c}_{side}" for c in synopsis.domain.columns for side in ("lower", "upper")]
    assert frame.columns == ["cell", *names, "noisy_count"]
    types = [kind for _, kind in frame.dtypes]
    assert types == ["bigint", *["double"] * len(names), "bigint"]
    rows = sorted(tuple(row) for row in frame.collect())
    assert [row[0] for row in rows] == list(range(cells))
    assert [row[-1] for row in rows] == synopsis.counts.tolist()
    lower, upper = synopsis.boxes()
    table = np.array([row[1:-1] for row in rows])
    assert _bits(table[:, 0::2]) == _bits(lower)
    assert _bits(table[:, 1::2]) == _bits(upper)


@pytest.mark.spark
def test_the_frame_of_a_packed_column_holds_arrays(spark: SparkSession) -> None:
    synopsis = _packed(5)
    frame = synopsis.to_frame(spark)
    assert frame.columns == ["cell", "v.v_lower", "v.v_upper", "noisy_count"]
    assert [kind for _, kind in frame.dtypes] == [
        "bigint", "array<double>", "array<double>", "bigint",
    ]  # fmt: skip
    rows = sorted((tuple(row) for row in frame.collect()), key=lambda row: row[0])
    lower, upper = synopsis.boxes()
    assert _bits(np.array([row[1] for row in rows])) == _bits(lower)
    assert _bits(np.array([row[2] for row in rows])) == _bits(upper)
    assert [row[3] for row in rows] == synopsis.counts.tolist()


@pytest.mark.spark
def test_the_frame_can_be_filtered_by_box(spark: SparkSession) -> None:
    synopsis = Synopsis(Domain.of(["x"], (0.0, 10.0)), Grid(1, 10), np.arange(10), "1")
    frame = synopsis.to_frame(spark)
    found = frame.where("x_lower >= 2 AND x_upper <= 5").selectExpr("sum(noisy_count)").first()
    assert found is not None
    assert found[0] == 2 + 3 + 4
