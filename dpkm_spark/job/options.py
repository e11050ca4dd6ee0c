"""Options of a job: one table serves the flags, the TOML file and the help text."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from dpkm_spark import __version__
from dpkm_spark.algorithms.algorithm import Algorithm
from dpkm_spark.algorithms.settings import Setting, one_of, switch, text, whole
from dpkm_spark.errors import ParameterError
from dpkm_spark.job.bounds import parse_bounds, parse_columns
from dpkm_spark.job.exits import HELP
from dpkm_spark.privacy.budget import parse_epsilon

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=+@-]{0,199}")


def _seed(value: Any) -> int:
    seed = whole("seed")(value)
    if seed < 0:
        raise ParameterError(f"seed: got {seed}; must be 0 or greater")
    return seed


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


OUTPUT_FORMATS = ("parquet", "csv", "json", "orc")

INPUT_OPTIONS = (
    Setting("input", text("input"), "path or URI of the points, or a table name with "
           "--input-format table; without it an embedded sample is clustered", "PATH"),
    Setting("input-format", text("input-format"), "parquet, csv, json, orc, table (catalog), or "
           "any other that the session knows (default: by the path's ending)", "NAME"),
    Setting("input-option", _key_values, "option for Spark's reader, such as sep=; (repeat)",
           "KEY=VALUE", repeated=True, default={}),
    Setting("input-schema", text("input-schema"), "types of csv or json columns, as DDL; without "
           "it the columns are read as double, and what is no number counts as null", "DDL"),
    Setting("columns", parse_columns, "columns to cluster on, or one array or vector column",
           "X,Y"),
    Setting("bounds", parse_bounds, "public bounds, LOWER:UPPER for all columns or "
           "COLUMN=LOWER:UPPER for one (repeat); never read off the data", "BOUNDS",
           repeated=True),
    Setting("dimensions", whole("dimensions"), "entries of an array or vector column", "D"),
)  # fmt: skip

EPSILON = Setting(
    "epsilon", parse_epsilon, "privacy budget of the whole run, such as 1 or 0.5", "EPS"
)
SEED = Setting("seed", _seed, "repeatable noise for experiments: NOT PRIVATE", "SEED")
EVALUATE = Setting(
    "evaluate",
    switch("evaluate"),
    "also compute the exact mean squared distance on the raw rows: makes the run NOT PRIVATE",
    default=False,
)

OUTPUT_OPTIONS = (
    Setting("output", text("output"), "folder for the results (default: dpkm-out/RUN-ID)", "PATH"),
    Setting("output-format", one_of("output-format", OUTPUT_FORMATS), "parquet, csv, json or orc "
           "(default: parquet)", "NAME", default="parquet"),
    Setting("overwrite", switch("overwrite"), "replace an earlier result", default=False),
    Setting("cluster-column", text("cluster-column"), "name of the cluster number in the output "
           "(default: cluster)", "NAME", default="cluster"),
    Setting("size-column", text("size-column"), "name of the noisy size in the output "
           "(default: noisy_size)", "NAME", default="noisy_size"),
    Setting("no-report", switch("no-report"), "write no report.html", default=False),
    Setting("run-id", _run_id, "name of the run (default: time and a random part)", "ID"),
    Setting("dry-run", switch("dry-run"), "show the budget plan and what to expect; touch no data",
           default=False),
    Setting("quiet", switch("quiet"), "no progress on stderr", default=False),
)  # fmt: skip


def option_groups(algorithm: Algorithm) -> dict[str, tuple[Setting, ...]]:
    """Give the options of a job, by the heading of its help."""
    groups: dict[str, tuple[Setting, ...]] = {"input": INPUT_OPTIONS}
    if algorithm.private:
        groups["privacy"] = (EPSILON, SEED, EVALUATE)
    return {**groups, "clustering": algorithm.settings, "output": OUTPUT_OPTIONS}


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving, and suggests the nearest flag."""

    def error(self, message: str) -> NoReturn:
        raise ParameterError(message)


