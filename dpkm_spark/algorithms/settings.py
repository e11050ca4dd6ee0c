"""What a user can set on an algorithm: one description serves flags, TOML files and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from dpkm_spark.errors import ParameterError
from dpkm_spark.privacy.budget import parse_epsilon


@dataclass(frozen=True)
class Setting:
    """One setting.

    Parameters
    ----------
    name : str
        Flag without dashes, and key in TOML.
    parse : callable
        Turns text, or a TOML value, into the setting's value.
    help : str
        One or two lines of help.
    metavar : str
        What to call the value in help; empty for a switch.
    repeated : bool
        Whether the flag may be given several times.
    default : object
        Value where neither flag nor file gives one.
    """

    name: str
    parse: Callable[[Any], Any]
    help: str
    metavar: str = ""
    repeated: bool = False
    default: Any = None

    @property
    def key(self) -> str:
        """Name as a Python attribute."""
        return self.name.replace("-", "_")


def text(name: str) -> Callable[[Any], str]:
    """Make a parser of text that is not empty."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name}: got {value!r}; must be text")
        return value

    return parse


def whole(name: str) -> Callable[[Any], int]:
    """Make a parser of whole numbers."""

    def parse(value: Any) -> int:
        try:
            if isinstance(value, (bool, float)):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise ParameterError(f"{name}: got {value!r}; must be a whole number") from None

    return parse


def real(name: str) -> Callable[[Any], float]:
    """Make a parser of real numbers."""

    def parse(value: Any) -> float:
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(f"{name}: got {value!r}; must be a number") from None

    return parse


def switch(name: str) -> Callable[[Any], bool]:
    """Make a parser of true and false."""

    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ParameterError(f"{name}: got {value!r}; must be true or false")
        return value

    return parse


def one_of(name: str, allowed: Sequence[str]) -> Callable[[Any], str]:
    """Make a parser of a choice."""

    def parse(value: Any) -> str:
        if value not in allowed:
            raise ParameterError(f"{name}: got {value!r}; must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def share(name: str) -> Callable[[Any], Fraction]:
    """Make a parser of an exact share of epsilon."""

    def parse(value: Any) -> Fraction:
        return parse_epsilon(value, name)

    return parse


#: Share of epsilon that buys a noisy N: 2 %.
DEFAULT_COUNT_SHARE = Fraction(1, 50)
LARGEST_K = 10_000

K = Setting("k", whole("k"), "number of clusters", "K")
PUBLIC_COUNT = Setting(
    "public-count",
    whole("public-count"),
    "number of rows, if it is no secret; then no budget goes to a noisy one",
    "N",
)
COUNT_SHARE = Setting(
    "count-share",
    share("count-share"),
    "share of epsilon for the noisy number of rows (default: 0.02)",
    "SHARE",
    default=DEFAULT_COUNT_SHARE,
)
RESTARTS = Setting(
    "restarts",
    whole("restarts"),
    "starts of k-means on the synopsis (default: 30)",
    "R",
    default=30,
)
MAX_ITER = Setting(
    "max-iter", whole("max-iter"), "limit on rounds of a start (default: 300)", "T", default=300
)


def by_name(parameters: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Make parameters from the settings' values, each a field of its setting's name."""
    names = [field.name for field in fields(parameters)]
    return lambda values: parameters(**{name: values[name] for name in names})


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(f"{name}: got {value!r}; must be a whole number from {low} to {high}")


def check_count(public_count: int | None, count_share: Fraction) -> None:
    """Check a declared N, and the share that would buy a noisy one."""
    if public_count is not None:
        check_range("public_count", public_count, 0, 1 << 62)
    if not 0 < count_share < 1:
        raise ParameterError(f"count_share: got {float(count_share):g}; must be between 0 and 1")
