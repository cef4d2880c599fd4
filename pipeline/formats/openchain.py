"""OpenChain's export: lines ``0x<hash>,<signature>``. Commas in the signature are not quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.formats.json_lines import packed
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry
from sigdir.signatures.grammar import BAD_ENTRY

_LINE = re.compile(rb"\s*0x(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{64}),")


def looks_like(source: Source) -> bool:
    return _LINE.match(source.head) is not None


def read(source: Source) -> Iterator[Candidates]:
    return packed(_entries(source), source)


def _entries(source: Source) -> Iterator[Entry]:
    for number, line in source.lines():
        written, comma, text = line.partition(b",")
        declared = parse_hash(written.decode("latin-1"))
        if not comma or declared is None:
            yield Entry(line, number, reject_reason=BAD_ENTRY)
        else:
            yield entry_with_hash(text, number, declared)
