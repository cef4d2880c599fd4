"""A private copy of another directory. Running the mirror again fetches what is new.

A directory of this project has a change feed: rows in id order, with a cursor. Other servers with
4byte.directory's API have pages only. A walk reads them from the newest row to the first page without a new
row; the first walk goes to the last page. The rows are imported like any file, with the directory's URL as
the source. They get ids and times of this warehouse in the original's order, because the lines of a walk are
reversed before the import.

Invariants
    Fetched rows are appended to a spool and synced before the state that counts them is written. Bytes
    that the state does not count are cut off when the spool is opened. A kill loses one request.
    The state moves past an import only after the import is published. Repeating an import adds duplicates
    only.
    Rows that are added during a walk move other rows to later pages, never to earlier ones. So a walk that
    continues after hours sees some rows twice and misses none. The next walk fetches the added rows.

A walk relies on ids that rise with time. A server of this project shows rows of older ids late if rows are
POSTed while an import is published. Mirror it by its feed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sigdir.pipeline.errors import printable
from sigdir.pipeline.fetch import Fetcher, FetchError, NotFound, RetryPolicy, TooLarge, TooSlow, checked_base
from sigdir.pipeline.mirror_answers import (
    UnexpectedAnswer,
    changes_url,
    page_url,
    parse_changes,
    parse_page,
)
from sigdir.pipeline.mirror_state import State, check_size, count_page, folder_name, hidden_rows
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
_REVERSE_BYTES = 1 << 22
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
    except FetchError as error:
        if isinstance(error, NotFound | UnexpectedAnswer):
            return "pages"
        raise
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
        self.reversed_path = folder / f"{collection}.reversed.ndjson"
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
            return
        for _ in range(_CHASES):
            if self.walk_pages() <= 2:
                break

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
            if self.state.spooled > IMPORT_BYTES:
                self.import_spool()
        if self.state.spooled:
            self.import_spool()

    def count_rows(self, feed: str, fetched: int) -> int:
        """The rows of the directory, as its first page says. Raises UnexpectedAnswer if the feed had more."""
        url = page_url(self.base, self.collection, 1)
        for attempt in range(_COUNTS):
            with waiting():
                time.sleep(self.options.policy.delay * attempt)
            count = parse_page(url, self.fetcher.get(url, PAGE_BYTES)).count
            check_size(url, count, self.options.max_rows)
            if fetched <= count:
                return count
        raise UnexpectedAnswer(feed, f"row {fetched:,} of a directory that says it has {count:,}")

    def walk_pages(self) -> int:
        """Walk to the first page without a new row, then import. Returns the number of pages."""
        state = self.state
        begins = True
        while not state.ended or self.must_walk_again():
            self.walk_page(begins)
            begins = False
        for _ in _reversed_parts(self.spool_path, state.spooled, self.reversed_path):
            self.import_(self.reversed_path)
        pages = state.pages
        state.end_walk()
        self.empty_spool()
        return pages

    def walk_page(self, begins: bool) -> None:
        state = self.state
        url = page_url(self.base, self.collection, state.pages + 1)
        try:
            page = parse_page(url, self.fetcher.get(url, PAGE_BYTES))
        except NotFound:
            if not state.pages:
                raise
            state.ended = True  # rows were removed during the walk
            return self.keep([], 1)
        if begins and not state.known and page.ids:  # a first walk reads every page
            self.progress.stage(self.collection, -(-page.count // len(page.ids)))
            self.progress.advance(state.pages)
        return self.keep(count_page(url, page, state, self.options.max_rows), 1)

    def must_walk_again(self) -> bool:
        hidden = hidden_rows(self.state)
        if hidden:
            self.progress.note(
                f"{self.base} has {hidden:,} more {self.collection} than the last time, but they are not above "
                f"id {self.state.known}: reading all pages"
            )
            self.state.begin_walk()
            self.state.known = self.state.known_rows = 0
        return hidden > 0

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

    def import_(self, lines: Path) -> None:
        options = ImportOptions(
            [str(lines)], self.options.warehouse, self.collection, "rows",
            printable(self.base), wait=self.options.wait, memory_limit=_IMPORT_MEMORY,
        )  # fmt: skip
        self.report.count(self.collection, run_import(options, self.progress))
        failpoints.reach("imported")
        self.progress.stage(self.collection, self.total)
        self.progress.advance(self.done)

    def import_spool(self) -> None:
        self.import_(self.spool_path)
        self.empty_spool()

    def empty_spool(self) -> None:
        """Called after an import. Writes the state first, because importing rows again does no harm."""
        self.state.spooled = 0
        self.state.write(self.state_path)
        self.spool.truncate(0)


def _reversed_parts(source: Path, size: int, target: Path) -> Iterator[None]:
    """Write the first ``size`` bytes of a file, which are whole lines, to ``target`` in reverse line order, in parts.

    The file is read block by block, because the pages of a mapped file count as memory of the process.
    """
    with source.open("rb") as file:
        end, rest = size, b""
        while end:
            with target.open("wb") as out:
                while end and out.tell() < IMPORT_BYTES:
                    start = max(0, end - _REVERSE_BYTES)
                    file.seek(start)
                    block = file.read(end - start) + rest
                    begin = block.find(b"\n") + 1 if start else 0  # the first line may begin in an earlier block
                    rest, end = block[:begin], start
                    out.writelines(reversed(block[begin:].splitlines(keepends=True)))
            yield
    target.unlink(missing_ok=True)
