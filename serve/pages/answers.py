"""Answers in the representation that the request prefers: JSON, or the page that shows it to a browser, or a page's error."""

from __future__ import annotations

from typing import Any

import falcon
import orjson

from sigdir.serve.core.process import write_line
from sigdir.serve.http import conditional
from sigdir.serve.http.conditional import lookup_caching
from sigdir.serve.http.errors import HttpError, http_error_of
from sigdir.serve.http.negotiate import HTML, JSON, json_bytes, send_json
from sigdir.serve.pages.page import build, rendered, send
from sigdir.signatures.decode_input import BadInput
from sigdir.warehouse.index.view import this_takes_long

_HEADINGS = {
    301: "Moved", 400: "Not understood", 401: "Write token needed", 403: "Refused", 404: "Not found", 405: "Method not allowed", 413: "Too large",
    414: "Address too long", 503: "Unavailable",
}  # fmt: skip
_NO_LIST = dict.fromkeys(("count", "next", "previous", "results"))


def _error_page(req: falcon.Request, status: int, error: dict[str, Any]) -> bytes:
    of_fields = [f"{name}: {' '.join(found)}" for name, found in error.items() if isinstance(found, list)]
    return rendered(
        "error.html", status=status, heading=_HEADINGS.get(status, "Something went wrong"),
        detail=str(error.get("detail", "; ".join(of_fields))), submit=error.get("submit"), solve=error.get("solve"),
    )  # fmt: skip


def _json_page(req: falcon.Request, status: str, value: Any) -> bytes:
    is_list = isinstance(value, dict) and value.keys() == _NO_LIST.keys()
    separator = "&" if req.query_string else ""
    return rendered(
        "answer.html",
        title=req.path.removeprefix("/api/v1/").strip("/") or "signature directory",
        method="GET" if req.method == "HEAD" else req.method, status=status, path=req.path,
        address=req.path + ("?" + req.query_string if req.query_string else ""),
        json_address=f"{req.path}?{req.query_string}{separator}format=json",
        pretty=orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), **(value if is_list else _NO_LIST),
    )  # fmt: skip


def answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a JSON body, or with the page that shows it; with an error page where a page failed."""
    if req.context.kind != HTML:
        send_json(req, resp, body)
        return
    value = orjson.loads(body)
    is_page_error = resp.status_code >= 300 and not req.path.startswith("/api/")
    send(
        req,
        resp,
        _error_page(req, resp.status_code, value) if is_page_error else _json_page(req, str(resp.status), value),
    )


def answer_lookup(req: falcon.Request, resp: falcon.Response, body: bytes, *, found: bool = True) -> None:
    """Answer with a JSON body that is cheap to make, or its page, or a 304: the ETag changes only when the body does."""
    if not conditional.not_modified(req, resp, etag(req, conditional.token_of(body)), lookup_caching(found=found)):
        answer(req, resp, body)


def etag(req: falcon.Request, token: str) -> str:
    """The ETag of a state in the request's representation; a page changes with its templates too."""
    page = f"-{build()}" if req.context.kind == HTML else ""
    return conditional.weak(f"{token}-{req.context.kind[-4:]}{page}")


def add_error_handlers(app: Any) -> None:
    app.add_error_handler(HttpError, _answer_error)
    app.add_error_handler(falcon.HTTPError, _answer_error)
    app.add_error_handler(BadInput, _answer_error)
    app.add_error_handler(Exception, _log_and_answer_error)


def _answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    found = http_error_of(error)
    resp.status = falcon.code_to_http_status(found.status)
    resp.set_headers(found.headers)
    resp.delete_header("ETag")
    req.context.kind = getattr(req.context, "kind", JSON)
    error_body = getattr(req.context, "error_body", None)
    answer(req, resp, json_bytes(error_body(found.body) if error_body else found.body))


def _log_and_answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    """Write one line to the log. The client gets no traceback. A request over its memory is no error of the server."""
    this_takes_long()  # a page of the error does, and the line would be written again
    message = " ".join(str(error).split())
    word = "error" if http_error_of(error).status >= 500 else "refused"
    write_line(f"{word}: {req.method} {req.path}: {type(error).__name__}: {message}")
    _answer_error(req, resp, error, params)
