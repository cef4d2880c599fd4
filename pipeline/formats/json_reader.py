"""JSON inputs: one document, or one value a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from sigdir.pipeline.errors import BadInput, BrokenJSON
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.grammar import BAD_ENTRY

DOCUMENT_VALUES = 1 << 23
"""The most values of a JSON document. 256 MiB of ``[],`` would take 7 GB as Python lists."""


def is_json(source: Source) -> bool:
    """Whether the input begins like a JSON object or list."""
    return source.head.lstrip().startswith((b"{", b"["))


def is_document(source: Source) -> bool:
    """Whether the input is one JSON value rather than one on each line."""
    if not is_json(source):
        return False
    several_lines = b"\n" in source.head.strip()
    return not (several_lines and first_value(source) is not None)


def document_of(source: Source) -> Any:
    """The input as one JSON document, parsed once. Raises BadInput or BrokenJSON."""
    return source.parsed(parse_document, "JSON document", "; use JSON lines")


@dataclass(frozen=True, slots=True)
class DocumentShape:
    """A list of signatures that is a JSON document as a whole."""

    about: str
    """What the document is, after "a JSON"."""
    is_sure: Callable[[Any], bool]
    """Recognises the document."""
    may_be: Callable[[Any], bool]
    """Whether a document can be read so, if the user names the format."""
    entries_of: Callable[[Any, Source], Iterable[Entry]]

    def looks_like(self, source: Source) -> bool:
        return is_document(source) and self.is_sure(document_of(source))

    def entries(self, source: Source) -> Iterable[Entry]:
        document = document_of(source)
        if not self.may_be(document):
            raise BadInput(source.name, f"not a JSON {self.about}")
        return self.entries_of(document, source)


def first_value(source: Source) -> dict[str, Any] | list[Any] | None:
    """The first line's object or list; None if the first line is neither."""
    line = source.first_line()
    if line is None:
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict | list) else None


def first_object(source: Source) -> dict[str, Any] | None:
    """The first line's object; None if the first line is not a JSON object."""
    value = first_value(source)
    return value if isinstance(value, dict) else None


def values_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    """Each line's number and value; for a broken line the value is the Entry that rejects it. Blank lines are skipped."""
    loads = orjson.loads
    for number, line in lines:
        if line:
            try:
                yield number, loads(line)
            except orjson.JSONDecodeError:
                yield number, Entry(line, number, reject_reason=BAD_ENTRY)


def first_values(source: Source, count: int) -> list[Any]:
    """The values of the first ``count`` lines of JSON, those that the head has, without broken ones."""
    first_value(source)  # the head has the first line now
    lines = enumerate(source.head.lstrip().split(b"\n", count)[:count], 1)
    return [value for _, value in values_of(lines) if not isinstance(value, Entry)]


# Documents.

_SYNTAX_TREE: dict[str, Any] = {}
"""Stands for each node of solc's syntax trees. They are half of a build-info's memory and hold no signatures."""


class ObjectWithRepeatedKeys(dict[str, Any]):
    """A JSON object with a key that occurs more than once; ``pairs`` has all its members."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def members(document: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """All members of a JSON object, those with a repeated key too."""
    return document.pairs if isinstance(document, ObjectWithRepeatedKeys) else document.items()


def is_syntax_tree(value: dict[str, Any]) -> bool:
    """Whether an object is a node of solc's syntax tree, in the compact or in the legacy format."""
    return "src" in value and ("nodeType" in value or ("name" in value and "children" in value))


def parse_document(name: str, raw: bytes) -> Any:
    """The value of a JSON document. Raises BrokenJSON with line and column; ``name`` is the input's.

    An object with a repeated key is an ObjectWithRepeatedKeys, so that no entry is lost. A node of a syntax tree
    is an empty object.
    """
    if sum(map(raw.count, (b",", b"[", b"{"))) > DOCUMENT_VALUES:
        raise BadInput(name, f"a JSON document of over {DOCUMENT_VALUES:,} values; use JSON lines")
    try:
        return json.loads(_single_braces(raw).decode(), object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise BrokenJSON(name, f"broken JSON: {error.msg}", f"line {error.lineno} column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise BrokenJSON(name, "not UTF-8", f"byte {error.start + 1:,}") from None
    except RecursionError:
        raise BrokenJSON(name, "JSON nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise BrokenJSON(name, f"broken JSON: {error}") from None


def _single_braces(raw: bytes) -> bytes:
    """Etherscan puts a second pair of braces around a standard JSON input."""
    stripped = raw.strip() if raw.lstrip()[:2] == b"{{" else b""
    return stripped[1:-1] if stripped.endswith(b"}}") else raw


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if is_syntax_tree(plain):
        return _SYNTAX_TREE
    return plain if len(plain) == len(pairs) else ObjectWithRepeatedKeys(pairs)
