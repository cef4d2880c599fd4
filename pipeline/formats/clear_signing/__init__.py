"""Descriptors for clear signing (ERC-7730): which functions a contract has, and how calls of them are shown to a signer.

A descriptor may include another one by a path. It is resolved among the inputs of the import, so it cannot lead out
of the folder or archive that was named, and to no address.

Invariants
    A descriptor that the schema refuses, whose includes lead to itself or to no input, or that names what it does not have
    gives nothing: it is a fault with the path of what is wrong. The other inputs are read.
    All includes of an import together are merged to at most ``MAX_MERGED`` times the size of its descriptors.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.json_reader import document_of, is_document
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded
from sigdir.signatures.candidates import Entry, ReadTask, pack
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.evidence import Contract, Sighting, Witness

MAX_BYTES = 4 << 20
MAX_INCLUDES = 8
"""One behind the other."""
MAX_MERGED = 64
_SPARE = 16 << 20
_SCHEMA = re.compile(r"erc7730-v\d[^/]*\Z")


def looks_like(source: Source) -> bool:
    return is_document(source) and _is_descriptor(document_of(source))


def _is_descriptor(value: Any) -> bool:
    """Whether a JSON value names the standard's schema, or has the parts that only a descriptor has."""
    if not isinstance(value, dict):
        return False
    if _SCHEMA.search(str(value.get("$schema"))):
        return True
    context, display = value.get("context"), value.get("display")
    return isinstance(context, dict) and isinstance(display, dict) and "formats" in display


class _Descriptor(NamedTuple):
    source: Source
    """Closed: it has its names."""
    path: str
    document: dict[str, Any]
    size: int


class Descriptors:
    """The descriptors of one import. Takes all, then yields the candidates of each."""

    def __init__(self, refuse: Callable[[int, BadInput], None]) -> None:
        """``refuse`` takes the number of a descriptor that was found in a folder or an archive, and its fault."""
        self._refuse = refuse
        self._found: dict[str, _Descriptor] = {}
        self._waiting: list[_Descriptor] = []
        self._left = _SPARE

    def add(self, source: Source) -> None:
        """Keep an open source; raises BadInput where the schema refuses it."""
        raw = source.read_all("descriptor")
        if len(raw) > MAX_BYTES:
            raise BadInput(source.name, f"a descriptor of over {MAX_BYTES >> 20} MiB")
        document = document_of(source)
        problem = problem_of(document)
        if problem:
            raise BadInput(source.name, f"not a descriptor of ERC-7730: {problem}")
        one = _Descriptor(source, posixpath.normpath(source.path), document, len(raw))
        self._found[one.path] = one
        self._waiting.append(one)
        self._left += MAX_MERGED * len(raw)

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all descriptors, in the order of ``add``."""
        for one in self._waiting:
            try:
                document = self._resolved(one, [one.path])
                name = str(document.get("metadata", {}).get("contractName") or posixpath.basename(one.path))
                entries = list(entries_of(document, Contract.at(one.source.below, name)))
            except BadDescriptor as error:
                fault = BadInput(one.source.name, f"not a descriptor of ERC-7730: {error}")
                if one.source.explicit:
                    raise fault from None
                self._refuse(one.source.number, fault)
            else:
                yield from pack(entries, one.source.number)

    def _resolved(self, one: _Descriptor, chain: list[str]) -> dict[str, Any]:
        """The document with what it includes, one behind the other; ``chain`` has the paths that lead here."""
        include = one.document.get("includes")
        if include is None:
            return one.document
        shown = json.dumps(include[:200])
        if ":" in include or include.startswith("/"):
            raise BadDescriptor("$.includes", f"{shown} is no path in the imported folder")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(one.path), include))
        if path in chain:
            raise BadDescriptor("$.includes", f"{shown} leads back to this descriptor")
        if path not in self._found:
            raise BadDescriptor("$.includes", f"{shown} is none of the descriptors of this import")
        if len(chain) > MAX_INCLUDES:
            raise BadDescriptor("$.includes", f"over {MAX_INCLUDES} descriptors one behind the other")
        included = self._found[path]
        self._left -= included.size
        if self._left < 0:
            raise BadDescriptor("$.includes", "the descriptors of this import include too much")
        found: dict[str, Any] = merged(self._resolved(included, [*chain, path]), one.document)
        return found


# A descriptor's formats as candidates, each with how a call of it is shown: references are resolved, groups are flat.
#
# What is kept of a format is a value of JSON, which ``sigdir.signatures.clear_signing`` reads::
#
#     {"chains": [[1, "0x..."]], "owner": "...", "contract": "...", "intent": "Send", "sentence": "Send {value} to {to}",
#      "fields": [{"path": "value", "label": "Amount", "format": "tokenAmount"}, ...]}

MAX_DISPLAY = 64 << 10
"""Characters of what is kept of a format."""
MAX_TIMES = 64
"""So many characters are kept of all formats for each of the descriptor: each format has all its contracts."""
_MAX_FIELDS = 256
_KEPT = ("encoding", "base", "decimals", "prefix", "threshold", "message")
"""The parameters that a value is shown by without the chain's state."""


