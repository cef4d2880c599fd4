"""The OpenAPI 3.1 document: what each kind of route takes and answers.

``document`` is given the routes that the application has, and each resource says which of the kinds
below it is, so no route goes without its description. ``tests/serve/test_openapi.py`` holds the
document against a running server.

Values that the wire contract takes although they mean nothing are described as what they should be: a
``page_size`` is a number here, and one that is none still means 100.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from sigdir.serve.http.negotiate import HTML, JSON
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.grammar import MAX_TEXT_BYTES

PATH = "/api/v1/openapi.json"

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"

Object = dict[str, Any]


class Described(Protocol):
    """A resource that says what it takes and answers, method by method."""

    def described(self) -> Object:
        """The OpenAPI path item."""
        ...


Routes = list[tuple[str, Described]]
"""Paths and what answers there."""


def document(routes: Iterable[tuple[str, Described]]) -> Object:
    """The document over routes and their resources, in this order."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Signature directory",
            "version": package_version(),
            "summary": "Ethereum signatures and their hashes, as 4byte.directory serves them.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about, _ in TAGS],
        "paths": {path: _tagged(path, resource.described()) for path, resource in routes},
        "components": {"schemas": _SCHEMAS},
    }


TAGS = (
    ("Signatures", "Two collections, the same in all respects but their names: lists, filters, single rows, and new ones.",
     r"/api/v1/((event-)?signatures|import-abi|import-solidity)/.*"),
    ("Decode and resolve", "Calldata to values, and very many hashes to texts in one request.",
     r"/api/v1/(decode|resolve)/"),
    ("For mirrors", "Everything that is here, and what comes: files, whole collections, and a feed of changes.",
     r"/dumps/.*|/api/v1/changes/"),
    ("Other dialects", "What OpenChain, sig.eth.samczsun.com and the hash-named files of the 4bytes repository answer.",
     r"/signature-database/.*|/api/v1/(signatures|import)|/signatures/.*|/topic0/.*"),
    ("The server", "How it is, and this description.", r"/healthz|/readyz|/api/v1/openapi\.json"),
)  # fmt: skip
"""What belongs together: a name, a sentence, and a pattern for the paths. Each path fits one of them."""


def _tagged(path: str, item: Object) -> Object:
    [tag] = [name for name, _, pattern in TAGS if re.fullmatch(pattern, path)]
    return {key: {"tags": [tag]} | told if isinstance(told, dict) else told for key, told in item.items()}


def package_version() -> str:
    try:
        return version("signature-directory")
    except PackageNotFoundError:  # run from a checkout
        return "0"


# What every answer is made of.


def ref(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}


def header(about: str, schema: Object | None = None) -> Object:
    return {"description": about, "required": True, "schema": schema or {"type": "string"}}


NAMES = {SIGNATURES: "Signature", EVENT_SIGNATURES: "EventSignature"}

_ALLOW = {"Allow": header("The methods of the resource."), "Vary": header("Accept, and perhaps Accept-Encoding.")}
VALIDATORS = {
    "ETag": header("The state of the collections and the representation.", {"type": "string", "pattern": '^(W/)?"[^"]*"$'}),
    "Cache-Control": header("How long an answer may be kept."),
}  # fmt: skip


def both(about: str, schema: Object, headers: Object | None = None) -> Object:
    """An answer in both representations."""
    content = {JSON: {"schema": schema}, HTML: {"schema": {"type": "string"}}}
    return {"description": about, "headers": _ALLOW | (headers or {}), "content": content}


def json_answer(about: str, schema: Object, headers: Object | None = None) -> Object:
    return {"description": about, "headers": headers or {}, "content": {JSON: {"schema": schema}}}


def empty(about: str, headers: Object | None = None) -> Object:
    return {"description": about, "headers": headers or {}}


def refusal(about: str) -> Object:
    # No header is promised: a path that no resource answers for, or a request that is broken before
    # the application sees it, has none.
    content = {JSON: {"schema": ref("Detail")}, HTML: {"schema": {"type": "string"}}}
    return {"description": about, "content": content}


def plain_refusal(about: str) -> Object:
    """A refusal by a resource that answers no browser with a page."""
    return {"description": about, "content": {JSON: {"schema": ref("Detail")}}}


NOT_FOUND = {"404": refusal("No such row or page, or a format that is none.")}
_NOT_ACCEPTABLE = {"406": refusal("Accept allows neither JSON nor HTML.")}
BROKEN = {
    "400": refusal("A request that is no HTTP."),
    "414": refusal("A query string over 16 KiB."),
    "431": refusal("Headers over 64 KiB."),
}
UNAVAILABLE = {"503": refusal("The warehouse cannot be read or written now.")}
READING = NOT_FOUND | _NOT_ACCEPTABLE | BROKEN | UNAVAILABLE

