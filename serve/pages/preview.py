"""The preview of a submission: for each candidate its canonical text and state, or why it is rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sigdir.serve.http.errors import detail
from sigdir.serve.pages.reject_messages import SUPPRESSED, message, message_for_text
from sigdir.serve.pages.rows import HASH_NAMES, hash_address
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK, REASONS, GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index.ranked import rival_of
from sigdir.warehouse.index.view import View
from sigdir.warehouse.staging.rows import NewText

MAX_SIGNATURES = 2000
"""Candidates of one submission. Longer lists go through the API or `sigdir import`."""

NEW, KNOWN, REPEATED, REJECTED = "new", "known", "repeated", "rejected"
STATES = (NEW, KNOWN, REPEATED, REJECTED)

_MAX_SHOWN = 300  # characters of a candidate as written


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """A candidate and its state.

    A rejected one has a ``message``, and the ``column`` at fault, which counts from 1; 0 is the whole candidate.
    """

    line: int
    written: str
    state: str
    message: str = ""
    column: int = 0
    new: NewText | None = None
    rival: str = ""
    """Another text of the same hash, of a standard or in a contract's bytecode."""

    @property
    def hex(self) -> str:
        return "0x" + self.new.hash.hex() if self.new else ""

    @property
    def hash_name(self) -> str:
        return HASH_NAMES[self.new.collection] if self.new else ""

    @property
    def address(self) -> str:
        return hash_address(self.new.collection, self.new.hash) if self.new else ""

    @property
    def declaration(self) -> str:
        """The text with the keyword of its collection."""
        if self.new is None:
            return ""
        return f"{'function' if self.new.collection == SIGNATURES else 'event'} {self.new.text}"


def preview(view: View, entries: Iterable[Entry], default: Collection) -> list[PreviewRow]:
    """A row for each candidate; raises HttpError if there are too many.

    ``default`` is the collection of candidates whose kind the input does not state.
    """
    found: list[PreviewRow] = []
    seen: set[tuple[Collection, str]] = set()
    for entry in entries:
        if len(found) == MAX_SIGNATURES:
            raise detail(
                413, f"More than {MAX_SIGNATURES:,} signatures. Use the API or sigdir import for longer lists."
            )
        found.append(_preview_row(view, entry, default.code, seen))
    return found


def counts(rows: Iterable[PreviewRow]) -> dict[str, int]:
    """The number of rows in each state."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in STATES}


def _preview_row(view: View, entry: Entry, default: int, seen: set[tuple[Collection, str]]) -> PreviewRow:
    written = _shortened(entry.text)
    if entry.reject_reason != OK:
        return PreviewRow(entry.line, written, REJECTED, message(REASONS[entry.reject_reason]))
    try:
        signature = normalise(entry.text, declared_kind=entry.declared_kind, default_kind=default)
    except GrammarError as error:
        problem = message_for_text(error.reason, entry.text, error.column)
        return PreviewRow(entry.line, written, REJECTED, problem, error.column)
    collection, digest = Collection.of_code(signature.collection), keccak256(signature.text.encode())
    if view.suppressed.hides(collection, signature.text):
        return PreviewRow(entry.line, written, REJECTED, message(SUPPRESSED))
    new = NewText(collection, signature.text, digest)
    state = _state(view, new, seen)
    seen.add((collection, signature.text))
    return PreviewRow(entry.line, written, state, new=new, rival=rival_of(view, collection, new.hash, new.text))


def _shortened(text: bytes) -> str:
    written = text[:MAX_TEXT_BYTES].decode("utf-8", "backslashreplace")
    return written if len(written) <= _MAX_SHOWN else written[:_MAX_SHOWN] + "…"


def _state(view: View, new: NewText, seen: set[tuple[Collection, str]]) -> str:
    if (new.collection, new.text) in seen:
        return REPEATED
    return NEW if view.id_of_text(new.collection, new.text, new.hash) is None else KNOWN
