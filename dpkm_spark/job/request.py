"""What a job was asked to do: options put together and checked, before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpkm_spark.algorithms.algorithm import Algorithm, Parameters
from dpkm_spark.domain import Domain
from dpkm_spark.errors import InvariantError, ParameterError
from dpkm_spark.job import sample
from dpkm_spark.job.bounds import make_domain
from dpkm_spark.spark.source import InputSource, redact_uri

_SECRET = re.compile(r"password|passwd|secret|token|credential|key", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """A checked job.

    Parameters
    ----------
    algorithm : Algorithm
        What to run.
    run_id : str
        Name of the run.
    source : InputSource or None
        What to read; None for the embedded sample.
    domain : Domain
        Columns and bounds.
    epsilon : Fraction or None
        The whole budget; None for the methods that are not private.
    parameters : Parameters
        What the algorithm needs.
    seed : int or None
        Of repeatable, not private noise.
    evaluate : bool
        Whether to compute the exact NICV, which is not private.
    output, output_format, cluster_column, size_column : str
        Where results go, how, and under which names.
    overwrite, report, quiet, dry_run : bool
        Switches.
    """

    algorithm: Algorithm
    run_id: str
    source: InputSource | None
    domain: Domain
    epsilon: Fraction | None
    parameters: Parameters
    seed: int | None
    evaluate: bool
    output: str
    output_format: str
    cluster_column: str
    size_column: str
    overwrite: bool
    report: bool
    quiet: bool
    dry_run: bool

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.algorithm.name

    @property
    def budget(self) -> Fraction:
        """The whole epsilon of a private method."""
        if self.epsilon is None:
            raise InvariantError(f"{self.job}: this method has no budget")
        return self.epsilon

    @property
    def source_name(self) -> str:
        """The input in words, without credentials."""
        return "the embedded sample" if self.source is None else self.source.shown

    def public_input(self) -> dict[str, Any]:
        """Give the input for `run.json`, without credentials."""
        if self.source is None:
            return {"sample": True}
        options = {
            key: "(withheld)" if _SECRET.search(f"{key}={value}") else redact_uri(value)
            for key, value in self.source.options.items()
        }
        return {
            "location": self.source.shown,
            "format": self.source.resolved_format,
            "options": options,
            "schema": self.source.schema,
        }


def make_request(algorithm: Algorithm, options: Mapping[str, Any]) -> Request:
    """Check options against each other and fill in the sample's.

    Parameters
    ----------
    algorithm : Algorithm
        What to run.
    options : mapping
        As `parse_options` gives them.

    Returns
    -------
    Request

    Raises
    ------
    ParameterError
        If something is missing or does not fit together.
    """
    source, domain = _data_part(options)
    wanted = ["k", "epsilon"] if algorithm.private else ["k"]
    values = {**options, **_sample_defaults(options, wanted)} if source is None else options
    for name in wanted:
        if values[name] is None:
            raise ParameterError(f"{name}: missing; give --{name}={_EXAMPLES[name]}, for example")
    request = Request(
        algorithm=algorithm,
        run_id=options["run_id"],
        source=source,
        domain=domain,
        epsilon=values.get("epsilon"),
        parameters=algorithm.configure(values),
        seed=options.get("seed"),
        evaluate=options.get("evaluate", False),
        output=options["output"] or f"dpkm-out/{options['run_id']}",
        output_format=options["output_format"],
        cluster_column=options["cluster_column"],
        size_column=options["size_column"],
        overwrite=options["overwrite"],
        report=not options["no_report"],
        quiet=options["quiet"],
        dry_run=options["dry_run"],
    )
    _check_names(request)
    return request


_EXAMPLES = {"k": "5", "epsilon": "1"}


def _sample_defaults(options: Mapping[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Give what the embedded sample fills in where the user gave nothing."""
    defaults = {"k": sample.CLUSTERS, "epsilon": Fraction(1)}
    return {name: defaults[name] for name in wanted if options[name] is None}


def _data_part(options: Mapping[str, Any]) -> tuple[InputSource | None, Domain]:
    if options["input"] is None:
        for name in ("columns", "bounds", "dimensions", "input_schema"):
            if options[name] is not None:
                raise ParameterError(
                    f"{name.replace('_', '-')}: goes with --input, which is missing"
                )
        return None, Domain.of(sample.COLUMNS, sample.BOUNDS)
    if options["bounds"] is None:
        raise ParameterError("bounds: missing; give --bounds=-1:1, for example")
    source = InputSource(
        options["input"],
        options["input_format"] or "",
        options["input_option"],
        options["input_schema"],
    )
    return source, make_domain(options["columns"], options["bounds"], options["dimensions"])


def _check_names(request: Request) -> None:
    """Refuse output columns that would clash, as Spark compares names: without regard to case."""
    own = {"--cluster-column": request.cluster_column, "--size-column": request.size_column}
    taken: dict[str, str] = {name.lower(): name for name in request.domain.columns}
    for flag, name in own.items():
        if name.lower() in taken:
            raise ParameterError(
                f"{flag[2:]}: {name!r} clashes with the column {taken[name.lower()]!r}; "
                f"rename it with {flag}"
            )
        taken[name.lower()] = name
    if request.domain.packed and request.output_format == "csv":
        raise ParameterError("output-format: csv cannot hold an array column; use parquet or json")
