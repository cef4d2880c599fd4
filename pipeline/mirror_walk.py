"""The bounds of a walk through the pages of another directory.

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

from sigdir.pipeline.mirror_answers import ID_DISORDER, Page, UnexpectedAnswer
from sigdir.pipeline.mirror_state import State

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
