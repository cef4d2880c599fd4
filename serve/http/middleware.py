"""What every request passes: 4byte.directory's checks come first, CORS headers are added last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import falcon

from sigdir.serve.http.errors import detail, method_not_allowed
from sigdir.serve.http.negotiate import JSON, representation
from sigdir.serve.http.routing import Route
from sigdir.serve.lists.query import parse

_MAX_QUERY_BYTES = 16_384

# Pages of any origin may read and write these.
_OPEN_PATHS = ("/api/", "/dumps/", "/signature-database/", "/signatures/", "/topic0/")


class Negotiation:
    """Chooses JSON or HTML for the resources that ``negotiates`` marks, and refuses methods that they lack.

    Sets ``req.context.kind``, the media type of the answer, and ``req.context.error_body``, a dialect's own form
    of an error or None.
    """

    def __init__(self, table: Iterable[Route]) -> None:
        self._methods = {route.path: (route.methods, frozenset(route.methods.split(", "))) for route in table}

    def process_resource(self, req: falcon.Request, resp: falcon.Response, resource: Any, params: Any) -> None:
        req.context.error_body = getattr(resource, "error_body", None)
        req.context.kind = getattr(resource, "kind", JSON)
        if getattr(resource, "negotiates", False):
            self._negotiate(req, resp)

    def _negotiate(self, req: falcon.Request, resp: falcon.Response) -> None:
        allow, methods = self._methods[req.uri_template or ""]
        resp.set_header("Allow", allow)
        resp.set_header("Vary", "Accept")
        if len(req.query_string) > _MAX_QUERY_BYTES:
            raise detail(414, "Query string too long.")
        req.context.kind = representation(req.env.get("HTTP_ACCEPT", ""), parse(req.query_string).format)
        if req.method not in methods:
            raise method_not_allowed(req.method)


class CrossOrigin:
    """Lets pages of any origin use the API (the Fetch standard's CORS protocol)."""

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        if not (req.env.get("HTTP_ORIGIN") and req.path.startswith(_OPEN_PATHS)):
            return
        resp.set_header("Access-Control-Allow-Origin", "*")
        if req.get_header("Access-Control-Request-Method"):
            resp.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
            resp.set_header("Access-Control-Allow-Headers", "Accept, Content-Type, If-None-Match")
            resp.set_header("Access-Control-Max-Age", "86400")
