"""Health checks: /healthz for liveness, /readyz for readiness."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import falcon

from sigdir.serve.http.json_answer import json_bytes, send_json
from sigdir.serve.settings import Settings
from sigdir.warehouse.fold_mark import last_fold
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths

_MISSED_PERIODS = 3


class LiveResource:
    """The process answers."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        send_json(req, resp, json_bytes({"status": "ok"}))

    on_head = on_get


class ReadyResource:
    """The process can read its warehouse. ``fold`` is there while folding fails.

    A failing fold does not change the status: the worker answers and takes POSTs all the same, and restarting it
    or taking its traffic away would help nobody.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._reader = reader
        self._paths = Paths(settings.warehouse.absolute())
        self._fold_every = settings.fold_every
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
            at = datetime.fromtimestamp(failing_since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            state["fold"] = f"failing since {at}"
        send_json(req, resp, json_bytes(state))

    on_head = on_get

    def _fold_failing_since(self) -> float | None:
        """The time of the last success, or of this worker's start, once it is three periods ago; else None.

        Also None if this server does not fold.
        """
        if self._fold_every <= 0:
            return None
        since = max(last_fold(self._paths) or 0.0, self._started)
        return since if time.time() - since > _MISSED_PERIODS * self._fold_every else None
