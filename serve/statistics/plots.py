"""Drawing with matplotlib, to SVG that lives inside a page.

Invariants
    A drawing has no style attribute, no id and no address: a page under a strict Content-Security-Policy
    may hold any number of them, and asks nobody for anything.
    Colours are classes, ``fill-first`` or ``line-quiet``, that the page's stylesheet fills in for light and
    dark. Text is text, in the page's font. The same numbers give the same bytes.

Matplotlib measures with DejaVu Sans, which is wider than what systems have, so labels fit. Drawings are
360 units wide with text of 10 to 12: at a phone's width that is read without zooming.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

WIDTH = 360
"""Units; a unit is a pixel where the page shows a drawing in its own size."""

# The light colours, so that a drawing taken out of its page is right too; each is a class by its name.
INK, QUIET, LINE, GROUND = "#1b1d22", "#5c606a", "#dddcd4", "#ffffff"
FIRST, SECOND, THIRD, BAD = "#2453a6", "#d9730d", "#868d99", "#b3261e"
_CLASSES = {
    INK: "ink", QUIET: "quiet", LINE: "line", GROUND: "ground",
    FIRST: "first", SECOND: "second", THIRD: "third", BAD: "bad",
}  # fmt: skip

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.labelcolor": QUIET,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "grid.color": LINE,
    "grid.linewidth": 1,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.columnspacing": 1.2,
    "legend.frameon": False,
    "legend.handleheight": 0.8,
    "legend.handlelength": 0.8,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 2,
    "svg.fonttype": "none",
    "svg.hashsalt": "sigdir",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": QUIET,
    "xtick.labelsize": 11,
    "xtick.major.size": 0,
    "ytick.color": INK,
    "ytick.labelsize": 11,
    "ytick.major.size": 0,
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

# It tells that it looks for fonts for the first time, and where it keeps what it found.
logging.getLogger("matplotlib").setLevel(logging.ERROR)


def steps(
    times: Sequence[datetime], lines: Sequence[tuple[str, str, Sequence[int]]], marks: Sequence[tuple[datetime, str]]
) -> str:
    """Counts that rise at moments; each line is a label, a colour and a value a time.

    ``marks`` are moments with a name that is told where there is room.
    """

    days = [_days(at) for at in times]
    margin = max(30 / 86_400, (days[-1] - days[0]) / 20)
    ends = (days[0] - margin, days[-1] + margin)

    def draw(axes: Axes) -> None:
        for label, colour, values in lines:
            moments, heights = [ends[0], *days, ends[1]], [0, *values, values[-1]]
            axes.fill_between(moments, heights, step="post", color=colour, alpha=0.15, linewidth=0)
            axes.plot(moments, heights, drawstyle="steps-post", color=colour, label=label)
        highest = [max(heights) for heights in zip(*(values for _, _, values in lines), strict=True)]
        points = [(_days(at), highest[max(0, bisect_right(times, at) - 1)], name) for at, name in marks]
        axes.set_xlim(*ends)
        _marks(axes, points, (ends[1] - ends[0]) / 9)
        axes.set_ylim(0, max(1, highest[-1]) * 1.12)
        locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="y")
        _legend(axes)

    return _drawn(260, draw)


def _days(at: datetime) -> float:
    """A time as matplotlib counts it."""
    return at.timestamp() / 86_400


def _marks(axes: Axes, points: Sequence[tuple[float, float, str]], room: float) -> None:
    """Dots with names, a name only where the one before, or the scale, is ``room`` away."""
    left, _ = axes.get_xlim()
    told = left + room  # a name stands to the left of its dot, where a line that rises leaves room
    for moment, height, name in points:
        axes.plot([moment], [height], "o", color=FIRST, markeredgecolor=GROUND, markeredgewidth=1.5, markersize=8)
        if moment - told >= room:
            axes.annotate(
                name, (moment, height), (-4, 7), textcoords="offset points", ha="right", color=QUIET, fontsize=10
            )
            told = moment


def grouped_bars(labels: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """A bar of each group for each label, top to bottom, in percent; a group has a name, a colour, its values."""
    height = 0.76 / len(groups)

    def draw(axes: Axes) -> None:
        for number, (name, colour, values) in enumerate(groups):
            places = [place + (number - (len(groups) - 1) / 2) * (height + 0.03) for place in range(len(labels))]
            bars = axes.barh(places, values, height=height, color=colour, label=name)
            axes.bar_label(bars, [_percent(value) for value in values], padding=4, color=QUIET, fontsize=10)
        axes.set_xlim(0, max(1e-9, *(max(values) for _, _, values in groups)) * 1.16)
        _rows(axes, labels)
        _legend(axes)

    return _drawn(60 + (16 + 8 * len(groups)) * len(labels), draw)


def stacked_bars(labels: Sequence[str], ends: Sequence[str], parts: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """A bar of 100 percent for each label, cut into parts; ``ends`` stand behind the bars."""

    def draw(axes: Axes) -> None:
        left = [0.0] * len(labels)
        for name, colour, values in parts:
            axes.barh(range(len(labels)), values, left=left, height=0.58, color=colour, label=name)
            left = [before + value for before, value in zip(left, values, strict=True)]
        for place, end in enumerate(ends):
            axes.text(102, place, end, va="center", color=QUIET, fontsize=11)
        axes.set_xlim(0, 100)
        _rows(axes, labels)
        _legend(axes)

    return _drawn(60 + 34 * len(labels), draw)


def log_dots(labels: Sequence[str], values: Sequence[int], ends: Sequence[str], colour: str) -> str:
    """A dot for each label at a count above 0, on a scale of logarithms; ``ends`` stand behind the dots."""

    def draw(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.hlines(range(len(labels)), 0.6, values, color=colour, linewidth=2)
        axes.plot(values, range(len(labels)), "o", color=colour, markersize=8, clip_on=False)
        for place, (value, end) in enumerate(zip(values, ends, strict=True)):
            axes.annotate(
                end, (value, place), (9, 0), textcoords="offset points", va="center", color=QUIET, fontsize=11
            )
        _rows(axes, labels)
        axes.set_xlim(0.6, max(values) ** 1.25 * 5)
        axes.xaxis.set_major_locator(FixedLocator([10**digits for digits in range(0, len(str(max(values))), 2)]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.grid(axis="x")

    return _drawn(44 + 32 * len(labels), draw)


def against_chance(labels: Sequence[str], found: Sequence[int], expected: Sequence[float], what: str) -> str:
    """What was found as dots, what chance gives as rings, on a scale of logarithms that ends at 1/10,000."""
    floor, nothing = 1e-4, 1e-5

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for place, (count, chance) in enumerate(zip(found, expected, strict=True)):
            if count and chance >= floor:
                axes.plot([place, place], [count, chance], color=LINE, linewidth=4, zorder=1)
        rings = [(place, chance) for place, chance in enumerate(expected) if chance >= floor]
        dots = [(place, count) for place, count in enumerate(found) if count]
        axes.plot(*_columns(dots), "o", color=FIRST, markersize=9, label="found", zorder=3)
        axes.plot(
            *_columns(rings), "o", markerfacecolor=GROUND, markeredgecolor=SECOND, markeredgewidth=2, markersize=8,
            label="expected by chance", zorder=2,
        )  # fmt: skip
        for place, (count, chance) in enumerate(zip(found, expected, strict=True)):
            above = 1 if count >= chance else -1
            _beside(axes, place, count or nothing, above if count else 1, _compact(count), FIRST)
            if chance >= floor:
                _beside(axes, place, chance, -above if count else 1, _compact(chance), QUIET)
        top = max([*found, *expected, 1.0])
        axes.set_ylim(nothing / 2 if 0 in found else floor / 3, top * 30)
        axes.set_xlim(-0.6, len(labels) - 0.4)
        axes.xaxis.set_major_locator(FixedLocator(range(len(labels))))
        axes.set_xticklabels(labels)
        axes.set_xlabel(what)
        axes.yaxis.set_major_locator(LogLocator(base=100, numticks=9))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value) if value > nothing else ""))
        axes.grid(axis="y")
        _legend(axes)

    return _drawn(300, draw)


def short(value: float) -> str:
    """A number in as few digits as tell it: 1,234, 136.6, 0.011, 0.00025."""
    if 0 < value < 1e-4 * (1 - 1e-9):
        return "under 0.0001"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _compact(value: float) -> str:
    """A number where there is room for few letters: 67.6 k, 1.2 M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * unit or (value >= unit and unit > 1e3):
            return f"{value / unit:.3g} {name}"
    return short(value)


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [place for place, _ in points], [value for _, value in points]


