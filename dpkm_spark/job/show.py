"""What a person reads in the terminal: the plan of a dry run, and the result."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from dpkm_spark.algorithms.algorithm import PlannedQuery
from dpkm_spark.analysis import Prediction, predicted_errors
from dpkm_spark.job import sample
from dpkm_spark.job.release import Release
from dpkm_spark.job.request import Request
from dpkm_spark.report.numbers import coordinate, fraction, printable, short, whole

_MOST_ROWS = 30
_MOST_COLUMNS = 8
#: What the text of a plan is wrapped to.
_WIDTH = 80
#: Ns that a dry run looks at when N is not declared.
_EXAMPLE_COUNTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
#: The one among them that errors are predicted for.
_EXAMPLE_COUNT = 100_000


def plan_text(request: Request) -> str:
    """Describe what a run would spend and what to expect of it, from public facts alone."""
    domain = request.domain
    epsilon = "" if request.epsilon is None else f", epsilon = {number(float(request.epsilon))}"
    lines = [
        f"Plan of {request.job} on {printable(request.source_name)}; no data was touched.",
        "",
        f"  k = {request.parameters.k}, d = {domain.dimension}{epsilon}"
        + (", neighbours differ by one row" if epsilon else ""),
        "",
    ]
    if request.epsilon is None:
        lines += ["  NOT PRIVATE: this method asks for exact answers, which cost no epsilon.", ""]
    else:
        lines += [*_query_lines(request), *_outlook_lines(request), *_error_lines(request)]
    lines.append("  bounds")
    for label, low, high in zip(domain.labels, domain.lower, domain.upper, strict=True):
        lines.append(f"    {printable(label)}: {low!r} to {high!r}")
    return "\n".join(lines)


def _query_lines(request: Request) -> list[str]:
    """Give the queries with their shares; where they depend on N, those of an example."""
    plan = _plan(request, _count(request))
    lines = [f"  {'query':<16} {'times':>5}  {'epsilon of each (exact)':<28}  noise scale"]
    for query in plan:
        share = fraction(query.epsilon)
        scale = number(query.sensitivity / float(query.epsilon))
        lines.append(f"  {query.name:<16} {query.times:>5}  {share:<28}  {scale}")
    if request.parameters.public_count is None and any(
        _plan(request, count) != plan for count in _EXAMPLE_COUNTS
    ):
        lines.append(f"  These are for N = {_count(request):,}: they depend on the number of rows.")
    return [*lines, ""]


def _plan(request: Request, count: int) -> tuple[PlannedQuery, ...]:
    return request.parameters.plan(request.budget, request.domain.dimension, count)


def _outlook_lines(request: Request) -> list[str]:
    """Say what the method does for the N declared, or for some."""
    known = request.parameters.public_count
    counts: Sequence[int] = _EXAMPLE_COUNTS if known is None else (known,)
    outlooks = [
        request.algorithm.outlook(
            request.parameters, request.budget, request.domain.dimension, count
        )
        for count in counts
    ]
    if not any(outlooks):
        return []
    if len(set(outlooks)) == 1:
        return [*_wrapped(f"  {outlooks[0]}", 2), ""]
    lines = ["  by the number of rows N"]
    for n, text in zip(counts, outlooks, strict=True):
        start = f"    N = {n:>11,}: "
        lines += _wrapped(start + text, len(start))
    return [*lines, ""]


def _error_lines(request: Request) -> list[str]:
    """Predict the error of every method, so that one can be chosen before paying."""
    count = _count(request)
    declared = request.parameters.public_count is not None or request.source is None
    rows = predicted_errors(
        count, request.domain.dimension, request.parameters.k, float(request.budget)
    )
    lines = [
        f"  predicted error of each method, with default settings, at N = {count:,}",
        *([] if declared else ["  (N is an example: declare yours by --public-count)"]),
        "  (mean squared, of a centroid, columns scaled to [-1, 1]; see docs/analysis.md)",
        f"  {'method':<23}  {'by noise':>9}  {'bias up to':>10}",
    ]
    for row in rows:
        start = f"  {row.method:<23}  {_error(row.noise):>9}  {_bias(row):>10}  "
        if len(start + row.note) <= _WIDTH:
            lines.append(f"{start}{row.note}".rstrip())
        else:
            lines += [start.rstrip(), *_wrapped(f"      {row.note}", 6)]
    return [*lines, ""]


def _wrapped(line: str, indent: int) -> list[str]:
    """Wrap a line to the width of a terminal; flags stay in one piece."""
    below = " " * indent
    return textwrap.wrap(line, _WIDTH, subsequent_indent=below, break_on_hyphens=False)


def _error(value: float | None) -> str:
    return "?" if value is None else f"{value:.2g}"


def _bias(row: Prediction) -> str:
    return "" if row.bias is None else f"{row.bias:.2g}"


def _count(request: Request) -> int:
    """Give N as declared; the sample's, which everybody knows; or an example."""
    known = request.parameters.public_count
    if known is None:
        return sample.ROWS if request.source is None else _EXAMPLE_COUNT
    return known


def result_text(release: Release, outputs: Mapping[str, str]) -> str:
    """Describe what a run released."""
    request, result = release.request, release.clustering
    price = "" if request.epsilon is None else f" at epsilon = {number(float(request.epsilon))}"
    k = request.parameters.k
    lines = [
        "",
        f"{k} cluster{'s' if k > 1 else ''} of {printable(request.source_name)}"
        f"{price}{_rows_text(release)},",
        f"{result.how}.",
    ]
    for warning in result.warnings():
        lines += ["", warning]
    if release.why_not_private:
        reasons = "; ".join(release.why_not_private)
        lines += ["", f"NOT PRIVATE: {reasons}. Do not publish."]
    lines += ["", *_table(release), ""]
    if release.exact_nicv is not None:
        lines += [f"exact mean squared distance (NOT PRIVATE): {release.exact_nicv:.6g}", ""]
    if release.evaluation_failure:
        lines += [f"not evaluated: {release.evaluation_failure}", ""]
    width = max(map(len, outputs), default=0)
    lines += [f"{name:<{width}}  {path}" for name, path in outputs.items()]
    return "\n".join(lines)


def _rows_text(release: Release) -> str:
    """Give the number of rows that the method knows."""
    result = release.clustering
    if result.count is None:
        return ""
    kind = "declared public" if result.count_is_public else "noisy"
    return f", {max(result.count, 0):,} rows ({kind})"


def _table(release: Release) -> list[str]:
    domain, result = release.request.domain, release.clustering
    shown = min(domain.dimension, _MOST_COLUMNS)
    sizes = result.noisy_sizes
    size_header = [] if sizes is None else ["noisy size" if release.answers else "size"]
    header = ["cluster", *size_header, *[short(label) for label in domain.labels[:shown]]]
    rows = [
        [str(j), *([] if sizes is None else [whole(sizes[j])])]
        + [
            coordinate(result.centroids[j, i], domain.lower[i], domain.upper[i])
            for i in range(shown)
        ]
        for j in range(min(len(result.centroids), _MOST_ROWS))
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in [header, *rows]
    ]
    hidden_rows, hidden = len(result.centroids) - len(rows), domain.dimension - shown
    if hidden_rows or hidden:
        lines.append(f"  ... {hidden_rows} more clusters, {hidden} more columns in the output")
    return lines


def number(value: float) -> str:
    """Write a number briefly."""
    return f"{value:.6g}"
