"""Writing what a run released: centroids, synopsis, run.json and the report."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.errors import ParameterError
from dpkm_spark.job.provenance import versions
from dpkm_spark.job.release import Release
from dpkm_spark.job.request import Request
from dpkm_spark.job.show import number
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.html import render_html
from dpkm_spark.spark.frames import table_to_frame
from dpkm_spark.spark.write import OutputFolder

#: 2: what a method found stands under ``result``, its grid among it; ``private`` has reasons.
_FORMAT_VERSION = 2
#: Below this a synopsis is one file.
_CELLS_PER_FILE = 1 << 18


def parts(request: Request) -> set[str]:
    """Give the names of the outputs that a run is sure to write."""
    names = {"centroids", "run.json"}
    names |= {"report.html"} if request.report else set()
    return names | ({"synopsis"} if request.algorithm.synopsis else set())


def write_outputs(spark: SparkSession, folder: OutputFolder, release: Release) -> dict[str, str]:
    """Write everything a run released; no un-noised value is at hand here, but by ``--evaluate``.

    Returns
    -------
    dict of str to str
        What was written, and where.

    Raises
    ------
    OutputError
        If something cannot be written.
    """
    kind, synopsis = release.request.output_format, release.clustering.synopsis
    written = {"centroids": folder.write_frame("centroids", _centroids(spark, release), kind)}
    if synopsis is not None:
        files = -(-synopsis.grid.size // _CELLS_PER_FILE)
        cells = synopsis.to_frame(spark).coalesce(files)
        written["synopsis"] = folder.write_frame("synopsis", cells, kind)
    record = run_record(release)
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    written["run"] = folder.write_text("run.json", text)
    if release.request.report:
        data = _report_data(release, record)
        try:
            written["report"] = folder.write_text("report.html", render_html(data))
        except ParameterError as error:
            # Everything is paid for and written by now: a missing extra must not fail the run.
            written["no report"] = str(error)
    return written


def _centroids(spark: SparkSession, release: Release) -> DataFrame:
    """One row a cluster: number, the table's own columns in its own units, noisy size or null."""
    request, result = release.request, release.clustering
    domain, k = request.domain, len(result.centroids)
    columns: dict[str, Any] = {request.cluster_column: pa.array(range(k), pa.int32())}
    if domain.packed:
        columns[domain.columns[0]] = pa.array(result.centroids.tolist(), pa.list_(pa.float64()))
    else:
        for i, name in enumerate(domain.columns):
            columns[name] = pa.array(result.centroids[:, i])
    sizes = [None] * k if result.noisy_sizes is None else result.noisy_sizes
    columns[request.size_column] = pa.array(sizes, pa.float64())
    return table_to_frame(spark, pa.table(columns)).coalesce(1)


def run_record(release: Release) -> dict[str, Any]:
    """Describe the run for `run.json`.

    There is no end time: how long a scan takes depends on the rows.
    """
    request, domain = release.request, release.request.domain
    record = {
        "format_version": _FORMAT_VERSION,
        "job": request.job,
        "run_id": request.run_id,
        "private": not release.why_not_private,
        "why_not_private": list(release.why_not_private),
        "started_at": release.started.isoformat(timespec="seconds"),
        "input": request.public_input(),
        "domain": {
            "columns": list(domain.columns),
            "array": domain.packed,
            "lower": list(domain.lower),
            "upper": list(domain.upper),
        },
        "privacy": _privacy_record(release),
        "queries": [_query_record(answer) for answer in release.answers],
        "parameters": request.parameters.record(),
        "result": release.clustering.record(),
        "versions": {**versions(), "spark": release.spark_version},
    }
    if request.evaluate:
        record["evaluation"] = {
            "private": False,
            # NaN, of an empty table, is no JSON.
            "nicv": release.exact_nicv if release.exact_nicv == release.exact_nicv else None,
            "failure": release.evaluation_failure or None,
        }
    return record


def _privacy_record(release: Release) -> dict[str, str] | None:
    """Say what was promised and spent; nothing for a method without noise."""
    if release.request.epsilon is None:
        return None
    return {
        "epsilon": str(release.request.epsilon),
        "delta": "0",
        "neighbours": "one row added or removed",
        "spent": str(sum(answer.query.epsilon for answer in release.answers)),
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


def _report_data(release: Release, record: dict[str, Any]) -> ReportData:
    request, result = release.request, release.clustering
    facts = {
        "Job": request.job,
        "Started": record["started_at"],
        "How": result.how,
        **result.facts(),
        **{f"Version of {name}": text for name, text in record["versions"].items()},
    }
    public = result.count_is_public and result.count is not None
    kind = "private clusters" if not release.why_not_private else "clusters"
    evaluated = release.exact_nicv is not None
    return ReportData(
        title=f"{request.algorithm.title}: {request.parameters.k} {kind} of {request.source_name}",
        run_id=request.run_id,
        private=result.private,
        epsilon=None if request.epsilon is None else number(float(request.epsilon)),
        source=request.source_name,
        domain=request.domain,
        centroids=result.centroids,
        noisy_sizes=result.noisy_sizes,
        synopsis=result.synopsis,
        answers=release.answers,
        facts=facts,
        count=f"{result.count:,}" if public else "",
        why_not_private=tuple(_sentence(reason) for reason in release.why_not_private),
        evaluation={"Exact mean squared distance": f"{release.exact_nicv:.6g}"}
        if evaluated
        else {},
        warnings=tuple(result.warnings()),
        about=request.algorithm.about,
    )


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."
