"""Answers in the representation that the request prefers: JSON, or the page that shows it to a browser."""

from __future__ import annotations

import sys
from typing import Any

import falcon

from sigdir.serve.http import conditional
from sigdir.serve.http.codings import json_bytes, send_json
from sigdir.serve.http.errors import HttpError, http_error_of
from sigdir.serve.http.negotiate import HTML, JSON
from sigdir.serve.pages.json_page import send_answer
from sigdir.serve.pages.page import build


def answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a JSON body, or with the page that shows it."""
    if req.context.kind == HTML:
        send_answer(req, resp, body)
    else:
        send_json(req, resp, body)


def etag(req: falcon.Request, token: str) -> str:
    """The ETag of a state in the request's representation; a page changes with its templates too."""
    page = f"-{build()}" if req.context.kind == HTML else ""
    return conditional.weak(f"{token}-{req.context.kind[-4:]}{page}")


def add_error_handlers(app: Any) -> None:
    app.add_error_handler(HttpError, _answer_error)
    app.add_error_handler(falcon.HTTPError, _answer_error)
    app.add_error_handler(Exception, _log_and_answer_error)


def _answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    found = http_error_of(error)
    resp.status = falcon.code_to_http_status(found.status)
    for name, value in found.headers.items():
        resp.set_header(name, value)
    resp.delete_header("ETag")
    req.context.kind = getattr(req.context, "kind", JSON)
    error_body = getattr(req.context, "error_body", None)
    answer(req, resp, json_bytes(error_body(found.body) if error_body else found.body))


def _log_and_answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    """Write one line to the log. The client gets no traceback. A request over its memory is no error of the server."""
    message = " ".join(str(error).split())
    word = "error" if http_error_of(error).status >= 500 else "refused"
    print(f"{word}: {req.method} {req.path}: {type(error).__name__}: {message}", file=sys.stderr, flush=True)
    _answer_error(req, resp, error, params)
