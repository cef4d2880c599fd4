"""A private copy of another directory, brought up to date by running it again.

Ours has a feed of changes: rows in the order of their ids behind a cursor. A server that speaks as
4byte.directory does has pages: they are walked from the newest row to the first page on which all rows are
known, the first time to the end. What comes is imported like any file, with the directory's URL as the source;
ids and times are our own, and rise in the order of theirs, for a walk is turned round before it is imported.

Invariants
    What was fetched is appended to a spool and synced before the state that counts it is written; what the
    state does not count is cut off when the spool is opened. A kill costs the request under way.
    The state moves behind an import only when that is published; repeated, an import brings only duplicates.
    Rows that are added while a walk is under way move others to later pages, never to earlier ones, so a walk
    that goes on after hours meets some rows twice and misses none. The next walk brings what was added.

The walk relies on ids that rise with the time: a server that shows rows late and dated back (ours does, when an
import is published beside POSTs) is for the feed.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

import orjson

from sigdir.pipeline.errors import printable
from sigdir.pipeline.fetch import (
    Fetcher,
    FetchError,
    NotThere,
    RetryPolicy,
    TooLarge,
    checked_base,
)
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options as ImportOptions
from sigdir.pipeline.run import run_import
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse import failpoints
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import FileLock, make_folder, replacing
from sigdir.warehouse.paths import Paths, folder_lock, mirror_spool, mirror_state

Way = Literal["changes", "pages"]

PAGE_BYTES = 1 << 24
"""The largest page: a hundred texts of the greatest length have 7 MB."""
CHANGES_BYTES = 1 << 26
CHANGES_ROWS = 20_000
"""Rows to ask the feed for, about 3 MB. Where an answer is too large it is asked for fewer."""
IMPORT_BYTES = 1 << 28
"""A feed's rows are imported whenever so many bytes are there: two million rows, a version of their own."""

_STATE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Options:
    """What to mirror and how; the command's flags. ``way`` None is the feed where there is one."""

    url: str
    warehouse: Path
    collections: tuple[Collection, ...] = COLLECTIONS
    way: Way | None = None
    manners: RetryPolicy = field(default_factory=RetryPolicy)
    restart: bool = False
    wait: bool = True


