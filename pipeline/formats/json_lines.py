"""Reading lines: a JSON value each, and batches of what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import orjson

from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY


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


def lines_of_json(source: Source) -> Iterator[tuple[int, Any]]:
    """Each line's number and value; for a broken line the value is the Entry that rejects it."""
    return values_of(source.lines())


def packed(entries: Iterable[Entry], source: Source) -> Iterator[Candidates]:
    """Gather the entries of an input of lines into batches, none of which has entries of two blocks.

    So the batches are the same where tasks read some of the blocks each: evidence is compared batch by batch.
    """
    for _, of_block in groupby(entries, lambda _: source.blocks_read):
        yield from pack(of_block, source.number)


def values_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    """The same for lines that are numbered already; blank lines are skipped."""
    loads = orjson.loads
    for number, line in lines:
        if line:
            try:
                yield number, loads(line)
            except orjson.JSONDecodeError:
                yield number, Entry(line, number, reject_reason=BAD_ENTRY)
