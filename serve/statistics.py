"""The figures of a version, and their HTML: each has a chart, a sentence that states what the chart shows, and a table.

The macros of ``charts.html`` draw a chart from lengths between 0 and 1. Colours are names of the page's stylesheet. The
page of `sigdir report` is one self-contained file.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import jinja2

from sigdir.signatures.errors import counted
from sigdir.warehouse.sql.statistics import OTHER, Chance, CountsBy, ImportCounts, SourceCounts, Statistics

_SHOWN_BARS = 9
_SHOWN_CHANCES = 8
_COMMON_TYPES = 5
_MAX_TABLE_ROWS = 60
_LEAST_COUNT, _LEAST_EXPECTED = 0.5, 1e-5  # where logarithmic scales begin
_LOGARITHMIC = "The scale is logarithmic."
_LABEL_LENGTH = 28  # fits into a chart on a phone in any script

_COLLECTIONS = (("first", "functions and errors"), ("second", "events"))
"""A colour and what it stands for."""
_OUTCOMES = ("imported", "duplicate", "rejected")

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
    rows: Sequence[tuple[str | int, ...]]
    bars: Bars = ()
    lines: tuple[Points, ...] = ()
    ends: tuple[str, str, str] = ("", "", "")
    """The highest count, the first and the last time."""


def totals(statistics: Statistics) -> list[tuple[str, str | int]]:
    """The totals at the top of a page: name and number."""
    octets = statistics.bytes.total
    return [
        ("functions and errors", statistics.rows.signatures),
        ("events", statistics.rows.events),
        ("different selectors", statistics.selectors),
        ("different names", statistics.names),
        ("different parameter lists", statistics.parameter_lists),
        ("imports", statistics.import_count),
        ("rejected candidates", sum(rows for _, rows in statistics.reasons)),
        ("on disk", f"{octets / 1e6:,.1f} MB" if octets >= 1e5 else f"{octets / 1e3:,.1f} kB"),
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
    growth, imports, total = statistics.growth, statistics.imports, statistics.total
    first, last = growth[0].at, growth[-1].at
    began, ended = _minute(first), _minute(last)
    when = f"between {began} and {ended} UTC" if began != ended else f"at {began} UTC"
    largest = max(imports, key=lambda each: each.imported, default=None)
    rows: list[tuple[str | int, ...]] = [
        (_import_name(each), f"{each.committed_at:%Y-%m-%d %H:%M:%S}", each.read, *_counts(each)) for each in imports
    ]
    if others := total - sum(each.imported for each in imports):
        smaller = "smaller imports, and " if statistics.import_count > len(imports) else ""
        rows.append((f"{smaller}submitted one by one", "", "", others, "", ""))
    span, most = (last - first).total_seconds() or 1, max(1, growth[-1].signatures, growth[-1].events)
    times = [(held.at - first).total_seconds() / span for held in growth]
    return Figure(
        "growth", "Growth",
        f"{total:,} rows were added {when}"
        + (f"; the largest import, {_import_name(largest)}, added {_share(largest.imported, total)}." if largest else "."),
        _COLLECTIONS, ("import", "at (UTC)", "read", "new", "known", "rejected"), rows,
        lines=tuple(
            _line(times, [getattr(held, which) / most for held in growth]) for which in ("signatures", "events")
        ),
        ends=(f"{most:,} rows", began, ended),
    )  # fmt: skip


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _counts(of: ImportCounts | SourceCounts) -> list[int]:
    return [getattr(of, outcome) for outcome in _OUTCOMES]


def _line(times: Sequence[float], values: Sequence[float]) -> Points:
    points = [(round(time, 4), round(value, 4)) for time, value in zip(times, values, strict=True)]
    return (*points, (1.0, points[-1][1]))


def _import_name(each: ImportCounts) -> str:
    return f"import {each.import_id} ({each.source})" if each.source else f"import {each.import_id}"


def _sources(statistics: Statistics) -> Figure:
    sources = [source for source in statistics.sources if source.read]
    names = list(map(_source_name, sources))
    read = sum(source.read for source in sources)
    new, known, rejected = (_share(sum(counts), read) for counts in zip(*map(_counts, sources), strict=True))
    groups = [[_percent(count, source.read) for count in _counts(source)] for source in sources]
    return Figure(
        "sources", "Where rows come from",
        f"Of {read:,} candidates {new} were new, {known} known, {rejected} rejected.",
        (("first", "new"), ("third", "known"), ("bad", "rejected")),
        ("source", "files", "read", "new", "known", "rejected"),
        [(name, one.files, one.read, *_counts(one)) for name, one in zip(names, sources, strict=True)],
        _bars(names, groups, _percent_text),
    )  # fmt: skip


def _source_name(source: SourceCounts) -> str:
    """The name of a source without its folders: a page may be public."""
    if source.path is None:
        return f"{source.files:,} other files"
    name = source.path.rstrip("/").rpartition("/")[2]
    return f"{name}/ ({source.files:,} files)" if source.path.endswith("/") else name


def _types(statistics: Statistics) -> Figure:
    types = [split for split in statistics.types if split.what != OTHER]
    whole = _sum("all", statistics.types)
    commonest = " and ".join(f"{split.what} is {_share(split.total, whole.total)}" for split in types[:2])
    covered = _share(_sum("common", types[:_COMMON_TYPES]).total, whole.total)
    finding = f"Of {whole.total:,} parameters {commonest}; the {_COMMON_TYPES} most common types are {covered}."
    rest = _sum("other", [split for split in statistics.types if split not in types[:_SHOWN_BARS]])
    shown = [*types[:_SHOWN_BARS], *([rest] if rest.total else ())]
    return _split_figure("types", "Types of parameters", finding, "type", shown, whole, statistics.types)


def _parameters(statistics: Statistics) -> Figure:
    splits, texts = statistics.parameters, statistics.total
    mean = sum(int(split.what) * split.total for split in splits) / texts
    most = max(int(split.what) for split in splits)
    finding = f"A text has {mean:.2f} parameters on average; the longest list has {most:,}."
    shown = [split for split in splits if int(split.what) < _SHOWN_BARS]
    if more := [split for split in splits if int(split.what) >= _SHOWN_BARS]:
        shown.append(_sum(f"{_SHOWN_BARS} or more", more))
    listed = [*splits[:_MAX_TABLE_ROWS]]
    if splits[_MAX_TABLE_ROWS:]:
        listed.append(_sum("more", splits[_MAX_TABLE_ROWS:]))
    return _split_figure("parameters", "Number of parameters", finding, "parameters", shown, statistics.rows, listed)


def _styles(statistics: Statistics) -> Figure:
    names = {OTHER: "with $", "lowercase": "one lowercase word"}
    styles = [replace(split, what=names.get(split.what, split.what)) for split in statistics.styles if split.total]
    best = max(styles, key=lambda split: split.total)
    finding = f"{_share(best.total, statistics.total)} of the names are {best.what}."
    return _split_figure("styles", "Styles of names", finding, "style", styles, statistics.rows, styles)


def _shared(statistics: Statistics) -> Figure:
    found = sum(chance.found for chance in statistics.shared)
    expected = sum(chance.expected for chance in statistics.shared)
    finding = f"{counted(found, 'selector')} with more than one text; "
    finding += f"{statistics.rows.signatures:,} random selectors of 32 bits would give {_short(expected)}"
    if statistics.most_shared:
        finding += f"; {statistics.most_shared} has the most, {statistics.shared[-1].of:,}"
    return _chance_figure(
        "shared", "Selectors with several texts", finding, "{:,} texts", statistics.shared, "texts of a selector",
        "selectors",
    )  # fmt: skip


def _zeros(statistics: Statistics) -> Figure:
    sixth = statistics.zeros[5]
    finding = f"{counted(sixth.found, 'text')} with six zeros or more at the start of the selector; "
    finding += f"chance would give {_short(sixth.expected)}"
    if sixth.found > 3 * sixth.expected + 1:
        finding += ". Developers search for such names, because zeros cost less gas"
    return _chance_figure(
        "zeros", "Selectors that begin with zeros", finding, "{} or more", statistics.zeros,
        "zero digits at the start, at least", "texts",
    )  # fmt: skip


def _reasons(statistics: Statistics) -> Figure:
    rejected = sum(rows for _, rows in statistics.reasons)
    rows = [(reason, count, _share(count, rejected)) for reason, count in statistics.reasons]
    commonest = ", ".join(f"{share} as {reason}" for reason, _, share in rows[:2])
    return Figure(
        "reasons", "Why candidates are rejected",
        f"{counted(rejected, 'candidate')} rejected, {commonest}. {_LOGARITHMIC}",
        (("bad", "candidates"),), ("reason", "candidates", "share"), rows,
        _bars([reason for reason, _, _ in rows], [[count] for _, count, _ in rows], _short, _LEAST_COUNT),
    )  # fmt: skip


def _split_figure(
    name: str, title: str, finding: str, what: str, shown: Sequence[CountsBy], whole: CountsBy, listed: Sequence[CountsBy]
) -> Figure:  # fmt: skip
    """Bars in percent of each collection, and a table that also has the counts."""
    groups = [[_percent(split.signatures, whole.signatures), _percent(split.events, whole.events)] for split in shown]
    rows = [
        (
            split.what, split.signatures, _share(split.signatures, whole.signatures),
            split.events, _share(split.events, whole.events),
        )
        for split in listed
    ]  # fmt: skip
    columns = (what, "functions and errors", "share", "events", "share")
    return Figure(
        name, title, finding, _COLLECTIONS, columns, rows, _bars([split.what for split in shown], groups, _percent_text)
    )


def _chance_figure(
    name: str, title: str, finding: str, label: str, chances: Sequence[Chance], what: str, of: str
) -> Figure:
    shown = chances if len(chances) <= _SHOWN_CHANCES else [*chances[: _SHOWN_CHANCES - 1], chances[-1]]
    groups = [[each.found, each.expected] for each in shown]
    return Figure(
        name, title, f"{finding}. {_LOGARITHMIC}", (("first", "found"), ("second", "expected by chance")),
        (what, f"{of} found", "expected by chance"),
        [(each.of, each.found, _short(each.expected)) for each in chances[:_MAX_TABLE_ROWS]],
        _bars([label.format(each.of) for each in shown], groups, _short, _LEAST_EXPECTED),
    )  # fmt: skip


def _bars(
    labels: Sequence[str], groups: Sequence[Sequence[float]], text: Callable[[float], str], least: float = 0.0
) -> Bars:
    """For each label a bar for each value of its group, on a logarithmic scale where that begins at ``least``."""
    most = max(map(max, groups)) or 1

    def length(value: float) -> float:
        if not least:
            return value / most
        return max(0.0, math.log10(max(value, least) / least)) / math.log10(max(10.0, most / least))

    return tuple(
        (_label(label), tuple((round(length(value), 4), text(value)) for value in values))
        for label, values in zip(labels, groups, strict=True)
    )


def _label(text: str) -> str:
    """A label that fits, without control characters: file names may contain any."""
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    half = _LABEL_LENGTH // 2
    return shown if len(shown) <= _LABEL_LENGTH else f"{shown[:half]}…{shown[1 - half :]}"


def _short(value: float) -> str:
    """A number with few digits: 1,234, 136.6, 0.011, 0.00025."""
    if 0 < value < 1e-4 * (1 - 1e-9):
        return "under 0.0001"
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _sum(what: str, splits: Sequence[CountsBy]) -> CountsBy:
    return CountsBy(what, sum(split.signatures for split in splits), sum(split.events for split in splits))


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _share(part: int, whole: int) -> str:
    return _percent_text(_percent(part, whole))


def _percent_text(percent: float) -> str:
    """A share in percent; only all is 100 % and only nothing is 0 %."""
    if 0 < percent < 0.05:
        return "under 0.1\u00a0%"
    if 99.95 <= percent < 100:
        return "over 99.9\u00a0%"
    return f"{percent:.1f}\u00a0%" if 0 < percent < 100 else f"{percent:.0f}\u00a0%"


_PAGES = Path(__file__).parent / "pages"
_STYLES = ("site.css", "plots.css")
TEMPLATES = [_PAGES / "templates" / name for name in ("figures.html", "charts.html")]


def rendered_figures(found: Statistics, template: str = "figures.html", **values: str) -> str:
    """The totals and the figures, or a template that includes them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(totals=totals(found), figures=figures(found), **values)


def page(found: Statistics) -> bytes:
    """The page, with its style inside. Its Content-Security-Policy permits that style by hash, and nothing else."""
    style = "".join((_PAGES / "assets" / name).read_text() for name in _STYLES)
    digest = "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text = rendered_figures(
        found, "report.html", title="Signature directory", about=about(found), style=style, digest=digest
    )
    return text.encode(errors="backslashreplace")


def about(found: Statistics) -> str:
    """A sentence that names the version of the numbers."""
    if found.version < 1 or not found.committed_at:  # version 0 has the table and no rows
        return "Nothing is imported yet, so there is nothing to show. Run sigdir import PATH... first."
    return f"Version {found.version:,} of {found.committed_at:%Y-%m-%d %H:%M} UTC."