def parse_options(algorithm: Algorithm, argv: Sequence[str]) -> dict[str, Any]:
    """Read flags and the TOML file; flags win.

    Parameters
    ----------
    algorithm : Algorithm
        Its settings are among the options.
    argv : sequence of str
        Arguments after the script's name.

    Returns
    -------
    dict
        A value, possibly the default, for every option of `option_groups`, and ``config``.

    Raises
    ------
    ParameterError
        If an option is unknown or malformed.
    SystemExit
        After ``--help`` or ``--version``, with code 0.
    """
    groups = option_groups(algorithm)
    options = [option for group in groups.values() for option in group]
    parser = _build_parser(algorithm, groups)
    given, unknown = parser.parse_known_args(_join_values(argv, options))
    if unknown:
        raise ParameterError(_unknown_flag(unknown[0], options))
    flags = vars(given)
    config = flags.pop("config", None)
    raw = {**(_read_toml(config, options) if config else {}), **flags}
    values = {
        option.key: option.parse(raw[option.key]) if option.key in raw else option.default
        for option in options
    }
    values["run_id"] = values["run_id"] or default_run_id()
    return {**values, "config": config}


def default_run_id() -> str:
    """Make a run id of the time and a random part."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def _build_parser(
    algorithm: Algorithm, groups: Mapping[str, Sequence[Setting]]
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"jobs/{algorithm.name}.py",
        # The formatter that keeps the examples' lines wraps no text.
        description=textwrap.fill(algorithm.about, 79),
        epilog=f"{_example(algorithm)}\n{HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"dpkm-spark {__version__}")
    parser.add_argument("--config", metavar="TOML", help="file with the same options; flags win")
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for option in options:
            _add(group, option)
    return parser


def _example(algorithm: Algorithm) -> str:
    script = f"jobs/{algorithm.name}.py"
    price, sample = (" --epsilon 1", ", epsilon = 1") if algorithm.private else ("", "")
    return f"""\
examples:
  ./spark-submit.sh {script}
      cluster the embedded sample: k = 15{sample}
  ./spark-submit.sh {script} --input points.parquet --columns x,y \\
      --bounds=-1:1 --k 15{price} --output out/
      cluster your own points; bounds are public, never read off the data
  spark-submit --master yarn {script} --config nightly.toml
      the same options as TOML; flags win over the file
"""


def _add(group: argparse._ArgumentGroup, option: Setting) -> None:
    flag, text = f"--{option.name}", option.help.replace("%", "%%")
    if not option.metavar:
        group.add_argument(flag, dest=option.key, action="store_true", help=text)
    else:
        action = "append" if option.repeated else "store"
        group.add_argument(flag, dest=option.key, action=action, metavar=option.metavar, help=text)


def _join_values(argv: Sequence[str], options: Sequence[Setting]) -> list[str]:
    """Write ``--flag value`` as ``--flag=value``.

    argparse takes a value such as ``-1e3:1e3`` for a flag, and which ones it does depends on the
    version of Python.
    """
    valued = {f"--{option.name}" for option in options if option.metavar} | {"--config"}
    joined: list[str] = []
    rest = iter(argv)
    for item in rest:
        value = next(rest, None) if item in valued else None
        joined.append(item if value is None else f"{item}={value}")
    return joined


def _unknown_flag(given: str, options: Sequence[Setting]) -> str:
    flag = given.partition("=")[0]
    close = difflib.get_close_matches(flag, [f"--{option.name}" for option in options], n=1)
    guess = f"; did you mean {close[0]}?" if close else "; see --help"
    return f"unknown option {flag!r}{guess}"


def _read_toml(path: str, options: Sequence[Setting]) -> dict[str, Any]:
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"config: cannot read {path!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"config: {path!r} is not TOML: {error}") from None
    known = {option.key for option in options}
    result: dict[str, Any] = {}
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in known:
            close = difflib.get_close_matches(written, [option.name for option in options], n=1)
            guess = f"; did you mean {close[0]!r}?" if close else ""
            raise ParameterError(f"config: {path!r} has an unknown key {written!r}{guess}")
        if key in result:
            raise ParameterError(f"config: {path!r} gives {written!r} twice, with - and with _")
        result[key] = value
    return result