def _percent(value: float) -> str:
    if value == 0:
        return "0"
    return "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def _beside(axes: Axes, place: int, value: float, above: int, text: str, colour: str) -> None:
    """A number over (1) or under (-1) its point."""
    axes.annotate(
        text, (place, value), (0, 8 * above), textcoords="offset points", ha="center",
        va="bottom" if above > 0 else "top", color=colour, fontsize=10,
    )  # fmt: skip


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of horizontal bars, the first at the top, and show no other scale."""
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.yaxis.set_major_locator(FixedLocator(range(len(labels))))
    axes.set_yticklabels([_printable(label) for label in labels])
    axes.xaxis.set_major_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(NullFormatter())
    axes.spines["bottom"].set_visible(False)


def _printable(text: str) -> str:
    """A label that XML can hold: names of files may have anything in them."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=3, fontsize=11, labelcolor=INK)


def _drawn(height: int, draw: Callable[[Axes], None]) -> str:
    """What is drawn on axes of WIDTH by so many units, as an svg element; whoever shows it names it."""
    file = io.StringIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that DejaVu Sans lacks; the page's font has its own
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    return _inlined(file.getvalue())


# From a drawing for itself to one for a page.

_KEPT_STYLES = ("stroke-width", "stroke-linejoin", "stroke-linecap", "stroke-dasharray", "fill-opacity", "stroke-opacity",
                "opacity", "font-size", "font-weight", "text-anchor")  # fmt: skip
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+")


