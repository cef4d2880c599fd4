"""The figures of a version: each has a chart, a sentence that states what the chart shows, and a table.

The macros of ``charts.html`` draw a chart from lengths between 0 and 1. Colours are names of the page's stylesheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sigdir.warehouse.sql.statistics import OTHER, Chance, CountsBy, ImportCounts, SourceCounts, Statistics

_SHOWN_TYPES = 9
_SHOWN_PARAMETERS = 9
_SHOWN_CHANCES = 8
_MAX_TABLE_ROWS = 60
_LEAST_COUNT, _LEAST_EXPECTED = 0.5, 1e-5  # where logarithmic scales begin
_LABEL_LENGTH = 28  # fits into a chart on a phone in any script

_FUNCTIONS, _EVENTS = ("first", "functions and errors"), ("second", "events")
"""A colour and what it stands for."""

Bars = tuple[tuple[str, tuple[tuple[float, str], ...]], ...]
"""A label, and for each colour of the legend a bar: its length, from 0 to 1, and the text after it."""
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure for a page; ``rows`` are the table's cells. It has ``bars``, or ``lines`` with the ends of their axes."""

    name: str
    title: str
    finding: str
    legend: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: Bars = ()
    lines: tuple[Points, ...] = ()
    ends: tuple[str, str, str] = ("", "", "")
    """The highest count, the first and the last time."""


def totals(statistics: Statistics) -> list[tuple[str, str]]:
    """The totals at the top of a page: name and number."""
    return [
        ("functions and errors", _number(statistics.rows.signatures)),
        ("events", _number(statistics.rows.events)),
        ("different selectors", _number(statistics.selectors)),
        ("different names", _number(statistics.names)),
        ("different parameter lists", _number(statistics.parameter_lists)),
        ("imports", _number(statistics.import_count)),
        ("rejected candidates", _number(sum(rows for _, rows in statistics.reasons))),
        ("on disk", _size(statistics.bytes.signatures + statistics.bytes.events)),
    ]


def figures(statistics: Statistics) -> list[Figure]:
    """The figures of a page, in order; those without data are left out."""
    makers: list[tuple[Callable[[Statistics], Figure], object]] = [
        (_growth, statistics.growth),
        (_sources, any(source.read for source in statistics.sources)),
        (_types, statistics.types),
        (_parameters, statistics.total),
        (_shared, any(chance.found or chance.expected >= 0.01 for chance in statistics.shared)),
        (_zeros, statistics.rows.signatures),
        (_styles, statistics.total),
        (_reasons, statistics.reasons),
    ]
    return [make(statistics) for make, something in makers if something]


def _growth(statistics: Statistics) -> Figure:
    growth, largest = statistics.growth, max(statistics.imports, key=lambda each: each.imported, default=None)
    finding = f"{_number(statistics.total)} rows"
    finding += f" were added on {_day(growth[0].at)}" if len(growth) == 1 else _between(growth[0].at, growth[-1].at)
    if largest and statistics.import_count > 1:
        share = _share(largest.imported, statistics.total)
        finding += f"; the largest of {statistics.import_count:,} imports, {_import_name(largest)}, added {share}"
    elif largest:
        finding += f", by {_import_name(largest)}"
    rows = [
        (
            _import_name(each), _time(each.committed_at),
            _number(each.read), _number(each.imported), _number(each.duplicate), _number(each.rejected),
        )
        for each in statistics.imports
    ]  # fmt: skip
    posted = statistics.total - sum(each.imported for each in statistics.imports)
    if posted and statistics.import_count <= len(statistics.imports):
        rows.append(("submitted one by one", "", "", _number(posted), "", ""))
    elif posted:
        rows.append(("smaller imports, and submitted one by one", "", "", _number(posted), "", ""))
    columns = ("import", "at (UTC)", "read", "new", "known", "rejected")
    first, span = growth[0].at, (growth[-1].at - growth[0].at).total_seconds() or 1
    times = [(held.at - first).total_seconds() / span for held in growth]
    most = max(1, growth[-1].signatures, growth[-1].events)
    return Figure(
        "growth", "Growth", finding + ".", (_FUNCTIONS, _EVENTS), columns, tuple(rows),
        lines=(_line(times, [held.signatures / most for held in growth]), _line(times, [held.events / most for held in growth])),
        ends=(f"{most:,} rows", f"{first:%Y-%m-%d %H:%M}", f"{growth[-1].at:%Y-%m-%d %H:%M}"),
    )  # fmt: skip


