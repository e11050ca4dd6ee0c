"""What the run found and what its privacy means, in plain words."""

from __future__ import annotations

import math

from dpkm_spark.report.data import ReportData
from dpkm_spark.report.groups import MOST_ROWS, Group
from dpkm_spark.report.noise import RowCount, SizeNoise
from dpkm_spark.report.numbers import about, plain, printable

#: Beyond this, e^epsilon is a number that means nothing to anybody.
_HOPELESS = 20.0


def headline(data: ReportData, rows: RowCount | None) -> str:
    """Say in one line what was found."""
    found = "1 group" if data.k == 1 else f"{data.k:,} groups"
    if rows is None:
        return f"{found} of rows"
    if rows.says_little:
        return f"{found}, but " + (
            "too few rows to tell them from noise" if rows.noisy else "no rows"
        )
    return f"{found} among {rows.rough} rows"


def summary(data: ReportData, rows: RowCount | None, table: list[Group]) -> str:
    """Say in a sentence or two what the groups are like."""
    if rows is not None and rows.says_little:
        return _nothing_found(data, rows)
    if data.noisy_sizes is None:
        what = "the centre of the group" if data.k == 1 else "the centres of the groups"
        return f"This method gives {what}, but no sizes."
    largest, rough = table[0], "" if data.exact else "about "
    if data.k == 1:
        text = f"The group has {rough}{largest.size} rows."
    else:
        text = f"The largest group holds {largest.share} of the rows ({rough}{largest.size})."
    doubtful = sum(row.doubtful for row in table)
    if doubtful:
        subject = "1 group is" if doubtful == 1 else f"{doubtful} groups are"
        text += f" {subject} no larger than noise could be, and marked in the table."
    return text


def _nothing_found(data: ReportData, rows: RowCount) -> str:
    if not rows.noisy:
        return "No row lies in all the columns, so the positions of the groups mean nothing."
    what = "The number of rows is" if data.noisy_sizes is None else "The sizes below are"
    return (
        f"{what} no larger than the privacy noise alone would make "
        f"{'it' if data.noisy_sizes is None else 'them'}. The table may be empty or very small, or "
        "epsilon too small for it. Do not read anything into the positions of the groups."
    )


def numbered(data: ReportData, *, areas: bool) -> str:
    """Say how the centres in a picture are numbered and sized, as the end of a sentence."""
    if data.k == 1:
        return ""
    if data.noisy_sizes is None:
        return ", numbered from 0, as in the centroids table"
    text = ", numbered from 0, the largest, as in the centroids table"
    return text + ("; their area follows the size of the group" if areas else "")


def density(data: ReportData) -> str:
    """Say what the pictures show of the rows."""
    if data.synopsis is not None:
        return (
            "All counts are noisy, so some are below zero; those are drawn as zero. Numbers "
            "elsewhere in this report are not cut."
        )
    sizes = " and sizes" if data.noisy_sizes is not None else ""
    axes = "axis spans" if data.domain.dimension == 1 else "axes span"
    return (
        f"This method gives no density of the rows, only the centres{sizes} of the groups. "
        f"The {axes} the public bounds."
    )


def table_notes(data: ReportData, noise: SizeNoise | None) -> list[str]:
    """Say how to read the table of groups."""
    sized, notes = data.noisy_sizes is not None, []
    if data.k > MOST_ROWS:
        which = f"{MOST_ROWS} largest" if sized else f"first {MOST_ROWS}"
        notes.append(
            f"The {which} of {data.k:,} groups; the run's table of centroids has all of them."
        )
    notes.append(
        "The centre of a group is given in the table's own units; a cell is tinted from pale, at "
        "the column's lower bound, to full, at its upper bound."
    )
    if sized and not data.exact:
        notes.append("Shares count sizes below zero as zero.")
    if noise is not None and noise.of_last_round:
        notes.append("Sizes were counted around the centres as they were before the last round.")
    return notes


