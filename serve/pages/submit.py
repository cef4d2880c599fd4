"""Submit: a form, a preview of what was sent with it, and a second form that stores the new signatures.

The server keeps nothing between the two requests: the preview's form carries the new texts, and storing checks
each of them again. Storing redirects to the page of the rows that it stored, so reloading that stores nothing again. Its
address has the ids of the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import falcon
import numpy as np

from sigdir.pipeline.formats.solidity import declarations, has_too_many_tokens
from sigdir.pipeline.formats.text import candidate_lines, without_comments
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.settings import MIB, Settings, base_url
from sigdir.serve.core.writer import Writer, abi_entries, canonical_text, store_texts
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HTML, HttpError, detail, sentence
from sigdir.serve.http.bodies import whole_number
from sigdir.serve.pages.page import ViewPage, rendered, send
from sigdir.serve.pages.rows import BY_URL_NAME, HASH_NAMES, URL_NAMES, Row, hash_address, rows_between
from sigdir.serve.pages.search_query import SUPPRESSED, message, message_for_text
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK, REASONS, GrammarError, normalise
from sigdir.warehouse.index.ranked import rival_of
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.staging.transaction import NewText

FORMATS = ("auto", "list", "abi", "solidity")
_SOLIDITY = re.compile(rb"\b(?:pragma\s++solidity|contract|interface|library)\b")


def candidates(text: bytes, format: str, file_name: str = "") -> Iterable[Entry]:
    """The candidates of a submission; raises HttpError. ``format`` is one of FORMATS."""
    if format == "auto":
        format = _detected(text, file_name)
    if format == "abi":
        return abi_entries(text.decode("utf-8", "replace"), is_whole=False)
    if format == "solidity":
        if has_too_many_tokens(text):
            raise detail(413, "This source is too long.")
        return declarations(text)
    return line_candidates(text)


def line_candidates(text: bytes) -> Iterator[Entry]:
    """One candidate a line, without comments and blank lines."""
    if b"/*" in text:
        text, _ = without_comments(text, inside=False)
    starts, ends, lines = candidate_lines(np.frombuffer(text, np.uint8), 1)
    for start, end, line in zip(starts.tolist(), ends.tolist(), lines.tolist(), strict=True):
        yield Entry(text[start:end], line)


def _detected(text: bytes, file_name: str) -> str:
    if text.lstrip()[:1] in (b"[", b"{") and not file_name.endswith(".sol"):
        return "abi"
    return "solidity" if file_name.endswith(".sol") or _has_solidity(text) else "list"


def _has_solidity(text: bytes) -> bool:
    """Whether a word of Solidity stands in front of a brace or a semicolon."""
    word = _SOLIDITY.search(text)
    return word is not None and any(text.find(mark, word.end()) >= 0 for mark in (b"{", b";"))


_MAX_BODY = 4 * MIB
_MAX_PREFILLED = 3000  # characters of the text that an address fills into the form


@dataclass(frozen=True, slots=True)
class _Form:
    """The fields of the form as sent; ``collection`` is where lines without a keyword belong."""

    text: str = ""
    collection: str = ""
    format: str = ""
    file: bodies.Upload | None = None

    @classmethod
    def of(cls, fields: dict[str, Any]) -> _Form:
        file = fields.get("file")
        is_sent = isinstance(file, bodies.Upload) and bool(file.data)
        return cls(
            _text(fields, "text"), _text(fields, "as"), _text(fields, "kind"), file if is_sent else None
        )  # fmt: skip

    def preview(self, reader: Reader) -> list[PreviewRow]:
        """A row for each candidate; raises HttpError, also for a form without any."""
        text, name = self.text.encode("utf-8", "replace"), ""
        if self.file is not None:
            text, name = self.file.data.removeprefix(b"\xef\xbb\xbf"), self.file.name.lower()
        if not text.strip():
            raise detail(400, "Nothing to preview: paste something or choose a file.")
        format = self.format if self.format in FORMATS else "auto"
        default = BY_URL_NAME.get(self.collection, SIGNATURES)
        rows = preview(reader.current(), candidates(text, format, name), default)
        if not rows:
            raise detail(400, "No signature found.")
        return rows


@dataclass
class _FormPage:
    """A page that takes a form of this server alone."""

    kind = HTML
    cost = Cost.SIZE

    _settings: Settings
    _reader: Reader

    @property
    def _limit(self) -> int:
        return min(self._settings.max_import_body, _MAX_BODY)

    def _fields(self, req: falcon.Request) -> dict[str, Any]:
        """The fields of the form; raises HttpError."""
        require_same_origin(req, self._settings)
        return bodies.fields_of(req, self._limit)


class SubmitPage(_FormPage):
    """The form, and the preview of what was sent with it. Stores nothing."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        text, collection = req.get_param("text") or "", req.get_param("as") or ""
        self._show(req, resp, _Form(text[:_MAX_PREFILLED], collection))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        form = _Form.of(self._fields(req))
        try:
            self._show(req, resp, form, form.preview(self._reader))
        except HttpError as error:
            resp.status = falcon.code_to_http_status(error.status)
            self._show(req, resp, form, problem=sentence(error.body))

    def _show(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        form: _Form,
        rows: Sequence[PreviewRow] = (),
        problem: str = "",
    ) -> None:
        resp.set_header("Cache-Control", "no-cache")  # the back button shows what was entered
        page = rendered(
            "submit.html", here="/submit/", form=form, rows=rows, problem=problem, counts=counts(rows),
            max_signatures=MAX_SIGNATURES, max_body=self._limit // MIB,
            read_only=self._settings.read_only, needs_token=bool(self._settings.write_token),
        )  # fmt: skip
        send(req, resp, page)