def _line(times: Sequence[float], values: Sequence[float]) -> Points:
    points = [(round(time, 4), round(value, 4)) for time, value in zip(times, values, strict=True)]
    return (*points, (1.0, points[-1][1]))


def _between(first: datetime, last: datetime) -> str:
    if f"{first:%F %H:%M}" == f"{last:%F %H:%M}":
        return f" were added on {_day(first)} at {first:%H:%M} UTC"
    if first.date() == last.date():
        return f" were added on {_day(first)} between {first:%H:%M} and {last:%H:%M} UTC"
    return f" were added between {_day(first)} and {_day(last)}"


def _import_name(each: ImportCounts) -> str:
    return f"import {each.import_id} ({each.source})" if each.source else f"import {each.import_id}"


def _sources(statistics: Statistics) -> Figure:
    sources = [source for source in statistics.sources if source.read]
    read = sum(source.read for source in sources)
    new, known, rejected = (
        sum(getattr(source, part) for source in sources) for part in ("imported", "duplicate", "rejected")
    )
    best = max(sources, key=lambda source: source.imported)
    finding = f"Of {_number(read)} candidates {_share(new, read)} were new, {_share(known, read)} known, "
    finding += f"{_share(rejected, read)} rejected"
    if len(sources) > 1 and new:
        finding += f"; {_source_name(best)} added {_share(best.imported, new)} of the new ones"
    shares = [
        [_percent(getattr(source, part), source.read) for source in sources]
        for part in ("imported", "duplicate", "rejected")
    ]
    bars = _bars([_source_name(source) for source in sources], shares, _bar_percent)
    rows = tuple(
        (
            _source_name(source), _number(source.files), _number(source.read), _number(source.imported),
            _number(source.duplicate), _number(source.rejected),
        )
        for source in sources
    )  # fmt: skip
    columns = ("source", "files", "read", "new", "known", "rejected")
    legend = (("first", "new"), ("third", "known"), ("bad", "rejected"))
    return Figure("sources", "Where rows come from", finding + ".", legend, columns, rows, bars)


def _source_name(source: SourceCounts) -> str:
    """The name of a source without its folders: a page may be public."""
    if source.path is None:
        return f"{source.files:,} other files"
    name = source.path.rstrip("/").rpartition("/")[2]
    return f"{name}/ ({source.files:,} files)" if source.path.endswith("/") else name


def _types(statistics: Statistics) -> Figure:
    types = [split for split in statistics.types if split.what != OTHER]
    all_types = _sum("all", statistics.types)
    common = types[:5]
    finding = f"Of {_number(all_types.signatures + all_types.events)} parameters "
    finding += _listing([f"{split.what} is {_share_of(split, all_types)}" for split in common[:2]])
    if len(types) > len(common):
        covered = _sum("common", common)
        finding += f"; the {len(common)} most common types are {_share_of(covered, all_types)}"
    shown = types[:_SHOWN_TYPES]
    rest = _sum("other", [split for split in statistics.types if split not in shown])
    if rest.signatures + rest.events:
        shown.append(rest)
    return _split_figure("types", "Types of parameters", finding + ".", "type", shown, all_types, statistics.types)


