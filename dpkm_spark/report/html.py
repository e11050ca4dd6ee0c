"""Rendering: values in, one HTML text out. Nothing is read from the table, the clock or the net."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dpkm_spark.report import queries, wording
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.groups import groups
from dpkm_spark.report.noise import row_count, size_noise
from dpkm_spark.report.numbers import plain, printable, short
from dpkm_spark.report.panels import (
    MOST_MARKERS,
    PAIRED_COLUMNS,
    drawn_columns,
    numbers_are_left_out,
    panels,
)
from dpkm_spark.report.raster import missing_extra

if TYPE_CHECKING:
    from jinja2 import Environment


def render_html(data: ReportData) -> str:
    """Render a report as one self-contained HTML page.

    Every text is escaped. The page has no script and loads nothing; its own content policy forbids
    both. The same data give the same page.

    Parameters
    ----------
    data : ReportData
        Released values and public settings.

    Returns
    -------
    str
        The page, to be written as UTF-8.

    Raises
    ------
    ParameterError
        If the ``report`` extra is not installed.
    """
    template = _environment().get_template("template.html")
    return template.render(**_context(data))


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415
    except ImportError:
        raise missing_extra() from None
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_read),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    environment.filters["short"] = short
    return environment


def _read(name: str) -> str:
    """Read a part of the page; this also works where the package is a zip, as on a cluster."""
    return files("dpkm_spark.report").joinpath(name).read_text(encoding="utf-8")


def _context(data: ReportData) -> dict[str, Any]:
    noise = size_noise(data)
    rows = row_count(data, noise)
    table = groups(data, None if noise is None else noise.each)
    return {
        "data": data,
        "headline": wording.headline(data, rows),
        "summary": wording.summary(data, rows, table),
        "rows": rows,
        "table": table,
        "noise": noise,
        "has_sizes": data.noisy_sizes is not None,
        "has_noise": noise is not None and noise.each is not None,
        "table_notes": wording.table_notes(data, noise),
        "columns": _columns(data),
        "grid": _grid(data),
        **_pictures(data),
        **_privacy(data),
    }


def _pictures(data: ReportData) -> dict[str, Any]:
    drawn = panels(data)
    return {
        "panels": drawn,
        "left_out": numbers_are_left_out(drawn),
        "letters": max(panel.tick_width for panel in drawn),
        "most_markers": MOST_MARKERS,
        "paired": PAIRED_COLUMNS,
        "drawn": [printable(data.domain.labels[i]) for i in drawn_columns(data)],
        "numbered": wording.numbered(data, areas=True),
        "numbered_lines": wording.numbered(data, areas=False),
        "density": wording.density(data),
    }


def _privacy(data: ReportData) -> dict[str, Any]:
    lines = queries.query_lines(data)
    return {
        "reasons": wording.reasons(data),
        "lacks": wording.lacks(data),
        "promise": wording.promise(data),
        "no_promise": wording.no_promise(data),
        "limits": wording.limits(data),
        "technical": wording.technical(data),
        "queries": lines,
        "repeated": any(line.times > 1 for line in lines),
        "queries_note": queries.note(data),
        "charged": queries.charged(data),
    }


def _columns(data: ReportData) -> list[tuple[str, str, str]]:
    domain = data.domain
    return [
        (printable(label), plain(low), plain(high))
        for label, low, high in zip(domain.labels, domain.lower, domain.upper, strict=True)
    ]


def _grid(data: ReportData) -> str:
    if data.synopsis is None:
        return ""
    grid = data.synopsis.grid
    return f"{grid.cells_per_dimension:,}^{grid.dimension} = {grid.size:,} cells"