@dataclass
class MirrorReport:
    """What a run did; ``fetched`` and ``totals`` by collection. Rows fetched may repeat each other."""

    url: str
    way: str = ""
    requests: int = 0
    fetched: Counter[str] = field(default_factory=Counter)
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    version: int | None = None
    seconds: float = 0.0

    def count(self, collection: Collection, report: ImportReport) -> None:
        self.totals.setdefault(collection, Counter()).update(report.totals())
        self.version = report.version

    def to_dict(self) -> dict[str, Any]:
        names = ("read", "imported", "duplicate", "rejected")
        return {
            "url": self.url,
            "way": self.way,
            "requests": self.requests,
            "collections": {
                collection: {"fetched": rows} | {name: self.totals.get(collection, Counter())[name] for name in names}
                for collection, rows in self.fetched.items()
            },
            "version": self.version,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> Iterator[str]:
        """The report for people."""
        for collection, rows in self.fetched.items():
            totals = self.totals.get(collection, Counter())
            counts = ", ".join(f"{totals[name]:,} {name}" for name in ("imported", "duplicate", "rejected"))
            yield f"{collection}: {rows:,} fetched, {counts}"
        version = f"; version {self.version}" if self.version is not None else ""
        yield f"{self.requests:,} requests by {self.way} in {self.seconds:.1f} s: {self.url}{version}"


def run_mirror(options: Options, progress: Reporter) -> MirrorReport:
    """Bring the copy up to date. Raises FetchError, BadInput, a WarehouseError or OSError.

    Whatever is raised, what was fetched is kept, and the next run goes on from there.
    """
    began = time.monotonic()
    base = checked_base(options.url)
    folder = Paths(options.warehouse.absolute()).mirror(_folder_name(base))
    make_folder(folder)
    report = MirrorReport(base)
    fetcher = Fetcher(options.manners, progress.note)
    with FileLock(folder_lock(folder), wait=False):
        try:
            way = options.way or _way_of(base, fetcher)
            report.way = way
            for collection in options.collections:
                report.fetched[collection] += 0
                copy = _Copy(base, collection, way, folder, fetcher, options, progress, report)
                try:
                    copy.bring_up_to_date()
                finally:
                    copy.close()
        finally:
            report.requests, report.seconds = fetcher.requests, time.monotonic() - began
    return report


def _folder_name(base: str) -> str:
    host = re.sub("[^a-z0-9.-]", "_", (urlsplit(base).hostname or "")[:100])
    return f"{host}-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


def _way_of(base: str, fetcher: Fetcher) -> Way:
    url = _changes_url(base, COLLECTIONS[0], "", 1)
    try:
        _changes(url, fetcher.get(url, CHANGES_BYTES, "application/x-ndjson"))
    except FetchError as error:
        if isinstance(error, NotThere | _NotOurs):
            return "pages"
        raise
    return "changes"


class _NotOurs(FetchError):
    """An answer that is not what it should be."""


# What servers answer.


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows as lines to spool, the newest first, their ids, and how many the server says it has in all."""

    lines: list[bytes]
    ids: list[int]
    more: bool
    count: int = 0


def _page(url: str, body: bytes) -> _Page:
    value = _parsed(url, body)
    rows = value.get("results") if isinstance(value, dict) else None
    if not isinstance(rows, list) or "next" not in value:
        raise _NotOurs(url, "not a page of rows")
    more = value["next"] is not None
    if more and not rows:
        raise _NotOurs(url, "an empty page that is not the last")
    ids = [row["id"] for row in rows if isinstance(row, dict) and _is_count(row.get("id"))]
    if len(ids) < len(rows):
        raise _NotOurs(url, "a row without an id")
    count = value.get("count")
    return _Page([_line(row) for row in rows], ids, more, count if _is_count(count) else 0)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 63


@dataclass(frozen=True, slots=True)
class _Changes:
    """Rows as lines to spool, the oldest first, and the cursor behind them."""

    lines: list[bytes]
    cursor: str
    more: bool


def _changes(url: str, body: bytes) -> _Changes:
    """Raises _NotOurs, also for an answer without its last line: it was cut short."""
    *rows, last = [_parsed(url, line) for line in body.splitlines()] or [None]
    cursor, more = (last.get("next"), last.get("more")) if isinstance(last, dict) else (None, None)
    if not isinstance(cursor, str) or not isinstance(more, bool) or len(cursor) > 200:
        raise _NotOurs(url, "no rows that end with a cursor")
    if more and not rows:
        raise _NotOurs(url, "no rows, and more to come")
    if not all(isinstance(row, dict) for row in rows):
        raise _NotOurs(url, "a row that is no object")
    return _Changes([_line(row) for row in rows], cursor, more)


def _parsed(url: str, body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise _NotOurs(url, "the answer is no JSON") from None


def _line(row: dict[str, Any]) -> bytes:
    """What the import reads of a row. A value of a wrong kind goes along: it is counted as rejected there."""
    kept = {name: row[name] for name in ("text_signature", "hex_signature") if name in row}
    return orjson.dumps(kept) + b"\n"


def _changes_url(base: str, collection: Collection, after: str, limit: int) -> str:
    return f"{base}/api/v1/changes/?{urlencode({'collection': collection, 'after': after, 'limit': limit})}"


# How far.


@dataclass
class _State:
    """``after``: the feed's cursor behind what is in the spool or imported. ``known``: the newest id that
    walks have brought. Of the walk under way: ``pages`` in the spool, their ``newest`` id, whether it has
    ``ended``. ``spooled`` bytes of the spool count."""

    url: str
    after: str = ""
    known: int = 0
    pages: int = 0
    newest: int = 0
    ended: bool = False
    spooled: int = 0

    @classmethod
    def read(cls, path: Path, url: str) -> _State:
        """From its file, which may be missing; raises UnreadableWarehouse."""
        try:
            told = orjson.loads(path.read_bytes())
            if told.pop("format") != _STATE_FORMAT:
                raise UnreadableWarehouse(f"{path} has another format; this version writes format {_STATE_FORMAT}")
            state = cls(**told)
        except FileNotFoundError:
            return cls(url)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreadableWarehouse(f"{path} is broken; --restart begins anew") from None
        if [type(value) for value in asdict(state).values()] != [type(value) for value in asdict(cls(url)).values()]:
            raise UnreadableWarehouse(f"{path} is broken; --restart begins anew")
        return state

    def write(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(
                orjson.dumps(
                    {"format": _STATE_FORMAT, **asdict(self)}, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
                )
            )


def faults_of_states(paths: Paths) -> Iterator[tuple[Path, str]]:
    """What is wrong with what mirrors would go on from; they may run meanwhile."""
    for path in paths.mirror_states():
        before = b""
        while path.exists() and (told := path.read_bytes()) != before:  # it moved on while it was looked at
            before = told
            fault = _fault_of(path)
        if before and fault:
            yield path, fault


def _fault_of(path: Path) -> str:
    try:
        state = _State.read(path, "")
    except UnreadableWarehouse as error:
        return str(error).removeprefix(f"{path} ")
    if path.stem not in COLLECTIONS or path.parent.name != _folder_name(state.url):
        return f"is of {printable(state.url)}, whose place is {_folder_name(state.url)}"
    if state.pages and state.newest < state.known:
        return f"a walk that has met id {state.newest}, and id {state.known} was known before"
    spool = mirror_spool(path)
    size = spool.stat().st_size if spool.exists() else 0
    if size < state.spooled:
        return f"counts {state.spooled:,} bytes of a spool that has {size:,}; the next run begins anew"
    if state.spooled and not _ends_line(spool, state.spooled):
        return f"counts {state.spooled:,} bytes of its spool, which end within a line"
    return ""


def _ends_line(file: Path, at: int) -> bool:
    with file.open("rb") as lines:
        lines.seek(at - 1)
        return lines.read(1) == b"\n"


class _Copy:
    """One collection of one directory."""

    def __init__(
        self, base: str, collection: Collection, way: Way, folder: Path,
        fetcher: Fetcher, options: Options, progress: Reporter, report: MirrorReport,
    ) -> None:  # fmt: skip
        self.base, self.collection, self.way = base, collection, way
        self.fetcher, self.options, self.progress, self.report = fetcher, options, progress, report
        self.state_path = mirror_state(folder, collection)
        self.spool_path = mirror_spool(self.state_path)
        self.turned_path = folder / f"{collection}.turned.ndjson"
        if options.restart:
            self.state_path.unlink(missing_ok=True)
        self.state = _State.read(self.state_path, base)
        self.spool = open(self.spool_path, "ab")  # noqa: SIM115 - closed by close()
        if os.path.getsize(self.spool_path) < self.state.spooled:
            progress.note(f"{self.spool_path} has lost rows: {collection} begins anew")
            self.state = _State(base)
        self.spool.truncate(self.state.spooled)

    def close(self) -> None:
        self.spool.close()

    def bring_up_to_date(self) -> None:
        self.progress.stage(self.collection, 0)
        if self.way == "changes":
            self.follow()
            return
        # A walk of many pages takes a while, and brings nothing that was added behind its back.
        while self.walk() > 2:
            pass

    def follow(self) -> None:
        limit, more = CHANGES_ROWS, True
        while more:
            url = _changes_url(self.base, self.collection, self.state.after, limit)
            try:
                found = _changes(url, self.fetcher.get(url, CHANGES_BYTES, "application/x-ndjson"))
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            more = found.more
            if more and found.cursor == self.state.after:
                raise _NotOurs(url, "the cursor does not move")
            self.state.after = found.cursor
            self.keep(found.lines)
            if self.state.spooled > IMPORT_BYTES or (self.state.spooled and not more):
                self.import_(self.spool_path)
                self.emptied()

    def walk(self) -> int:
        """Walk to the first page that brings nothing new, and import; gives the number of pages."""
        state = self.state
        fetched = 0
        while not state.ended:
            query = urlencode({"ordering": "-created_at", "page": state.pages + 1})
            url = f"{self.base}/api/v1/{self.collection}/?{query}"
            try:
                page = _page(url, self.fetcher.get(url, PAGE_BYTES))
            except NotThere:
                if not state.pages:
                    raise
                page = _Page([], [], more=False)  # rows were taken away meanwhile
            if fetched == 0 and not state.known and page.ids:  # how long a first walk is can be told
                self.progress.stage(self.collection, -(-page.count // len(page.ids)))
                self.progress.advance(state.pages)
            fetched += 1
            new = [line for line, id in zip(page.lines, page.ids, strict=True) if id > state.known]
            state.newest = max(state.newest, state.known, *page.ids, 0)
            state.pages += 1
            state.ended = not page.more or not new
            self.keep(new)
        if state.spooled:
            _turn(self.spool_path, state.spooled, self.turned_path)
            self.import_(self.turned_path)
            self.turned_path.unlink()
        pages, state.known = state.pages, state.newest
        state.pages = state.newest = 0
        state.ended = False
        self.emptied()
        return pages

    def keep(self, lines: Iterable[bytes]) -> None:
        """Append to the spool, then note in the state how far it goes."""
        count = 0
        for line in lines:
            self.state.spooled += self.spool.write(line)
            count += 1
        self.spool.flush()
        os.fsync(self.spool.fileno())
        failpoints.reach("spooled")
        self.state.write(self.state_path)
        self.report.fetched[self.collection] += count
        self.progress.rows(count)
        self.progress.advance(1)

    def import_(self, lines: Path) -> None:
        options = ImportOptions(
            [str(lines)], self.options.warehouse, self.collection, "rows",
            printable(self.base), wait=self.options.wait,
        )  # fmt: skip
        self.report.count(self.collection, run_import(options, self.progress))
        failpoints.reach("imported")
        self.progress.stage(self.collection, 0)

    def emptied(self) -> None:
        """The spool is imported: the state says so first, for rows that come twice do no harm."""
        self.state.spooled = 0
        self.state.write(self.state_path)
        self.spool.truncate(0)


def _turn(source: Path, size: int, target: Path) -> None:
    """Write the first ``size`` bytes of a file, whole lines, with the last line first."""
    with (
        source.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as lines,
        target.open("wb") as out,
    ):
        end = size
        while end:
            start = lines.rfind(b"\n", 0, end - 1) + 1
            out.write(lines[start:end])
            end = start