def _parameters(statistics: Statistics) -> Figure:
    parameters = statistics.parameters
    all_texts = statistics.rows
    shown = [split for split in parameters if int(split.what) < _SHOWN_PARAMETERS]
    more = [split for split in parameters if int(split.what) >= _SHOWN_PARAMETERS]
    if more:
        shown.append(_sum(f"{_SHOWN_PARAMETERS} or more", more))
    most = max(int(split.what) for split in parameters)
    means = []
    for collection, name in (("signatures", "functions and errors"), ("events", "events")):
        if texts := getattr(all_texts, collection):
            mean = sum(int(split.what) * getattr(split, collection) for split in parameters) / texts
            means.append(f"{name} have {mean:.2f}")
    finding = f"On average {_listing(means)} parameters; the longest list has {most:,}."
    listed = (
        (*parameters[: _MAX_TABLE_ROWS - 1], _sum("more", parameters[_MAX_TABLE_ROWS - 1 :]))
        if parameters[_MAX_TABLE_ROWS:]
        else parameters
    )
    return _split_figure("parameters", "Number of parameters", finding, "parameters", shown, all_texts, listed)


def _styles(statistics: Statistics) -> Figure:
    shown = [split for split in statistics.styles if split.signatures + split.events]
    finding = []
    for collection, name in (("signatures", "function and error"), ("events", "event")):
        if total := getattr(statistics.rows, collection):
            best = max(shown, key=lambda split: getattr(split, collection))
            finding.append(f"{_share(getattr(best, collection), total)} of {name} names are {_style_name(best.what)}")
    named = [CountsBy(_style_name(split.what), split.signatures, split.events) for split in shown]
    text = _listing(finding) + "."
    return _split_figure("styles", "Styles of names", text, "style", named, statistics.rows, named)


def _style_name(style: str) -> str:
    return {OTHER: "with $", "lowercase": "one lowercase word"}.get(style, style)


def _shared(statistics: Statistics) -> Figure:
    texts = statistics.rows.signatures
    found = sum(chance.found for chance in statistics.shared)
    expected = sum(chance.expected for chance in statistics.shared)
    finding = (
        f"{_counted(found, 'selector has', 'selectors have')} more than one text; {_number(texts)} random selectors "
    )
    finding += f"of 32 bits would give {_short(expected)}"
    if statistics.most_shared:
        finding += f"; {statistics.most_shared} has the most, {statistics.shared[-1].of:,}"
    labels = [f"{chance.of:,} texts" for chance in _shown(statistics.shared)]
    return _chance_figure(
        "shared",
        "Selectors with several texts",
        finding + ".",
        labels,
        statistics.shared,
        "texts of a selector",
        "selectors",
    )


def _zeros(statistics: Statistics) -> Figure:
    sixth = statistics.zeros[5]
    finding = f"{_counted(sixth.found, 'text has a selector', 'texts have selectors')} that begin"
    finding += f"{'s' if sixth.found < 2 else ''} with six zeros or more; chance would give {_short(sixth.expected)}"
    finding += (
        ". Developers search for such names, because zeros cost less gas"
        if sixth.found > 3 * sixth.expected + 1
        else ""
    )
    labels = [f"{chance.of} zero{'s' if chance.of > 1 else ''} or more" for chance in _shown(statistics.zeros)]
    return _chance_figure(
        "zeros", "Selectors that begin with zeros", finding + ".", labels, statistics.zeros,
        "zero digits at the start, at least", "texts",
    )  # fmt: skip


def _reasons(statistics: Statistics) -> Figure:
    reasons = statistics.reasons
    rejected = sum(rows for _, rows in reasons)
    (first, most), *others = reasons
    finding = f"{_counted(rejected, 'candidate was', 'candidates were')} rejected, {_share(most, rejected)} as {first}"
    if others:
        finding += f", {_share(others[0][1], rejected)} as {others[0][0]}"
    shares = [_share(rows, rejected) for _, rows in reasons]
    counts = [rows for _, rows in reasons]
    bars = _bars([reason for reason, _ in reasons], [counts], _short, _LEAST_COUNT)
    rows = tuple((reason, _number(rows), share) for (reason, rows), share in zip(reasons, shares, strict=True))
    return Figure(
        "reasons", "Why candidates are rejected", finding + ".", (("bad", "candidates"),),
        ("reason", "candidates", "share"), rows, bars,
    )  # fmt: skip


