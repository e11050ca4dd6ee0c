from __future__ import annotations

import base64
import io
import math

import matplotlib
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.image import imread
from report_releases import release

from dpkm_spark.privacy.mechanisms import SeededNoise, calibrate
from dpkm_spark.report.noise import noise_deviation, size_noise
from dpkm_spark.report.numbers import about, coordinate, printable, short, ticks, whole
from dpkm_spark.report.panels import drawn_columns, panels
from dpkm_spark.report.raster import Scale, blocks, colour_scale, picture


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.12345, -1, 1, "0.123"),
        (-1e-9, -1, 1, "0.000"),
        (38.4567, 17, 90, "38.46"),
        (12345.6, 0, 99999, "12,346"),
        (-118.40637, -118.57, -118.19, "-118.4064"),
        (1.5e300, 0, 1e301, "1.5000e+300"),
        (1e9 + 0.25, 1e9, 1e9 + 1, "1,000,000,000.2500"),
    ],
)
def test_coordinates_have_the_digits_their_bounds_deserve(
    value: float, low: float, high: float, text: str
) -> None:
    assert coordinate(value, low, high) == text


def test_sizes() -> None:
    assert [whole(x) for x in (-0.4, 1234.5, -17.0, 1e18)] == ["0", "1,234", "-17", "1.000e+18"]
    assert [about(x) for x in (0.0, 7.0, 4956.0, 100_620.0)] == ["0", "7", "4,960", "101,000"]


def test_names_are_shortened_and_made_printable() -> None:
    assert short("x" * 24) == "x" * 24
    assert len(short("ab" * 100)) == 24
    assert printable("a\x00\n\x7f\ud800\u202eb") == "a␀␊���b"


@given(
    st.floats(-1e300, 1e300),
    st.floats(1e-6, 1e300),
)
@example(2.921049562257244e16, 3.0)  # few floats lie between such bounds
def test_ticks_lie_in_the_axis_and_rise(low: float, width: float) -> None:
    high = low + width
    if not low < high < 1e307:
        return
    marks = ticks(low, high)
    places = [mark.place for mark in marks]
    assert len(marks) >= 2
    assert all(0 <= place <= 100 for place in places)
    assert places == sorted(places)


def test_ticks_are_round_and_have_no_useless_zeros() -> None:
    assert [mark.label for mark in ticks(-1, 1)] == ["-1.0", "-0.5", "0.0", "0.5", "1.0"]
    assert [mark.label for mark in ticks(0, 100)][:2] == ["0", "20"]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 2))
def test_blocks_keep_the_sums(m: int, most: int, axes: int) -> None:
    counts = np.arange(m**axes).reshape((m,) * axes)
    found = blocks(counts, most)
    assert found.sums.shape[0] <= most
    assert found.extent == pytest.approx(100 * found.sums.shape[0] * found.side / m)
    if m % found.side == 0:
        assert found.sums.sum() == counts.sum()
    assert found.sums.flat[0] == counts[(slice(found.side),) * axes].sum() * (
        1 if found.side <= m else (found.side / m) ** axes
    )


def test_cut_off_blocks_show_the_same_density() -> None:
    assert np.allclose(blocks(np.full((10, 10), 3), 4).sums, 27)


def _shares(uri: str) -> np.ndarray:
    """Read a picture back: each pixel's place on the colour scale, 0 to 255."""
    assert uri.startswith("data:image/png;base64,")
    pixels = imread(io.BytesIO(base64.b64decode(uri.split(",")[1])), format="png")[:, :, :3]
    palette = matplotlib.colormaps["viridis"](np.arange(256))[:, :3]
    distance = np.abs(pixels[:, :, None, :] - palette).sum(axis=-1)
    assert distance.min(axis=-1).max() < 0.02
    return distance.argmin(axis=-1)


def test_picture_puts_the_first_column_across_and_the_second_upwards() -> None:
    sums = np.array([[0.0, 2.0], [-5.0, 4.0], [1.0, 3.0]])  # 3 across, 2 up
    shares = _shares(picture(sums, Scale(4.0, root=False), pixels=3))
    assert shares.tolist() == [[128, 255, 192], [0, 0, 64]]


def test_noise_alone_is_drawn_on_a_linear_scale() -> None:
    noise = SeededNoise(3).add(np.zeros(4096, dtype=np.int64), calibrate(1, 1))  # type: ignore[arg-type]
    assert not colour_scale(noise.astype(float)).root
    few = np.append(np.ones(4000), [1000.0] * 96)
    assert colour_scale(few).root


def test_noise_deviation_is_that_of_the_mechanism() -> None:
    for scale in (0.3, 1.0, 20.0):
        q = math.exp(-1 / scale)
        values = np.arange(1, 2000)
        variance = 2 * (values**2 * q**values).sum() * (1 - q) / (1 + q)
        assert noise_deviation(scale) == pytest.approx(math.sqrt(variance))
    assert noise_deviation(1e-12) == 0.0
    assert noise_deviation(1e9) == pytest.approx(math.sqrt(2) * 1e9)


def test_noise_of_a_size_counts_its_cells() -> None:
    centroids = np.array([[-3.0, 2.5], [8.0, 2.5]])  # border at 2.5: the middle of -5..10
    noise = size_noise(release(2, k=2, m=8, centroids=centroids))
    assert noise is not None
    assert noise.each == pytest.approx([noise_deviation(50 / 49) * math.sqrt(32)] * 2)
    assert noise.total == pytest.approx(noise_deviation(50 / 49) * 8)
    assert not noise.of_last_round


def test_columns_with_the_most_different_centroids_are_drawn() -> None:
    centroids = np.full((2, 6), 1.0)
    centroids[1, [0, 2, 3, 5]] = 9.0
    data = release(6, k=2, m=2, centroids=centroids)
    assert drawn_columns(data) == [0, 2, 3, 5]
    assert len(panels(data)) == 6


def test_markers_stand_where_the_centroids_are() -> None:
    (panel,) = panels(release(2, k=1, centroids=np.array([[-5.0, 10.0]])))
    assert (panel.markers[0].x, panel.markers[0].y) == (0.0, 0.0)  # left, top


def test_numbers_do_not_cover_each_other() -> None:
    (panel,) = panels(release(2, k=100))
    numbered = [mark for mark in panel.markers if mark.number]
    assert "0" in {mark.number for mark in numbered}
    gaps = [math.dist((a.x, a.y), (b.x, b.y)) for a in numbered for b in numbered if a is not b]
    assert min(gaps) >= 5
