"""Writing what a run released: centroids, synopsis, run.json and the report."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.algorithms.eugkm import EUGKMResult
from dpkm_spark.errors import ParameterError
from dpkm_spark.job.provenance import versions
from dpkm_spark.job.request import Request
from dpkm_spark.job.show import number
from dpkm_spark.privacy.transcript import Answer, Transcript
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.html import render_html
from dpkm_spark.spark.frames import table_to_frame
from dpkm_spark.spark.write import OutputFolder

_FORMAT_VERSION = 1
#: Below this a synopsis is one file.
_CELLS_PER_FILE = 1 << 18


def write_outputs(
    spark: SparkSession,
    folder: OutputFolder,
    *,
    request: Request,
    result: EUGKMResult,
    transcript: Transcript,
    started: datetime,
) -> dict[str, str]:
    """Write everything a run released; no un-noised value is at hand here.

    Returns
    -------
    dict of str to str
        What was written, and where.

    Raises
    ------
    OutputError
        If something cannot be written.
    """
    kind = request.output_format
    written = {
        "centroids": folder.write_frame("centroids", _centroids(spark, request, result), kind)
    }
    cells = result.synopsis.to_frame(spark)
    files = -(-result.synopsis.grid.size // _CELLS_PER_FILE)
    written["synopsis"] = folder.write_frame("synopsis", cells.coalesce(files), kind)
    record = run_record(request, result, transcript, started, spark.version)
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    written["run"] = folder.write_text("run.json", text)
    if request.report:
        data = _report_data(request, result, transcript, record)
        try:
            written["report"] = folder.write_text("report.html", render_html(data))
        except ParameterError as error:
            # Everything is paid for and written by now: a missing extra must not fail the run.
            written["no report"] = str(error)
    return written


def _centroids(spark: SparkSession, request: Request, result: EUGKMResult) -> DataFrame:
    """One row a cluster: number, the table's own columns in its own units, noisy size."""
    domain = request.domain
    k = len(result.centroids)
    columns: dict[str, Any] = {request.cluster_column: pa.array(range(k), pa.int32())}
    if domain.packed:
        columns[domain.columns[0]] = pa.array(result.centroids.tolist(), pa.list_(pa.float64()))
    else:
        for i, name in enumerate(domain.columns):
            columns[name] = pa.array(result.centroids[:, i])
    columns[request.size_column] = pa.array(result.noisy_sizes)
    return table_to_frame(spark, pa.table(columns)).coalesce(1)


def run_record(
    request: Request,
    result: EUGKMResult,
    transcript: Transcript,
    started: datetime,
    spark_version: str,
) -> dict[str, Any]:
    """Describe the run for `run.json`.

    There is no end time: how long a scan takes depends on the rows.
    """
    domain, parameters, choice = request.domain, request.parameters, result.grid_choice
    return {
        "format_version": _FORMAT_VERSION,
        "job": request.job,
        "run_id": request.run_id,
        "private": result.synopsis.private,
        "started_at": started.isoformat(timespec="seconds"),
        "input": request.public_input(),
        "domain": {
            "columns": list(domain.columns),
            "array": domain.packed,
            "lower": list(domain.lower),
            "upper": list(domain.upper),
        },
        "privacy": {
            "epsilon": str(request.epsilon),
            "delta": "0",
            "neighbours": "one row added or removed",
            "spent": str(sum(answer.query.epsilon for answer in transcript.answers)),
        },
        "queries": [_query_record(answer) for answer in transcript.answers],
        "parameters": {
            "k": parameters.k,
            "grid_rule": parameters.rule.name,
            "theta": parameters.rule.theta,
            "max_cells": parameters.rule.max_cells,
            "restarts": parameters.restarts,
            "max_iter": parameters.max_iter,
            "count_share": str(parameters.count_share),
        },
        "grid": {
            "cells_per_dimension": choice.grid.cells_per_dimension,
            "cells": choice.grid.size,
            "wanted_cells_per_dimension": choice.wanted,
            "capped": choice.capped,
        },
        "result": {
            "count": result.count,
            "count_is_public": result.count_is_public,
            "best_restart": result.best_restart,
            "rounds": result.rounds,
            "converged": result.converged,
            "objective_on_synopsis": result.objective,
        },
        "versions": {**versions(), "spark": spark_version},
    }


def _query_record(answer: Answer) -> dict[str, Any]:
    query = answer.query
    return {
        "query": query.name,
        "parameters": dict(query.parameters),
        "sensitivity": query.sensitivity,
        "mechanism": answer.mechanism,
        "scale": answer.scale,
        "epsilon": str(query.epsilon),
        "epsilon_by_privacy_map": answer.epsilon_used,
        "private": answer.private,
    }


def _report_data(
    request: Request, result: EUGKMResult, transcript: Transcript, record: dict[str, Any]
) -> ReportData:
    choice = result.grid_choice
    facts = {
        "Job": request.job,
        "Started": record["started_at"],
        "Cells": f"{choice.grid.cells_per_dimension:,} a dimension, {choice.grid.size:,} in all"
        + (f", capped from {choice.wanted:,} a dimension" if choice.capped else ""),
        "Grid rule": request.parameters.rule.name,
        "Starts": f"{request.parameters.restarts}, the best chosen on the noisy cells",
        **{f"Version of {name}": text for name, text in record["versions"].items()},
    }
    if result.count is not None:
        kind = "declared public" if result.count_is_public else "noisy"
        facts["Number of rows"] = f"{result.count:,} ({kind})"
    return ReportData(
        title=f"{request.parameters.k} private clusters of {request.source_name}",
        run_id=request.run_id,
        private=result.synopsis.private,
        epsilon=number(float(request.epsilon)),
        source=request.source_name,
        domain=request.domain,
        centroids=result.centroids,
        noisy_sizes=result.noisy_sizes,
        synopsis=result.synopsis,
        answers=transcript.answers,
        facts=facts,
    )
