"""The OpenAPI document's part for OpenChain's interface and sig.eth.samczsun.com's before it."""

from __future__ import annotations

from sigdir.serve.http.negotiate import JSON
from sigdir.serve.openapi import (
    BROKEN,
    COUNT,
    IF_NONE_MATCH,
    UNAVAILABLE,
    VALIDATORS,
    WORDS,
    Object,
    body,
    closed,
    empty,
    header,
    json_answer,
    parameter,
    ref,
    with_head,
)

_KINDS = ("function", "event")
_CACHE = {"Cache-Control": header("How long an answer may be kept.")}
_FLAG = {"enum": ["true", "false"]}
_FILTER = parameter(
    "filter", "false gives the texts that collide with a well-known one too.", _FLAG | {"default": "true"}
)

_FAILURE = closed({"ok": {"const": False}, "error": {"type": "string"}}, "Why, in a sentence.")
_NAME = closed({"name": {"type": "string"}, "filtered": {"type": "boolean"}}, "A text.")
_TEXTS = {"type": "object", "additionalProperties": {"type": "array", "items": _NAME}}
_FOUND = closed(dict.fromkeys(_KINDS, _TEXTS), "Texts by hash, oldest first.")


def _told(about: str, result: Object) -> Object:
    return json_answer(about, closed({"ok": {"const": True}, "result": result}, about), _CACHE)


def _refusal(about: str) -> Object:
    """An error in the dialect's words, or in the server's where the request did not come so far."""
    return {"description": about, "content": {JSON: {"schema": {"anyOf": [_FAILURE, ref("Detail")]}}}}


_READING = BROKEN | {
    "400": _refusal("A hash or a query that is none."),
    "414": _refusal("A query string over 60 KiB."),
    "503": _refusal("The warehouse cannot be read or written now."),
}
_WRITING = _READING | {
    "400": _refusal("A body that is broken or says nothing."),
    "413": _refusal("A body over the server's limit."),
    "415": _refusal("A body of another type."),
}


def _hashes(digits: int) -> Object:
    one = f"0x[0-9a-fA-F]{{{digits}}}"
    return {"type": "string", "pattern": f"^{one}(,{one})*$"}


_BY_HASH = [
    parameter("function", "Selectors, with commas between.", _hashes(8)),
    parameter("event", "Topics, with commas between.", _hashes(64)),
]


def lookup_item() -> Object:
    """Hashes to texts."""
    return with_head(
        {
            "operationId": "openchainLookup",
            "summary": "Hashes to texts.",
            "parameters": [*_BY_HASH, _FILTER],
            "responses": {"200": _told("Texts by hash; of an unknown one none.", _FOUND), **_READING},
        }
    )


def search_item(most: int) -> Object:
    """Texts by a pattern."""
    pattern = {"type": "string", "pattern": r"^[a-zA-Z0-9$_()\[\],*?]+$", "maxLength": most}
    return with_head(
        {
            "operationId": "openchainSearch",
            "summary": "The oldest hundred texts of each kind that fit a pattern as a whole.",
            "parameters": [parameter("query", "* and ? are wildcards.", pattern) | {"required": True}, _FILTER],
            "responses": {"200": _told("Texts by hash.", _FOUND), **_READING},
        }
    )


def import_item() -> Object:
    """Texts to store."""
    kinds = {kind: WORDS | {"description": f"Texts of {kind}s."} for kind in ("function", "event", "error")}
    return _import_item("openchainImport", body(kinds, []))


def older_import_item() -> Object:
    """The same in the older form."""
    texts = closed(dict.fromkeys(_KINDS, WORDS), "Texts.")
    abis = {"type": "array", "items": {"type": "array"}}
    fields = {"type": {"enum": ["raw", "abi"]}, "data": {"anyOf": [texts, abis]}}
    content = {JSON: {"schema": {"type": "object", "properties": fields, "required": ["type", "data"]}}}
    return _import_item("olderImport", {"required": True, "content": content})


def _import_item(operation: str, content: Object) -> Object:
    hashes = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^0x[0-9a-f]+$"}}
    result = closed({"imported": hashes, "duplicated": hashes, "invalid": WORDS}, "BatchResult, by the text as sent.")
    return {
        "post": {
            "operationId": operation,
            "summary": "Store texts.",
            "requestBody": content,
            "responses": {
                "200": _told("What became of each.", closed(dict.fromkeys(_KINDS, result), "BatchResult.")),
                **_WRITING,
            },
        }
    }


def stats_item() -> Object:
    """How many there are."""
    counts = closed({"count": closed(dict.fromkeys(_KINDS, COUNT), "Rows.")}, "Counts.")
    return with_head(
        {
            "operationId": "openchainStats",
            "summary": "How many texts there are of each kind.",
            "responses": {"200": _told("Counts.", counts), **BROKEN, **UNAVAILABLE, "503": _READING["503"]},
        }
    )


def export_item() -> Object:
    """Every row as a line."""
    lines = {"text/plain": {"schema": {"type": "string"}}}
    return with_head(
        {
            "operationId": "openchainExport",
            "summary": "Every row as a line 0x<hash>,<text>: functions first, oldest first.",
            "parameters": [IF_NONE_MATCH],
            "responses": {
                "200": {"description": "The lines.", "headers": VALIDATORS, "content": lines},
                "304": empty("The client has them.", VALIDATORS),
                **BROKEN,
                "503": _refusal("Too many exports at once, or the warehouse cannot be read."),
            },
        }
    )


def older_lookup_item() -> Object:
    """The older lookup, on the list's path without its slash."""
    elsewhere = {"301": empty("Without function and event the path is the list's.", {"Location": header("The list.")})}
    return with_head(
        {
            "operationId": "olderLookup",
            "summary": "Hashes to texts, as before.",
            "parameters": [*_BY_HASH, parameter("all", "Leaves the filter off.", {"enum": ["", "true", "false"]})],
            "responses": {"200": _told("Texts by hash; of an unknown one none.", _FOUND), **elsewhere, **_READING},
        }
    )
