"""What a server says of itself: /healthz for liveness, /readyz for readiness, and its OpenAPI document.

The two imports over HTTP: the signatures of a contract's ABI, or of a Solidity source, are stored at once.

What lookups did not find, the most wanted first, where the server counts misses: as JSON and as a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import falcon

from sigdir.serve.core import openapi
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.misses import Wanted, wanted
from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.core.writer import Writer, abi_entries, solidity_entries, store_entries
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HTML, json_bytes, send_json
from sigdir.serve.http.caching import not_modified, weak
from sigdir.serve.lists.paging import NumberedPage, numbered_page, parse
from sigdir.serve.lists.resources import ABI_FIELDS, SOLIDITY_FIELDS, Fields, description
from sigdir.serve.pages.page import answer, rendered, send
from sigdir.signatures.candidates import Entry
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.fields import iso
from sigdir.warehouse.table.files import is_disk_full, marked_at

_MISSED_PERIODS = 3
_AWAY_SECONDS = 10.0
_CACHE_CONTROL = "public, max-age=3600"


class LiveResource:
    """The process answers."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        send_json(req, resp, json_bytes({"status": "ok"}))


@dataclass
class ReadyResource:
    """The process can read its warehouse, which is still where it was.

    The status is 503 where the folder was moved away or another one is in its place: what is mapped answers on, but a
    POST finds no staging, and the next start of a worker no warehouse.
    ``fold`` is there while folding fails, ``store`` while a replica's store is away, ``disk`` while POSTs find no space.
    None of these changes the status: the worker answers all the same, and restarting it or taking its traffic away would
    help nobody.
    """

    _settings: Settings
    _reader: Reader
    _started: float = field(default_factory=time.time)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view, paths, fold_every = self._reader.current(), self._reader.paths, self._settings.fold_every
        state: dict[str, Any] = {
            "status": "ok",
            "version": view.snapshot.version,
            "rows": {collection: view.count(collection) for collection in view.segments},
        }
        if fold_every > 0:
            last_fold = max(marked_at(paths.last_fold) or 0.0, self._started)
            state |= _late("fold", "failing", last_fold, _MISSED_PERIODS * fold_every)
        if self._settings.follow_store:
            last_pull = marked_at(paths.last_pull) or self._started
            state |= _late("store", "away", last_pull, _AWAY_SECONDS)
        if is_disk_full(paths.root):
            state["disk"] = "full"
        if self._reader.is_replaced():
            state |= {"status": "gone", "detail": "The warehouse is no longer in its folder. Put it back, or restart."}
            resp.status = falcon.HTTP_503
        send_json(req, resp, json_bytes(state))


def _late(name: str, word: str, since: float, after: float) -> dict[str, str]:
    """A member that says since when, in seconds since 1970; empty where that is not more than ``after`` seconds ago."""
    if time.time() - since <= after:
        return {}
    return {name: f"{word} since {iso(datetime.fromtimestamp(since, UTC), 'seconds')}"}


class DocumentResource:
    """The OpenAPI document."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        body, token = openapi.rendered()
        if not not_modified(req, resp, weak(f"{token}-json"), _CACHE_CONTROL):
            send_json(req, resp, body)


@dataclass
class ImportResource:
    """A body of many signatures. Answers the four counters."""

    negotiates = True
    stores = True
    cost = Cost.SIZE
    name: str
    """Its name in 4byte.directory's API."""
    fields: Fields
    entries: Callable[[dict[str, Any]], list[Entry]]
    """Gives the candidates of a body's fields; raises HttpError."""

    _settings: Settings
    _writer: Writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entries = self.entries(bodies.fields_of(req, self._settings.max_import_body))
        counters = store_entries(self._writer, entries)
        resp.status = falcon.HTTP_201
        answer(req, resp, json_bytes(counters))

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        answer(req, resp, description(self.name, self.fields))


def _abi(fields: dict[str, Any]) -> list[Entry]:
    return abi_entries(bodies.text_field(fields, "contract_abi"))


AbiImportResource = partial(ImportResource, "Contract Abi Import Api", ABI_FIELDS, _abi)
SolidityImportResource = partial(ImportResource, "Solidity Import Api", SOLIDITY_FIELDS, solidity_entries)


@dataclass
class WantedResource:
    """Selectors and topics without a text; ``page`` and ``page_size`` are those of the lists."""

    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        found = wanted(self._reader.paths.misses, self._reader.current())
        query = parse(req.query_string)
        page = numbered_page(query, len(found), base_url(req, self._settings) + req.path)
        resp.set_header("Cache-Control", "no-cache")
        self._send(req, resp, page, found[page.start : page.start + query.page_size])

    def _send(self, req: falcon.Request, resp: falcon.Response, page: NumberedPage, rows: list[Wanted]) -> None:
        results = list(map(asdict, rows))
        send_json(req, resp, json_bytes(page.links() | {"results": results}))


class WantedPage(WantedResource):
    """The same for people, with what to do about each."""

    kind = HTML

    def _send(self, req: falcon.Request, resp: falcon.Response, page: NumberedPage, rows: list[Wanted]) -> None:
        send(req, resp, rendered("wanted.html", page=page, rows=rows, solves=self._settings.solve))
