"""What the cost fuzzer sends to each route: the fields of bodies, the parameters of addresses, and what stands beside them.

``test_cost.py`` says that every route and every field of a body stands here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sigdir.serve.core.openapi import document
from tests.pipeline.test_clear_signing import ROUTER

HASHES = ("0xa9059cbb", "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
HASH = "0x" + "5c" * 32
"""Of a transaction."""

_SQL = {"sql": "SELECT $a AS a"}
_CALL = {"data": HASHES[0] + "00" * 64}
_RETURNED = {"data": "0x" + "00" * 32, "as": "return"}
_TO = {"chain": "1", "to": ROUTER}
BESIDE: Mapping[str, Sequence[dict[str, Any]]] = {
    "/api/v1/decode/": [
        _CALL | _TO, _RETURNED | {"selector": HASHES[0]}, _RETURNED | {"texts": "f() returns (uint8[],(string,bytes)[])"},
    ],
    "/decode/": [_CALL | _TO, {"data": _RETURNED["data"], "call": HASHES[0]}],
    "/api/v1/sql/": [_SQL],
    "/sql/": [_SQL],
    "/mcp": [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}],
}  # fmt: skip
"""What stands beside a field of a route that may say nothing alone. Each field is a target alone and with each of these."""


def _documented_bodies() -> dict[str, list[str]]:
    """The fields of each body that the OpenAPI document describes."""
    described = document()
    found: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for content in operations.get("post", {}).get("requestBody", {}).get("content", {}).values():
            name = content["schema"].get("$ref", "").rpartition("/")[2]
            fields = described["components"]["schemas"].get(name, content["schema"]).get("properties", {})
            found[path] = sorted({*found.get(path, []), *fields} - {"anonymous"})
    return found


BODIES: Mapping[str, Sequence[str]] = _documented_bodies() | {
    "/submit/": ["text", "as", "kind", "file"],
    "/submit/store/": ["texts"],
    "/decode/": ["data", "call", "contract", "download"],
    "/solve/": ["hash", "code"],
    "/mcp": ["method", "params", "id"],
}
"""The fields of each route that takes a body."""


def _documented() -> dict[str, list[str]]:
    """The parameters of each route that the OpenAPI document describes."""
    described = document()
    found = {}
    for path, operations in described["paths"].items():
        given = [*operations.get("parameters", ()), *operations.get("get", {}).get("parameters", ())]
        known = [
            described["components"]["parameters"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
            for one in given
        ]
        if "get" in operations and path not in WITHOUT:
            found[path] = [one["name"] for one in known if one["in"] == "query"]
    return found


WITHOUT: Mapping[str, str] = {
    **dict.fromkeys(["/healthz", "/readyz", "/metrics", "/signature-database/v1/stats"], "figures of the server itself"),
    **dict.fromkeys(["/favicon.ico", "/api/v1/openapi.json", "/docs/"], "the same bytes for everybody"),
    **dict.fromkeys(["/browse/", "/statistics/", "/status/"], "figures and first rows of the warehouse"),
}  # fmt: skip
"""Routes that read nothing of a request but its headers, and what they answer."""

QUERIES: Mapping[str, Sequence[str]] = _documented() | {
    "/api/v1/wanted/": ["collection", "page", "page_size", "format"],
    "/api/v1/sql/": ["sql", "query", "as_of", "seconds", "format", "a"],
    "/assets/{name}": [],
    "/": ["q", "query"],
    "/signatures/": ["q", "query", "bytes4_signature"],
    "/event-signatures/": ["q", "bytes_signature"],
    "/llms.txt": [],
    "/robots.txt": [],
    "/range/{collection}/{prefix}": ["padded"],
    "/range/{collection}/{prefix}/{edition}": ["padded"],
    "/search/": ["q", "in", "page"],
    "/search/results/": ["q", "in", "page"],
    "/browse/{collection}/": ["before", "after"],
    "/selector/{hash}/": ["id"],
    "/topic/{hash}/": ["id"],
    "/submit/": ["text", "as"],
    "/submit/stored/": ["functions", "events", "others"],
    "/decode/": ["data", "selector", "text", "to", "chain", "tx", "with"],
    "/contracts/{chain}/{contract}/": [],
    "/sql/": ["sql", "query", "as_of", "a"],
    "/solve/": ["hash"],
    "/wanted/": ["collection", "page"],
}
"""The parameters of each route that takes a query or a hash. Parts of a path get the text too."""

BULK = frozenset([
    "/api/v1/changes/", "/api/v1/event-signatures/", "/api/v1/signatures/", "/signature-database/v1/export",
    "/dumps/{version}/{name}", "/dumps/{version}/{name}/{file}", "/assets/{name}", "/api/v1/sql/", "/sql/",
])  # fmt: skip
"""Their answers are files, or rows of the warehouse, as many as it has or as a page may have: 1,000."""

PATIENT = frozenset(["/api/v1/sql/", "/sql/", "/solve/"])
"""They are answered as by a server: the clock bounds them, in a process of their own, which is ended if it does not hear."""

HEADERS: Mapping[str, dict[str, str]] = {"/mcp": {"Accept": "application/json, text/event-stream"}}

PLACES = {
    "id": "1", "prefix": "a90", "edition": "1", "chain": "1", "address": ROUTER,
    "contract": ROUTER, "version": "1", "name": "signatures", "file": "x",
}  # fmt: skip
"""What stands in a path where the text does not."""


def path_of(route: str, **given: str) -> str:
    """A route's path with something in each of its places."""
    usual = {"hash": HASHES["topic" in route], "collection": "signatures" if "range" in route else "functions"}
    return route.format(**PLACES | usual | given)
