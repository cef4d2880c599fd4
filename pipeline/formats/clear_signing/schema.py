"""Checks a descriptor against ``descriptor.schema.json``, and says at which path it is wrong.

Of JSON Schema it knows the keywords of that file: type, enum, pattern, minimum, maximum, minItems, required, properties,
additionalProperties, items, not, allOf, if, then and else, and $ref, which names an entry of $defs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_DEPTH = 32
_SHOWN = 60
_NAME = re.compile("[A-Za-z_$][A-Za-z0-9_$]*")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("descriptor.schema.json").read_bytes())
    return found


def problem_of(document: Any) -> str:
    """The first thing that is wrong with a descriptor, with its path: `$.display.formats: is missing`; "" for nothing."""
    return _problem(_schema(), document, "$", 0)


def member(path: str, name: str) -> str:
    """The path of a member of the object at a path."""
    return f"{path}.{name}" if _NAME.fullmatch(name) else f"{path}[{json.dumps(name[:_SHOWN])}]"


def _problem(schema: Mapping[str, Any], value: Any, path: str, depth: int) -> str:
    if depth > MAX_DEPTH:
        return f"{path}: nested too deeply"
    if "$ref" in schema:
        return _problem(_schema()["$defs"][schema["$ref"]], value, path, depth)
    if "if" in schema:
        branch = "else" if _problem(schema["if"], value, path, depth) else "then"
        return _problem(schema.get(branch, {}), value, path, depth)
    found = _problem_of_value(schema, value)
    if found:
        return f"{path}: {found}"
    if isinstance(value, dict):
        found = _problem_of_members(schema, value, path, depth + 1)
    elif isinstance(value, list) and "items" in schema:
        found = _first(_problem(schema["items"], one, f"{path}[{n}]", depth + 1) for n, one in enumerate(value))
    return found or _first(_problem(one, value, path, depth) for one in schema.get("allOf", ()))


def _first(problems: Any) -> str:
    return next(filter(None, problems), "")


def _problem_of_value(schema: Mapping[str, Any], value: Any) -> str:
    """What is wrong with a value apart from what is inside of it."""
    names = schema.get("type", ())
    names = [names] if isinstance(names, str) else names
    if names and not any(_is_of(name, value) for name in names):
        return f"{_shown(value)} is not of type {' or '.join(names)}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{_shown(value)} does not match {schema['pattern']}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{_shown(value)} is none of {', '.join(schema['enum'])}"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{_shown(value)} is not between {schema.get('minimum')} and {schema.get('maximum')}"
    if isinstance(value, list) and len(value) < schema.get("minItems", 0):
        return f"fewer than {schema['minItems']} items"
    together = schema.get("not", {}).get("required")
    if together and isinstance(value, dict) and all(name in value for name in together):
        return f"{' and '.join(together)} exclude each other"
    return ""


def _is_of(name: str, value: Any) -> bool:
    return isinstance(value, _TYPES[name]) and (not isinstance(value, bool) or name == "boolean")


def _problem_of_members(schema: Mapping[str, Any], value: dict[str, Any], path: str, depth: int) -> str:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{member(path, missing[0])}: is missing"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, one in value.items():
        if name not in properties and others is False:
            return f"{member(path, name)}: no such key"
        known = properties.get(name, others)
        found = _problem(known, one, member(path, name), depth) if isinstance(known, dict) else ""
        if found:
            return found
    return ""


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