def _inlined(svg: str) -> str:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own drawing
    shapes = {f"#{shape.get('id')}": shape for shape in root.iter() if shape.get("id")}
    view = root.get("viewBox", "")
    body = "".join(_element(child, shapes) for child in root)
    return (
        f'<svg viewBox="{view}" width="{WIDTH}" height="{float(view.split()[3]):.0f}" aria-hidden="true">{body}</svg>'
    )


def _element(node: ElementTree.Element, shapes: dict[str, ElementTree.Element]) -> str:
    """An element as a page has it: groups left out, markers drawn where they are used, styles as attributes."""
    name = node.tag.rpartition("}")[2]
    if name == "g":
        return "".join(_element(child, shapes) for child in node)
    if name == "use":
        shape = shapes[node.get(_HREF, "")]
        moved = {"d": shape.get("d", ""), "transform": f"translate({node.get('x')} {node.get('y')})"}
        return _written("path", moved, f"{shape.get('style', '')}; {node.get('style', '')}", "")
    if name in ("path", "text"):
        kept = {key: node.get(key, "") for key in ("d", "x", "y", "transform") if node.get(key)}
        return _written(name, kept, node.get("style", ""), node.text or "")
    return ""  # metadata, definitions, clips: nothing is drawn outside its axes


def _written(tag: str, attributes: dict[str, str], style: str, text: str) -> str:
    parts = (declaration.partition(":") for declaration in style.split(";") if ":" in declaration)
    declared = {name.strip(): value.strip() for name, _, value in parts}
    fill, stroke = declared.get("fill", INK), declared.get("stroke", "none")
    if fill == stroke == "none":
        return ""
    classes = [f"fill-{_CLASSES[fill]}"] if fill != "none" else []
    classes += [f"line-{_CLASSES[stroke]}"] if stroke != "none" else []
    if attributes.get("transform", "").startswith("rotate(-0"):
        del attributes["transform"]
    attributes |= {key: declared[key].removesuffix("px") for key in _KEPT_STYLES if key in declared}
    made = ElementTree.Element(tag, {"class": " ".join(classes)})
    for key, value in attributes.items():
        made.set(key, " ".join(_NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), value).split()))
    if fill == "none":
        made.set("fill", "none")
    made.text = text or None
    return ElementTree.tostring(made, encoding="unicode")
