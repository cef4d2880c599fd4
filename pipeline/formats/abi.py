"""ABI JSON: a list of entries. ``sigdir.signatures.abi`` reads one entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.candidates import Candidates, pack


def looks_like(source: Source) -> bool:
    return is_document(source, "[") and is_abi(source.document())


def is_abi(value: Any) -> bool:
    """Whether a JSON value is a list whose first members are ABI entries."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and ("type" in entry or "inputs" in entry) and "text_signature" not in entry
        for entry in value[:8]
    )


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not isinstance(document, list):
        raise BadInput(source.name, "not a JSON list of ABI entries")
    return pack(abi_entries(document), source.number)