class BadDescriptor(SigdirError):
    """A descriptor that the standard does not allow; the message begins with the path."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def merged(included: Any, own: Any) -> Any:
    """A document over the one that it includes: its own values win, and fields of one path are one field."""
    if isinstance(included, dict) and isinstance(own, dict):
        found = dict(included)
        for name, value in own.items():
            is_fields = name == "fields" and isinstance(value, list) and isinstance(included.get(name), list)
            found[name] = _fields_over(included[name], value) if is_fields else merged(included.get(name), value)
        return found
    return own


def _fields_over(included: list[Any], own: list[Any]) -> list[Any]:
    mine = {one["path"]: one for one in own if "path" in one}
    kept = [merged(one, mine.pop(one.get("path"), {})) for one in included]
    return [*kept, *(one for one in own if one.get("path") in mine or "path" not in one)]


def entries_of(document: Mapping[str, Any], contract: Contract) -> Iterator[Entry]:
    """The candidates of a merged document: a function each. One for messages (EIP-712) has none. Raises BadDescriptor.

    One without contracts is there to be included, and may refer to what the including one has: it shows nothing.
    """
    context = document.get("context", {})
    if "eip712" in context:
        return
    formats = document.get("display", {}).get("formats", {})
    deployments = context.get("contract", {}).get("deployments", ())
    left = most = MAX_DISPLAY + MAX_TIMES * len(_written(document))
    for number, (text, format) in enumerate(formats.items(), 1):
        path = member("$.display.formats", text)
        shown = _display(document, deployments, format, path) if deployments else None
        display = _written(shown) if shown else ""
        left -= len(display)
        if len(display) > MAX_DISPLAY:
            raise _too_long(path)
        if left < 0:
            raise BadDescriptor("$.display.formats", f"formats of over {most:,} characters with their contracts")
        sighting = Sighting(witness=Witness.DESCRIBED, contract=contract, display=display)
        yield Entry(encoded(f"function {text.strip()}"), number, sighting=sighting)


def _display(document: Mapping[str, Any], deployments: Any, format: Mapping[str, Any], path: str) -> dict[str, Any]:
    metadata = document.get("metadata", {})
    found = {
        "chains": sorted({(one["chainId"], one["address"].lower()) for one in deployments}),
        "owner": metadata.get("owner"), "contract": metadata.get("contractName"), "token": metadata.get("token"),
        "intent": format.get("intent"), "sentence": format.get("interpolatedIntent"),
        "fields": list(_bounded(_fields(document, format.get("fields", ()), "", path), path)),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _too_long(path: str) -> BadDescriptor:
    return BadDescriptor(path, f"a format of over {MAX_DISPLAY:,} characters")


def _bounded(fields: Iterator[dict[str, Any]], path: str) -> Iterator[dict[str, Any]]:
    """The fields, as many as a format may have. They are counted one by one, because all may refer to one long enum."""
    left = MAX_DISPLAY
    for number, field in enumerate(fields):
        left -= len(_written(field))
        if number == _MAX_FIELDS:
            raise BadDescriptor(f"{path}.fields", f"over {_MAX_FIELDS} fields")
        if left < 0:
            raise _too_long(path)
        yield field


def _fields(document: Mapping[str, Any], fields: Any, prefix: str, path: str) -> Iterator[dict[str, Any]]:
    """The fields in their order, those of groups with the group's path before their own."""
    for number, field in enumerate(fields):
        place = f"{path}.fields[{number}]"
        if "fields" in field:
            yield from _fields(document, field["fields"], _below(prefix, field.get("path", "")), place)
        else:
            yield _field(document, field, prefix, place)


def _below(prefix: str, path: str) -> str:
    """A path that may be relative to a group's."""
    return path if not prefix or path[:1] in ("#", "$", "@") else f"{prefix}.{path}".rstrip(".")


def _field(document: Mapping[str, Any], field: Mapping[str, Any], prefix: str, place: str) -> dict[str, Any]:
    if "$ref" in field:
        field = merged(_at(document, field["$ref"], f"{place}.$ref"), field)
    params = field.get("params", {})
    found = {name: field[name] for name in ("label", "format", "visible") if name in field}
    if "path" in field:
        found["path"] = _below(prefix, field["path"])
    if "value" in field:
        found["value"] = _constant(document, field["value"], f"{place}.value")
    found |= {name: _constant(document, params[name], f"{place}.params") for name in _KEPT if name in params}
    if field.get("format") == "enum" and "$ref" in params:
        found["enum"] = _at(document, params["$ref"], f"{place}.params.$ref")
    if params.get("tokenPath") == "@.to":
        found["is_own"] = True
    return found


def _constant(document: Mapping[str, Any], value: Any, place: str) -> Any:
    return _at(document, value, place) if isinstance(value, str) and value.startswith("$.") else value


def _at(document: Any, path: str, place: str) -> Any:
    """What stands at a path of the document itself: `$.metadata.enums.mode`."""
    found = document
    for name in path.split(".")[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        raise BadDescriptor(place, f"nothing is at {path[:200]}")
    return found


# Checks a descriptor against ``descriptor.schema.json``, and says at which path it is wrong.
#
# Of JSON Schema it knows the keywords of that file: type, enum, pattern, minimum, maximum, minItems, required, properties,
# additionalProperties, items, not, allOf, if, then and else, and $ref, which names an entry of $defs.


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
