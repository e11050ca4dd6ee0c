"""What a job was asked to do: options put together and checked, before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpkm_spark.algorithms.eugkm import EUGKMParameters
from dpkm_spark.domain import Domain
from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import GridRule
from dpkm_spark.job import sample
from dpkm_spark.job.bounds import make_domain
from dpkm_spark.spark.source import InputSource, redact_uri

_SECRET = re.compile(r"password|passwd|secret|token|credential|key", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """A checked job.

    Parameters
    ----------
    job : str
        Name of the job.
    run_id : str
        Name of the run.
    source : InputSource or None
        What to read; None for the embedded sample.
    domain : Domain
        Columns and bounds.
    epsilon : Fraction
        The whole budget.
    parameters : EUGKMParameters
        What the algorithm needs.
    seed : int or None
        Of repeatable, not private noise.
    output, output_format, cluster_column, size_column : str
        Where results go, how, and under which names.
    overwrite, report, quiet, dry_run : bool
        Switches.
    """

    job: str
    run_id: str
    source: InputSource | None
    domain: Domain
    epsilon: Fraction
    parameters: EUGKMParameters
    seed: int | None
    output: str
    output_format: str
    cluster_column: str
    size_column: str
    overwrite: bool
    report: bool
    quiet: bool
    dry_run: bool

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


def make_request(job: str, options: Mapping[str, Any]) -> Request:
    """Check options against each other and fill in the sample's.

    Parameters
    ----------
    job : str
        Name of the job.
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
    source, domain, k, epsilon = _data_part(options)
    if options["cells_per_dimension"] is not None and options["grid"] != "fixed":
        raise ParameterError("cells-per-dimension: goes with --grid fixed")
    rule = GridRule(
        name=options["grid"],
        theta=options["theta"],
        cells_per_dimension=options["cells_per_dimension"],
        max_cells=options["max_cells"],
    )
    parameters = EUGKMParameters(
        k=k,
        rule=rule,
        public_count=options["public_count"],
        count_share=options["count_share"],
        restarts=options["restarts"],
        max_iter=options["max_iter"],
    )
    request = Request(
        job=job,
        run_id=options["run_id"],
        source=source,
        domain=domain,
        epsilon=epsilon,
        parameters=parameters,
        seed=options["seed"],
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


def _data_part(
    options: Mapping[str, Any],
) -> tuple[InputSource | None, Domain, int, Fraction]:
    if options["input"] is None:
        for name in ("columns", "bounds", "dimensions", "input_schema"):
            if options[name] is not None:
                raise ParameterError(
                    f"{name.replace('_', '-')}: goes with --input, which is missing"
                )
        domain = Domain.of(sample.COLUMNS, sample.BOUNDS)
        k = sample.CLUSTERS if options["k"] is None else options["k"]
        return None, domain, k, options["epsilon"] or Fraction(1)
    for name, example in (("bounds", "-1:1"), ("k", "5"), ("epsilon", "1")):
        if options[name] is None:
            raise ParameterError(f"{name}: missing; give --{name}={example}, for example")
    source = InputSource(
        options["input"],
        options["input_format"] or "",
        options["input_option"],
        options["input_schema"],
    )
    domain = make_domain(options["columns"], options["bounds"], options["dimensions"])
    return source, domain, options["k"], options["epsilon"]


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
