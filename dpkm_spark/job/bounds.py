"""Columns and bounds as users write them, on the command line or in TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpkm_spark.domain import Bounds, Domain
from dpkm_spark.errors import DomainError, ParameterError

_FORM = "write LOWER:UPPER or COLUMN=LOWER:UPPER, such as -1:1 or age=0:120"

#: Key of the bounds that hold for every column without bounds of its own.
EVERY = None


def parse_columns(value: Any) -> list[str]:
    """Read column names: ``x,y``, a JSON list for names with commas, or a TOML list."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                raise ParameterError(
                    'columns: not a JSON list of names, such as ["a,b", "c"]'
                ) from None
        else:
            value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ParameterError("columns: must be column names, such as x,y")
    return value


def parse_bounds(value: Any) -> dict[str | None, list[Bounds]]:
    """Read bounds.

    Parameters
    ----------
    value : str, list or mapping
        ``LOWER:UPPER`` for all columns; ``COLUMN=LOWER:UPPER`` for one, with several pairs
        separated by commas for an array or vector; in TOML also ``[lower, upper]`` and a table of
        columns. A list of such strings, as repeated flags give it, is merged.

    Returns
    -------
    dict of column, or None for all, to a list of (lower, upper)
        One pair per entry of an array column, else one pair.

    Raises
    ------
    DomainError
        If a pair is malformed. The message names the column.
    """
    if isinstance(value, Mapping):
        return {name: _pairs(name, item) for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        merged: dict[str | None, list[Bounds]] = {}
        for item in value:
            name, text = _split(item)
            if name in merged:
                raise DomainError(f"--bounds: given twice for {_called(name)}")
            merged[name] = _pairs(name, text)
        return merged
    if isinstance(value, str):
        return parse_bounds([value])
    return {EVERY: _pairs(EVERY, value)}


def make_domain(
    columns: Sequence[str] | None,
    bounds: Mapping[str | None, list[Bounds]],
    dimensions: int | None,
) -> Domain:
    """Put columns and bounds together.

    Parameters
    ----------
    columns : sequence of str, optional
        By default the columns that have bounds of their own, in the order given.
    bounds : mapping
        As `parse_bounds` gives it.
    dimensions : int, optional
        Entries of a single array or vector column.

    Returns
    -------
    Domain

    Raises
    ------
    DomainError, ParameterError
        If they do not fit together.
    """
    named = [name for name in bounds if name is not EVERY]
    names = list(columns) if columns else named
    if not names:
        raise ParameterError("columns: none given; name them with --columns x,y")
    for name in named:
        if name not in names:
            raise DomainError(f"--bounds: {name!r} is not among the columns {', '.join(names)}")
    pairs = [bounds.get(name, bounds.get(EVERY)) for name in names]
    for name, pair in zip(names, pairs, strict=True):
        if pair is None:
            raise DomainError(f"--bounds: none given for column {name!r}; {_FORM}")
    found = [pair for pair in pairs if pair is not None]
    if len(names) == 1 and (dimensions is not None or len(found[0]) > 1):
        return Domain.of_vector(names[0], _spread(names[0], found[0], dimensions))
    if dimensions is not None:
        raise ParameterError("dimensions: goes with a single array or vector column")
    for name, pair in zip(names, found, strict=True):
        if len(pair) != 1:
            raise DomainError(f"--bounds of {name!r}: several pairs go with a single array column")
    return Domain.of(names, {name: pair[0] for name, pair in zip(names, found, strict=True)})


def _spread(name: str, pairs: list[Bounds], dimensions: int | None) -> list[Bounds]:
    count = len(pairs) if dimensions is None else dimensions
    if not 1 <= count <= 1000:
        raise ParameterError(f"dimensions: got {count}; must be between 1 and 1000")
    if len(pairs) == 1:
        return pairs * count
    if len(pairs) != count:
        raise DomainError(f"--bounds of {name!r}: {len(pairs)} pairs for {count} dimensions")
    return pairs


def _split(text: str) -> tuple[str | None, str]:
    """Split ``column=pairs``; a name may hold = and :, since numbers hold no =."""
    name, sign, pairs = text.rpartition("=")
    if re.match(r"[^=]+=[^=:,]+:[^=:,]+,", name):
        raise DomainError(
            f"--bounds: got {text!r}; give the flag once a column, such as "
            "--bounds x=-1:1 --bounds y=0:5"
        )
    return (name, pairs) if sign else (EVERY, pairs)


def _pairs(name: str | None, value: Any) -> list[Bounds]:
    if isinstance(value, str):
        return [_pair(name, part) for part in value.split(",")]
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return [_pair(name, item) for item in value]
    return [_pair(name, value)]


def _pair(name: str | None, value: Any) -> Bounds:
    parts = value.split(":") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) != 2:
        raise DomainError(f"--bounds of {_called(name)}: got {value!r}; {_FORM}")
    try:
        low, high = (_number(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        raise DomainError(
            f"--bounds of {_called(name)}: got {value!r}; both must be numbers"
        ) from None
    try:
        # Domain checks finiteness and order, and names the column.
        Domain.of([name or "every column"], (low, high))
    except DomainError as error:
        raise DomainError(f"--{error}") from None
    return low, high


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _called(name: str | None) -> str:
    return "all columns" if name is EVERY else f"column {name!r}"
