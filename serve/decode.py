"""Calldata to values, by each text that the directory has for its selector; see ``sigdir.signatures.calldata``."""

from __future__ import annotations

from itertools import islice
from typing import Any

import falcon
import orjson

from sigdir.serve.http import bodies
from sigdir.serve.http.errors import field_error
from sigdir.serve.http.negotiate import JSON, packed
from sigdir.serve.lists import texts_with
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.calldata import (
    MAX_BYTES,
    BadCalldata,
    DecodeAttempt,
    as_json,
    calldata,
    decode,
)
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.view import Reader, View

MAX_TEXTS = 100
"""Texts of a selector that are tried: the one that is listed as its own first, then the oldest."""

BODY_BYTES = 3 * MAX_BYTES  # two digits a byte, line ends, and the form's own words


def routes(settings: Settings, reader: Reader, writer: Writer) -> list[tuple[str, object]]:
    return [("/api/v1/decode/", DecodeResource(reader))]


def candidates(view: View, data: bytes) -> tuple[list[DecodeAttempt], int]:
    """What the texts of the data's selector make of it, the best first, and how many such texts there are."""
    selector = data[:4]
    texts = texts_with(view, SIGNATURES, selector)
    ordered = sorted(texts, key=lambda text: is_filtered(selector, text))
    return decode(data, islice(ordered, MAX_TEXTS)), len(texts)


def told(view: View, data: bytes) -> dict[str, Any]:
    """The same as JSON."""
    found, texts = candidates(view, data)
    return {
        "selector": "0x" + data[:4].hex(),
        "bytes": len(data),
        "texts": texts,
        "candidates": [_told(data[:4], candidate) for candidate in found],
    }


def _told(selector: bytes, candidate: DecodeAttempt) -> dict[str, Any]:
    about = {"text_signature": candidate.text, "filtered": is_filtered(selector, candidate.text)}
    if candidate.values is None:
        return about | {"decodes": False, "reason": candidate.reason, "detail": candidate.detail}
    pairs = zip(candidate.types, candidate.values, strict=True)
    return about | {
        "decodes": True,
        "exact": candidate.exact,
        "left_over": candidate.left_over,
        "parameters": [{"type": type.text, "value": as_json(type, value)} for type, value in pairs],
    }


class DecodeResource:
    """GET with ``data`` in the query, POST where it is longer than a query may be."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._answer(req, resp, req.get_param("data", default=""))

    on_head = on_get

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._answer(req, resp, bodies.text_field(bodies.fields_of(req, BODY_BYTES), "data"))

    def _answer(self, req: falcon.Request, resp: falcon.Response, text: str) -> None:
        try:
            data = calldata(text)
        except BadCalldata as error:
            raise field_error("data", str(error)) from None
        resp.content_type = JSON
        resp.set_header("Cache-Control", "no-cache")
        resp.data = packed(req, resp, orjson.dumps(told(self._reader.current(), data)))
