"""JSON answers: dumped, packed where that helps, with their type."""

from __future__ import annotations

import json
from typing import Any

import falcon
import orjson

from sigdir.serve.http.codings import packed
from sigdir.serve.http.negotiate import JSON

_OPTIONS = orjson.OPT_NON_STR_KEYS  # collections are keys


def json_bytes(value: Any, *, indent: bool = False) -> bytes:
    try:
        return orjson.dumps(value, option=_OPTIONS | orjson.OPT_INDENT_2 if indent else _OPTIONS)
    except TypeError:  # half of a surrogate pair, which a client's JSON may have and UTF-8 may not: escape it
        return json.dumps(value, indent=2 if indent else None).encode()


def send_json(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with JSON that is dumped already."""
    resp.content_type = JSON
    resp.data = packed(req, resp, body)
