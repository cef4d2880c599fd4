"""A table of routes, the redirects to the final slash, the unknown paths; and what every request passes.

4byte.directory's checks and who may store come first, CORS headers are added last. Nobody may store on a read-only server or
a replica, holders of the token if one is set, otherwise everybody. ``Negotiation`` checks this before a POST of any resource
that ``stores`` marks.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import falcon

from sigdir.serve.http.answers import HTML, JSON, detail, method_not_allowed, not_found, reject, representation
from sigdir.warehouse.index.view import this_takes_long

ROUTE = "sigdir.route"
"""The key of a WSGI environment under which the path template of a request is left, for the counts of requests."""


METHODS = {"GET": "on_get", "POST": "on_post", "HEAD": "on_get", "OPTIONS": ""}
"""The responder that a resource needs for a method."""


Routes = Mapping[str, Any]
"""Path templates and their resources.

A callable resource gets requests of every method, including methods unknown to HTTP's standards.
"""


def methods_of(resource: Any) -> list[str]:
    """What a resource answers, and OPTIONS, which is answered everywhere."""
    return [name for name, responder in METHODS.items() if not responder or hasattr(resource, responder)]


def add_routes(app: Any, table: Routes) -> None:
    """Add the routes of a table to an application that has none. HEAD is answered as GET; the server leaves the body out."""
    # Falcon tries the sink that was added last first.
    app.add_sink(_unknown_path, "/")
    app.add_sink(redirect_to_slash, _without_slash(table))
    for path, resource in table.items():
        if callable(resource):
            app.add_sink(partial(_noted, path, resource), f"^{re.escape(path)}$")
        else:
            resource.methods = methods_of(resource)
            if hasattr(resource, "on_get"):
                resource.on_head = resource.on_get
            app.add_route(path, resource)


def _noted(path: str, resource: Any, req: falcon.Request, resp: falcon.Response, **parameters: Any) -> None:
    """Call a resource that is a sink. The middleware notes the path of all others."""
    req.env[ROUTE] = path
    resource(req, resp, **parameters)


def _without_slash(table: Routes) -> str:
    """A pattern of all routes' paths without their final slash."""
    paths = [path.removesuffix("/") for path in table if path.endswith("/") and path != "/"]
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


# What every request passes.

_REALM = "signature directory"


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """An empty ``token`` means that storing needs none. ``primary_url`` is where a replica sends writers, if known."""

    read_only: bool = False
    token: str = field(default="", repr=False)
    is_replica: bool = False
    primary_url: str = ""

    def require(self, authorization: str, *, is_page: bool, path: str = "", allow: str = "") -> None:
        """Raise HttpError, 403, 405 or 401, unless a request with this Authorization header may store.

        ``path`` is the request's, ``allow`` has the methods of its route, both for the answer of a replica.

        The API takes ``Bearer TOKEN``. A page also takes Basic credentials with the token as password, which a
        browser asks its user for. The API does not take those: a browser adds them to forms of other sites, and
        only the pages refuse such forms.
        """
        if self.is_replica:
            where = f": POST to {self.primary_url}{path}" if self.primary_url else ""
            methods = ", ".join(method for method in allow.split(", ") if method != "POST")
            raise reject(405, {"detail": f"This server is a read replica{where}."}, "replica", {"Allow": methods})
        if self.read_only:
            raise reject(403, {"detail": "This directory is read-only."}, "read_only")
        if self.token and not self._is_held(authorization, is_page):
            scheme = f'Basic realm="{_REALM}", charset="UTF-8"' if is_page else f'Bearer realm="{_REALM}"'
            raise reject(
                401, {"detail": "Storing needs this directory's write token."}, "no_token", {"WWW-Authenticate": scheme}
            )

    def _is_held(self, authorization: str, is_page: bool) -> bool:
        scheme, _, credentials = authorization.partition(" ")
        given = credentials.strip().encode("latin-1", "replace")
        if scheme.lower() == "basic" and is_page:
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self.token.encode())


def _password(credentials: bytes) -> bytes:
    """The password of Basic credentials (RFC 7617); empty if they are malformed."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


_MAX_QUERY_BYTES = 16_384

# Pages of any origin may read and write these.
_OPEN_PATHS = ("/api/", "/dumps/", "/mcp", "/range/", "/signature-database/", "/signatures/", "/topic0/")

_ALLOWED = "Accept, Authorization, Content-Type, If-None-Match, Range, *"  # `*` has all but Authorization
_EXPOSED = (
    "Clashes-With, ETag, Existing-Id, Reject-Position, Reject-Reason, Retry-After, Truncated, "
    "Unknown-Parameters, WWW-Authenticate"
)


@dataclass
class Negotiation:
    """Chooses JSON or HTML for the resources that ``negotiates`` marks, and refuses methods that a resource lacks.

    A POST of a resource that ``stores`` marks needs write access. A resource without ``may_be_short`` takes long. Sets
    ``req.context.kind``, the media type of the answer, and ``req.context.error_body``, a dialect's own form of an error
    or None.
    """

    _access: WriteAccess

    def process_resource(self, req: falcon.Request, resp: falcon.Response, resource: Any, params: Any) -> None:
        if not getattr(resource, "may_be_short", False):
            this_takes_long()
        req.context.error_body = getattr(resource, "error_body", None)
        req.context.kind = getattr(resource, "kind", JSON)
        req.env[ROUTE] = req.uri_template
        allow = ", ".join(resource.methods)
        if getattr(resource, "negotiates", False):
            resp.set_header("Allow", allow)
            resp.set_header("Vary", "Accept")
            self._negotiate(req)
        # Falcon answers OPTIONS where a resource does not: browsers ask it before requests to another origin.
        if req.method not in resource.methods:
            raise method_not_allowed(req.method, allow)
        if req.method == "POST" and getattr(resource, "stores", False):
            is_page = getattr(resource, "kind", JSON) == HTML
            authorization = req.get_header("Authorization") or ""
            self._access.require(authorization, is_page=is_page, path=req.path, allow=allow)

    def _negotiate(self, req: falcon.Request) -> None:
        if len(req.query_string) > _MAX_QUERY_BYTES:
            raise detail(414, "Query string too long.")
        req.context.kind = representation(req.env.get("HTTP_ACCEPT", ""), req.get_param("format", default=""))


class AnswerHeaders:
    """Headers of every answer: browsers keep to its type, and pages of any origin may use the API (CORS)."""

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        if resp.get_header("X-Content-Type-Options"):
            return  # the answer is another process's, and has all of these
        resp.set_header("X-Content-Type-Options", "nosniff")
        if resource is not None and not req.path.startswith(_OPEN_PATHS):
            return  # without a resource it is an unknown path: the page that asked shall see the 404
        resp.append_header("Vary", "Origin")  # a cached answer without the next header is of no use to another origin
        if not req.env.get("HTTP_ORIGIN"):
            return
        resp.set_header("Access-Control-Allow-Origin", "*")
        resp.append_header("Access-Control-Expose-Headers", _EXPOSED)
        if req.get_header("Access-Control-Request-Method"):
            resp.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
            resp.set_header("Access-Control-Allow-Headers", _ALLOWED)
            resp.set_header("Access-Control-Max-Age", "86400")
