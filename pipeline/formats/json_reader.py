"""JSON inputs: one document, or one value a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.grammar import BAD_ENTRY


def is_json(source: Source) -> bool:
    """Whether the input begins like a JSON object or list."""
    return source.head.lstrip().startswith((b"{", b"["))


def is_document(source: Source) -> bool:
    """Whether the input is one JSON value rather than one on each line."""
    if not is_json(source):
        return False
    several_lines = b"\n" in source.head.strip()
    return not (several_lines and first_value(source) is not None)


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
        return is_document(source) and self.is_sure(source.document())

    def entries(self, source: Source) -> Iterable[Entry]:
        document = source.document()
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
