"""The OpenAPI document's part for decode, resolve, changes, dumps and the hash-named files."""

from __future__ import annotations

from sigdir.serve.http.negotiate import JSON
from sigdir.serve.openapi import (
    BROKEN,
    COUNT,
    FORMAT,
    IF_NONE_MATCH,
    NAMES,
    READING,
    UNAVAILABLE,
    VALIDATORS,
    Object,
    body,
    both,
    closed,
    empty,
    header,
    json_answer,
    parameter,
    plain_refusal,
    ref,
    refusal,
    with_head,
)
from sigdir.signatures.calldata import REASONS
from sigdir.signatures.collections import COLLECTIONS, Collection

NDJSON, CSV, TEXT = "application/x-ndjson", "text/csv", "text/plain"
PARQUET = "application/vnd.apache.parquet"

_HASH = {"type": "string", "pattern": "^(0x)?([0-9a-fA-F]{8}|[0-9a-fA-F]{64})$"}
_LAST = closed(
    {"next": {"type": "string"}, "more": {"type": "boolean"}},
    "The last line: the cursor to go on with, and whether there is more at the moment.",
)
_CACHE = {"Cache-Control": header("How long an answer may be kept.")}
_ROWS = {"anyOf": [ref(name) for name in NAMES.values()]}


def _lines(about: str, line: Object, headers: Object | None = None) -> Object:
    """An answer in lines of JSON; OpenAPI 3.1 has no word for what a line is."""
    content = {NDJSON: {"schema": {"type": "string"}, "x-line": line}}
    return {"description": about, "headers": headers or {}, "content": content}


def decode_item(most_bytes: int, most_texts: int) -> Object:
    """Calldata to values."""
    data = {
        "type": "string", "pattern": r"^(0x)?([0-9a-fA-F]{2}){4,}$", "maxLength": 2 + 2 * most_bytes,
        "description": "A selector and the arguments behind it, as hex digits.",
        "examples": ["0xa9059cbb" + "11".zfill(64) + "3e8".zfill(64)],
    }  # fmt: skip
    text: Object = {"text_signature": {"type": "string"}, "filtered": {"type": "boolean"}}
    parameter_told = closed({"type": {"type": "string"}, "value": {}}, "A parameter.")
    fits = closed(
        text
        | {
            "decodes": {"const": True},
            "exact": {"type": "boolean"},
            "left_over": COUNT,
            "parameters": {"type": "array", "items": parameter_told},
        },
        "A text that decodes the data: exactly, or with this many bytes left over.",
    )
    fault: Object = {"decodes": {"const": False}, "reason": {"enum": list(REASONS)}, "detail": {"type": "string"}}
    fits_not = closed(text | fault, "A text that does not.")
    told = closed(
        {
            "selector": {"type": "string", "pattern": "^0x[0-9a-f]{8}$"},
            "bytes": COUNT,
            "texts": COUNT,
            "candidates": {"type": "array", "items": {"anyOf": [fits, fits_not]}, "maxItems": most_texts},
        },
        "The texts of the data's selector, the best first.",
    )
    faults = {"schema": {"anyOf": [ref("Detail"), ref("FieldErrors")]}}
    answers = {
        "200": json_answer("What each text makes of it.", told, _CACHE),
        **BROKEN,
        "400": {"description": "No calldata.", "content": {JSON: faults}},
        **UNAVAILABLE,
    }
    too_large = plain_refusal("A body over the server's limit.")
    other = plain_refusal("A body of another type.")
    return with_head(
        {
            "operationId": "decode",
            "summary": "Calldata to values, by each text of its selector.",
            "parameters": [parameter("data", "The calldata.", data) | {"required": True}],
            "responses": answers,
        }
    ) | {
        "post": {
            "operationId": "decodeLong",
            "summary": "The same for data that is longer than a query may be.",
            "requestBody": body({"data": data}, ["data"]),
            "responses": answers | {"413": too_large, "415": other},
        }
    }


