"""The answer to OPTIONS in 4byte.directory's API: a resource's name, media types and fields."""

from __future__ import annotations

from typing import Any

import orjson

from sigdir.serve.http.negotiate import HTML, JSON

Fields = dict[str, dict[str, Any]]


def description(name: str, fields: Fields | None = None) -> bytes:
    """The JSON of a description; ``fields`` are those of its POST, None if it has none."""
    value: dict[str, Any] = {
        "name": name,
        "description": "",
        "renders": [JSON, HTML],
        "parses": [JSON, "application/x-www-form-urlencoded", "multipart/form-data"],
    }
    if fields is not None:
        value["actions"] = {"POST": fields}
    return orjson.dumps(value)


def _field(kind: str, required: bool, read_only: bool, label: str) -> dict[str, Any]:
    return {"type": kind, "required": required, "read_only": read_only, "label": label}


_COUNTER_FIELDS = {
    name: _field("integer", False, True, name.replace("_", " ").capitalize())
    for name in ("num_processed", "num_imported", "num_duplicates", "num_ignored")
}
ROW_FIELDS: Fields = {
    "id": _field("integer", False, True, "ID"),
    "created_at": _field("datetime", False, True, "Created at"),
    "text_signature": _field("string", True, False, "Text signature"),
    "hex_signature": _field("string", False, True, "Hex signature"),
    "bytes_signature": _field("string", False, True, "Bytes signature"),
}
ABI_FIELDS: Fields = {"contract_abi": _field("string", True, False, "Contract abi"), **_COUNTER_FIELDS}
SOLIDITY_FIELDS: Fields = {
    "source_file": _field("file upload", False, False, "Source file"),
    "source_code": _field("string", False, False, "Source code"),
    **_COUNTER_FIELDS,
}
