"""Calldata to values, by each text that the directory has for its selector. ``sigdir.signatures.calldata`` decodes."""

from __future__ import annotations

from itertools import islice
from typing import Any

import falcon

from sigdir.serve.http import bodies
from sigdir.serve.http.errors import field_error
from sigdir.serve.http.json_answer import json_bytes, send_json
from sigdir.serve.lists.selection import texts_with
from sigdir.signatures.calldata import MAX_BYTES, BadCalldata, as_json, calldata, decode
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.decode_attempt import DecodeAttempt
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.view import Reader, View

MAX_TEXTS = 100
"""Texts of a selector that are tried: the standard's own first, then the oldest."""

BODY_BYTES = 3 * MAX_BYTES  # two digits a byte, line ends, and the field's name


def candidates(view: View, data: bytes) -> tuple[list[DecodeAttempt], int]:
    """An attempt to decode the data by each text of its selector, best first, and the number of such texts."""
    selector = data[:4]
    texts = texts_with(view, SIGNATURES, selector)
    ordered = sorted(texts, key=lambda text: is_filtered(selector, text))
    return decode(data, islice(ordered, MAX_TEXTS)), len(texts)


def document(view: View, data: bytes) -> dict[str, Any]:
    """The answer of ``/api/v1/decode/`` as JSON values."""
    attempts, texts = candidates(view, data)
    return {
        "selector": "0x" + data[:4].hex(),
        "bytes": len(data),
        "texts": texts,
        "candidates": [_attempt_document(data[:4], attempt) for attempt in attempts],
    }


def _attempt_document(selector: bytes, attempt: DecodeAttempt) -> dict[str, Any]:
    entry = {"text_signature": attempt.text, "filtered": is_filtered(selector, attempt.text)}
    if attempt.values is None:
        return entry | {"decodes": False, "reason": attempt.reason, "detail": attempt.detail}
    pairs = zip(attempt.types, attempt.values, strict=True)
    return entry | {
        "decodes": True,
        "exact": attempt.exact,
        "left_over": attempt.left_over,
        "parameters": [{"type": type.text, "value": as_json(type, value)} for type, value in pairs],
    }


class DecodeResource:
    """GET takes ``data`` in the query; POST takes it in the body, for data longer than a query may be."""

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
        resp.set_header("Cache-Control", "no-cache")
        send_json(req, resp, json_bytes(document(self._reader.current(), data)))
