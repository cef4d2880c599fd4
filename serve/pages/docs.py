"""The page /docs/: the OpenAPI document for people, each route with an example that runs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import falcon
import orjson

from sigdir.serve.core import openapi
from sigdir.serve.core.openapi import resolve
from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.http.conditional import not_modified, token_of, weak
from sigdir.serve.http.negotiate import HTML, JSON
from sigdir.serve.pages.page import rendered, send

_SHOWN_METHODS = ("get", "post")  # HEAD and OPTIONS add nothing a reader needs
_CACHED_PAGES = 16  # one for each address that clients use
_SECONDS = 3600


def _groups() -> list[tuple[dict[str, Any], list[tuple[str, str, dict[str, Any]]]]]:
    """The document's tags, each with its operations: path, method, and the operation with the path's parameters."""
    document = openapi.document()
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method in _SHOWN_METHODS:
            if method in item:
                parameters = [*item.get("parameters", ()), *item[method].get("parameters", ())]
                operation = item[method] | {"parameters": list(map(resolve, parameters))}
                groups[operation["tags"][0]].append((path, method.upper(), operation))
    return [(tag, groups[tag["name"]]) for tag in document["tags"]]


def _members(schema: dict[str, Any]) -> list[tuple[str, bool, dict[str, Any], str]]:
    """The members of an object's schema, any other schema as one without a name: name, required, schema, description."""
    schema = resolve(schema)
    members = schema.get("properties", {"": schema})
    required = schema.get("required", ("",))
    return [(name, name in required, one, resolve(one).get("description", "")) for name, one in members.items()]


def _type_of_answer(answer: dict[str, Any]) -> str:
    """The type of an answer; of a JSON answer it is its schema."""
    for media_type, content in answer.get("content", {}).items():
        return kind(content["schema"]) if media_type == JSON else str(media_type)
    return ""


def _tries(operation: dict[str, Any], path: str, base: str) -> list[tuple[str, str]]:
    """The examples of an operation: for a GET the address to follow, and the curl line.

    ``x-try`` has the addresses, ``x-curl`` curl's arguments in front of the address. Some operations have none: the names
    of data files and versions are known only at run time, and SQL is there only where the operator allows it.
    """
    if "x-curl" in operation:
        return [("", shlex.join(["curl", *operation["x-curl"], base + path]))]
    return [(address, shlex.join(["curl", base + address])) for address in operation.get("x-try", ())]


def kind(schema: dict[str, Any]) -> str:
    """A schema in a few words; the name of a schema that has one."""
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


@dataclass
class DocsPage:
    """The OpenAPI document as a page; its curl lines have the address that the client used."""

    kind = HTML

    _settings: Settings

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        page = _page(base_url(req, self._settings), self._settings.sql)
        etag = weak(token_of(page))
        if not not_modified(req, resp, etag, f"public, max-age={_SECONDS}"):
            send(req, resp, page)


@lru_cache(maxsize=_CACHED_PAGES)
def _page(base: str, sql: bool) -> bytes:
    return rendered(
        "docs.html", here="/docs/", groups=_groups(), schemas=openapi.document()["components"]["schemas"], base=base,
        sql=sql,
        kind=kind, members=_members, resolve=resolve, tries=_tries, type_of_answer=_type_of_answer,
    )  # fmt: skip
