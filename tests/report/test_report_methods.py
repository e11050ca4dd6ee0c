"""One report for every method: with and without sizes, grid, noise; and with exact numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from report_releases import (
    HOSTILE,
    Page,
    answer,
    as_if_private,
    assert_harmless,
    door,
    dplloyd_release,
    exact_release,
    gkm_release,
    pgkm_release,
    release,
)

from dpkm_spark.analysis import count_weight
from dpkm_spark.domain import SCALE
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.report import ReportData, render_html
from dpkm_spark.report.noise import noise_deviation, row_count, size_noise
from dpkm_spark.report.panels import panels

UNSIZED = {"noisy_sizes": None, "with_synopsis": False, "answers": ()}
EXACT = "0.0123456789"
BANNER = "Not private. Do not publish."


def page_of(data: ReportData) -> Page:
    return assert_harmless(render_html(data))


def sums(k: int, d: int, weight: int = SCALE, private: bool = True) -> Answer:
    values = np.zeros(k * (d + 1), dtype=np.int64)
    share = Fraction(1, 5)
    return answer(
        "cluster_sums", values, share, private, d * SCALE + weight, clusters=k, count_weight=weight
    )


def count(value: int, share: Fraction = Fraction(1, 50)) -> Answer:
    return answer("count", np.array([value]), share)


# Every combination of parts.


@pytest.mark.parametrize("d", [1, 2, 5])
def test_every_combination_of_parts_renders(d: int) -> None:
    yes_no = (True, False)
    combinations = product(("1", None), yes_no, yes_no, yes_no)
    for i, (epsilon, synopsis, sized, evaluated) in enumerate(combinations):
        # Steps without a common divisor, so that these parts meet all the others.
        k, declared, private = (1 if i % 3 == 0 else 4), i % 5 < 2, i % 7 < 5
        data = release(
            d,
            k,
            m=3,
            with_synopsis=synopsis,
            epsilon=epsilon,
            private=private,
            evaluation={"NICV": EXACT} if evaluated else {},
            count="5,000" if declared else "",
            answers=() if declared else (sums(k, d),),
            warnings=("Careful.",) if declared else (),
            about="About it." if declared else "",
            **({} if sized else {"noisy_sizes": None}),
        )
        page = page_of(data)
        assert data.protects == (private and bool(epsilon) and not evaluated)
        assert (BANNER in page.text) != data.protects
        assert ("at most a factor of" in page.text) == data.protects
        assert ("Careful." in page.text) == declared
        assert ("About it." in page.text) == declared
        assert len(page.of("td", "share")) == (k if sized else 0)


# Methods without sizes.


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("k", [1, 5])
def test_without_sizes_there_is_no_word_of_them(d: int, k: int) -> None:
    html = render_html(release(d, k, **UNSIZED))
    page = assert_harmless(html)
    for word in ("largest", "share", "rows, about", "area", "noise?", "standard deviation"):
        assert word not in page.text.lower()
    assert "but no sizes" in page.text
    assert not page.of("td", "share")
    assert len(page.of("td", "heat")) == k * d
    assert not re.search(r"Cluster \d+: about", html)  # pointers' hints and alternatives
    assert "Cluster 0: column 0" in html
    assert ("numbered from 0, as in the centroids table" in page.text) == (k > 1)


def test_markers_without_sizes_are_all_alike() -> None:
    (panel,) = panels(release(2, k=5, **UNSIZED))
    assert len({mark.radius for mark in panel.markers if mark.number}) == 1
    (panel,) = panels(release(2, k=5))
    assert len({mark.radius for mark in panel.markers if mark.number}) > 1


def test_many_groups_without_sizes_are_the_first_not_the_largest() -> None:
    text = page_of(release(k=3000, **UNSIZED)).text
    assert "The first 500 of 3,000 groups" in text
    assert "Only the first 200 groups are drawn" in text
    assert "largest" not in text


def test_headline_without_sizes_takes_the_number_of_rows_at_hand() -> None:
    def headline(**parts: object) -> str:
        return page_of(release(2, 5, **{**UNSIZED, **parts})).text.split("This method")[0]

    assert headline().endswith("5 groups of rows ")
    assert headline(answers=(count(4956),)).endswith("5 groups among about 4,960 rows ")
    assert headline(count="5,000").endswith("5 groups among 5,000 rows ")
    # What was asked last is what the run knew; a declared number is none of its findings.
    answers = (count(9999), count(4956))
    assert "about 4,960" in headline(answers=answers, count="5,000")


def test_the_rows_tile_says_where_the_number_comes_from() -> None:
    noisy = page_of(release(2, **{**UNSIZED, "answers": (count(4956),)})).text
    assert "Rows, about4,956give or take 71 from noise" in noisy
    declared = page_of(release(2, **UNSIZED, count="5,000")).text
    assert "5,000as declared" in declared
    assert "Rows" not in page_of(release(2, **UNSIZED)).text.split("Where the groups")[0]


@pytest.mark.parametrize(("value", "little"), [(-3, True), (100, True), (160, False)])
def test_a_noisy_count_that_may_be_noise_is_said_to_be(value: int, little: bool) -> None:
    text = page_of(release(2, **{**UNSIZED, "answers": (count(value),)})).text
    assert ("too few rows to tell" in text) == little
    assert ("The number of rows is no larger than the privacy noise" in text) == little
    assert "sizes below" not in text


def test_selections_alone_name_no_rows() -> None:
    data = pgkm_release()
    data = replace(data, answers=data.answers[1:], facts={})
    assert row_count(data, None) is None
    assert "5 groups of rows" in page_of(data).text


# Sizes without a synopsis, and both.


def test_noise_of_a_round_is_that_of_one_count() -> None:
    k, d = 5, 3
    data = release(d, k, with_synopsis=False, answers=(sums(k, d),))
    noise = size_noise(data)
    assert noise is not None
    expected = noise_deviation((d + 1) * 5.0)  # Lap((d + 1) t / epsilon), t = 5
    assert noise.each == pytest.approx([expected] * k, rel=1e-3)
    assert noise.total == pytest.approx(expected * k**0.5, rel=1e-3)
    assert noise.of_last_round
    text = page_of(data).text
    assert f"± {int(np.ceil(expected))}" in text
    assert "before the last round" in text


@pytest.mark.parametrize("weight", [SCALE, count_weight(2), 1 << 10, 1 << 24])
def test_noise_of_a_size_is_what_the_door_adds(weight: int) -> None:
    k, d = 4000, 2
    table = door(d, n=0)
    centroids = np.random.default_rng(1).uniform(-1, 1, (k, d))
    sizes = table.noisy_cluster_sums(centroids, Fraction(1), weight).sizes  # no rows: all noise
    data = release(d, k, with_synopsis=False, sizes=sizes, answers=as_if_private(table))
    noise = size_noise(data)
    assert noise is not None
    assert noise.each is not None
    assert np.std(sizes) == pytest.approx(noise.each[0], rel=0.06)


def test_the_check_of_noise_would_see_a_forgotten_weight() -> None:
    # The smallest fault of that kind: the weights above differ from SCALE by far more than 6 %.
    assert abs(count_weight(2) / SCALE - 1) > 0.2


def test_the_last_answer_with_sizes_decides() -> None:
    k, d, m = 3, 2, 8
    grid = release(d, k, m)  # count, then histogram
    rounds = size_noise(replace(grid, answers=(*grid.answers, sums(k, d))))
    cells = size_noise(replace(grid, answers=(sums(k, d), *grid.answers)))
    assert rounds is not None
    assert cells is not None
    assert rounds.of_last_round
    assert not cells.of_last_round
    assert rounds.each is not None
    assert rounds.each == pytest.approx([noise_deviation(15.0)] * k, rel=1e-3)
    assert cells.total == pytest.approx(noise_deviation(50 / 49) * m)


@pytest.mark.parametrize("other", [sums(4, 2), sums(3, 3), count(7)])
def test_answers_to_another_shape_hold_no_sizes(other: Answer) -> None:
    assert size_noise(release(2, 3, with_synopsis=False, answers=(other,))) is None


def test_a_histogram_of_another_grid_is_not_the_synopsis() -> None:
    other = answer("cell_histogram", np.zeros(9, dtype=np.int64), Fraction(1, 2))
    assert size_noise(release(2, 3, m=8, answers=(other,))) is None
    assert size_noise(release(2, 3, m=8, with_synopsis=False)) is None


def test_dplloyd_has_axes_over_the_public_bounds_and_no_picture_of_rows() -> None:
    data = dplloyd_release(4, 5)
    page = page_of(data)
    assert "image" not in page.tags
    assert len(page.of("svg", "ruling")) == len(page.of("div", "chart")) == 6
    assert "gives no density" in page.text
    assert "centres and sizes" in page.text
    for panel in panels(data):
        assert (panel.x_ticks[0].label, panel.x_ticks[-1].label) == ("-5", "10")
        assert not panel.image
    assert "ruling" not in str(page_of(release(2)).of("svg"))


# Runs that are not private.


def test_a_method_without_noise_says_so_and_nothing_of_noise() -> None:
    for epsilon in (None, ""):
        page = page_of(exact_release(epsilon=epsilon))
        text = page.text
        assert text.index(BANNER) < text.index("4 groups")
        assert "This method adds no noise" in text
        assert "4 groups among 3,994 rows" in text
        for word in ("noisy counts", "Rows, about", "rows (about", "seed", "ε = ", "noise?"):
            assert word not in text
        assert "no privacy guarantee" in text
        assert "released values" not in text
        assert "epsilon-differential privacy" not in text
        assert "Budget (epsilon)none" in text
        assert "Private" in text
        assert "no: no noise at all" in text
        assert not page.of("table", "queries")


def test_a_method_without_noise_on_no_rows() -> None:
    text = page_of(exact_release(sizes=np.zeros(4))).text
    assert "4 groups, but no rows" in text
    assert "privacy noise" not in text


def test_it_takes_an_epsilon_to_be_private() -> None:
    assert not exact_release(private=True).protects
    assert not release(private=True, epsilon="").protects


def test_an_evaluated_run_is_not_private_though_its_noise_was() -> None:
    data = release(evaluation={"NICV": EXACT})
    assert data.private
    assert all(given.private for given in data.answers)
    assert not data.protects
    text = page_of(data).text
    assert text.index(BANNER) < text.index("without noise") < text.index("5 groups")
    assert "NOT PRIVATE" in text
    assert "exact numbers shown; noise at ε = 1" in text
    assert "seed" not in text
    assert "commonly judged" not in text


@pytest.mark.parametrize(
    "make", [release, dplloyd_release, gkm_release, pgkm_release, exact_release]
)
def test_exact_numbers_stand_in_the_box_and_nowhere_else(make) -> None:  # type: ignore[no-untyped-def]
    html = render_html(make(evaluation={"NICV": EXACT, "Rows": "7919"}))
    assert_harmless(html)
    box = re.search(r'<section class="card exact".*?</section>', html, re.DOTALL)
    assert box
    assert "NOT PRIVATE" in box[0]
    for number in (EXACT, "7919"):
        assert number in box[0]
        assert number not in html.replace(box[0], "")
    # All else is the page without the evaluation, but for the words that say so.
    plain = Page(render_html(make()))
    numbers = re.compile(r"\d[\d,.]*\d")
    outside = Page(html.replace(box[0], ""))
    assert set(numbers.findall(outside.text)) <= set(numbers.findall(plain.text))
    assert outside.values("d") == plain.values("d")
    assert outside.values("href") == plain.values("href")


def test_seeded_and_evaluated_are_both_told() -> None:
    text = page_of(release(private=False, evaluation={"NICV": EXACT}, answers=(sums(5, 2),))).text
    assert "came from a seed" not in text  # no answer was seeded, and the box explains the rest
    seeded = sums(5, 2, private=False)
    text = page_of(release(private=False, evaluation={"NICV": EXACT}, answers=(seeded,))).text
    assert "came from a seed" in text
    assert "computed from the raw rows" in text
    assert "no: seeded noise, exact numbers shown" in text


def test_the_callers_reasons_are_the_banner() -> None:
    data = release(why_not_private=("The moon was full.", "And <b>red</b>."))
    assert not data.protects
    text = page_of(data).text
    assert f"{BANNER} The moon was full. And <b>red</b>." in text
    assert "seed" not in text
    assert "see the top of the page" in text


def test_a_private_run_is_not_accused() -> None:
    for data in (release(), dplloyd_release(), gkm_release(), pgkm_release()):
        text = page_of(data).text
        assert "not private" not in text.lower()
        assert "Evaluation" not in text
        assert "from released values" in text


# Words.


def test_warnings_come_before_the_numbers() -> None:
    warning = "The grid has a single cell, so these centroids say nothing: use fewer columns."
    text = page_of(release(warnings=(warning, "Another."))).text
    assert text.index(warning) < text.index("Another.") < text.index("Where the groups are")


def test_the_unit_of_privacy_is_named_everywhere() -> None:
    row = re.compile(r"\b(one|single|certain|each) (row|customer)")
    for make in (release, dplloyd_release, gkm_release, pgkm_release):
        text = page_of(make(unit="customer")).text
        assert {found[1] for found in row.findall(text)} == {"customer"}
        assert "It protects each customer singly" in text
        assert "differ by one customer" in text
        assert {found[1] for found in row.findall(page_of(make()).text)} == {"row"}


@pytest.mark.parametrize("d", [1, 2, 6])
@pytest.mark.parametrize("sized", [True, False])
def test_hostile_texts_are_texts(d: int, sized: bool) -> None:
    evil = "<script>alert(1)</script>\x00\u202e{{ 7*7 }}"
    data = release(
        d,
        names=HOSTILE[:d],
        m=3,
        title=evil,
        with_synopsis=False,
        answers=(),
        count=evil,
        why_not_private=(evil,),
        evaluation={evil: evil},
        warnings=(evil,),
        about=evil,
        unit=evil,
        **({} if sized else {"noisy_sizes": None}),
    )
    for made in (data, replace(data, evaluation={}, why_not_private=()), replace(data, epsilon="")):
        html = render_html(made)
        html.encode("utf-8")
        page = assert_harmless(html)
        assert page.text.count("<script>alert(1)</script>") >= 5
        assert not set("\x00\x07\u202e") & set(html)
        assert "49" not in page.text
