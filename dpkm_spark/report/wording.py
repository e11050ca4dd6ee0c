"""What the run found and what its privacy means, in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report.data import ReportData
from dpkm_spark.report.groups import Group
from dpkm_spark.report.numbers import about, fraction, plain, printable, whole

_QUERY_NAMES = {
    "count": "number of rows",
    "cell_histogram": "number of rows in each cell of the grid",
}
#: Beyond this, e^epsilon is a number that means nothing to anybody.
_HOPELESS = 20.0


@dataclass(frozen=True)
class QueryLine:
    """One query of the technical section."""

    name: str
    detail: str
    numbers: str
    sensitivity: str
    mechanism: str
    scale: str
    epsilon: str


def is_mostly_noise(data: ReportData, deviation: float | None) -> bool:
    """Tell whether the noisy total is no larger than noise alone could make it."""
    return float(np.sum(data.noisy_sizes)) <= 2.0 * (deviation or 0.0)


def headline(data: ReportData, mostly_noise: bool) -> str:
    """Say in one line what was found."""
    found = "1 group" if data.k == 1 else f"{data.k:,} groups"
    if mostly_noise:
        return f"{found}, but too few rows to tell them from noise"
    return f"{found} among about {about(float(np.sum(data.noisy_sizes)))} rows"


def summary(data: ReportData, rows: list[Group], mostly_noise: bool) -> str:
    """Say in a sentence or two what the groups are like."""
    if mostly_noise:
        return (
            "The sizes below are no larger than the privacy noise alone would make them. The "
            "table may be empty or very small, or epsilon too small for it. Do not read "
            "anything into the positions of the groups."
        )
    largest = rows[0]
    if data.k == 1:
        text = f"The group has about {largest.size} rows."
    else:
        text = f"The largest group holds {largest.share} of the rows (about {largest.size})."
    doubtful = sum(row.doubtful for row in rows)
    if doubtful:
        subject = "1 group is" if doubtful == 1 else f"{doubtful} groups are"
        text += f" {subject} no larger than noise could be, and marked in the table."
    return text


def promise(data: ReportData) -> list[str]:
    """Say what the guarantee means to somebody who has never heard of epsilon."""
    epsilon = float(data.budget)
    start = (
        "Random noise was added to every number that was taken from the table, and this report is "
        "made from those noisy numbers only. "
    )
    if epsilon > _HOPELESS:
        return [
            start + f"But epsilon = {plain(epsilon)} is so large, and the noise so small, that "
            "in effect this promises nothing: treat the report as confidential as the table."
        ]
    factor, belief = _three_digits(math.exp(epsilon)), 100.0 / (1.0 + math.exp(-epsilon))
    sure = f"about {belief:.0f} % sure" if belief < 99 else "more than 99 % sure"
    return [
        start + "Whether any single row is in the table or not changes the chance of any outcome "
        f"by at most a factor of {factor}.",
        "In other words: somebody who at first gives even odds that a certain row is in the table "
        f"can be at most {sure} after reading all this, whatever else they know. "
        f"{_judgement(epsilon)}",
    ]


#: What the guarantee leaves open; true of every run.
LIMITS = (
    "It protects single rows. A person with several rows in the table is protected less: with "
    "ten rows, as if epsilon were ten times as large.",
    "It does not hide facts about the groups. Showing them is the purpose, and they may be used to "
    "guess things about people who are like a group, whether or not they are in the table.",
    "Every further release from the same table adds its own epsilon to this one.",
)


def query_line(answer: Answer) -> QueryLine:
    """Describe a query for the technical section."""
    query = answer.query
    settings = [f"{printable(key)} = {value}" for key, value in sorted(query.parameters.items())]
    return QueryLine(
        name=_QUERY_NAMES.get(query.name, printable(query.name).replace("_", " ")),
        detail=", ".join(settings).replace("_", " "),
        numbers=whole(answer.values.size),
        sensitivity=str(query.sensitivity),
        mechanism=printable(answer.mechanism),
        scale=f"{answer.scale:.6g}",
        epsilon=fraction(query.epsilon),
    )


def charged(data: ReportData) -> str:
    """Write the sum of all shares, exactly."""
    return fraction(data.charged) if data.charged else str(Fraction(0))


def _judgement(epsilon: float) -> str:
    if epsilon <= 1:
        return "This is commonly judged strong protection."
    if epsilon <= 5:
        return "This is commonly judged moderate protection."
    return "This is commonly judged weak protection."


def _three_digits(factor: float) -> str:
    return f"{factor:.3g}" if factor < 1000 else about(factor)
