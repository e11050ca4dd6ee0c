"""Made-up releases and a look at the page as a browser would parse it."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np

from dpkm_spark.algorithms.dplloyd import DPLloydParameters, dplloyd
from dpkm_spark.domain import Domain
from dpkm_spark.grid import Grid
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import SeededNoise
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript, Query
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.blocks import BlockPlan
from dpkm_spark.queries.local import LocalEngine
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


def answer(
    name: str,
    values: np.ndarray,
    epsilon: Fraction,
    private: bool = True,
    sensitivity: int = 1,
    **parameters: int,
) -> Answer:
    query = Query(name, parameters, sensitivity, epsilon)
    scale = float(sensitivity / epsilon)
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


def door(d: int = 4, n: int = 4000, epsilon: Fraction = Fraction(1), seed: int = 5):
    """Open a real door to three made-up heaps of rows; its noise repeats itself."""
    rng = np.random.default_rng(seed)
    heaps = rng.uniform(-3, 8, (3, d))
    rows = heaps[rng.integers(0, 3, n)] + rng.normal(0, 0.8, (n, d))
    domain = Domain.of(tuple(f"column {i}" for i in range(d)), (-5.0, 10.0))
    engine = LocalEngine(rows, domain)
    return PrivateTable(engine, Budget(epsilon), MemoryTranscript("run"), SeededNoise(seed))


def as_if_private(table: PrivateTable) -> tuple[Answer, ...]:
    """Give the transcript of seeded noise as that of a private run, so that tests repeat."""
    return tuple(replace(given, private=True) for given in table.transcript.answers)


def dplloyd_release(d: int = 4, k: int = 5, split: str = "equal", **changes: object) -> ReportData:
    """Report on a real run of DPLloyd."""
    table = door(d)
    found = dplloyd(table, DPLloydParameters(k, split=split, rounds=5))
    fields: dict[str, object] = {
        "title": f"DPLloyd: {k} private clusters of points.parquet",
        "domain": table.domain,
        "centroids": found.centroids,
        "sizes": found.noisy_sizes,
        "answers": as_if_private(table),
        "facts": found.facts(),
        "about": "DPLloyd: k-means in rounds, each from noisy sums and sizes of the clusters.",
    }
    return release(d, k, with_synopsis=False, **{**fields, **changes})  # type: ignore[arg-type]


def pgkm_release(d: int = 2, k: int = 5, generations: int = 4, **changes: object) -> ReportData:
    """Report on real selections among candidates that draw closer to each other."""
    table = door(d)
    count = table.noisy_count(Fraction(1, 50))
    rng = np.random.default_rng(3)
    share = table.remaining / generations
    for i in range(generations):
        candidates = rng.uniform(-1, 1, (12, k, d)) / (i + 1)
        chosen = table.private_select(candidates, 3, share)
    fields: dict[str, object] = {
        "title": f"PGkM: {k} private clusters of points.parquet",
        "domain": table.domain,
        "centroids": table.domain.to_table_units(candidates[chosen[0]]),
        "noisy_sizes": None,
        "answers": as_if_private(table),
        "facts": {"Generations": str(generations), "Noisy rows": f"{count:,}"},
        "about": "PGkM: a genetic search that picks the better candidates privately.",
    }
    return release(d, k, with_synopsis=False, **{**fields, **changes})  # type: ignore[arg-type]


def gkm_release(d: int = 2, k: int = 5, blocks: int = 28, **changes: object) -> ReportData:
    """Report on real sample-and-aggregate: half the budget for a range, half for the means."""
    table = door(d)
    bins = table.noisy_marginals(16, Fraction(1, 2))
    starts = np.random.default_rng(4).uniform(-1, 1, (k, d))
    low, high = np.full(d, -1.0), np.full(d, 1.0)
    plan = BlockPlan.of(starts=starts, low=low, high=high, blocks=blocks, key=1234567890123)
    means = table.noisy_block_mean(plan, table.remaining)
    fields: dict[str, object] = {
        "title": f"GkM: {k} private clusters of points.parquet",
        "domain": table.domain,
        "centroids": table.domain.to_table_units(means),
        "noisy_sizes": None,
        "answers": as_if_private(table),
        "facts": {"Blocks": str(blocks), "Bins": str(bins.shape[1])},
        "about": "GkM: k-means on each of many blocks of rows, then the noisy mean of the centres.",
    }
    return release(d, k, with_synopsis=False, **{**fields, **changes})  # type: ignore[arg-type]


def exact_release(d: int = 2, k: int = 4, **changes: object) -> ReportData:
    """Report on a method without noise: no epsilon, no transcript."""
    fields: dict[str, object] = {
        "title": f"Lloyd: {k} clusters of points.parquet, not private",
        "private": False,
        "epsilon": None,
        "answers": (),
        "sizes": np.array([2101.0, 1203.0, 690.0, 0.0, 0.0][:k]),
        "about": "Lloyd: plain k-means on the raw rows.",
    }
    return release(d, k, with_synopsis=False, **{**fields, **changes})  # type: ignore[arg-type]


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


ALLOWED = set(
    """
    html head meta title style body main header footer section figure figcaption div p h1 h2 h3
    strong em b i small bdi br span ul li dl dt dd table thead tbody tr th td
    svg g image circle text line path
    """.split()  # noqa: SIM905
)


def assert_harmless(html: str) -> Page:
    page = Page(html)
    assert page.tags <= ALLOWED
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "data:image/png;base64,").startswith("data:image/png;")
        if "style" in attributes:
            assert re.fullmatch(r"--\w+: [\d.]+", attributes["style"] or "")
    assert not re.search(r"https?:|url\(|@import", html)
    return page
