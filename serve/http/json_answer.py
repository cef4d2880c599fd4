"""JSON answers: dumped, packed where that helps, with their type."""

from __future__ import annotations

from typing import Any

import falcon
import orjson

from sigdir.serve.http.codings import packed
from sigdir.serve.http.negotiate import JSON

_OPTIONS = orjson.OPT_NON_STR_KEYS  # collections are keys


def json_bytes(value: Any, *, indent: bool = False) -> bytes:
    return orjson.dumps(value, option=_OPTIONS | orjson.OPT_INDENT_2 if indent else _OPTIONS)


def send_json(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with JSON that is dumped already."""
    resp.content_type = JSON
    resp.data = packed(req, resp, body)
