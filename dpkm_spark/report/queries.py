"""The table of queries: what was asked, and what a reader needs to check its price by hand.

The door computes in integers. Here its numbers stand in the units that the paper thinks in, rows
and coordinates scaled to [-1, 1], so that scale = sensitivity / epsilon is (d + 1) t / epsilon for
t rounds of DPLloyd.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from dpkm_spark.domain import SCALE
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.numbers import fraction, printable, whole

_NAMES = {
    "count": "number of rows",
    "cell_histogram": "number of rows in each cell of the grid",
    "marginals": "number of rows in each bin of each column",
    "cluster_sums": "sum and number of the rows of each cluster",
    "private_select": "choice of the best sets of centres",
    "block_sums": "sum of the centres found in all blocks",
}
#: Answers in units of 1 / SCALE: of a normalised coordinate, of its square, or of the width of the
#: range that the centres of blocks are clamped to.
_SCALED = ("cluster_sums", "private_select", "block_sums")
#: Ends of names of parameters that stand for an array of public points or seed a hash: they are
#: compared when a run is replayed, and tell a reader nothing.
_INTERNAL = ("digest", "key")
_LONGEST_SHARE = 20


@dataclass(frozen=True)
class QueryLine:
    """One query, or several equal ones, of the technical section.

    Parameters
    ----------
    name, detail : str
        What was asked, and its public parameters.
    times : int
        How often it was asked, one after the other.
    numbers, sensitivity, mechanism : str
        Of one of them; a range where they differ.
    scale : tuple of str
        Its noise scale, or one for each part of the answer.
    epsilon : str
        The exact cost of all of them together.
    """

    name: str
    detail: str
    times: int
    numbers: str
    sensitivity: str
    mechanism: str
    scale: tuple[str, ...]
    epsilon: str


def query_lines(data: ReportData) -> list[QueryLine]:
    """Describe the transcript; queries in a row that differ in no public parameter are one line."""
    return [_line(list(alike)) for _, alike in groupby(data.answers, key=_kind)]


def charged(data: ReportData) -> str:
    """Write the sum of all shares, exactly."""
    return fraction(data.charged) if data.charged else str(Fraction(0))


def note(data: ReportData) -> str:
    """Say how to check the table, and in which units it stands."""
    names = {answer.query.name for answer in data.answers}
    text = "Scale = sensitivity / epsilon of one query, rounded up"
    if "private_select" in names:
        text += "; a choice of several has an equal part of that epsilon for each"
    text += ". "
    if names & set(_SCALED):
        text += (
            "Columns are scaled so that their bounds become -1 and 1. Sums of them are whole "
            "numbers of steps of 2^-20, and so is their noise; the table gives both in whole "
            "units. "
        )
    if "block_sums" in names:
        text += (
            "The centres of a block count in widths of the range that they are clamped to: times "
            "max - min, the scale is that of a column."
        )
    return text.rstrip()


def _kind(answer: Answer) -> tuple[object, ...]:
    query = answer.query
    settings = tuple(sorted(_settings(answer).items()))
    return query.name, settings, query.epsilon, answer.mechanism, answer.values.size


def _settings(answer: Answer) -> dict[str, int]:
    parameters = answer.query.parameters
    return {key: value for key, value in parameters.items() if not key.endswith(_INTERNAL)}


def _line(alike: Sequence[Answer]) -> QueryLine:
    first, times = alike[0], len(alike)
    name, share = first.query.name, first.query.epsilon
    unit = SCALE if name in _SCALED else 1
    return QueryLine(
        name=_NAMES.get(name, printable(name).replace("_", " ")),
        detail="; ".join(_details(first)),
        times=times,
        numbers=whole(first.values.size),
        sensitivity=_range(answer.query.sensitivity / unit for answer in alike),
        mechanism=printable(first.mechanism),
        scale=_scale(alike, unit),
        epsilon=_epsilon(share, times),
    )


def _details(answer: Answer) -> Iterable[str]:
    for key, value in sorted(_settings(answer).items()):
        if key == "count_weight":
            if value != SCALE:
                yield f"weight of the number = {value / SCALE:.6g}"
        elif key == "chosen":
            yield "1 choice" if value == 1 else f"{value} choices, each for 1/{value} of epsilon"
        else:
            # A report must not fail a run that is paid for, so any value will do here.
            shown = f"{value:,}" if isinstance(value, int) else printable(str(value))
            yield f"{printable(key).replace('_', ' ')} = {shown}"


def _scale(alike: Sequence[Answer], unit: int) -> tuple[str, ...]:
    scales = [answer.scale for answer in alike]
    query = alike[0].query
    sums = _range(scale / unit for scale in scales)
    # Sums and numbers share one noise, but a row weighs less or more in a number.
    weight = query.parameters.get("count_weight", unit)
    if query.name == "cluster_sums" and weight != unit:
        numbers = _range(scale / weight for scale in scales)
        return f"{sums} on sums", f"{numbers} on numbers"
    blocks = query.parameters.get("blocks", 1)
    if query.name == "block_sums" and blocks != 1:
        means = _range(scale / unit / blocks for scale in scales)
        return f"{sums} on sums", f"{means} on means"
    return (sums,)


def _range(values: Iterable[float]) -> str:
    """Write one number, or from the least to the largest."""
    ordered = sorted(values)
    low, high = f"{ordered[0]:.6g}", f"{ordered[-1]:.6g}"
    return low if low == high else f"{low} to {high}"


def _epsilon(share: Fraction, times: int) -> str:
    total = fraction(times * share)
    if times == 1:
        return total
    exact = str(share)
    each = exact if len(exact) <= _LONGEST_SHARE else f"{float(share):.6g}"
    return f"{times} × {each} {'' if total.startswith('≈') else '= '}{total}"
