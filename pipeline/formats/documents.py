"""Detecting JSON inputs: one document, or one value a line."""

from __future__ import annotations

from sigdir.pipeline.formats.json_lines import first_value
from sigdir.pipeline.source import Source


def is_json(source: Source, opening: str = "{[") -> bool:
    """Whether the input begins like JSON."""
    begin = source.head.lstrip()[:1]
    return begin != b"" and begin in opening.encode()


def is_document(source: Source, opening: str = "{[") -> bool:
    """Whether the input is one JSON value rather than one on each line."""
    if not is_json(source, opening):
        return False
    several_lines = b"\n" in source.head.strip()
    return not (several_lines and first_value(source) is not None)
