"""Adds a table of routes to an application: the routes, the redirects to the final slash, the unknown paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import falcon

from sigdir.serve.http.errors import not_found
from sigdir.serve.http.negotiate import HTML

ROUTE = "sigdir.route"
"""The key of a WSGI environment under which the path template of a request is left, for the counts of requests."""


_METHODS = {"GET": "on_get", "POST": "on_post", "HEAD": "on_get", "OPTIONS": ""}
"""The responder that a resource needs for a method."""


class Route(NamedTuple):
    """A path template and its resource.

    A callable resource gets requests of every method, including methods unknown to HTTP's standards.
    """

    path: str
    resource: Any

    @property
    def methods(self) -> list[str]:
        """What the resource answers, and OPTIONS, which is answered everywhere."""
        return [name for name, responder in _METHODS.items() if not responder or hasattr(self.resource, responder)]


def add_routes(app: Any, table: Iterable[Route]) -> None:
    """Add the routes of a table to an application that has none. HEAD is answered as GET; the server leaves the body out."""
    routes = list(table)
    # Falcon tries the sink that was added last first.
    app.add_sink(_unknown_path, "/")
    app.add_sink(redirect_to_slash, _without_slash(routes))
    for route in routes:
        if callable(route.resource):
            app.add_sink(partial(_noted, route), f"^{re.escape(route.path)}$")
        else:
            if "HEAD" in route.methods:
                route.resource.on_head = route.resource.on_get
            app.add_route(route.path, route.resource)


def _noted(route: Route, req: falcon.Request, resp: falcon.Response, **parameters: Any) -> None:
    """Call a resource that is a sink. The middleware notes the path of all others."""
    req.env[ROUTE] = route.path
    route.resource(req, resp, **parameters)


def _without_slash(routes: Iterable[Route]) -> str:
    """A pattern of all routes' paths without their final slash."""
    paths = [path.removesuffix("/") for path, _ in routes if path.endswith("/") and path != "/"]
    return f"^(?:{'|'.join(re.sub('{[^{}]*}', '[^/]+', path) for path in paths)})$"


def redirect_to_slash(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
    """Answer 301 with the same path and a slash, and the same query."""
    resp.status = falcon.HTTP_301
    # The server has decoded the path. Unescaped, it could end the header or begin a query.
    path = quote(req.env["PATH_INFO"].encode("latin-1"), safe="/:@!$&'()*+,;=~")
    resp.set_header("Location", path + "/" + ("?" + req.query_string if req.query_string else ""))


def _unknown_path(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
    if (req.get_header("Accept") or "").startswith(HTML):  # as every browser's does
        req.context.kind = HTML
    raise not_found()