def promise(data: ReportData) -> list[str]:
    """Say what the guarantee means to somebody who has never heard of epsilon."""
    epsilon, unit = float(data.budget), printable(data.unit)
    start = (
        "Random noise went into everything that was taken from the table, and this report is made "
        "from those noisy answers only. "
    )
    if epsilon > _HOPELESS:
        return [
            start + f"But epsilon = {plain(epsilon)} is so large, and the noise so small, that "
            "in effect this promises nothing: treat the report as confidential as the table."
        ]
    factor, belief = _three_digits(math.exp(epsilon)), 100.0 / (1.0 + math.exp(-epsilon))
    sure = f"about {belief:.0f} % sure" if belief < 99 else "more than 99 % sure"
    return [
        start + f"Whether any single {unit} is in the table or not changes the chance of any "
        f"outcome by at most a factor of {factor}.",
        f"In other words: somebody who at first gives even odds that a certain {unit} is in the "
        f"table can be at most {sure} after reading all this, whatever else they know. "
        f"{_judgement(epsilon)}",
    ]


def limits(data: ReportData) -> list[str]:
    """Say what the guarantee leaves open; true of every private run."""
    unit = printable(data.unit)
    if unit == "row":
        several = (
            "It protects single rows. A person with several rows in the table is protected less: "
            "with ten rows, as if epsilon were ten times as large."
        )
    else:
        several = (
            f"It protects each {unit} singly. Several of them together are protected less: ten of "
            "them as if epsilon were ten times as large."
        )
    return [
        several,
        "It does not hide facts about the groups. Showing them is the purpose, and they may be "
        "used to guess things about people who are like a group, whether or not they are in the "
        "table.",
        "Every further release from the same table adds its own epsilon to this one.",
    ]


def reasons(data: ReportData) -> list[str]:
    """Say why the page is not private: in the caller's words, or in general ones."""
    if data.why_not_private:
        return [printable(sentence) for sentence in data.why_not_private]
    found = []
    if data.exact:
        found.append(
            "This method adds no noise. It looks at the exact rows, for comparison with private "
            "methods only, and what it shows can give single rows away."
        )
    if data.seeded and not data.exact:
        found.append(
            "The noise of this run came from a seed, so that it can be repeated, and whoever "
            "knows the seed can subtract it. Such a run is for experiments only. Run again "
            "without a seed for a report that may be shared."
        )
    if data.evaluation and not data.exact:
        found.append(
            "The numbers under “Evaluation” were computed from the raw rows without noise. No "
            "epsilon covers them, so the run as a whole has no privacy guarantee."
        )
    return found


def lacks(data: ReportData) -> str:
    """Name in a few words what makes the page not private."""
    named = {
        "no noise at all": data.exact,
        "seeded noise": data.seeded and not data.exact,
        "exact numbers shown": bool(data.evaluation) and not data.exact,
    }
    return ", ".join(name for name, true in named.items() if true) or "see the top of the page"


def no_promise(data: ReportData) -> str:
    """Say what stands in the place of the guarantee where there is none."""
    if data.exact:
        return (
            "This run has no privacy guarantee: no noise was added to anything. Use one of the "
            "private methods for a report that may be shared."
        )
    if data.seeded:
        return (
            "This run has no privacy guarantee: its noise came from a seed. The queries below say "
            "what the same run would promise with real noise."
        )
    if data.evaluation:
        return (
            "This run has no privacy guarantee as a whole. Its centres were made from noisy "
            "answers, and the queries below say what those alone would promise; but the numbers "
            "under “Evaluation” are exact, and to choose among runs by them gives them away "
            "too. Run again without the evaluation for a report that may be shared."
        )
    return "This run has no privacy guarantee: the top of the page says why."


def technical(data: ReportData) -> str:
    """Say what the technical section rests on."""
    if data.exact:
        return "No privacy: the method computes on the exact rows and asks no noisy queries."
    text = (
        "Pure epsilon-differential privacy. Neighbouring tables differ by one "
        f"{printable(data.unit)}, added or removed. "
    )
    outside = "Outside the box “Evaluation”, the report" if data.evaluation else "The report"
    return (
        f"{text}{outside} shows released values only; all but the queries below is computed from "
        "their answers."
    )


def _judgement(epsilon: float) -> str:
    if epsilon <= 1:
        return "This is commonly judged strong protection."
    if epsilon <= 5:
        return "This is commonly judged moderate protection."
    return "This is commonly judged weak protection."


def _three_digits(factor: float) -> str:
    return f"{factor:.3g}" if factor < 1000 else about(factor)
