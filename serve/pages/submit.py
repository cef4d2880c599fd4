"""Submit: what was pasted or uploaded is judged line by line and shown; what is confirmed is stored.

Nothing is kept between the two: the preview's form carries the new texts, and storing judges them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import falcon
import numpy as np

from sigdir.pipeline.formats.solidity import declarations, has_too_many_tokens
from sigdir.pipeline.formats.text import candidate_lines, without_comments
from sigdir.serve import imports
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.lists.selection import texts_with
from sigdir.serve.pages.page import rendered, send
from sigdir.serve.pages.rows import HASH_WORDS, NAMED, hash_address
from sigdir.serve.settings import MIB, Settings
from sigdir.serve.texts import store_texts
from sigdir.serve.writer import Writer
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.grammar import (
    MAX_TEXT_BYTES,
    OK,
    REASONS,
    GrammarError,
    normalise,
)
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.staging import NewText

MAX_LINES = 2000
"""Candidates of one submission; longer lists are for the API and for `sigdir import`."""
_MAX_BODY = 4 * MIB
_SHOWN = 300

KINDS = ("auto", "list", "abi", "solidity")
_SOLIDITY = re.compile(rb"\b(?:pragma\s+solidity|contract|interface|library)\b[^;]*[{;]")

_STORAGE = re.compile(rb"\bstorage\b")

WORDS = {
    "empty": "there is nothing in it",
    "too_long": f"longer than {MAX_TEXT_BYTES:,} bytes",
    "bad_name": "a name was expected",
    "unknown_type": "no type that an ABI has",
    "bad_width": "no such width",
    "bad_array": "an array's length was expected",
    "unbalanced": "the parentheses do not match",
    "library_type": "a type of a library's own, which has no selector of this kind",
    "too_many_indexed": "more than three indexed parameters",
    "bad_entry": "not an entry of an ABI",
    "no_parenthesis": "a ( was expected: name(types)",
    "more_behind": "something is behind the signature that is no part of it",
    "unknown_here": "this type was not found: submit the file that declares it too",
    "encoding": "not UTF-8",
    "placeholder": "a decompiler's placeholder, not a name",
    "hash_mismatch": "its hash is another",
}


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """What becomes of a line. ``state`` is new, known, again or refused; ``reason`` says why not."""

    line: int
    written: str
    state: str
    reason: str = ""
    column: int = 0
    new: NewText | None = None

    @property
    def hex(self) -> str:
        return "0x" + self.new.hash.hex() if self.new else ""

    @property
    def word(self) -> str:
        return HASH_WORDS[self.new.collection] if self.new else ""

    @property
    def address(self) -> str:
        return hash_address(self.new.collection, self.new.hash) if self.new else ""

    @property
    def why(self) -> str:
        return WORDS.get(self.reason, self.reason)

    @property
    def declared(self) -> str:
        """The text with the keyword that says which collection it is for."""
        return (
            ""
            if self.new is None
            else f"{'function' if self.new.collection == SIGNATURES else 'event'} {self.new.text}"
        )


def preview_rows(view: View, entries: Iterable[Entry], default: Collection) -> list[PreviewRow]:
    """Judge each candidate, and look it up; raises HttpError where they are too many."""
    found: list[PreviewRow] = []
    seen: set[tuple[Collection, str]] = set()
    for entry in entries:
        if len(found) == MAX_LINES:
            raise detail(
                413, f"More than {MAX_LINES:,} signatures. Longer lists are for the API, or for sigdir import."
            )
        found.append(_preview_row(view, entry, default.code, seen))
    return found


def _preview_row(view: View, entry: Entry, default: int, seen: set[tuple[Collection, str]]) -> PreviewRow:
    written = entry.text[:MAX_TEXT_BYTES].decode("utf-8", "backslashreplace")
    if len(written) > _SHOWN:
        written = written[:_SHOWN] + "…"
    if entry.reject_reason != OK:
        return PreviewRow(entry.line, written, "refused", REASONS[entry.reject_reason])
    try:
        signature = normalise(entry.text, said=entry.declared_kind, default=default)
    except GrammarError as error:
        return PreviewRow(entry.line, written, "refused", _plainly(error.reason, entry.text), error.column)
    collection, digest = Collection.of_code(signature.collection), keccak256(signature.text.encode())
    new = NewText(collection, signature.text, digest)
    state = "new"
    if (collection, signature.text) in seen:
        state = "again"
    elif signature.text in texts_with(view, collection, new.hash):
        state = "known"
    seen.add((collection, signature.text))
    return PreviewRow(entry.line, written, state, new=new)


def _plainly(reason: str, text: bytes) -> str:
    """The grammar's reason, or what it comes to for somebody who typed or pasted the text."""
    if reason in ("bad_entry", "bad_name") and b"(" not in text:
        return "no_parenthesis"
    if reason == "bad_entry":
        return "more_behind"
    # Libraries write `storage`; a qualified type without it is most likely of a file that was not sent.
    return "unknown_here" if reason == "library_type" and not _STORAGE.search(text) else reason


# What was sent, as candidates.


