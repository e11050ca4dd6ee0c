"""Reading an input table so that its schema never depends on the values in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError, InputError, ParameterError
from dpkm_spark.spark.failures import error_condition
from dpkm_spark.spark.frames import quote, select_sql
from dpkm_spark.spark.quiet import wire_logs_off
from dpkm_spark.spark.source import InputSource

#: Formats whose types Spark would infer from the rows, besides csv and json.
_INFERRED = ("xml",)
_NOT_FOUND = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")


def read_input(spark: SparkSession, source: InputSource, domain: Domain) -> DataFrame:
    """Open the input; no row is read.

    Spark infers types of csv and json by reading rows, so one odd value could change a type and
    thereby an error message. Here such files are read as text, and the columns of the domain as
    numbers where they parse and null where they do not, unless a schema is given.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    source : InputSource
        What to read.
    domain : Domain
        The columns that must become numbers.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If the input cannot be found or opened.
    ColumnError
        If a csv's first line names none of the domain's columns.
    ParameterError
        If an option would make a malformed row fail the job.
    """
    kind = source.resolved_format
    _check_source(source, kind)
    declared = source.schema or (_json_schema(domain) if kind == "json" else None)
    try:
        with wire_logs_off():
            frame = _open(spark, source, kind, declared)
            # Connect analyses lazily; asking for the schema makes both kinds fail here.
            names = frame.schema.names
    except Exception as error:
        failure = _explain(error, source, kind)
    else:
        if kind == "csv" and source.schema is None:
            _check_header(source, names, domain.columns)
            if not _set_to_true(source.options, "inferSchema"):
                return _numbers(frame, names, domain.columns)
        return frame
    raise InputError(failure)


def _open(spark: SparkSession, source: InputSource, kind: str, schema: str | None) -> DataFrame:
    if kind == "table":
        return spark.read.options(**source.options).table(source.location)
    reader = spark.read.format(kind).options(**_options(source, kind))
    return (reader.schema(schema) if schema else reader).load(source.location)


def _options(source: InputSource, kind: str) -> dict[str, str]:
    defaults = {"header": "true"} if kind == "csv" and source.schema is None else {}
    if kind == "csv" and source.location.lower().endswith(".tsv"):
        defaults["sep"] = "\t"
    return {**defaults, **source.options}


def _set_to_true(options: Mapping[str, str], key: str, default: str = "false") -> bool:
    """Tell whether an option is on; Spark's reader ignores the case of option names."""
    named = {name.lower(): value.lower() for name, value in options.items()}
    return named.get(key.lower(), default) == "true"


def _check_header(source: InputSource, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a first line that names no wanted column: it may be a row, so it is not quoted."""
    known = {name.lower() for name in names}
    if _set_to_true(source.options, "header", "true") and not any(
        name.lower() in known for name in wanted
    ):
        raise ColumnError(
            f"columns: the first line of {source.shown!r} names none of "
            f"{', '.join(map(repr, wanted))}; if the file has no header, "
            "give --input-option header=false and --input-schema"
        )


def _check_source(source: InputSource, kind: str) -> None:
    if kind in _INFERRED and source.schema is None:
        raise ParameterError(
            f"input-schema: {kind} needs one, or Spark would infer types from the rows"
        )
    if kind == "table" and source.schema is not None:
        raise ParameterError("input-schema: a catalog table has its own types")
    for key, value in source.options.items():
        if key.lower() == "mode" and value.upper() == "FAILFAST":
            raise ParameterError(
                "input-option: mode=FAILFAST would fail the job on one malformed row, and so "
                "reveal it; use PERMISSIVE, which makes such values null"
            )


def _numbers(frame: DataFrame, names: Sequence[str], wanted: Sequence[str]) -> DataFrame:
    """Turn the wanted text columns into doubles: null where the text is no number."""
    loose = {name.lower() for name in wanted}
    items: list[str | tuple[str, str]] = [
        (name, f"try_cast({quote(name)} AS double)") if name.lower() in loose else name
        for name in names
    ]
    return select_sql(frame, items)


def _json_schema(domain: Domain) -> str:
    kind = "array<double>" if domain.packed else "double"
    return ", ".join(f"{quote(name)} {kind}" for name in domain.columns)


def _explain(error: Exception, source: InputSource, kind: str) -> str:
    """Say what could not be opened; Spark's own text is left out, since it may quote a row."""
    condition = error_condition(error) or type(error).__name__
    where = f"input: {source.shown!r} as {kind}"
    if any(condition.startswith(name) for name in _NOT_FOUND):
        return f"{where}: there is no such {'table' if kind == 'table' else 'path'}"
    if condition.startswith("UNABLE_TO_INFER_SCHEMA"):
        return f"{where}: no schema found; is it empty, or of another --input-format?"
    if condition.startswith("COLUMN_ALREADY_EXISTS"):
        return f"{where}: column names differ by case only; use --conf spark.sql.caseSensitive=true"
    if condition.startswith("DATA_SOURCE_NOT_FOUND"):
        return f"{where}: the session knows no such format; is a package missing (--packages)?"
    return f"{where}: Spark cannot open it ({condition})"
