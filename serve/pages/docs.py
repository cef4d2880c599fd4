"""The page /docs/: the OpenAPI document for people, each route with an example that runs.

What there is in numbers: the status page, and the statistics page, whose charts are as last rendered in the
background.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import falcon
import orjson

from sigdir.serve.core import openapi
from sigdir.serve.core.openapi import package_version, resolve
from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.http.answers import HTML, JSON
from sigdir.serve.http.caching import not_modified, token_of, weak
from sigdir.serve.pages.background import BackgroundRenderer
from sigdir.serve.pages.page import ViewPage, build, rendered, send
from sigdir.serve.pages.rows import TITLES
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.manifest import Origin, newest_first, origin_of
from sigdir.warehouse.table.identity import FORMAT
from sigdir.warehouse.table.paths import Paths

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


_MAX_IMPORTS = 10
_MAX_COMMITS = 300
"""Commits read for the page at most: at one fold a minute these are five hours."""


@dataclass
class StatusPage(ViewPage):
    """What is in the warehouse and what was last done to it."""

    _counts_misses: bool

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        imports, fold = _last_jobs(self._reader.paths, view.snapshot.version)
        return rendered(
            "status.html", here="/status/", version=view.snapshot.version, collections=_collections(view),
            imports=imports, fold=fold, format=FORMAT, package=package_version(), max_commits=_MAX_COMMITS,
            counts_misses=self._counts_misses,
        )  # fmt: skip


def _last_jobs(paths: Paths, version: int) -> tuple[list[Origin], dict[str, Any] | None]:
    """The last imports, newest first, and the last fold."""
    imports: list[Origin] = []
    fold = None
    for summary in newest_first(paths, version, version - _MAX_COMMITS):
        if "import" in summary and len(imports) < _MAX_IMPORTS:
            imports.append(origin_of(summary))
        elif fold is None and summary["kind"] == "fold":
            fold = summary
        if fold is not None and len(imports) == _MAX_IMPORTS:
            break
    return imports, fold


def _collections(view: View) -> list[dict[str, Any]]:
    """Per collection its title, all rows, the staged ones among them, and its data files."""
    found = []
    for collection in COLLECTIONS:
        rows = view.count(collection)
        staged, files = rows - view.snapshot.count(collection), len(view.snapshot.files[collection])
        found.append({"title": TITLES[collection], "rows": rows, "staged": staged, "files": files})
    return found


_RELOAD_SECONDS = 2


class StatisticsPage:
    """Shows the charts, or reloads until the first ones are rendered."""

    kind = HTML

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._renderer = BackgroundRenderer(reader.paths)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        version = view.snapshot.version
        statistics = self._renderer.newest(version, view.suppressed.id) if version >= 0 else None
        if statistics is None:
            self._send_without_charts(req, resp, version)
            return
        if not not_modified(req, resp, weak(f"{statistics.written_ns:x}-{build()}")):
            send(req, resp, rendered("statistics.html", here="/statistics/", statistics=statistics))

    def _send_without_charts(self, req: falcon.Request, resp: falcon.Response, version: int) -> None:
        is_rendering = version >= 0 and not self._renderer.has_failed
        resp.set_header("Cache-Control", "no-store")
        if is_rendering:
            resp.set_header("Refresh", str(_RELOAD_SECONDS))
        page = rendered(
            "statistics.html", here="/statistics/", statistics=None, version=version, is_rendering=is_rendering
        )
        send(req, resp, page)