_FIELD_FAULTS = {
    "description": "A body that is broken, or a field that is missing, blank, of no known form, or stored already.",
    "content": {
        JSON: {"schema": {"anyOf": [ref("Detail"), ref("FieldErrors")]}},
        HTML: {"schema": {"type": "string"}},
    },
}
_WRITING = (
    READING
    | {"400": _FIELD_FAULTS}
    | {"413": refusal("A body over the server's limit."), "415": refusal("A body of another type.")}
)


# What a request may say.


def parameter(name: str, about: str, schema: Object, where: str = "query") -> Object:
    return {"name": name, "in": where, "required": where == "path", "description": about, "schema": schema}


_MOMENT = {"type": "string", "format": "date-time"}
FORMAT = parameter("format", "json leaves HTML out; api prefers it.", {"enum": ["json", "api"]})
_ID = parameter("id", "The row's id.", {"type": "integer", "minimum": 1, "format": "int64"}, "path")
IF_NONE_MATCH = parameter("If-None-Match", "Tags that the client has.", {"type": "string"}, "header")


def _filters(collection: Collection) -> list[Object]:
    digits = 2 * collection.hash_bytes
    return [
        parameter("page", "From 1, or last.", {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "last"}]}),
        parameter("page_size", "Rows of a page.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
        parameter("ordering", "Newest first where it is not said.", {"enum": ["created_at", "-created_at"]}),
        parameter(
            "hex_signature", f"The hash, of {digits} hex digits, or a part of it; 0x may stand before it.",
            {"type": "string", "pattern": f"^(0x)?[0-9a-fA-F]{{1,{digits}}}$"},
        ),
        parameter("text_signature", "A part of the text, in any case.", {"type": "string"}),
        *(
            parameter(f"created_at__{bound}", f"Created {words} this time.", _MOMENT)
            for bound, words in (("gte", "at or after"), ("gt", "after"), ("lte", "at or before"), ("lt", "before"))
        ),
        FORMAT,
    ]  # fmt: skip


def body(fields: dict[str, Object], required: list[str], files: dict[str, Object] | None = None) -> Object:
    """A body in each of the three types; ``files`` can only be sent as multipart."""
    schema = {"type": "object", "properties": fields, "required": required}
    with_files = schema | {"properties": fields | (files or {})}
    content = {JSON: {"schema": schema}, FORM: {"schema": schema}, MULTIPART: {"schema": with_files}}
    return {"required": bool(required), "content": content}


# The kinds of routes.


def collection_item(collection: Collection) -> Object:
    """A list and the POST of a row."""
    name = NAMES[collection]
    longest = {"maxLength": 4096 if collection == EVENT_SIGNATURES else MAX_TEXT_BYTES}
    text = {"type": "string", "minLength": 3, "description": "Any written form; the canonical one is stored."} | longest
    parameters = [*_filters(collection), IF_NONE_MATCH]
    unmodified = {"304": empty("The client has this state.", VALIDATORS)}
    return {
        "get": {
            "operationId": f"list{name}s",
            "summary": "A page of rows, newest first.",
            "parameters": parameters,
            "responses": {"200": both("A page.", ref(f"{name}Page"), VALIDATORS), **unmodified, **READING},
        },
        "head": {
            "operationId": f"head{name}s",
            "summary": "The headers of a page.",
            "parameters": parameters,
            "responses": {"200": empty("A page.", _ALLOW | VALIDATORS), **unmodified, **without_bodies(READING)},
        },
        "post": {
            "operationId": f"create{name}",
            "summary": "Store a text.",
            "parameters": [FORMAT],
            "requestBody": body({"text_signature": text}, ["text_signature"]),
            "responses": {"201": both("The new row.", ref(name)), **_WRITING},
        },
        "options": _options(f"describe{name}s"),
    }


def row_item(collection: Collection) -> Object:
    """One row."""
    name = NAMES[collection]
    parameters = [FORMAT, IF_NONE_MATCH]
    unmodified = {"304": empty("The client has this state.", VALIDATORS)}
    return {
        "parameters": [_ID],
        "get": {
            "operationId": f"get{name}",
            "summary": "One row.",
            "parameters": parameters,
            "responses": {"200": both("The row.", ref(name), VALIDATORS), **unmodified, **READING},
        },
        "head": {
            "operationId": f"has{name}",
            "summary": "Whether there is such a row.",
            "parameters": parameters,
            "responses": {"200": empty("There is.", _ALLOW | VALIDATORS), **unmodified, **without_bodies(READING)},
        },
        "options": _options(f"describe{name}"),
    }


def abi_import_item() -> Object:
    """The import of an ABI."""
    text = {"type": "string", "minLength": 1, "description": "An ABI as JSON text.", "contentMediaType": JSON}
    return _import_item("importAbi", "Store the functions, errors and events of an ABI.",
                        body({"contract_abi": text}, ["contract_abi"]))  # fmt: skip


def solidity_import_item() -> Object:
    """The import of a Solidity source."""
    code = {"type": "string", "minLength": 1, "description": "Solidity source code."}
    file = {"type": "string", "format": "binary", "description": "The same as a file."}
    return _import_item("importSolidity", "Store what a Solidity source declares.",
                        body({"source_code": code}, [], {"source_file": file}))  # fmt: skip


