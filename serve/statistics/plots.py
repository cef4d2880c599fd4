"""Drawing charts with matplotlib, as SVG elements for a page.

Invariants
    A chart has no style attribute, no id and no address. A page with a strict Content-Security-Policy may
    contain any number of charts and makes no request for them.
    Colours are classes such as ``fill-first`` or ``line-quiet``; the page's stylesheet defines them for light and
    dark. Text stays text, in the page's font. The same numbers give the same bytes.

Matplotlib measures text in DejaVu Sans, which is wider than the fonts that browsers use, so labels fit. Charts are
360 units wide with text of 10 to 12 units, readable on a phone without zooming.
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

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
except ModuleNotFoundError as error:
    if error.name != "matplotlib":
        raise
    CAN_DRAW = False
else:
    CAN_DRAW = True
"""Whether matplotlib is installed, which is the extra ``plots``. Without it every chart is an empty string."""

WIDTH = 360
"""Width in units; a unit is a pixel when the page does not scale the chart."""

# The light colours. A chart has them too, so that it looks right outside of its page. Each has a class name.
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

# Silences the messages about building a font cache.
logging.getLogger("matplotlib").setLevel(logging.ERROR)


def steps(
    times: Sequence[datetime], lines: Sequence[tuple[str, str, Sequence[int]]], marks: Sequence[tuple[datetime, str]]
) -> str:
    """Step lines of growing counts. Each line is a label, a colour and one value per time.

    ``marks`` are times with a name; a name is drawn if there is room.
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
    """A time in days since 1970, the unit of matplotlib."""
    return at.timestamp() / 86_400


def _marks(axes: Axes, points: Sequence[tuple[float, float, str]], room: float) -> None:
    """Dots with names. A name is drawn only ``room`` away from the previous name and from the axis."""
    left, _ = axes.get_xlim()
    last_named = left + room  # a name is on the left of its dot, where a rising line leaves room
    for moment, height, name in points:
        axes.plot([moment], [height], "o", color=FIRST, markeredgecolor=GROUND, markeredgewidth=1.5, markersize=8)
        if moment - last_named >= room:
            axes.annotate(
                name, (moment, height), (-4, 7), textcoords="offset points", ha="right", color=QUIET, fontsize=10
            )
            last_named = moment


def grouped_bars(labels: Sequence[str], groups: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """Bars in percent, one per group and label, top to bottom. A group has a name, a colour and its values."""
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
    """One bar of 100 percent per label, divided into parts. ``ends`` are the texts at the ends of the bars."""

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
    """One dot per label at its count, which is above 0, on a logarithmic scale. ``ends`` are the texts after the dots."""

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
    """Observed counts as dots and expected counts as rings, on a logarithmic scale from 1/10,000."""
    least, nothing = 1e-4, 1e-5

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        for place, (count, chance) in enumerate(zip(found, expected, strict=True)):
            if count and chance >= least:
                axes.plot([place, place], [count, chance], color=LINE, linewidth=4, zorder=1)
        rings = [(place, chance) for place, chance in enumerate(expected) if chance >= least]
        dots = [(place, count) for place, count in enumerate(found) if count]
        axes.plot(*_columns(dots), "o", color=FIRST, markersize=9, label="found", zorder=3)
        axes.plot(
            *_columns(rings), "o", markerfacecolor=GROUND, markeredgecolor=SECOND, markeredgewidth=2, markersize=8,
            label="expected by chance", zorder=2,
        )  # fmt: skip
        for place, (count, chance) in enumerate(zip(found, expected, strict=True)):
            above = 1 if count >= chance else -1
            _beside(axes, place, count or nothing, above if count else 1, _compact(count), FIRST)
            if chance >= least:
                _beside(axes, place, chance, -above if count else 1, _compact(chance), QUIET)
        top = max([*found, *expected, 1.0])
        axes.set_ylim(nothing / 2 if 0 in found else least / 3, top * 30)
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
    """A number with few digits: 1,234, 136.6, 0.011, 0.00025."""
    if 0 < value < 1e-4 * (1 - 1e-9):
        return "under 0.0001"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _compact(value: float) -> str:
    """A number with very few characters: 67.6 k, 1.2 M."""
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
    """A number above (1) or below (-1) its point."""
    axes.annotate(
        text, (place, value), (0, 8 * above), textcoords="offset points", ha="center",
        va="bottom" if above > 0 else "top", color=colour, fontsize=10,
    )  # fmt: skip


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows of horizontal bars, the first at the top, and hide the other axis."""
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.yaxis.set_major_locator(FixedLocator(range(len(labels))))
    axes.set_yticklabels([_printable(label) for label in labels])
    axes.xaxis.set_major_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(NullFormatter())
    axes.spines["bottom"].set_visible(False)


def _printable(text: str) -> str:
    """A label without characters that XML forbids: file names may contain any."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=3, fontsize=11, labelcolor=INK)


def _drawn(height: int, draw: Callable[[Axes], None]) -> str:
    """An svg element of WIDTH by ``height`` units with what ``draw`` draws. The page gives it its accessible name."""
    if not CAN_DRAW:
        return ""
    file = io.StringIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about letters that DejaVu Sans lacks; the page uses another font
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    return _inlined(file.getvalue())


# From the standalone SVG of matplotlib to an element for a page.

_KEPT_STYLES = ("stroke-width", "stroke-linejoin", "stroke-linecap", "stroke-dasharray", "fill-opacity", "stroke-opacity",
                "opacity", "font-size", "font-weight", "text-anchor")  # fmt: skip
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+")


def _inlined(svg: str) -> str:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own chart
    shapes = {f"#{shape.get('id')}": shape for shape in root.iter() if shape.get("id")}
    view = root.get("viewBox", "")
    body = "".join(_element(child, shapes) for child in root)
    return (
        f'<svg viewBox="{view}" width="{WIDTH}" height="{float(view.split()[3]):.0f}" aria-hidden="true">{body}</svg>'
    )


def _element(node: ElementTree.Element, shapes: dict[str, ElementTree.Element]) -> str:
    """An element for a page: without groups, with markers drawn where they are used, with styles as attributes."""
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
    return ""  # metadata, definitions, and clips, which are not needed: nothing is drawn outside of its axes


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