def _split_figure(
    name: str,
    title: str,
    finding: str,
    what: str,
    shown: Sequence[CountsBy],
    whole: CountsBy,
    listed: Sequence[CountsBy],
) -> Figure:
    """Bars in percent of each collection, and a table that also has the counts."""
    shares = {
        _FUNCTIONS: [_percent(split.signatures, whole.signatures) for split in shown],
        _EVENTS: [_percent(split.events, whole.events) for split in shown],
    }
    shares = {what: values for what, values in shares.items() if any(values)}
    bars = _bars([split.what for split in shown], list(shares.values()), _bar_percent)
    rows = tuple(
        (
            split.what, _number(split.signatures), _share(split.signatures, whole.signatures),
            _number(split.events), _share(split.events, whole.events),
        )
        for split in listed
    )  # fmt: skip
    columns = (what, "functions and errors", "share", "events", "share")
    return Figure(name, title, finding, tuple(shares), columns, rows, bars)


def _chance_figure(
    name: str, title: str, finding: str, labels: Sequence[str], chances: Sequence[Chance], what: str, of: str
) -> Figure:
    shown = _shown(chances)
    bars = _bars(labels, [[each.found for each in shown], [each.expected for each in shown]], _short, _LEAST_EXPECTED)
    rows = tuple((f"{each.of:,}", _number(each.found), _short(each.expected)) for each in chances[:_MAX_TABLE_ROWS])
    legend = (("first", "found"), ("second", "expected by chance"))
    return Figure(name, title, finding, legend, (what, f"{of} found", "expected by chance"), rows, bars)


def _bars(
    labels: Sequence[str], groups: Sequence[Sequence[float]], text: Callable[[float], str], least: float = 0.0
) -> Bars:
    """A bar for each label and group, on a logarithmic scale where that begins at ``least``."""
    most = max(map(max, groups)) or 1

    def length(value: float) -> float:
        if not least:
            return value / most
        return max(0.0, math.log10(max(value, least) / least)) / math.log10(max(10.0, most / least))

    return tuple(
        (_label(label), tuple((round(length(value), 4), text(value)) for value in values))
        for label, values in zip(labels, zip(*groups, strict=True), strict=True)
    )


def _label(text: str) -> str:
    """A label that fits, without control characters: file names may contain any."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    half = _LABEL_LENGTH // 2
    return shown if len(shown) <= _LABEL_LENGTH else f"{shown[:half]}…{shown[1 - half :]}"


def _bar_percent(value: float) -> str:
    if value == 0:
        return "0"
    return "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def _short(value: float) -> str:
    """A number with few digits: 1,234, 136.6, 0.011, 0.00025."""
    if 0 < value < 1e-4 * (1 - 1e-9):
        return "under 0.0001"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _shown(chances: Sequence[Chance]) -> Sequence[Chance]:
    """The first few, and always the last."""
    return chances if len(chances) <= _SHOWN_CHANCES else [*chances[: _SHOWN_CHANCES - 1], chances[-1]]


def _sum(what: str, splits: Sequence[CountsBy]) -> CountsBy:
    return CountsBy(what, sum(split.signatures for split in splits), sum(split.events for split in splits))


def _share_of(split: CountsBy, whole: CountsBy) -> str:
    return _share(split.signatures + split.events, whole.signatures + whole.events)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _share(part: int, whole: int) -> str:
    """A share in percent; only all is 100 % and only nothing is 0 %."""
    percent = _percent(part, whole)
    if 0 < percent < 0.05:
        return "under 0.1\u00a0%"
    if 99.95 <= percent < 100:
        return "over 99.9\u00a0%"
    return f"{percent:.1f}\u00a0%" if 0 < percent < 100 else f"{percent:.0f}\u00a0%"


def _number(value: int) -> str:
    return f"{value:,}"


def _size(octets: int) -> str:
    return f"{octets / 1e6:,.1f} MB" if octets >= 1e5 else f"{octets / 1e3:,.1f} kB"


def _counted(value: int, one: str, many: str) -> str:
    return f"{value:,} {many}" if value > 1 else f"{'1' if value else 'No'} {one}"


def _listing(parts: Sequence[str]) -> str:
    return " and ".join(parts)


def _day(at: datetime) -> str:
    return f"{at.day} {at:%B %Y}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
