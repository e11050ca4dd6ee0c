"""Made-up releases and a look at the page as a browser would parse it."""

from __future__ import annotations

from fractions import Fraction
from html.parser import HTMLParser

import numpy as np

from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.transcript import Answer, Query
from dpkm_spark.report.data import ReportData
from dpkm_spark.synopsis import Synopsis

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a$b$ \\frac{",
    "x" * 200,
    "ÄÖ 年齢",
    "עמודה\u202e\x00\n{{ 7*7 }}",
)
VOID = {"meta", "link", "img", "br", "input", "hr", "base", "source", "embed", "area", "col", "wbr"}


def answer(name: str, values: np.ndarray, epsilon: Fraction, private: bool = True, **parameters):
    query = Query(name, parameters, sensitivity=1, epsilon=epsilon)
    scale = float(1 / epsilon)
    return Answer(query, "discrete Laplace", scale, float(epsilon), private, values)


def release(
    d: int = 2,
    k: int = 5,
    m: int = 8,
    *,
    names: tuple[str, ...] | None = None,
    counts: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    domain: Domain | None = None,
    with_synopsis: bool = True,
    **changes: object,
) -> ReportData:
    rng = np.random.default_rng(7)
    domain = domain or Domain.of(names or tuple(f"column {i}" for i in range(d)), (-5.0, 10.0))
    d = domain.dimension
    grid = Grid(d, m)
    if counts is None:
        counts = rng.poisson(20, grid.size) + np.rint(rng.laplace(0, 3, grid.size))
    counts = counts.astype(np.int64)
    if sizes is None:
        sizes = np.sort(rng.uniform(50, 1000, k))[::-1]
    grid_epsilon = Fraction(49, 50)
    answers = (
        answer("count", np.array([int(counts.sum())]), Fraction(1, 50)),
        answer("cell_histogram", counts, grid_epsilon, dimension=d, cells_per_dimension=m),
    )
    fields: dict[str, object] = {
        "title": "EUGkM: private clusters of points.parquet",
        "run_id": "nightly-1",
        "private": True,
        "epsilon": "1",
        "source": "points.parquet",
        "domain": domain,
        "centroids": domain.to_table_units(rng.uniform(-1, 1, (k, d))),
        "noisy_sizes": sizes,
        "synopsis": Synopsis(domain, grid, counts, str(grid_epsilon)) if with_synopsis else None,
        "answers": answers,
        "facts": {"Restarts": "30"},
    }
    return ReportData(**{**fields, **changes})  # type: ignore[arg-type]


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails on tags that do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def values(self, attribute: str) -> list[str]:
        return [a[attribute] or "" for _, a in self.elements if attribute in a]

    def of(self, tag: str, css: str = "") -> list[dict[str, str | None]]:
        return [
            a
            for t, a in self.elements
            if t == tag and (not css or css in (a.get("class") or "").split())
        ]