def resolve_item(most: int) -> Object:
    """Up to ``most`` hashes in one request."""
    texts = closed({"hash": {"type": "string"}, "texts": {"type": "array", "items": {"type": "string"}}}, "A hash.")
    fault = closed({"hash": {"type": "string"}, "error": {"type": "string"}}, "What is none.")
    lines = {"type": "string", "description": "A line each; as JSON a text, or an object with hash."}
    return {
        "post": {
            "operationId": "resolve",
            "summary": "The texts of many hashes, selectors and topics mixed.",
            "requestBody": {
                "required": True,
                "content": {
                    JSON: {"schema": {"type": "array", "items": _HASH, "maxItems": most}},
                    NDJSON: {"schema": lines},
                    TEXT: {"schema": lines},
                },
            },
            "responses": {
                "200": _lines("A line for each hash, in their order; texts oldest first.", {"anyOf": [texts, fault]}),
                **BROKEN,
                "400": plain_refusal("A body that is not what its type says."),
                "413": plain_refusal(f"More than {most} hashes, or a body over the server's limit."),
                **UNAVAILABLE,
            },
        },
    }


def changes_item(default: int, most: int) -> Object:
    """The rows behind a cursor."""
    faults = {"schema": {"anyOf": [ref("Detail"), ref("FieldErrors")]}}
    return with_head(
        {
            "operationId": "changes",
            "summary": "What is new since a cursor, in the order of ids, for mirrors.",
            "parameters": [
                parameter("collection", "Whose rows.", {"enum": list(COLLECTIONS), "default": COLLECTIONS[0]}),
                parameter(
                    "after", "A cursor of that collection; empty or left out for all rows.",
                    {"type": "string", "pattern": "^([se](0|[1-9][0-9]{0,17}))?$"},
                ),
                parameter("limit", f"Rows at most; never over {most}.", {"type": "integer", "minimum": 1, "default": default}),
            ],
            "responses": {
                "200": _lines("Rows, then a line with the cursor.", {"anyOf": [*_ROWS["anyOf"], _LAST]}, _CACHE),
                **BROKEN,
                "400": {"description": "No such collection, cursor or limit.", "content": {JSON: faults}},
                **UNAVAILABLE,
            },
        }
    )  # fmt: skip


# Dumps.

