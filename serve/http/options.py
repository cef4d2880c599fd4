"""The answer to OPTIONS in 4byte.directory's API: a resource's name, media types and fields."""

from __future__ import annotations

from typing import Any

import orjson

from sigdir.serve.http.negotiate import HTML, JSON
from sigdir.warehouse.table.fields import RECORD_FIELDS

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


def _label(name: str) -> str:
    return "ID" if name == "id" else name.replace("_", " ").capitalize()


_COUNTER_FIELDS = {
    name: _field("integer", False, True, _label(name))
    for name in ("num_processed", "num_imported", "num_duplicates", "num_ignored")
}
_POSTED = "text_signature"
ROW_FIELDS: Fields = {
    field.name: _field(field.type.options, field.name == _POSTED, field.name != _POSTED, _label(field.name))
    for field in RECORD_FIELDS
}
ABI_FIELDS: Fields = {"contract_abi": _field("string", True, False, "Contract abi"), **_COUNTER_FIELDS}
SOLIDITY_FIELDS: Fields = {
    "source_file": _field("file upload", False, False, "Source file"),
    "source_code": _field("string", False, False, "Source code"),
    **_COUNTER_FIELDS,
}
