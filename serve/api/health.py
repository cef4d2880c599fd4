"""Health checks: /healthz for liveness, /readyz for readiness."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import falcon

from sigdir.serve.core.settings import Settings
from sigdir.serve.http.json_answer import json_bytes, send_json
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.files import is_disk_full, marked_at
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import iso

_MISSED_PERIODS = 3
_AWAY_SECONDS = 10.0


class LiveResource:
    """The process answers."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        send_json(req, resp, json_bytes({"status": "ok"}))

    on_head = on_get


class ReadyResource:
    """The process can read its warehouse, which is still where it was.

    The status is 503 where the folder was moved away or another one is in its place: what is mapped answers on, but a
    POST finds no staging, and the next start of a worker no warehouse.
    ``fold`` is there while folding fails, ``store`` while a replica's store is away, ``disk`` while POSTs find no space.
    None of these changes the status: the worker answers all the same, and restarting it or taking its traffic away would
    help nobody.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._reader = reader
        self._paths = Paths(settings.warehouse.absolute())
        self._fold_every = settings.fold_every
        self._is_replica = bool(settings.follow_store)
        self._started = time.time()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        state: dict[str, Any] = {
            "status": "ok",
            "version": view.snapshot.version,
            "rows": {collection: view.count(collection) for collection in view.segments},
        }
        failing_since = self._fold_failing_since()
        if failing_since is not None:
            state["fold"] = f"failing {_since(failing_since)}"
        away_since = self._store_away_since()
        if away_since is not None:
            state["store"] = f"away {_since(away_since)}"
        if is_disk_full(self._paths.root):
            state["disk"] = "full"
        if self._reader.is_replaced():
            state |= {"status": "gone", "detail": "The warehouse is no longer in its folder. Put it back, or restart."}
            resp.status = falcon.HTTP_503
        send_json(req, resp, json_bytes(state))

    on_head = on_get

    def _fold_failing_since(self) -> float | None:
        """The time of the last success, or of this worker's start, once it is three periods ago; else None.

        Also None if this server does not fold.
        """
        if self._fold_every <= 0:
            return None
        since = max(marked_at(self._paths.last_fold) or 0.0, self._started)
        return since if time.time() - since > _MISSED_PERIODS * self._fold_every else None

    def _store_away_since(self) -> float | None:
        """The time at which a replica last found its copy up to date, if that is over ten seconds ago; else None."""
        if not self._is_replica:
            return None
        since = marked_at(self._paths.last_pull) or self._started
        return since if time.time() - since > _AWAY_SECONDS else None


def _since(seconds: float) -> str:
    return f"since {iso(datetime.fromtimestamp(seconds, UTC), 'seconds')}"
