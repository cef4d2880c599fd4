"""Readings as the commands `sigdir decode ...` print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from sigdir.signatures.abi_decoder import as_json
from sigdir.signatures.clear_signing import CallDisplay
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.readings import Candidate, Reading


def noted(reading: Reading) -> str:
    """The note of a reading with its hash; "" for none."""
    hash = f"0x{reading.hash.hex()}: " if reading.hash else ""
    return f"{hash}{reading.note}" if reading.note else ""


def candidate_lines(candidate: Candidate, indent: str = "") -> Iterator[str]:
    """The text, then its values and the calls in them, or the reason why there are none."""
    attempt = candidate.attempt
    if attempt.values is None:
        why = f"; {candidate.known.why}" if candidate.known.why else ""
        yield f"{indent}{attempt.text}  does not decode: {attempt.detail}{why}"
        return
    yield indent + attempt.text + _note(candidate)
    if candidate.display is not None:
        yield from _display_lines(candidate.display, indent)
    width = max((len(type.text) for type in attempt.types), default=0)
    longest = max((len(type.name) + 2 for type in attempt.types if type.name), default=0)
    for number, (type, value) in enumerate(zip(attempt.types, attempt.values, strict=True)):
        yield f"{indent}  {type.text:{width}}  {type.name:{longest}}{_value(candidate, number, type, value)}"
        for nested in candidate.nested:
            if nested.path[0] == number:
                yield from _nested_lines(nested.path, nested.reading, indent + "    ")


def _display_lines(shown: CallDisplay, indent: str) -> Iterator[str]:
    """What a signer sees, and by which descriptor."""
    of = " of ".join(filter(None, (shown.contract, shown.owner)))
    yield f"{indent}  a signer sees, by {shown.source}{f' for {of}' if of else ''}: {shown.sentence or shown.intent}"
    for field in shown.fields:
        yield f"{indent}    {field.label}: {field.text}"


def _nested_lines(path: Sequence[int], reading: Reading, indent: str) -> Iterator[str]:
    place = ".".join(map(str, path))
    if not reading.candidates:
        yield f"{indent}[{place}] {reading.note}"
        return
    first, *rest = candidate_lines(reading.candidates[0], indent)
    yield f"{indent}[{place}] {first.lstrip()}"
    yield from rest
    if reading.note:
        yield f"{indent}  {reading.note}"


def _value(candidate: Candidate, number: int, type: Any, value: Any) -> str:
    if isinstance(value, IndexedHash):
        return f"indexed, hash 0x{value.hex()}"
    shown = "0x" + value.hex() if isinstance(value, bytes) else _shown(as_json(type, value, checksums=True))
    return f"indexed {shown}" if candidate.split and number in candidate.split else shown


def _note(candidate: Candidate) -> str:
    """Behind a text: how sure it is and why, other choices of the indexed parameters, what the values mean."""
    note = f"  ({candidate.confidence}: {'; '.join(candidate.reasons)})"
    if candidate.is_ambiguous and candidate.others:
        splits = ", or ".join(" and ".join(map(str, split)) or "none" for split in candidate.others[:5])
        note += f"  other parameters may be indexed, counted from 0: {splits}"
    return f"{note}  {candidate.note}" if candidate.note else note


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()
