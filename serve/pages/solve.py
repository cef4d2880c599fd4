"""Look for texts of a hash that nobody knows, for ten seconds. Nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import falcon

from sigdir.pipeline.solve import SolveReport, solve_one
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.settings import Settings
from sigdir.serve.http import bodies
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import rendered, send
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.decode_input import BadInput, hex_bytes
from sigdir.warehouse.index.view import Reader

_SECONDS = 10.0
_MOST = 20


@dataclass
class SolvePage:
    """The hash, the code of its contract if it is known, and below them what was found."""

    kind = HTML
    cost = Cost.PATIENCE

    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._send(req, resp, (req.get_param("hash") or "").strip(), "")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_body)
        hash, code = (str(fields.get(name) or "").strip() for name in ("hash", "code"))
        self._send(req, resp, hash, code)

    def _send(self, req: falcon.Request, resp: falcon.Response, hash: str, code: str) -> None:
        values: dict[str, Any] = {"here": "/solve/", "hash": hash, "code": code, "problem": "", "report": None}
        try:
            values["report"] = self._solved(hash, code) if hash else None
        except BadInput as error:
            values["problem"] = str(error)
            resp.status = falcon.HTTP_400
        send(req, resp, rendered("solve.html", **values, seconds=_SECONDS, most=_MOST))

    def _solved(self, hash: str, code: str) -> SolveReport:
        """Raises BadInput."""
        digest = hex_bytes(hash, "hash")
        if len(digest) not in (SIGNATURES.hash_bytes, EVENT_SIGNATURES.hash_bytes):
            raise BadInput("neither a selector nor a topic: 8 or 64 hex digits", "hash")
        return solve_one(self._reader.current().texts, digest, code, _SECONDS)
