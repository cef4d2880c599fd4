"""Charts as plain values: the macros of ``charts.html`` write them as SVG.

All charts are WIDTH units wide, with text of 11 units, readable on a phone without zooming. Places and lengths are in
units. Colours are names such as ``first``; the page's stylesheet defines them for light and dark.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH = 360
FIRST, SECOND, THIRD, BAD = "first", "second", "third", "bad"

_BARS_WIDTH = 272.0  # leaves room for a number such as 1,000,000,000 after a bar
_LABEL_LENGTH = 28  # fits into WIDTH in any script
_RIGHT, _TOP, _BOTTOM = 350.0, 14.0, 200.0  # the plot of a step chart
_DIGIT_WIDTH = 7.0  # of the widest common font
_MARK_ROOM = 60.0
_MOST_HEIGHTS = 5
_DECADES_BETWEEN = 3


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, and the text after it."""

    colour: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class BarRow:
    """A label above lines of bars."""

    label: str
    lines: tuple[tuple[Bar, ...], ...]


@dataclass(frozen=True, slots=True)
class BarChart:
    """Rows of as many lines each. ``legend`` has a colour and its name, ``grid`` places with their numbers."""

    legend: tuple[tuple[str, str], ...]
    rows: tuple[BarRow, ...]
    grid: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StepChart:
    """Lines that step up. A line has a colour and its points, a mark its place and a name, which may be empty."""

    legend: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    marks: tuple[tuple[float, float, str], ...]
    heights: tuple[tuple[float, str], ...]
    left: float
    times: tuple[tuple[float, str], ...]


def grouped_bars(labels: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]]) -> BarChart:
    """Bars in percent, one per group and label. A group has a name, a colour and its values."""
    scale = _BARS_WIDTH / max(1e-9, *(max(values) for _, _, values in groups))
    lines = [
        [Bar(colour, 0, _rounded(value * scale), _percent(value)) for value in values] for _, colour, values in groups
    ]
    return BarChart(_legend(groups), _rows(labels, lines))


def stacked_bars(
    labels: Sequence[str], ends: Sequence[str], parts: Sequence[tuple[str, str, Sequence[float]]]
) -> BarChart:
    """One bar of 100 percent per label, divided into parts. ``ends`` are the texts after the bars."""
    rows = []
    for place, (label, end) in enumerate(zip(labels, ends, strict=True)):
        bars, x = [], 0.0
        for number, (_, colour, values) in enumerate(parts, 1):
            width = values[place] * _BARS_WIDTH / 100
            bars.append(Bar(colour, _rounded(x), _rounded(width), end if number == len(parts) else ""))
            x += width
        rows.append(BarRow(_shown(label), (tuple(bars),)))
    return BarChart(_legend(parts), tuple(rows))


def log_bars(labels: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]], least: float) -> BarChart:
    """Bars on a logarithmic scale from ``least``, one per group and label."""
    floor = math.log10(least)
    decades = math.log10(max(10.0, *(max(values) for _, _, values in groups))) - floor

    def place(value: float) -> float:
        return _rounded(max(0.0, math.log10(max(value, least)) - floor) / decades * _BARS_WIDTH)

    lines = [[Bar(colour, 0, place(value), short(value)) for value in values] for _, colour, values in groups]
    digits = range(math.floor(floor) + 1, math.floor(floor + decades) + 1, _DECADES_BETWEEN)
    return BarChart(
        _legend(groups), _rows(labels, lines), tuple((place(10.0**each), short(10.0**each)) for each in digits)
    )


def steps(
    times: Sequence[datetime], lines: Sequence[tuple[str, str, Sequence[int]]], marks: Sequence[tuple[datetime, str]]
) -> StepChart:
    """Step lines of growing counts. Each line has a name, a colour and one value per time; ``marks`` are times with a name."""
    margin = max(timedelta(seconds=30), (times[-1] - times[0]) / 20)
    begin, span = times[0] - margin, times[-1] - times[0] + 2 * margin
    highest = [max(values) for values in zip(*(values for _, _, values in lines), strict=True)]
    top = max(1, highest[-1]) * 1.12
    heights = [(value, short(value)) for value in _heights(top)]
    left = 12 + _DIGIT_WIDTH * max(len(number) for _, number in heights)

    def x(at: datetime) -> float:
        return _rounded(left + (at - begin) / span * (_RIGHT - left))

    def y(value: float) -> float:
        return _rounded(_BOTTOM - value / top * (_BOTTOM - _TOP))

    def points(values: Sequence[int]) -> tuple[tuple[float, float], ...]:
        inner = [(x(at), y(value)) for at, value in zip(times, values, strict=True)]
        return (left, _BOTTOM), *inner, (_RIGHT, y(values[-1]))

    dots = [(x(at), y(highest[max(0, bisect_right(times, at) - 1)]), name) for at, name in marks]
    between = [begin, begin + span / 2, begin + span]
    style = "%Y-%m-%d" if span > timedelta(days=3) else "%m-%d %H:%M"
    return StepChart(
        _legend(lines), tuple((colour, points(values)) for _, colour, values in lines), tuple(_named_where_room(dots, left)),
        tuple((y(value), number) for value, number in heights), left,
        tuple((x(at), f"{at:{style}}") for at in between),
    )  # fmt: skip


def _named_where_room(dots: Iterable[tuple[float, float, str]], left: float) -> Iterable[tuple[float, float, str]]:
    """A name stands left of its dot, where a rising line leaves room; without room it is left out."""
    last = left
    for x, y, name in dots:
        has_room = x - last >= _MARK_ROOM
        yield x, y, name if has_room else ""
        last = x if has_room else last


def _heights(top: float) -> range:
    """Round numbers up to ``top``, with 0."""
    step = next(
        first * 10**digits for digits in range(20) for first in (1, 2, 5) if top / (first * 10**digits) <= _MOST_HEIGHTS
    )
    return range(0, math.floor(top) + 1, step)


def short(value: float) -> str:
    """A number with few digits: 1,234, 136.6, 0.011, 0.00025."""
    if 0 < value < 1e-4 * (1 - 1e-9):
        return "under 0.0001"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _percent(value: float) -> str:
    if value == 0:
        return "0"
    return "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def _rows(labels: Sequence[str], lines: Sequence[Sequence[Bar]]) -> tuple[BarRow, ...]:
    """A row per label, with a line of one bar per group."""
    return tuple(
        BarRow(_shown(label), tuple((bar,) for bar in bars))
        for label, bars in zip(labels, zip(*lines, strict=True), strict=True)
    )


def _legend(groups: Iterable[tuple[str, str, object]]) -> tuple[tuple[str, str], ...]:
    return tuple((colour, name) for name, colour, _ in groups)


def _shown(label: str) -> str:
    """A label that fits, without control characters: file names may contain any."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in label)
    half = _LABEL_LENGTH // 2
    return text if len(text) <= _LABEL_LENGTH else f"{text[:half]}…{text[1 - half :]}"


def _rounded(units: float) -> float:
    return round(units, 1)
