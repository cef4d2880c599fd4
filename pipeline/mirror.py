"""A private copy of another directory. Running the mirror again fetches what is new.

A directory of this project has a change feed: rows in id order, with a cursor. Other servers with
4byte.directory's API have pages only, which are asked for oldest first: what is new stands at the end. The rows are
imported like any file, with the directory's URL as the source. They get ids and times of this warehouse in the
original's order.

Invariants
    Fetched rows are appended to a spool and synced before the state that counts them is written. Bytes
    that the state does not count are cut off when the spool is opened. A kill loses one request.
    The state moves past an import only after the import is published. Repeating an import adds duplicates
    only.
    A run begins with the last page of the run before, and takes the rows that were not on it. Rows that were removed
    meanwhile move others to earlier pages: where all of a page is new, or the directory has shrunk, the pages before it
    are read again.
    The directory decides what its pages contain, so its pages alone must not decide when a walk ends: ids must rise in a
    page and from page to page, and all pages have no more rows than the directory says it has.

Pages rely on ids that rise with time. A server of this project shows rows of older ids late if rows are
POSTed while an import is published. Mirror it by its feed.

The answers of another directory: a page of the 4byte contract, a piece of our feed of changes.

An answer is counted before it is parsed. 16 MiB of ``{},`` would be half a gigabyte of empty rows.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeGuard
from urllib.parse import urlencode

import orjson

from sigdir.pipeline.errors import printable
from sigdir.pipeline.fetch import Fetcher, FetchError, NotFound, RetryPolicy, TooLarge, TooSlow, checked_base
from sigdir.pipeline.formats.rows import EVIDENCE_FIELDS
from sigdir.pipeline.mirror_state import State, folder_name
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import COUNTS, ImportReport
from sigdir.pipeline.run import Options as ImportOptions
from sigdir.pipeline.run import make_warehouse_and_say, run_import
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.files import FileLock, make_folder
from sigdir.warehouse.table.identity import usable_identity
from sigdir.warehouse.table.paths import Paths, folder_lock, mirror_spool, mirror_state

PAGE_ROWS = 1_000
"""The most rows of a page. 4byte.directory gives 100, a server of this project 100 unless it is asked for more."""
_ID_DISORDER = 1_000
"""How far an id may be below the one in front of it. Times and ids of simultaneous requests may be swapped."""
_ROW_VALUES = 32
"""The most commas and opening brackets of a row. A row of 4byte.directory has 5."""


class UnexpectedAnswer(FetchError):
    """An answer does not have the expected shape."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as lines for the spool, the oldest first, their ids, and the number of rows that the server has."""

    lines: list[bytes]
    ids: list[int]
    more: bool
    count: int = 0


def parse_page(url: str, body: bytes) -> Page:
    """Raises UnexpectedAnswer, also where the ids of the page do not rise."""
    value = _parsed(url, body, PAGE_ROWS * _ROW_VALUES)
    rows = value.get("results") if isinstance(value, dict) else None
    if not isinstance(rows, list) or "next" not in value:
        raise UnexpectedAnswer(url, "not a page of rows")
    if len(rows) > PAGE_ROWS:
        raise UnexpectedAnswer(url, f"a page of over {PAGE_ROWS:,} rows")
    more = value["next"] is not None
    if more and not rows:
        raise UnexpectedAnswer(url, "an empty page that is not the last")
    ids = [_id(url, row) for row in rows]
    for before, id in pairwise(ids):
        if id < before - _ID_DISORDER or ids[-1] < ids[0]:
            raise UnexpectedAnswer(url, f"id {id} after id {before}: the ids of a page must rise")
    count = value.get("count")
    if not _is_count(count):
        raise UnexpectedAnswer(url, "a page that does not say how many rows there are")
    return Page([_line(row) for row in rows], ids, more, count)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows as lines for the spool, the oldest first, the id of the last, and the cursor after them.

    ``left`` is how many rows the directory says it has after them.
    """

    lines: list[bytes]
    cursor: str
    more: bool
    last_id: int
    left: int


def parse_changes(url: str, body: bytes, limit: int, last_id: int = 0) -> Changes:
    """At most ``limit`` rows whose ids rise from ``last_id``.

    Raises UnexpectedAnswer, also if the last line is missing because the answer was cut short.
    """
    last: Any = None
    lines: list[bytes] = []
    for number, line in enumerate(_lines(body)):
        if number > limit:
            raise UnexpectedAnswer(url, f"over {limit:,} rows, which is more than were requested")
        if number:
            id = _id(url, last)
            if id <= last_id:
                raise UnexpectedAnswer(url, f"id {id} after id {last_id}: the ids of a feed must rise")
            last_id = id
            lines.append(_line(last))
        last = _parsed(url, line, _ROW_VALUES)
    cursor, more, left = map(last.get, ("next", "more", "left")) if isinstance(last, dict) else (None, None, None)
    if not isinstance(cursor, str) or not isinstance(more, bool) or not _is_count(left) or len(cursor) > 200:
        raise UnexpectedAnswer(url, "no rows that end with a cursor and the number of those left")
    if more and not lines:
        raise UnexpectedAnswer(url, "no rows, and more to come")
    return Changes(lines, cursor, more, last_id, left)


def _lines(body: bytes) -> Iterator[bytes]:
    """One at a time: a list of 20 M short lines takes a gigabyte."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start) + 1 or len(body)
        yield body[start:end]
        start = end


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 63