@dataclass
class StorePage(_FormPage):
    """Stores the texts of a preview, after checking each of them again."""

    stores = True

    _writer: Writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        text = _text(self._fields(req), "texts").encode("utf-8", "replace")
        sent = preview(self._reader.current(), line_candidates(text), SIGNATURES)
        ids = self._store([row.new for row in sent if row.state == NEW and row.new])
        raise falcon.HTTPSeeOther(stored_address(ids, len(sent) - sum(map(len, ids.values()))))

    def _store(self, new: list[NewText]) -> dict[Collection, list[int]]:
        """The ids of the texts that are stored now: another request may have stored one first."""
        ids: dict[Collection, list[int]] = {collection: [] for collection in COLLECTIONS}
        for text, row in zip(new, store_texts(self._writer, new), strict=True):
            if row is not None:
                ids[text.collection].append(row.id)
        return ids


def require_same_origin(req: falcon.Request, settings: Settings) -> None:
    """Raises HttpError if a page of another origin sent the form.

    Browsers send Sec-Fetch-Site or Origin. A client that sends neither is not a browser, so no page can misuse it.
    """
    site, origin = req.get_header("Sec-Fetch-Site"), req.get_header("Origin")
    if site is not None:
        is_own = site == "same-origin"
    else:
        own = base_url(req, settings).partition("://")[2]
        is_own = origin is None or origin.partition("://")[2].lower() == own.lower()
    if not is_own:
        raise detail(403, "A page of another site sent this form, so the server ignored it.")


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else ""


STORED_PATH = "/submit/stored/"

_MAX_RANGES = 100
_MAX_ROWS = 10_000
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


def stored_address(ids: Mapping[Collection, Iterable[int]], others: int) -> str:
    """The address of the page for rows stored now; ``others`` counts the lines that were not.

    The ids of a transaction have no gaps, so these are a few ranges.
    """
    ranges = {URL_NAMES[collection]: ",".join(_ranges(found)) for collection, found in ids.items()}
    values = {name: text for name, text in ranges.items() if text} | ({"others": str(others)} if others else {})
    return STORED_PATH + (f"?{urlencode(values, safe=',')}" if values else "")


def _ranges(ids: Iterable[int]) -> list[str]:
    """Rising ids as inclusive ranges: 4-7, 9-9."""
    found: list[tuple[int, int]] = []
    for id in ids:
        if found and found[-1][1] == id - 1:
            found[-1] = found[-1][0], id
        else:
            found.append((id, id))
    return [f"{first}-{last}" for first, last in found]


class StoredPage(ViewPage):
    """The rows of the parameters ``functions`` and ``events``, and how many ``others`` the submission had."""

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        groups = [_rows(view, collection, req.get_param(name) or "") for name, collection in BY_URL_NAME.items()]
        others = whole_number(req.get_param("others") or "0")
        if others is None:
            raise _no_such_rows()
        return rendered(
            "stored.html", here="/submit/", groups=[rows for rows in groups if rows], stored=sum(map(len, groups)),
            others=others,
        )  # fmt: skip


def _rows(view: View, collection: Collection, written: str) -> list[Row]:
    """The rows of ranges such as ``4-7,9-9``, oldest first, those that are there; raises HttpError."""
    ranges = written.split(",") if written else []
    if len(ranges) > _MAX_RANGES:
        raise _no_such_rows()
    found: list[Row] = []
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise _no_such_rows()
        found += rows_between(view, collection, int(match[1]), int(match[2]), _MAX_ROWS - len(found))
    return found


def _no_such_rows() -> HttpError:
    return detail(404, "There are no such rows.")


# The preview: for each candidate its canonical text and state, or why it is rejected.

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
        """What is stored for it: as declared, else the text. A line without a keyword is a function or an error."""
        if self.new is None:
            return ""
        keyword = "" if self.new.kind == Kind.UNKNOWN else f"{Kind(self.new.kind).name.lower()} "
        return self.new.declaration or keyword + self.new.text


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
    collection = Collection.of_code(signature.collection)
    if view.suppressed.hides(collection, signature.text):
        return PreviewRow(entry.line, written, REJECTED, message(SUPPRESSED))
    new = canonical_text(collection, entry.text.decode())
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
