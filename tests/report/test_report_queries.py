"""The table of queries: what a privacy engineer checks against the paper."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_releases import (
    Page,
    answer,
    assert_harmless,
    dplloyd_release,
    gkm_release,
    pgkm_release,
    release,
)

from dpkm_spark.analysis import count_weight
from dpkm_spark.domain import SCALE
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report import ReportData, render_html
from dpkm_spark.report.queries import note, query_lines

NAMES = ("count", "cell_histogram", "marginals", "cluster_sums", "private_select", "block_sums")


def lines_of(*answers: Answer):
    return query_lines(release(answers=answers))


def test_rounds_of_dplloyd_are_one_line_with_the_scale_of_the_paper() -> None:
    d, t = 4, 5
    (line,) = query_lines(dplloyd_release(d, k=5))
    assert line.times == t
    assert line.numbers == "25"
    assert float(line.sensitivity) == d + 1
    assert float(line.scale[0]) == (d + 1) * t  # Lap((d + 1) t / epsilon), on sums and numbers
    assert line.epsilon == "5 × 1/5 = 1"
    assert line.detail == "clusters = 5"
    assert "sum and number" in line.name


def test_the_optimal_split_shows_both_scales() -> None:
    d, t = 2, 5
    (line,) = query_lines(dplloyd_release(d, k=5, split="optimal"))
    weight = count_weight(d) / SCALE
    sums, numbers = (float(part.split()[0]) for part in line.scale)
    assert float(line.sensitivity) == pytest.approx(d + weight, rel=1e-5)
    assert sums == pytest.approx((d + weight) * t, rel=1e-5)
    assert numbers == pytest.approx((d + weight) * t / weight, rel=1e-5)
    assert numbers > sums * 1.1  # or the two would be mixed up unseen
    assert [part.split()[-1] for part in line.scale] == ["sums", "numbers"]
    assert f"weight of the number = {weight:.6g}" in line.detail


def test_generations_of_pgkm_are_one_line_with_a_range() -> None:
    data = pgkm_release(generations=4)
    count, selections = query_lines(data)
    assert (count.times, selections.times) == (1, 4)
    low, high = map(float, selections.sensitivity.split(" to "))
    asked = [given.query.sensitivity / SCALE for given in data.answers[1:]]
    assert (low, high) == pytest.approx((min(asked), max(asked)), rel=1e-5)
    assert 0 < low < high <= 4 * 2  # squared distances in [-1, 1]^2 are at most 4 d
    share = Fraction(49, 50) / 4
    least, most = map(float, selections.scale[0].split(" to "))
    assert least == pytest.approx(low / float(share / 3), rel=1e-5)
    assert most == pytest.approx(high / float(share / 3), rel=1e-5)
    assert selections.epsilon == "4 × 49/200 = 49/50 = 0.98"
    assert selections.detail == "candidates = 12; 3 choices, each for 1/3 of epsilon"
    assert "equal part" in note(data)


def test_blocks_show_the_noise_of_the_sum_and_of_the_mean() -> None:
    k, d, blocks = 5, 2, 28
    data = gkm_release(d, k, blocks)
    marginals, line = query_lines(data)
    assert (marginals.sensitivity, marginals.scale) == (str(d), ("4",))
    assert line.sensitivity == str(k * d)
    sums, means = (float(part.split()[0]) for part in line.scale)
    assert sums == k * d / 0.5
    # (max - min) k d / (l epsilon), in widths of the range: Equation 3 with half the budget
    assert means == pytest.approx(k * d / (blocks * 0.5), rel=1e-5)
    assert "max - min" in note(data)
    assert "max - min" not in note(dplloyd_release())


def test_one_choice_and_odd_parameters() -> None:
    values = np.zeros(1, dtype=np.int64)
    one = answer("private_select", values, Fraction(1), candidates=2000, chosen=1)
    assert lines_of(one)[0].detail == "candidates = 2,000; 1 choice"
    odd = answer("count", values.copy(), Fraction(1), **{"<i>_way": "<p onclick=x>"})  # type: ignore[arg-type]
    assert lines_of(odd)[0].detail == "<i> way = <p onclick=x>"
    assert_harmless(render_html(release(answers=(odd,))))


def test_internal_names_are_hidden() -> None:
    for data in (dplloyd_release(), pgkm_release(), gkm_release()):
        html = render_html(data)
        parameters = [given.query.parameters for given in data.answers]
        digests = {v for each in parameters for name, v in each.items() if "digest" in name}
        assert digests
        assert not [digest for digest in digests if str(digest) in html.replace(",", "")]
        assert "digest" not in html
        assert str(SCALE) not in html.replace(",", "")


def test_only_neighbours_in_the_transcript_that_differ_in_nothing_are_joined() -> None:
    third, half = Fraction(1, 3), Fraction(1, 2)
    values = np.zeros(1, dtype=np.int64)
    a = answer("count", values.copy(), third)
    b = answer("count", values.copy(), half)
    c = answer("other", values.copy(), third)
    wide = answer("count", np.zeros(2, dtype=np.int64), third)
    other = answer("count", values.copy(), third, bins=3)
    times = [line.times for line in lines_of(a, a, b, a, c, a, wide, other)]
    assert times == [2, 1, 1, 1, 1, 1, 1]


def test_a_column_of_times_only_where_something_repeats() -> None:
    def headings(data: ReportData) -> str:
        return Page(render_html(data)).text.split("Queries")[1].split("Epsilon")[0]

    assert "Times" in headings(dplloyd_release())
    assert "Times" not in headings(release())


def test_long_shares_are_short_and_the_sum_is_exact() -> None:
    share = Fraction(10**20 + 1, 3 * 10**20)
    asked = [answer("count", np.zeros(1, dtype=np.int64), share) for _ in range(3)]
    (line,) = lines_of(*asked)
    assert line.epsilon == "3 × 0.333333 ≈ 1"


def test_unknown_queries_keep_their_name_and_their_integers() -> None:
    name = "<b>new_query</b>"
    asked = answer(name, np.zeros(7, dtype=np.int64), Fraction(1, 4), sensitivity=SCALE, bins=2)
    (line,) = lines_of(asked)
    assert line.name == "<b>new query</b>"
    assert line.sensitivity == f"{SCALE:.6g}"
    assert "2^-20" not in note(release(answers=(asked,)))
    assert "<b>new" not in render_html(release(answers=(asked,)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.fractions(min_value=Fraction(1, 1000), max_value=3, max_denominator=1000),
            st.integers(1, 50),
            st.integers(1, 4),
        ),
        max_size=8,
    )
)
def test_lines_cover_the_transcript_and_add_up(
    asked: list[tuple[str, Fraction, int, int]],
) -> None:
    answers = [
        answer(name, np.zeros(size, dtype=np.int64), share, sensitivity=times * SCALE)
        for name, share, size, times in asked
        for _ in range(times)
    ]
    lines = lines_of(*answers)
    assert sum(line.times for line in lines) == len(answers)
    charged = Fraction(0)
    for line in lines:
        shares = re.match(r"(?:(\d+) × )?([\d/]+)", line.epsilon)
        assert shares
        charged += int(shares[1] or 1) * Fraction(shares[2])
    assert charged == sum(given.query.epsilon for given in answers)


@given(
    st.sampled_from(NAMES),
    st.integers(1, 1 << 40),
    st.fractions(min_value=Fraction(1, 1000), max_value=10, max_denominator=1000),
)
def test_scale_is_sensitivity_by_epsilon_in_every_line(
    name: str, sensitivity: int, share: Fraction
) -> None:
    asked = answer(name, np.zeros(3, dtype=np.int64), share, sensitivity=sensitivity)
    (line,) = lines_of(asked)
    expected = float(line.sensitivity) / float(share)
    assert float(line.scale[0]) == pytest.approx(expected, rel=1e-4)