def _id(url: str, row: Any) -> int:
    if not isinstance(row, dict):
        raise UnexpectedAnswer(url, "a row that is not an object")
    id = row.get("id")
    if type(id) is not int or not 0 < id < 1 << 63:
        raise UnexpectedAnswer(url, "a row without an id")
    return id


# A string, or a character that begins a value. A string without an end is one too, so that no byte is read twice.
_STRING_OR_VALUE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[,[{]', re.DOTALL)


def _parsed(url: str, body: bytes, most_values: int) -> Any:
    """The JSON value of an answer or of a line of it; ``most_values`` bounds its commas and opening brackets."""
    left = most_values
    for found in _STRING_OR_VALUE.finditer(body):
        left -= body[found.start()] != 0x22
        if left < 0:
            raise UnexpectedAnswer(url, f"over {most_values:,} JSON values where rows belong")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UnexpectedAnswer(url, "the answer is not JSON") from None


def _line(row: dict[str, Any]) -> bytes:
    """The fields of a row that the import reads. The import counts a text of a wrong type as rejected."""
    kept = {name: row[name] for name in ("text_signature", "hex_signature", *EVIDENCE_FIELDS) if name in row}
    return orjson.dumps(kept) + b"\n"


def changes_url(base: str, collection: Collection, after: str, limit: int) -> str:
    query = {"collection": collection, "after": after, "limit": limit, "evidence": 1}
    return f"{base}/api/v1/changes/?{urlencode(query)}"


def page_url(base: str, collection: Collection, number: int) -> str:
    return f"{base}/api/v1/{collection}/?{urlencode({'ordering': 'created_at', 'page': number})}"


Way = Literal["changes", "pages"]

PAGE_BYTES = 1 << 24
"""The largest page accepted. A hundred texts of maximum length have 7 MB."""
CHANGES_BYTES = 1 << 25
CHANGES_ROWS = 20_000
"""Rows per request to the feed, about 3 MB. Fewer after an answer that was too large or too slow."""
IMPORT_BYTES = 1 << 26
"""Rows are imported in parts of about this many bytes: half a million rows, one version."""
_IMPORT_MEMORY = "128MB"
MAX_ROWS = 100_000_000
"""The most rows of a directory, unless the user allows more. The largest known have three million."""
_CHASES = 10
"""How often one run follows a directory that has grown meanwhile. The next run fetches the rest."""
_SPARE_PAGES = 10
"""So many more pages than the directory says it has may come: rows are removed meanwhile."""
_COUNTS = 3
"""How often the rows of a directory are counted before it has too few. Its workers learn of an import within a second."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to mirror and how: the command's options. ``way`` None chooses the feed if the server has one."""

    url: str
    warehouse: Path
    collections: tuple[Collection, ...] = COLLECTIONS
    way: Way | None = None
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    restart: bool = False
    wait: bool = True
    max_rows: int = MAX_ROWS


@dataclass
class MirrorReport:
    """What a run did. ``fetched`` and ``totals`` are by collection; fetched rows may repeat."""

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
        return {
            "url": self.url,
            "way": self.way,
            "requests": self.requests,
            "collections": {
                collection: {"fetched": rows} | {name: self.totals.get(collection, Counter())[name] for name in COUNTS}
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

    After any error the fetched rows are kept, and the next run continues from there.
    """
    began = time.monotonic()
    base = checked_base(options.url)
    paths = Paths(options.warehouse.absolute())
    usable_identity(paths)  # before a long walk
    make_warehouse_and_say(paths, progress)
    folder = paths.mirror(folder_name(base))
    make_folder(folder)
    report = MirrorReport(base)
    fetcher = Fetcher(options.policy, progress.note)
    with FileLock(folder_lock(folder), wait=False):
        try:
            way = options.way or _choose_way(base, fetcher)
            report.way = way
            for collection in options.collections:
                report.fetched[collection] += 0
                with closing(_Copy(base, collection, way, folder, fetcher, options, progress, report)) as copy:
                    copy.bring_up_to_date()
        finally:
            report.requests, report.seconds = fetcher.requests, time.monotonic() - began
    return report


def _choose_way(base: str, fetcher: Fetcher) -> Way:
    """The feed if the server has one, otherwise the pages."""
    url = changes_url(base, COLLECTIONS[0], "", 1)
    try:
        parse_changes(url, fetcher.get(url, CHANGES_BYTES, "application/x-ndjson"), 1)
    except (NotFound, UnexpectedAnswer):
        return "pages"
    return "changes"


class _Copy:
    """The mirror of one collection of one directory."""

    def __init__(
        self, base: str, collection: Collection, way: Way, folder: Path,
        fetcher: Fetcher, options: Options, progress: Reporter, report: MirrorReport,
    ) -> None:  # fmt: skip
        self.base, self.collection, self.way = base, collection, way
        self.fetcher, self.options, self.progress, self.report = fetcher, options, progress, report
        self.state_path = mirror_state(folder, collection)
        self.spool_path = mirror_spool(self.state_path)
        if options.restart:
            self.state_path.unlink(missing_ok=True)
        self.state = State.read(self.state_path, base)
        self.spool = open(self.spool_path, "ab")  # noqa: SIM115 - closed by close()
        if os.path.getsize(self.spool_path) < self.state.spooled:
            progress.note(f"{self.spool_path} has lost rows: {collection} starts over")
            self.state = State(base)
        self.spool.truncate(self.state.spooled)
        self.total = self.done = 0
        """The rows of the feed, or the pages of the walk, that this run fetches, 0 if that is not known; those it has."""

    def close(self) -> None:
        self.spool.close()

    def bring_up_to_date(self) -> None:
        self.progress.stage(self.collection, 0)
        if self.way == "changes":
            self.follow_changes()
        else:
            self.walk_pages()
        self.import_spool()

    def follow_changes(self) -> None:
        """Fetch the feed from the cursor to its end, and import it piece by piece."""
        limit, more, last_id, fetched, total, chases = CHANGES_ROWS, True, 0, 0, 0, 0
        is_first = True
        while more and chases <= _CHASES:
            url = changes_url(self.base, self.collection, self.state.after, limit)
            try:
                body = self.fetcher.get(url, CHANGES_BYTES, "application/x-ndjson")
            except (TooLarge, TooSlow):
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            found = parse_changes(url, body, limit, last_id)
            del body
            more, last_id = found.more, found.last_id
            if more and found.cursor == self.state.after:
                raise UnexpectedAnswer(url, "the cursor does not move")
            fetched += len(found.lines)
            if fetched > total:
                total = self.count_rows(url, fetched)
                chases += 1
            if is_first and found.lines:
                self.total = len(found.lines) + found.left
                self.progress.stage(self.collection, self.total)
            is_first = False
            self.state.after = found.cursor
            self.keep(found.lines, len(found.lines))
            del found  # 32 MiB that an import would otherwise have beside its own
            self.import_spool(IMPORT_BYTES)

    def count_rows(self, feed: str, fetched: int) -> int:
        """The rows of the directory, as its first page says. Raises UnexpectedAnswer if the feed had more."""
        url = page_url(self.base, self.collection, 1)
        for attempt in range(_COUNTS):
            with waiting():
                time.sleep(self.options.policy.delay * attempt)
            count = parse_page(url, self.fetcher.get(url, PAGE_BYTES)).count
            self.check_size(url, count)
            if fetched <= count:
                return count
        raise UnexpectedAnswer(feed, f"row {fetched:,} of a directory that says it has {count:,}")

    def check_size(self, url: str, count: int) -> None:
        """Raises UnexpectedAnswer if the directory says that it has more rows than the user allows."""
        most = self.options.max_rows
        if count > most:
            raise UnexpectedAnswer(url, f"a directory of {count:,} rows, over the limit of {most:,} (--max-rows)")

    def walk_pages(self) -> None:
        """Read pages from the last one on, and import them piece by piece.

        A run asks for at most twice the pages that there are: a directory may grow, or lose rows, as fast as it is read.
        """
        state, count, more, is_first = self.state, 0, True, True
        number, missing, left = max(1, state.pages), 0, state.pages + _SPARE_PAGES
        while more and left:
            url, is_next, left = page_url(self.base, self.collection, number), number > state.pages, left - 1
            try:
                page = parse_page(url, self.fetcher.get(url, PAGE_BYTES))
            except NotFound:  # rows were removed
                if number == 1:
                    raise
                more, missing, number = number != missing, number, number - 1
                continue
            self.check_page(url, page, number, is_next)
            is_moved = page.count < count if is_next else min(page.ids, default=0) > max(state.ids, default=1 << 63)
            if is_first and page.ids:
                self.total = max(0, -(-page.count // len(page.ids)) - state.pages)
                self.progress.stage(self.collection, self.total)
                is_first, left = False, left + 2 * self.total
            count, more = page.count, page.more
            if is_moved and number > 1:
                number, more = number - 1, True
                continue
            known, lowest = set(state.ids), 0 if number >= state.pages else min(state.ids, default=0)
            new = [line for line, id in zip(page.lines, page.ids, strict=True) if id not in known and id > lowest]
            state.pages, state.ids = number, page.ids
            self.keep(new, 1)
            self.import_spool(IMPORT_BYTES)
            number += 1

    def check_page(self, url: str, page: Page, number: int, is_next: bool) -> None:
        """Raises UnexpectedAnswer for a page of too many rows, and where one after those that were read ends below them."""
        self.check_size(url, page.count)
        highest, before = max(page.ids, default=0), max(self.state.ids, default=0)
        if is_next and highest <= before and page.ids:
            raise UnexpectedAnswer(url, f"id {highest} after id {before}: the ids of a walk must rise")
        rows = number * len(page.ids)
        if page.more and rows > page.count + _SPARE_PAGES * len(page.ids):
            raise UnexpectedAnswer(url, f"row {rows:,} of a directory that says it has {page.count:,}")

    def keep(self, lines: Iterable[bytes], units: int) -> None:
        """Append to the spool, then write the state that counts the lines; ``units`` of the stage are done."""
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
        self.progress.advance(units)
        self.done += units

    def import_spool(self, least: int = 0) -> None:
        """Import what is spooled, if it is more than ``least`` bytes."""
        if self.state.spooled <= least:
            return
        options = ImportOptions(
            [str(self.spool_path)], self.options.warehouse, self.collection, "rows",
            printable(self.base), wait=self.options.wait, memory_limit=_IMPORT_MEMORY,
        )  # fmt: skip
        self.report.count(self.collection, run_import(options, self.progress))
        failpoints.reach("imported")
        self.progress.stage(self.collection, self.total)
        self.progress.advance(self.done)
        self.state.spooled = 0  # first the state, because importing rows again does no harm
        self.state.write(self.state_path)
        self.spool.truncate(0)
