"""Submit: a form, a preview of what was sent with it, and a second form that stores the new signatures.

The server keeps nothing between the two requests: the preview's form carries the new texts, and storing checks
each of them again. Storing redirects to the page of ``stored``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import falcon

from sigdir.serve.core.settings import MIB, Settings, base_url
from sigdir.serve.core.texts import store_texts
from sigdir.serve.core.writer import Writer
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import rendered, send
from sigdir.serve.pages.preview import MAX_SIGNATURES, NEW, PreviewRow, counts, preview
from sigdir.serve.pages.rows import BY_URL_NAME
from sigdir.serve.pages.stored import stored_address
from sigdir.serve.pages.submission import FORMATS, candidates, line_candidates
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.staging.rows import NewText

_MAX_BODY = 4 * MIB
_MAX_PREFILLED = 3000  # characters of the text that an address fills into the form


@dataclass(frozen=True, slots=True)
class _Form:
    """The fields of the form as sent; ``problem`` is the sentence about what is wrong with them.

    ``collection`` is where lines without a keyword belong.
    """

    text: str = ""
    collection: str = ""
    format: str = ""
    file: bodies.Upload | None = None
    problem: str = ""

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


class SubmitPage:
    """The form, and the preview of what was sent with it. Stores nothing."""

    kind = HTML
    is_costly = True

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._settings, self._limit = settings, min(settings.max_import_body, _MAX_BODY)
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        text, collection = req.get_param("text") or "", req.get_param("as") or ""
        self._show(req, resp, _Form(text[:_MAX_PREFILLED], collection), [])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        require_same_origin(req, self._settings)
        form = _Form.of(bodies.fields_of(req, self._limit))
        rows: list[PreviewRow] = []
        try:
            rows = form.preview(self._reader)
        except HttpError as error:
            resp.status = falcon.code_to_http_status(error.status)
            form = replace(form, problem=_sentence(error))
        self._show(req, resp, form, rows)

    def _show(self, req: falcon.Request, resp: falcon.Response, form: _Form, rows: list[PreviewRow]) -> None:
        resp.set_header("Cache-Control", "no-store")
        page = rendered(
            "submit.html", here="/submit/", form=form, rows=rows, counts=counts(rows),
            max_signatures=MAX_SIGNATURES, max_body=self._limit // MIB,
            read_only=self._settings.read_only, needs_token=bool(self._settings.write_token),
        )  # fmt: skip
        send(req, resp, page)


class StorePage:
    """Stores the texts of a preview, after checking each of them again."""

    kind = HTML
    stores = True
    is_costly = True

    def __init__(self, settings: Settings, reader: Reader, writer: Writer) -> None:
        self._settings, self._limit = settings, min(settings.max_import_body, _MAX_BODY)
        self._reader, self._writer = reader, writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        require_same_origin(req, self._settings)
        text = _text(bodies.fields_of(req, self._limit), "texts").encode("utf-8", "replace")
        sent = preview(self._reader.current(), line_candidates(text), SIGNATURES)
        ids = self._store([row.new for row in sent if row.state == NEW and row.new])
        resp.status = falcon.HTTP_303
        resp.set_header("Location", stored_address(ids, len(sent) - sum(map(len, ids.values()))))

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


def _sentence(error: HttpError) -> str:
    """The text of an error, whatever the shape of its body."""
    (text, *_) = error.body.values()
    return text if isinstance(text, str) else " ".join(text)
