"""What counts as a domain: every bad bound is one error that names its column."""

from __future__ import annotations

import math

import pytest

from dpkm_spark.domain import Domain
from dpkm_spark.errors import DomainError, ParameterError


@pytest.mark.parametrize(
    "pair",
    [
        (1.0, -1.0),
        (2.0, 2.0),
        (0.0, -0.0),
        (math.nan, 1.0),
        (0.0, math.nan),
        (0.0, math.inf),
        (-math.inf, 0.0),
        (-math.inf, math.inf),
        # The width overflows, or is so small that the steps per unit would.
        (-1.7e308, 1.7e308),
        (0.0, 5e-324),
        (0.0, 1e-303),
    ],
)
def test_bad_bounds_are_one_error_that_names_the_column(pair: tuple[float, float]) -> None:
    with pytest.raises(DomainError, match="'speed'") as caught:
        Domain.of(["height", "speed"], {"height": (0, 1), "speed": pair})
    assert "bounds" in str(caught.value)
    assert "'height'" not in str(caught.value)


def test_bad_bounds_of_a_packed_column_name_the_entry() -> None:
    with pytest.raises(DomainError, match=r"'features\[1\]'"):
        Domain.of_vector("features", [(0, 1), (1, 0)])


@pytest.mark.parametrize("width", [1.2e-302, 1e-300, 2.3e-16, 1e300, 1.79e308])
def test_every_width_whose_steps_are_finite_is_accepted(width: float) -> None:
    assert Domain.of(["x"], (0.0, width)).dimension == 1


def test_a_column_without_bounds_is_named() -> None:
    with pytest.raises(DomainError, match="none given for column 'y'"):
        Domain.of(["x", "y"], {"x": (0, 1)})


def test_bounds_of_an_unknown_column_are_named() -> None:
    with pytest.raises(DomainError, match="'z' is not among the columns 'x', 'y'"):
        Domain.of(["x", "y"], {"x": (0, 1), "y": (0, 1), "z": (0, 1)})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "at least one column"),
        (["x", "y", "x"], "'x' is given twice"),
        ([""], "non-empty"),
        (["x", ""], "non-empty"),
        ([3], "non-empty strings"),
    ],
)
def test_columns_are_named_once_each(columns: list[str], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        Domain.of(columns, (0, 1))


def test_names_that_differ_only_by_case_are_two_columns() -> None:
    assert Domain.of(["X", "x"], (0, 1)).labels == ("X", "x")


@pytest.mark.parametrize(
    ("columns", "lower", "upper", "packed"),
    [
        (("x",), (), (), False),
        (("x",), (0.0,), (), False),
        (("x", "y"), (0.0,), (1.0,), False),
        (("x",), (0.0, 0.0), (1.0, 1.0), False),
        (("x", "y"), (0.0, 0.0), (1.0, 1.0), True),
    ],
)
def test_columns_and_bounds_come_in_equal_numbers(
    columns: tuple[str, ...], lower: tuple[float, ...], upper: tuple[float, ...], packed: bool
) -> None:
    with pytest.raises(DomainError):
        Domain(columns, lower, upper, packed)


def test_a_domain_error_is_caught_as_a_value_error() -> None:
    with pytest.raises(ValueError, match="lower bound"):
        Domain.of(["x"], (1, 0))
    assert issubclass(DomainError, ParameterError)


def test_labels_of_a_packed_column_count_its_entries() -> None:
    assert Domain.of_vector("v", [(0, 1)] * 3).labels == ("v[0]", "v[1]", "v[2]")