def _import_item(operation: str, about: str, body: Object) -> Object:
    return {
        "post": {
            "operationId": operation,
            "summary": about,
            "parameters": [FORMAT],
            "requestBody": body,
            "responses": {"201": both("What became of the declarations.", ref("Counters")), **_WRITING},
        },
        "options": _options(f"describe{operation[0].upper()}{operation[1:]}"),
    }


def health_item(name: str, schema: str, about: str) -> Object:
    """A health check."""
    return {
        "get": {
            "operationId": name,
            "summary": about,
            "responses": {"200": json_answer("It does.", ref(schema)), **BROKEN, **UNAVAILABLE},
        },
        "head": {
            "operationId": f"{name}Head",
            "summary": about,
            "responses": {"200": empty("It does."), **without_bodies(BROKEN | UNAVAILABLE)},
        },
    }


def document_item() -> Object:
    """This document."""
    parameters = [IF_NONE_MATCH]
    unmodified = {"304": empty("The client has this document.", VALIDATORS)}
    return {
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "parameters": parameters,
            "responses": {
                "200": json_answer("OpenAPI 3.1.", {"type": "object"}, VALIDATORS),
                **unmodified,
                **BROKEN,
            },
        },
        "head": {
            "operationId": "openapiHead",
            "summary": "The headers of this document.",
            "parameters": parameters,
            "responses": {"200": empty("OpenAPI 3.1.", VALIDATORS), **unmodified, **without_bodies(BROKEN)},
        },
    }


def _options(operation: str) -> Object:
    return {
        "operationId": operation,
        "summary": "What the resource is, renders and takes.",
        "parameters": [FORMAT],
        "responses": {"200": both("A description.", ref("Description")), **READING},
    }


def with_head(get: Object) -> Object:
    """A GET, and the HEAD of it."""
    head = {"operationId": f"{get['operationId']}Head", "responses": without_bodies(get["responses"])}
    return {"get": get, "head": get | head}


def without_bodies(answers: Object) -> Object:
    """The same answers to HEAD."""
    return {status: empty(answer["description"], answer.get("headers")) for status, answer in answers.items()}


# Schemas.

WORDS = {"type": "array", "items": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
_LINK = {"type": ["string", "null"], "format": "uri-reference"}


def closed(properties: dict[str, Object], about: str) -> Object:
    """An object with all of these members and no others."""
    return {
        "type": "object",
        "description": about,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _row(collection: Collection) -> Object:
    width = collection.hash_bytes
    return closed(
        {
            "id": {"type": "integer", "minimum": 1, "description": "Rises with created_at and never changes."},
            "created_at": {
                "type": "string", "format": "date-time",
                "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$",
            },
            "text_signature": {"type": "string", "pattern": r"^[A-Za-z_$][A-Za-z0-9_$]*\(.*\)$"},
            "hex_signature": {"type": "string", "pattern": f"^0x[0-9a-f]{{{2 * width}}}$"},
            "bytes_signature": {
                "type": "string", "minLength": width, "maxLength": width,
                "description": "The hash, each byte as the character with its code.",
            },
        },
        f"A text and the first {width} bytes of its keccak-256." if width < 32 else "A text and its keccak-256.",
    )  # fmt: skip


def _page(name: str) -> Object:
    rows = {"type": "array", "items": ref(name), "maxItems": 1000}
    return closed({"count": COUNT, "next": _LINK, "previous": _LINK, "results": rows}, "Rows of a list.")


_SCHEMAS: dict[str, Object] = {
    **{NAMES[collection]: _row(collection) for collection in (SIGNATURES, EVENT_SIGNATURES)},
    **{f"{name}Page": _page(name) for name in NAMES.values()},
    "Counters": closed(
        dict.fromkeys(("num_processed", "num_imported", "num_duplicates", "num_ignored"), COUNT),
        "The first is the sum of the others.",
    ),
    "Detail": closed({"detail": {"type": "string"}}, "Why, in a sentence."),
    "FieldErrors": {
        "type": "object",
        "description": "Why, by field.",
        "minProperties": 1,
        "additionalProperties": WORDS | {"minItems": 1},
    },
    "Description": {
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "description": {"type": "string"}, "renders": WORDS, "parses": WORDS,
            "actions": {"type": "object"},
        },
        "required": ["name", "description", "renders", "parses"],
        "additionalProperties": False,
    },
    "Alive": closed({"status": {"const": "ok"}}, "The process answers."),
    "Ready": closed(
        {
            "status": {"const": "ok"},
            "version": {"type": "integer", "minimum": -1, "description": "-1 where nothing was published yet."},
            "rows": closed(dict.fromkeys(NAMES, COUNT), "Rows of each collection."),
        },
        "The warehouse can be read.",
    ),
}  # fmt: skip
