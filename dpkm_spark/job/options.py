"""Options of a job: one table serves the flags, the TOML file and the help text."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from dpkm_spark import __version__
from dpkm_spark.errors import ParameterError
from dpkm_spark.job.bounds import parse_bounds, parse_columns
from dpkm_spark.job.exits import HELP
from dpkm_spark.privacy.budget import parse_epsilon

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=+@-]{0,199}")


@dataclass(frozen=True)
class Option:
    """One option.

    Parameters
    ----------
    name : str
        Flag without dashes, and key in TOML.
    parse : callable
        Turns text, or a TOML value, into the option's value.
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


def _text(name: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name}: got {value!r}; must be text")
        return value

    return parse


def _whole(name: str) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        try:
            if isinstance(value, (bool, float)):
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise ParameterError(f"{name}: got {value!r}; must be a whole number") from None

    return parse


def _seed(value: Any) -> int:
    seed = _whole("seed")(value)
    if seed < 0:
        raise ParameterError(f"seed: got {seed}; must be 0 or greater")
    return seed


def _positive(name: str) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(f"{name}: got {value!r}; must be a number") from None

    return parse


def _switch(name: str) -> Callable[[Any], bool]:
    def parse(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ParameterError(f"{name}: got {value!r}; must be true or false")
        return value

    return parse


def _one_of(name: str, allowed: Sequence[str]) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in allowed:
            raise ParameterError(f"{name}: got {value!r}; must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def _key_values(value: Any) -> dict[str, str]:
    """Read ``KEY=VALUE`` strings, or a TOML table."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    result = {}
    for item in value if isinstance(value, list) else [value]:
        key, sign, text = str(item).partition("=")
        if not (key and sign):
            raise ParameterError(f"input-option: got {item!r}; write KEY=VALUE, such as sep=;")
        result[key] = text
    return result


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run_id(value: Any) -> str:
    if not isinstance(value, str) or not _RUN_ID.fullmatch(value):
        raise ParameterError(
            f"run-id: got {value!r}; must be 1 to 200 letters, digits or any of . _ : = + @ -"
        )
    return value


def _share(value: Any) -> Fraction:
    return parse_epsilon(value, "count-share")


OUTPUT_FORMATS = ("parquet", "csv", "json", "orc")

INPUT_OPTIONS = (
    Option("input", _text("input"), "path or URI of the points, or a table name with "
           "--input-format table; without it an embedded sample is clustered", "PATH"),
    Option("input-format", _text("input-format"), "parquet, csv, json, orc, table (catalog), or "
           "any other that the session knows (default: by the path's ending)", "NAME"),
    Option("input-option", _key_values, "option for Spark's reader, such as sep=; (repeat)",
           "KEY=VALUE", repeated=True, default={}),
    Option("input-schema", _text("input-schema"), "types of csv or json columns, as DDL; without "
           "it the columns are read as double, and what is no number counts as null", "DDL"),
    Option("columns", parse_columns, "columns to cluster on, or one array or vector column",
           "X,Y"),
    Option("bounds", parse_bounds, "public bounds, LOWER:UPPER for all columns or "
           "COLUMN=LOWER:UPPER for one (repeat); never read off the data", "BOUNDS",
           repeated=True),
    Option("dimensions", _whole("dimensions"), "entries of an array or vector column", "D"),
)  # fmt: skip

PRIVACY_OPTIONS = (
    Option("epsilon", parse_epsilon, "privacy budget of the whole run, such as 1 or 0.5", "EPS"),
    Option("public-count", _whole("public-count"), "number of rows, if it is no secret; then no "
           "budget goes to a noisy one", "N"),
    Option("count-share", _share, "share of epsilon for the noisy number of rows (default: 0.02)",
           "SHARE", default=Fraction(1, 50)),
    Option("seed", _seed, "repeatable noise for experiments: NOT PRIVATE", "SEED"),
)  # fmt: skip

GRID_OPTIONS = (
    Option("k", _whole("k"), "number of clusters", "K"),
    Option("grid", _one_of("grid", ("eug", "mkm", "fixed")), "rule for the number of cells: eug, "
           "mkm or fixed (default: eug)", "RULE", default="eug"),
    Option("theta", _positive("theta"), "constant of eug (default: 10)", "T", default=10.0),
    Option("cells-per-dimension", _whole("cells-per-dimension"), "cells of --grid fixed", "M"),
    Option("max-cells", _whole("max-cells"), "cap on the number of cells (default: 1048576)",
           "M", default=1 << 20),
    Option("restarts", _whole("restarts"), "starts of k-means on the synopsis (default: 30)", "R",
           default=30),
    Option("max-iter", _whole("max-iter"), "limit on rounds of a start (default: 300)", "T",
           default=300),
)  # fmt: skip

OUTPUT_OPTIONS = (
    Option("output", _text("output"), "folder for the results (default: dpkm-out/RUN-ID)", "PATH"),
    Option("output-format", _one_of("output-format", OUTPUT_FORMATS), "parquet, csv, json or orc "
           "(default: parquet)", "NAME", default="parquet"),
    Option("overwrite", _switch("overwrite"), "replace an earlier result", default=False),
    Option("cluster-column", _text("cluster-column"), "name of the cluster number in the output "
           "(default: cluster)", "NAME", default="cluster"),
    Option("size-column", _text("size-column"), "name of the noisy size in the output "
           "(default: noisy_size)", "NAME", default="noisy_size"),
    Option("no-report", _switch("no-report"), "write no report.html", default=False),
    Option("run-id", _run_id, "name of the run (default: time and a random part)", "ID"),
    Option("dry-run", _switch("dry-run"), "show the budget plan and the grid; touch no data",
           default=False),
    Option("quiet", _switch("quiet"), "no progress on stderr", default=False),
)  # fmt: skip

_GROUPS = (
    ("input", INPUT_OPTIONS),
    ("privacy", PRIVACY_OPTIONS),
    ("clustering", GRID_OPTIONS),
    ("output", OUTPUT_OPTIONS),
)
ALL_OPTIONS = tuple(option for _, group in _GROUPS for option in group)


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving, and suggests the nearest flag."""

    def error(self, message: str) -> NoReturn:
        raise ParameterError(message)


def parse_options(job: str, about: str, example: str, argv: Sequence[str]) -> dict[str, Any]:
    """Read flags and the TOML file; flags win.

    Parameters
    ----------
    job : str
        Name of the job, as in ``jobs/<job>.py``.
    about, example : str
        For the help text.
    argv : sequence of str
        Arguments after the script's name.

    Returns
    -------
    dict
        A value, possibly the default, for every option of `ALL_OPTIONS`, and ``config``.

    Raises
    ------
    ParameterError
        If an option is unknown or malformed.
    SystemExit
        After ``--help`` or ``--version``, with code 0.
    """
    parser = _build_parser(job, about, example)
    given, unknown = parser.parse_known_args(_join_values(argv))
    if unknown:
        raise ParameterError(_unknown_flag(unknown[0]))
    flags = vars(given)
    config = flags.pop("config", None)
    raw = {**(_read_toml(config) if config else {}), **flags}
    values = {
        option.key: option.parse(raw[option.key]) if option.key in raw else option.default
        for option in ALL_OPTIONS
    }
    values["run_id"] = values["run_id"] or default_run_id()
    return {**values, "config": config}


def default_run_id() -> str:
    """Make a run id of the time and a random part."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def _build_parser(job: str, about: str, example: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"jobs/{job}.py",
        description=about,
        epilog=f"{example}\n{HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"dpkm-spark {__version__}")
    parser.add_argument("--config", metavar="TOML", help="file with the same options; flags win")
    for title, options in _GROUPS:
        group = parser.add_argument_group(title)
        for option in options:
            _add(group, option)
    return parser


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    flag, text = f"--{option.name}", option.help.replace("%", "%%")
    if not option.metavar:
        group.add_argument(flag, dest=option.key, action="store_true", help=text)
    else:
        action = "append" if option.repeated else "store"
        group.add_argument(flag, dest=option.key, action=action, metavar=option.metavar, help=text)


def _join_values(argv: Sequence[str]) -> list[str]:
    """Write ``--flag value`` as ``--flag=value``.

    argparse takes a value such as ``-1e3:1e3`` for a flag, and which ones it does depends on the
    version of Python.
    """
    valued = {f"--{option.name}" for option in ALL_OPTIONS if option.metavar} | {"--config"}
    joined: list[str] = []
    rest = iter(argv)
    for item in rest:
        value = next(rest, None) if item in valued else None
        joined.append(item if value is None else f"{item}={value}")
    return joined


def _unknown_flag(given: str) -> str:
    flag = given.partition("=")[0]
    close = difflib.get_close_matches(flag, [f"--{option.name}" for option in ALL_OPTIONS], n=1)
    guess = f"; did you mean {close[0]}?" if close else "; see --help"
    return f"unknown option {flag!r}{guess}"


def _read_toml(path: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"config: cannot read {path!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"config: {path!r} is not TOML: {error}") from None
    known = {option.key for option in ALL_OPTIONS}
    result = {}
    for key, value in table.items():
        if key.replace("-", "_") not in known:
            close = difflib.get_close_matches(key, [option.name for option in ALL_OPTIONS], n=1)
            guess = f"; did you mean {close[0]!r}?" if close else ""
            raise ParameterError(f"config: {path!r} has an unknown key {key!r}{guess}")
        result[key.replace("-", "_")] = value
    return result
