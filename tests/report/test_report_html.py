from __future__ import annotations

import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from report_releases import HOSTILE, Page, answer, assert_harmless, release

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ParameterError
from dpkm_spark.report import render_html


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("k", [1, 100])
def test_every_dimension_renders(d: int, k: int) -> None:
    page = assert_harmless(render_html(release(d, k, m=2 if d > 4 else 6)))
    charts = page.of("div", "chart")
    assert len(charts) == {1: 1, 2: 1, 3: 3}.get(d, 6)
    pictures = [a for tag, a in page.elements if a.get("role") == "img"]
    assert len(pictures) >= len(charts)
    assert all(a.get("aria-label") for a in pictures)
    assert len(page.of("td", "heat")) == k * d
    assert ("differ most are drawn" in page.text) == (d > 4)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_hostile_names_are_text(d: int) -> None:
    evil = HOSTILE[0]
    data = release(
        d,
        names=HOSTILE[:d],
        m=3,
        title=evil,
        run_id=evil,
        source=HOSTILE[1],
        epsilon=evil,
        facts={evil: HOSTILE[1], "\ud800": "\x07{{ 7*7 }}"},
    )
    html = render_html(data)
    html.encode("utf-8")
    page = assert_harmless(html)
    assert evil in page.text
    for name in HOSTILE[: min(d, 5)]:
        assert name in page.text  # in full, in the table of columns
    assert "{{ 7*7 }}" in page.text
    assert not set("\x00\x07\u202e") & set(html)


def test_packed_columns_are_named_by_position() -> None:
    domain = Domain.of_vector("<b>v", [(0, 1)] * 3)
    assert "<b>v[2]" in assert_harmless(render_html(release(domain=domain))).text


def test_method_without_grid() -> None:
    for d in (1, 2, 3):
        data = release(d, with_synopsis=False, answers=())
        page = assert_harmless(render_html(data))
        assert "image" not in page.tags
        assert "gives no density" in page.text
        assert "standard deviation" not in page.text


@pytest.mark.parametrize("d", [1, 2, 5, 70])
@pytest.mark.parametrize("count", [-40, 0, 3])
def test_all_noise_on_one_cell(d: int, count: int) -> None:
    data = release(d, k=1, m=1, counts=np.array([count]), sizes=np.array([float(count)]))
    page = assert_harmless(render_html(data))
    if count <= 0:
        assert "too few rows to tell" in page.text
        assert "noise?" in page.text


def test_negative_sizes_keep_their_sign_and_have_no_share() -> None:
    page = Page(render_html(release(k=3, sizes=np.array([900.0, 100.0, -17.0]))))
    assert "-17" in page.text
    assert "90.0 %" in page.text
    assert "0.0 %" in page.text
    assert "-0" not in page.text.replace("-0.", "")


def test_constant_counts_and_equal_centroids() -> None:
    data = release(3, k=4, counts=np.full(8**3, 5))
    same = np.tile(data.centroids[:1], (4, 1))
    assert_harmless(render_html(release(3, k=4, counts=np.full(8**3, 5), centroids=same)))


def test_not_private_is_loud() -> None:
    assert "Do not publish" not in Page(render_html(release())).text
    seeded = (answer("count", np.array([5]), Fraction(1), private=False),)
    for data in (release(private=False), release(answers=seeded)):
        text = Page(render_html(data)).text
        assert text.index("Not private. Do not publish.") < text.index("groups")
        assert "no privacy guarantee" in text
        assert "commonly judged" not in text


def test_technical_section_has_every_query_exactly() -> None:
    text = Page(render_html(release(epsilon="1"))).text
    for part in ("1/50 = 0.02", "49/50 = 0.98", "8^2 = 64 cells", "differ by one row", "nightly-1"):
        assert part in text
    third = answer("cluster_sums", np.zeros(3, dtype=np.int64), Fraction(1, 3))
    assert "1/3 ≈ 0.333333" in Page(render_html(release(answers=(third,)))).text


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        ("0.1", "factor of 1.11"),
        ("1", "about 73 % sure"),
        ("2", "moderate"),
        ("8", "more than 99 % sure"),
        ("1e9", "promises nothing"),
        ("not a number", "factor of 2.72"),
    ],
)
def test_promise_in_plain_words(epsilon: str, words: str) -> None:
    answers = () if epsilon != "not a number" else release().answers
    assert words in Page(render_html(release(epsilon=epsilon, answers=answers))).text


def test_same_data_same_page() -> None:
    assert render_html(release(3)) == render_html(release(3))


def test_nothing_is_said_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render_html(release(6, names=HOSTILE, m=3))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib.image"])
def test_missing_extra_names_the_remedy(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ParameterError, match=r'pip install "dpkm-spark\[report\]"'):
        render_html(release())


@pytest.mark.parametrize(("d", "m"), [(1, 1 << 20), (2, 1024), (10, 4), (20, 2)])
def test_largest_grids_render_small(d: int, m: int) -> None:
    assert len(render_html(release(d, k=100, m=m))) < 1_000_000


def test_many_groups_stay_readable() -> None:
    page = Page(render_html(release(k=3000)))
    assert len(page.of("td", "share")) == 500
    assert "The 500 largest of 3,000 groups" in page.text
    assert "Only the 200 largest groups are drawn" in page.text


@pytest.mark.parametrize(
    ("low", "high"),
    [(-8e307, 8e307), (0.0, 1e-300), (1e16, 1e16 + 4), (1e9, 1e9 + 1e-6), (-1e-9, 5e11)],
)
def test_awkward_bounds(low: float, high: float) -> None:
    domain = Domain.of(("a", "b"), (low, high))
    page = assert_harmless(render_html(release(domain=domain)))
    assert "nan" not in page.text
    assert "inf" not in page.text.replace("information", "")


@pytest.mark.parametrize(
    "parts",
    [
        {"centroids": np.zeros((3, 1))},
        {"centroids": np.zeros((0, 2)), "noisy_sizes": np.zeros(0)},
        {"centroids": np.zeros((0, 2)), "noisy_sizes": None},
        {"centroids": np.zeros(2), "noisy_sizes": None},
        {"noisy_sizes": np.zeros(4)},
        {"noisy_sizes": np.zeros((3, 1))},
    ],
)
def test_shapes_are_checked(parts: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match="shape"):
        release(2, k=3, **parts)  # type: ignore[arg-type]
