"""The texts of well-known selectors and topics, from ``standards.txt``. Other texts of such a selector are filtered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

NO_TEXT = "-"


@lru_cache(maxsize=1)
def _entries() -> list[tuple[bytes, str, str]]:
    lines = Path(__file__).with_name("standards.txt").read_text().splitlines()
    entries = (line.split(maxsplit=2) for line in lines if not line.startswith("#"))
    return [(bytes.fromhex(hash.removeprefix("0x")), text, source) for hash, text, source in entries]


@lru_cache(maxsize=1)
def canonical() -> Mapping[bytes, str]:
    """The canonical text of each listed selector (4 bytes) and topic (32 bytes); NO_TEXT where none is right."""
    return {hash: text for hash, text, _ in _entries()}


@lru_cache(maxsize=1)
def sources() -> Mapping[bytes, str]:
    """Where the text of each listed selector and topic is defined."""
    return {hash: source for hash, _, source in _entries()}


def is_filtered(hash: bytes, text: str) -> bool:
    """Whether a text is not the one its selector stands for. Texts of topics never are: no topic has a second text."""
    return canonical().get(hash, text) != text
