"""What a person reads in the terminal: the plan of a dry run, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpkm_spark.algorithms.eugkm import EUGKMResult
from dpkm_spark.job.request import Request
from dpkm_spark.report.numbers import coordinate, printable, short, whole

_MOST_ROWS = 30
_MOST_COLUMNS = 8
#: Ns for which a dry run shows the grid when N is not declared.
_EXAMPLE_COUNTS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)

NOT_PRIVATE = "NOT PRIVATE: the noise was seeded, so anyone can subtract it. Do not publish."

ONE_CELL = "The grid has a single cell, so these centroids say nothing: use fewer columns."


def plan_text(request: Request) -> str:
    """Describe what a run would spend and which grid it would use, from public facts alone."""
    parameters, domain = request.parameters, request.domain
    count_share, grid_share = parameters.split(request.epsilon)
    lines = [
        f"Plan of {request.job} on {printable(request.source_name)}; no data was touched.",
        "",
        f"  k = {parameters.k}, d = {domain.dimension}, epsilon = {number(float(request.epsilon))},"
        " neighbours differ by one row",
        "",
        "  query             epsilon (exact)       noise scale",
    ]
    for name, share in (("count", count_share), ("cell_histogram", grid_share)):
        if share:
            exact = f"{float(share):.6g} ({share})"
            lines.append(f"  {name:<16}  {exact:<20}  {number(float(1 / share))}")
    lines += ["", *_grid_lines(request, float(grid_share)), "", "  bounds"]
    for label, low, high in zip(domain.labels, domain.lower, domain.upper, strict=True):
        lines.append(f"    {printable(label)}: {low!r} to {high!r}")
    return "\n".join(lines)


def _grid_lines(request: Request, epsilon: float) -> list[str]:
    rule, known = request.parameters.rule, request.parameters.public_count
    dimension = request.domain.dimension
    if not rule.needs_count:
        counts: Sequence[int] = (0,)
    else:
        counts = _EXAMPLE_COUNTS if known is None else (known,)
    lines = [f"  grid by the rule {rule.name} (at most {rule.max_cells:,} cells)"]
    for count in counts:
        choice = rule.choose(dimension=dimension, count=count, epsilon=epsilon)
        m, size = choice.grid.cells_per_dimension, choice.grid.size
        given = f"N = {count:>13,}: " if rule.needs_count else ""
        capped = f", capped from {choice.wanted:,} a dimension" if choice.capped else ""
        lines.append(f"    {given}{m:,} cells a dimension, {size:,} in all{capped}")
    return lines


def result_text(request: Request, result: EUGKMResult, outputs: Mapping[str, str]) -> str:
    """Describe what a run released."""
    grid = result.grid_choice.grid
    kind = "declared public" if result.count_is_public else "noisy"
    rows = "" if result.count is None else f", {max(result.count, 0):,} rows ({kind})"
    capped = f" (capped from {result.grid_choice.wanted:,})" if result.grid_choice.capped else ""
    lines = [
        "",
        f"{request.parameters.k} clusters of {printable(request.source_name)}"
        f" at epsilon = {number(float(request.epsilon))}{rows},",
        f"from {grid.size:,} noisy cells, {grid.cells_per_dimension:,} a dimension{capped}.",
    ]
    if grid.size == 1 and request.parameters.k > 1:
        lines += ["", ONE_CELL]
    if not result.synopsis.private:
        lines += ["", NOT_PRIVATE]
    lines += ["", *_table(request, result), ""]
    width = max(map(len, outputs), default=0)
    lines += [f"{name:<{width}}  {path}" for name, path in outputs.items()]
    return "\n".join(lines)


def _table(request: Request, result: EUGKMResult) -> list[str]:
    domain = request.domain
    shown = min(domain.dimension, _MOST_COLUMNS)
    header = ["cluster", "noisy size", *[short(label) for label in domain.labels[:shown]]]
    rows = [
        [str(j), whole(result.noisy_sizes[j])]
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
