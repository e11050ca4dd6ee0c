"""Numbers and names as people read them."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

#: Steps across a column's bounds that a printed coordinate tells apart.
_COORDINATE_STEPS = 2000
_MOST_DECIMALS = 9
_LARGEST_PLAIN = 1e12
_SHORT_NAME = 24
_LONGEST_FRACTION = 30
#: Embeddings, overrides and isolates of Unicode's bidirectional algorithm.
_TURNS = frozenset(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place in per cent of the axis, and its label."""

    place: float
    label: str


def printable(text: str) -> str:
    """Make control characters and lone surrogates visible, so that HTML can hold the text.

    Marks that turn the direction of writing are among them: they could make a name read as another.
    """
    shown = []
    for letter in text:
        code = ord(letter)
        if code < 0x20:
            shown.append(chr(0x2400 + code))
        elif letter in _TURNS or unicodedata.category(letter) in ("Cc", "Cs"):
            shown.append("\ufffd")
        else:
            shown.append(letter)
    return "".join(shown)


def short(name: str, length: int = _SHORT_NAME) -> str:
    """Shorten a long name for a picture, keeping both ends."""
    name = printable(name)
    if len(name) <= length:
        return name
    head = (length - 1) * 2 // 3
    return f"{name[:head]}…{name[-(length - 1 - head) :]}"


def whole(value: float) -> str:
    """Write a size: a whole number with thousands separators, never "-0"."""
    if not math.isfinite(value):
        return str(value)
    return f"{round(value):,}" if abs(value) < _LARGEST_PLAIN else f"{value:.3e}"


def about(value: float) -> str:
    """Write a number rounded to three significant digits."""
    if value == 0 or not math.isfinite(value):
        return whole(value)
    digits = 2 - math.floor(math.log10(abs(value)))
    return whole(round(value, min(digits, 0)))


def coordinate(value: float, low: float, high: float) -> str:
    """Write a coordinate with as many digits as the width of its bounds deserves."""
    step = (high - low) / _COORDINATE_STEPS
    return _with_step(value, step, max(abs(low), abs(high)))


def plain(value: float) -> str:
    """Write a bound or scale just as it is, in its shortest form."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def fraction(value: Fraction) -> str:
    """Write a fraction exactly, with its decimal; only the decimal if the fraction is long."""
    decimal = f"{float(value):.6g}"
    if value.denominator == 1:
        return str(value.numerator)
    exact = str(value)
    if len(exact) > _LONGEST_FRACTION:
        return f"≈ {decimal}"
    sign = "=" if Fraction(decimal) == value else "≈"
    return f"{exact} {sign} {decimal}"


def ticks(low: float, high: float, width: int = 300, most: int = 5) -> list[Tick]:
    """Choose round numbers between two bounds, few enough for their labels to fit.

    Parameters
    ----------
    low, high : float
        Ends of the axis, ``low < high``.
    width : int
        Pixels the axis may have on a small screen.
    most : int
        Most marks to make.
    """
    for count in range(most, 1, -1):
        marks = _round_marks(low, high, count)
        longest = max((len(mark.label) for mark in marks), default=0)
        if len(marks) > 1 and len(marks) * (longest + 2) * 7 <= width:
            return marks
    span = high - low
    ends = (low, high)
    return [Tick(100.0 * i, _with_step(ends[i], span / 1000, max(map(abs, ends)))) for i in (0, 1)]


def _round_marks(low: float, high: float, count: int) -> list[Tick]:
    """Give multiples of 1, 2, 2.5 or 5 times a power of ten."""
    span = high - low
    # Dividing first would round a narrow span between large ends to zero.
    raw = span / count if math.isfinite(span) else high / count - low / count
    power = 10.0 ** math.floor(math.log10(raw))
    if power == 0 or not math.isfinite(power):
        return []
    step = next((power * f for f in (1, 2, 2.5, 5, 10) if power * f >= raw * 0.999), raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not 1 < last - first + 1 <= count + 2:
        return []
    values = [i * step for i in range(first, last + 1)]
    biggest = max(abs(low), abs(high))
    places = [min(max((value - low) / (high - low), 0.0), 1.0) * 100 for value in values]
    labels = _tidy([_with_step(value, step / 4, biggest) for value in values])
    return [Tick(place, label) for place, label in zip(places, labels, strict=True)]


def _with_step(value: float, step: float, biggest: float) -> str:
    """Write a number so that numbers ``step`` apart differ."""
    decimals = max(0, math.ceil(-math.log10(step))) if step > 0 else _MOST_DECIMALS + 1
    if biggest >= _LARGEST_PLAIN or decimals > _MOST_DECIMALS:
        digits = math.ceil(math.log10(biggest) - math.log10(step)) if step > 0 else 16
        text = f"{value:.{min(max(digits, 2), 16)}e}"
    else:
        text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def _tidy(labels: list[str]) -> list[str]:
    """Drop the zeros that all labels of an axis end in."""
    if any("e" in label for label in labels):
        return [_tidy_scientific(label) for label in labels]
    while all("." in label and label[-1] in "0." for label in labels):
        labels = [label[:-1] for label in labels]
    return labels


def _tidy_scientific(label: str) -> str:
    mantissa, exponent = label.split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return "0" if mantissa == "0" else f"{mantissa}e{int(exponent)}"
