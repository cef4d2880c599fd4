"""The OpenAPI 3.1 document: ``openapi.yaml`` with the fields of a row and the version of the package.

``tests/serve/test_openapi.py`` compares the document with the application's routes, with the limits in the
code, and with the answers of a running server.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from sigdir.serve.http.caching import token_of
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.table.fields import RECORD_FIELDS

PATH = "/api/v1/openapi.json"

_FILE = Path(__file__).parents[1] / "openapi.yaml"


@cache
def document() -> dict[str, Any]:
    """Return the document, the same object at each call.

    The first call takes 30 ms, so a worker loads the document at the first request for it, not at its start.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seven times as fast; missing where libyaml is
    loaded: dict[str, Any] = yaml.load(_FILE.read_bytes(), Loader=loader)  # noqa: S506 - both loaders are safe
    loaded["info"]["version"] = package_version()
    _add_rows(loaded["components"]["schemas"])
    return loaded


def _add_rows(schemas: dict[str, Any]) -> None:
    """Write the fields of a row in front of those that a schema of rows has in the file."""
    for collection in COLLECTIONS:
        row = {
            field.name: {**field.type.schema, **field.schema(collection.hash_bytes), "description": field.about}
            for field in RECORD_FIELDS
        }
        name = collection.row_title.replace(" ", "")
        for schema in (schemas[name], schemas[f"{name}WithEvidence"]):
            schema["properties"] = row | schema["properties"]
            schema["required"] = [*row, *schema["required"]]


@cache
def rendered() -> tuple[bytes, str]:
    """Return the document as JSON, and the token of its ETag."""
    body = orjson.dumps(document())
    return body, token_of(body)


def resolve(value: dict[str, Any]) -> dict[str, Any]:
    """Return what ``value`` refers to where it is a ``$ref``, else ``value``."""
    while "$ref" in value:
        _, *names = value["$ref"].split("/")
        value = document()
        for name in names:
            value = value[name]
    return value


def package_version() -> str:
    try:
        return version("signature-directory")
    except PackageNotFoundError:  # run from a checkout
        return "0"
