"""The API for people: the OpenAPI document as a page, each route with an example that can be run."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import falcon
import orjson

from sigdir.serve.http.negotiate import HTML, not_modified
from sigdir.serve.pages.decode import EXAMPLE
from sigdir.serve.pages.page import rendered, send
from sigdir.serve.settings import Settings

_SHOWN_METHODS = ("get", "post")  # what HEAD and OPTIONS do is said once
_TOPIC = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_KEPT = 16
_SECONDS = 3600

GETS = {
    "listSignatures": ["/api/v1/signatures/?hex_signature=0xa9059cbb", "/api/v1/signatures/?text_signature=permit&page_size=5"],
    "listEventSignatures": ["/api/v1/event-signatures/?text_signature=transfer&ordering=created_at"],
    "getSignature": ["/api/v1/signatures/1/"],
    "getEventSignature": ["/api/v1/event-signatures/1/"],
    "decode": [f"/api/v1/decode/?data={EXAMPLE}"],
    "changes": ["/api/v1/changes/?collection=event-signatures&limit=3"],
    "dumps": ["/dumps/"],
    "dump": ["/dumps/latest/"],
    "dumpCollection": ["/dumps/latest/event-signatures.csv"],
    "dumpFile": [],
    "openchainLookup": [f"/signature-database/v1/lookup?function=0xa9059cbb&event=0x{_TOPIC}"],
    "openchainSearch": ["/signature-database/v1/search?query=balanceOf*"],
    "openchainStats": ["/signature-database/v1/stats"],
    "openchainExport": ["/signature-database/v1/export"],
    "olderLookup": ["/api/v1/signatures?function=0xa9059cbb&all"],
    "textsSignature": ["/signatures/a9059cbb"],
    "textsEventSignature": [f"/topic0/{_TOPIC}"],
    "alive": ["/healthz"],
    "ready": ["/readyz"],
    "openapi": ["/api/v1/openapi.json"],
}  # fmt: skip
"""Addresses to try, by operation. None of a file whose name nobody knows beforehand."""

POSTS: dict[str, tuple[Any, ...]] = {
    "createSignature": ("-d", "text_signature=function hello(uint a)"),
    "createEventSignature": ("-d", "text_signature=event Hello(address indexed who)"),
    "importAbi": ("--data-urlencode", "contract_abi@abi.json"),
    "importSolidity": ("-F", "source_file=@Token.sol"),
    "decodeLong": ("--data-urlencode", "data@calldata.hex"),
    "resolve": ("-H", "Content-Type: application/json", "-d", ["0xa9059cbb", "0x" + _TOPIC]),
    "openchainImport": ("-H", "Content-Type: application/json", "-d", {"function": ["hello(uint256)"], "event": []}),
    "olderImport": (
        "-H", "Content-Type: application/json", "-d",
        {"type": "raw", "data": {"function": ["hello(uint256)"], "event": []}},
    ),
}  # fmt: skip
"""What curl is told beside the address, by operation."""


@dataclass(frozen=True, slots=True)
class Try:
    """An example: ``address`` to follow, for a GET, and the curl line."""

    address: str
    curl: str


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a member of a body or schema."""

    name: str
    place: str
    required: bool
    type: str
    about: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path."""

    id: str
    method: str
    path: str
    summary: str
    fields: tuple[Field, ...]
    body_types: tuple[str, ...]
    answers: tuple[tuple[str, str, str], ...]
    tries: tuple[Try, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    about: str
    operations: tuple[Operation, ...]


def groups_of(document: dict[str, Any], base: str) -> list[Group]:
    """The operations of a document by its tags; ``base`` is where the curl lines go."""
    found: dict[str, list[Operation]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method in _SHOWN_METHODS:
            if method in item:
                operation = item[method]
                found[operation["tags"][0]].append(
                    _operation(path, method, operation, item.get("parameters", []), base)
                )
    return [Group(tag["name"], tag["description"], tuple(found[tag["name"]])) for tag in document["tags"]]


def _operation(path: str, method: str, told: dict[str, Any], shared: list[Any], base: str) -> Operation:
    fields = [_parameter(one) for one in (*shared, *told.get("parameters", ()))]
    content = told.get("requestBody", {}).get("content", {})
    if content:
        fields += _members(next(iter(content.values()))["schema"])
    answers = tuple(
        (status, answer["description"], _answer_type(answer)) for status, answer in told["responses"].items()
    )
    tries = tuple(_tries(told["operationId"], path, base))
    return Operation(
        told["operationId"], method.upper(), path, told["summary"], tuple(fields), tuple(content), answers, tries
    )


def _parameter(one: dict[str, Any]) -> Field:
    return Field(one["name"], one["in"], one["required"], kind(one["schema"]), one["description"])


def _members(schema: dict[str, Any]) -> list[Field]:
    """The members of a body that is an object; a body that is something else as one field."""
    if "properties" not in schema:
        return [Field("", "body", True, kind(schema), schema.get("description", ""))]
    required = schema.get("required", ())
    return [
        Field(name, "body", name in required, kind(one), one.get("description", ""))
        for name, one in schema["properties"].items()
    ]


def _answer_type(answer: dict[str, Any]) -> str:
    for type, told in answer.get("content", {}).items():
        return type if type != "application/json" else kind(told["schema"])
    return ""


def _tries(operation: str, path: str, base: str) -> list[Try]:
    if operation in POSTS:
        words = [word if isinstance(word, str) else orjson.dumps(word).decode() for word in POSTS[operation]]
        return [Try("", shlex.join(["curl", *words, base + path]))]
    return [Try(address, shlex.join(["curl", base + address])) for address in GETS[operation]]


def kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " or ".join(dict.fromkeys(kind(one) for one in schema[joined]))
    if "enum" in schema:
        return " or ".join(str(one) or "empty" for one in schema["enum"])
    if "const" in schema:
        constant = schema["const"]
        return constant if isinstance(constant, str) else orjson.dumps(constant).decode()
    if "properties" in schema:
        return "{" + ", ".join(schema["properties"]) + "}"
    types = schema.get("type", "anything")
    if isinstance(types, list):
        return " or ".join(types)
    if types == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return {"date-time": "date and time", "binary": "file"}.get(schema.get("format", ""), str(types))


class DocsPage:
    """The document as a page, with addresses as the client has them."""

    kind = HTML

    def __init__(self, document: dict[str, Any], settings: Settings) -> None:
        self._trust_proxy = settings.trust_proxy
        self._page = lru_cache(maxsize=_KEPT)(lambda base: _page(document, base))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        base = f"{req.scheme}://{req.netloc}"
        if self._trust_proxy:
            base = f"{req.forwarded_scheme}://{req.forwarded_host}"
        page = self._page(base)
        if not not_modified(req, resp, hashlib.sha256(page).hexdigest()[:16], f"public, max-age={_SECONDS}"):
            send(req, resp, page)

    on_head = on_get


def _page(document: dict[str, Any], base: str) -> bytes:
    schemas = [
        (name, schema.get("description", ""), _members(schema))
        for name, schema in document["components"]["schemas"].items()
    ]
    return rendered("docs.html", here="/docs/", groups=groups_of(document, base), schemas=schemas, base=base)
