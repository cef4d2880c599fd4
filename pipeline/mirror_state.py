"""How far the mirror of a directory is, one state file per collection next to its spool, and the bounds of a walk through
pages.

The directory decides what its pages contain, so its pages alone must not decide when a walk ends.

Invariants
    The pages of a walk have no more rows than the directory says it has.
    Each page has lower ids than the pages before it. A row may come a second time only if rows were added in front
    of it, and then the directory says that it has grown by as many.
    A walk ends at the first page without a new row. An id is new if it is above the highest one of earlier walks. So
    one row with an id far above all others would hide every later row. Therefore a walk that ends also counts: if the
    directory has more new rows than the walk has seen, the next walk reads all pages.

Rows that are deleted during a walk move others to earlier pages. ``_SPARE_PAGES`` allows for that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from sigdir.pipeline.errors import printable
from sigdir.pipeline.mirror_answers import ID_DISORDER, Page, UnexpectedAnswer
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import replacing
from sigdir.warehouse.table.paths import Paths, mirror_spool

NO_ID = 1 << 63
"""Above every id."""


def folder_name(base: str) -> str:
    """The name of the folder for a directory's URL."""
    host = re.sub("[^a-z0-9.-]", "_", (urlsplit(base).hostname or "")[:100])
    return f"{host}-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


@dataclass
class State:
    """The fields of a state file. Those from ``pages`` to ``ended`` describe the current walk."""

    url: str
    after: str = ""
    """The feed's cursor after the last row that is spooled or imported."""
    known: int = 0
    """The newest id that finished walks have brought."""
    known_rows: int = 0
    """The rows that the directory had up to this id; 0 if no walk has counted them."""
    pages: int = 0
    """Pages walked, whose new rows are in the spool."""
    rows: int = 0
    """All rows on these pages."""
    new: int = 0
    """Those with an id above ``known``, counted once."""
    repeated: int = 0
    """Those with an id that an earlier page had passed: rows were added in front of them."""
    first_count: int = 0
    """The rows of the directory, as its first page says."""
    newest: int = 0
    """The newest id on these pages, or ``known``."""
    newest_rows: int = 0
    """The rows that the directory had up to this id."""
    lowest: int = NO_ID
    """The lowest id on these pages."""
    ended: bool = False
    """Whether the walk has reached its last page."""
    spooled: int = 0
    """Valid bytes of the spool. Bytes after them are cut off when it is opened."""

    @classmethod
    def read(cls, path: Path, url: str) -> State:
        """Read the file; a new state if it is missing. Raises UnreadableWarehouse."""
        try:
            fields = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return cls(url)
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or _types(fields) != _types(asdict(cls(url))):
            raise UnreadableWarehouse(f"{path} is broken; start over with --restart")
        return cls(**fields)

    def begin_walk(self) -> None:
        """Back to the first page. The spool stays."""
        self.pages = self.rows = self.new = self.repeated = self.first_count = self.newest = self.newest_rows = 0
        self.lowest = NO_ID
        self.ended = False

    def end_walk(self) -> None:
        """Remember what the walk has brought, and begin the next."""
        self.known, self.known_rows = self.newest, self.newest_rows
        self.begin_walk()

    def write(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(orjson.dumps(self, option=orjson.OPT_INDENT_2))


def _types(fields: Mapping[str, object]) -> dict[str, type]:
    return {name: type(value) for name, value in fields.items()}


# A walk.

_SPARE_PAGES = 10
_GROWTH = 100_000
"""A directory may double during a walk, and grow by this many rows more."""


def check_size(url: str, count: int, max_rows: int) -> None:
    """Raises UnexpectedAnswer if the directory says that it has more rows than the user allows."""
    if count > max_rows:
        raise UnexpectedAnswer(url, f"a directory of {count:,} rows, over the limit of {max_rows:,} (--max-rows)")


def count_page(url: str, page: Page, state: State, max_rows: int) -> list[bytes]:
    """Count a page of a walk into its state, and return its new rows. Raises UnexpectedAnswer."""
    check_size(url, page.count, max_rows)
    if not state.first_count:
        state.first_count = page.count
    rows_before, spare = state.rows, _SPARE_PAGES * len(page.ids)
    grown = max(0, page.count - state.first_count)
    state.rows += len(page.ids)
    if state.rows > page.count + spare:
        raise UnexpectedAnswer(url, f"row {state.rows:,} of a directory that says it has {page.count:,}")
    lower = [id for id in page.ids if id < state.lowest]
    state.repeated += len(page.ids) - len(lower)
    if grown > state.first_count + _GROWTH:
        raise UnexpectedAnswer(
            url, f"the directory has grown from {state.first_count:,} to {page.count:,} rows; start over with --restart"
        )
    if state.repeated > grown + spare:
        raise UnexpectedAnswer(url, f"{state.repeated:,} rows of earlier pages again; ids must fall from page to page")
    _count_newest(url, page, state, rows_before, grown)
    state.new += sum(id > state.known for id in lower)
    state.lowest = min([state.lowest, *lower])
    state.pages += 1
    new = [line for line, id in zip(page.lines, page.ids, strict=True) if id > state.known]
    state.ended = not page.more or not new
    return new


def _count_newest(url: str, page: Page, state: State, rows_before: int, grown: int) -> None:
    newest = max([state.known, *page.ids])
    if state.pages and not grown and newest > state.newest + ID_DISORDER:
        raise UnexpectedAnswer(url, f"id {newest} after id {state.newest}: the ids of a walk must fall")
    if newest > state.newest or not state.pages:
        state.newest = newest
        state.newest_rows = page.count - rows_before


def hidden_rows(state: State) -> int:
    """The rows that came since the last walk, as the directory counts them, and have no new id."""
    return max(0, state.newest_rows - state.known_rows - state.new) if state.known_rows else 0


# Verification.


def problems_of_states(paths: Paths) -> Iterator[tuple[Path, str]]:
    """The state files that a mirror could not continue from, each with the reason. Mirrors may be running."""
    for path in paths.mirror_states():
        checked = b""
        while path.exists() and (content := path.read_bytes()) != checked:  # it may change during the check
            checked = content
            problem = _problem_of(path)
        if checked and problem:
            yield path, problem


def _problem_of(path: Path) -> str:
    try:
        state = State.read(path, "")
    except UnreadableWarehouse as error:
        return str(error).removeprefix(f"{path} ")
    if path.stem not in COLLECTIONS or path.parent.name != folder_name(state.url):
        return f"belongs to {printable(state.url)}, whose folder is {folder_name(state.url)}"
    if state.pages and state.newest < state.known:
        return f"its walk has seen ids up to {state.newest} only, but id {state.known} is known"
    spool = mirror_spool(path)
    size = spool.stat().st_size if spool.exists() else 0
    if size < state.spooled:
        return f"counts {state.spooled:,} bytes of a spool that has {size:,}; the next run starts over"
    if state.spooled and not _ends_line(spool, state.spooled):
        return f"counts {state.spooled:,} bytes of its spool, which end inside a line"
    return ""


def _ends_line(file: Path, at: int) -> bool:
    with file.open("rb") as lines:
        lines.seek(at - 1)
        return lines.read(1) == b"\n"
