"""What a server says of itself: /healthz for liveness, /readyz for readiness, and its OpenAPI document."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import falcon

from sigdir.serve.core import openapi
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.conditional import not_modified, weak
from sigdir.serve.http.negotiate import json_bytes, send_json
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.files import is_disk_full, marked_at
from sigdir.warehouse.table.times import iso

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
