"""Parsing an input as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sigdir.pipeline.errors import BadInput, BrokenJSON

DOCUMENT_VALUES = 1 << 23
"""The most values of a JSON document. 256 MiB of ``[],`` would take 7 GB as Python lists."""

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
