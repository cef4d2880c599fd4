"""What the JSON formats share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sigdir.pipeline.formats.json_lines import first_object
from sigdir.pipeline.source import Repeated, Source


def is_json(source: Source, opening: str = "{[") -> bool:
    """Whether the input begins like JSON."""
    begin = source.head.lstrip()[:1]
    return begin != b"" and begin in opening.encode()


def is_document(source: Source, opening: str = "{[") -> bool:
    """Whether the input is one JSON value, and not one on each line."""
    if not is_json(source, opening):
        return False
    several_lines = b"\n" in source.head.strip()
    return not (several_lines and first_object(source) is not None)


def pairs(document: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """All members of an object, those with the same key too."""
    return document.pairs if isinstance(document, Repeated) else document.items()