def entries_of(text: bytes, kind: str, name: str = "") -> Iterable[Entry]:
    """The candidates of what was pasted or uploaded; raises HttpError."""
    kind = _told_kind(text, name) if kind == "auto" else kind
    if kind == "abi":
        return imports.abi_entries(_abi_of(text.decode("utf-8", "replace")))
    if kind == "solidity":
        if has_too_many_tokens(text):
            raise detail(413, "This source is too long.")
        return declarations(text)
    return _lines(text)


def _told_kind(text: bytes, name: str) -> str:
    if text.lstrip()[:1] in (b"[", b"{") and not name.endswith(".sol"):
        return "abi"
    return "solidity" if name.endswith(".sol") or _SOLIDITY.search(text) else "list"


def _abi_of(text: str) -> str:
    """The ABI in a compiler's artifact, or the text as it is."""
    try:
        value = bodies.loads(text)
    except (ValueError, RecursionError):
        return text  # what is wrong with it is told where it is read
    return json.dumps(value["abi"]) if isinstance(value, dict) and isinstance(value.get("abi"), list) else text


def _lines(text: bytes) -> Iterator[Entry]:
    if b"/*" in text:
        text, _ = without_comments(text, inside=False)
    starts, ends, lines = candidate_lines(np.frombuffer(text, np.uint8), 1)
    for start, end, line in zip(starts.tolist(), ends.tolist(), lines.tolist(), strict=True):
        yield Entry(text[start:end], line)


# The pages.


class SubmitPage:
    """The form, and what becomes of what was sent with it. Stores nothing."""

    kind = HTML

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings, self._limit = settings, min(settings.max_import_body, _MAX_BODY)
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        given = {"text": (req.get_param("text") or "")[: _SHOWN * 10], "as": req.get_param("as")}
        self._show(req, resp, given, None)

    on_head = on_get

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        require_same_origin(req, self._settings)
        fields = bodies.fields_of(req, self._limit)
        upload, text = fields.get("file"), _text(fields, "text")
        name = ""
        raw = text.encode("utf-8", "replace")
        if isinstance(upload, bodies.Upload) and upload.data:
            raw, name = upload.data.removeprefix(b"\xef\xbb\xbf"), upload.name.lower()
        kind = _text(fields, "kind")
        default = NAMED.get(_text(fields, "as"), SIGNATURES)
        given = {"text": text, "as": _text(fields, "as"), "kind": kind, "file": name}
        try:
            if not raw.strip():
                raise detail(400, "There is nothing to look at: paste something, or choose a file.")
            found = preview_rows(
                self._reader.current(), entries_of(raw, kind if kind in KINDS else "auto", name), default
            )
            if not found:
                raise detail(400, "There is no signature in it.")
        except HttpError as refusal:
            resp.status = falcon.code_to_http_status(refusal.status)
            given["fault"] = _words(refusal)
            found = None
        self._show(req, resp, given, found)

    def _show(
        self, req: falcon.Request, resp: falcon.Response, given: dict[str, Any], found: list[PreviewRow] | None
    ) -> None:
        resp.set_header("Cache-Control", "no-store")
        given = dict.fromkeys(("text", "as", "kind", "fault"), "") | given
        page = rendered("submit.html", here="/submit/", given=given, rows=found, counts=_counts(found or []),
                        max_lines=MAX_LINES, max_body=self._limit // MIB)  # fmt: skip
        send(req, resp, page)


class StorePage:
    """Stores what the preview showed, judged anew."""

    kind = HTML

    def __init__(self, settings: Settings, reader: Reader, writer: Writer) -> None:
        self._settings, self._limit = settings, min(settings.max_import_body, _MAX_BODY)
        self._reader, self._writer = reader, writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        require_same_origin(req, self._settings)
        text = _text(bodies.fields_of(req, self._limit), "texts").encode("utf-8", "replace")
        found = preview_rows(self._reader.current(), _lines(text), SIGNATURES)
        asked = [row for row in found if row.state == "new" and row.new]
        rows = store_texts(self._writer, [row.new for row in asked if row.new])
        stored = [row for row, staged in zip(asked, rows, strict=True) if staged is not None]
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, rendered("stored.html", here="/submit/", stored=stored, asked=len(found)))


def require_same_origin(req: falcon.Request, settings: Settings) -> None:
    """Refuse a form that a page of another origin sent; raises HttpError.

    Browsers tell where a request comes from. A client that tells nothing is no browser, and nobody's else.
    """
    site, origin = req.get_header("Sec-Fetch-Site"), req.get_header("Origin")
    if site is not None:
        fine = site == "same-origin"
    else:
        host = req.forwarded_host if settings.trust_proxy else req.get_header("Host") or ""
        fine = origin is None or urlsplit(origin).netloc.lower() == host.lower()
    if not fine:
        raise detail(403, "This form was sent by a page of another site, so nothing was done.")


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else ""


def _words(refusal: HttpError) -> str:
    """What a refusal says, in the contract's shape or another."""
    (told, *_) = refusal.body.values()
    return told if isinstance(told, str) else " ".join(told)


def _counts(found: list[PreviewRow]) -> dict[str, int]:
    return {state: sum(row.state == state for row in found) for state in ("new", "known", "again", "refused")}