_VERSION = parameter(
    "version", "A version's number, or latest.", {"type": "string", "pattern": "^(latest|0|[1-9][0-9]{0,11})$"}, "path"
)
_KEPT = {
    "404": plain_refusal("No such version or file."),
    "410": plain_refusal("A version whose files are not kept any more."),
}
_ELSEWHERE = {"302": empty("Where the newest version, or the one file, is.", {"Location": header("There.")})}
_FILE = closed(
    {
        "collection": {"enum": list(COLLECTIONS)},
        "url": {"type": "string", "format": "uri-reference"},
        "rows": COUNT,
        "bytes": COUNT,
        "sha256": {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"},
        "first_id": COUNT,
        "last_id": COUNT,
    },
    "A data file. The digest is null until a later request where there is much to read for it.",
)
_DUMP = closed(
    {
        "version": COUNT,
        "rows": closed(dict.fromkeys(COLLECTIONS, COUNT), "Rows of each collection."),
        "changes_after": closed({key: {"type": "string"} for key in COLLECTIONS}, "Cursors of the feed of changes."),
        "files": {"type": "array", "items": _FILE},
    },
    "A version with its files.",
)
_KNOWN = closed(
    {
        "version": COUNT,
        "committed_at": {"type": "string", "format": "date-time"},
        "kind": {"type": ["string", "null"]},
        "url": {"type": "string", "format": "uri-reference"},
    },
    "A version that there was.",
)


def versions_item() -> Object:
    """The list of dumps."""
    told = closed(
        {"latest": {"anyOf": [_DUMP, {"type": "null"}]}, "versions": {"type": "array", "items": _KNOWN}},
        "The newest version, and a hundred before it.",
    )
    return with_head(
        {
            "operationId": "dumps",
            "summary": "The newest version with its files, and the versions before it.",
            "parameters": [FORMAT],
            "responses": {"200": both("Dumps.", told, _CACHE), **READING},
        }
    )


def version_item() -> Object:
    """One dump."""
    return {"parameters": [_VERSION]} | with_head(
        {
            "operationId": "dump",
            "summary": "A version with its files.",
            "parameters": [FORMAT],
            "responses": {
                "200": both("A dump.", _DUMP, _CACHE),
                **_ELSEWHERE,
                **READING,
                "410": refusal("A version whose files are not kept any more."),
            },
        }
    )


def collection_dump_item() -> Object:
    """A whole collection of a version."""
    endings = ("ndjson", "csv", "parquet")
    names = [f"{collection}.{ending}" for collection in COLLECTIONS for ending in endings]
    content = {
        NDJSON: {"schema": {"type": "string"}, "x-line": _ROWS},
        CSV: {"schema": {"type": "string"}},
        PARQUET: {"schema": {"type": "string", "format": "binary"}},
    }
    return {"parameters": [_VERSION, parameter("name", "Collection and form.", {"enum": names}, "path")]} | with_head(
        {
            "operationId": "dumpCollection",
            "summary": "All rows of a collection in the order of their ids.",
            "responses": {
                "200": {"description": "The rows.", "headers": _CACHE, "content": content},
                **_ELSEWHERE,
                **_KEPT,
                **BROKEN,
                "503": plain_refusal("Too many downloads at once, or the warehouse cannot be read."),
            },
        }
    )


def data_file_item() -> Object:
    """A data file of a version."""
    about = VALIDATORS | {"Accept-Ranges": header("bytes"), "Last-Modified": header("When it was written.")}
    file = {PARQUET: {"schema": {"type": "string", "format": "binary"}}}
    path = [
        _VERSION,
        parameter("name", "The collection.", {"enum": list(COLLECTIONS)}, "path"),
        parameter("file", "As the version's list names it.", {"type": "string", "pattern": r"^[0-9A-Za-z_-]+\.parquet$"},
                  "path"),
    ]  # fmt: skip
    return {"parameters": path} | with_head(
        {
            "operationId": "dumpFile",
            "summary": "A Parquet file of a version, or a range of its bytes.",
            "parameters": [
                IF_NONE_MATCH,
                parameter(
                    "Range", "A range of bytes.", {"type": "string", "pattern": "^bytes=[0-9]*-[0-9]*$"}, "header"
                ),
            ],
            "responses": {
                "200": {"description": "The file.", "headers": about, "content": file},
                "206": {
                    "description": "The range.",
                    "headers": about | {"Content-Range": header("Which it is.")},
                    "content": file,
                },
                "304": empty("The client has the file.", VALIDATORS),
                "416": plain_refusal("A range without a byte in it."),
                **_ELSEWHERE,
                **_KEPT,
                **BROKEN,
                **UNAVAILABLE,
            },
        }
    )


# Files by hash.


def hash_file_item(collection: Collection) -> Object:
    """The texts of a hash, as the trees 4bytes and topic0 have them."""
    digits = 2 * collection.hash_bytes
    hash = parameter(
        "hash", "The hash without 0x.", {"type": "string", "pattern": f"^[0-9a-fA-F]{{{digits}}}$"}, "path"
    )
    texts = {TEXT: {"schema": {"type": "string"}}}
    return {"parameters": [hash]} | with_head(
        {
            "operationId": f"texts{NAMES[collection]}",
            "summary": "The texts of a hash, joined by semicolons, the canonical one first.",
            "parameters": [IF_NONE_MATCH],
            "responses": {
                "200": {"description": "The texts.", "headers": VALIDATORS, "content": texts},
                "304": empty("The client has them.", VALIDATORS),
                "404": plain_refusal("No text has this hash."),
                **BROKEN,
                **UNAVAILABLE,
            },
        }
    )
