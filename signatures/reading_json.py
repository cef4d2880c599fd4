"""Readings as JSON has them: the answer of ``/api/v1/decode/``, of ``sigdir decode --json`` and of the SQL functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sigdir.signatures.abi_decoder import as_json
from sigdir.signatures.given_contract import GivenContract
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.readings import Candidate, Confidence, Form, Membership, Reading
from sigdir.signatures.types import Type

_ORDER = {confidence: number for number, confidence in enumerate(Confidence)}


def ordered(readings: Sequence[Reading]) -> list[Reading]:
    """The readings of an input's alternatives, the surest first, and of those a log that is as its event is declared.

    Of two readings of a log neither is sure, unless the contract says which it is.
    """

    def order(one: Reading) -> tuple[int, bool]:
        best = one.candidates[0] if one.candidates else None
        return (_ORDER[best.confidence], not best.is_as_declared) if best is not None else (len(_ORDER), False)

    found = sorted(readings, key=order)
    logs = [one.best for one in found if one.topics and one.best and one.best.confidence is Confidence.HIGH]
    if len(logs) > 1 and logs[0].known.membership is not Membership.HAS:
        for best in logs:
            best.confidence = Confidence.MEDIUM
            best.reasons += ("the last word may be a topic or the data",)
    return found


def document(readings: Sequence[Reading], contract: GivenContract | None = None) -> dict[str, Any]:
    """The readings of one input: the first one's members, the rest in ``others``, and the contract by which it was read."""
    first, *others = readings
    found = reading_document(first) | {"contract": contract.document() if contract is not None else None}
    return found | {"others": [reading_document(other) for other in others]} if others else found


def reading_document(reading: Reading) -> dict[str, Any]:
    """One reading with everything inside it."""
    found: dict[str, Any] = {"kind": reading.form.value}
    if reading.form is Form.LOG:
        found["topics"] = ["0x" + topic.hex() for topic in reading.topics]
    elif reading.hash:
        found["selector"] = "0x" + reading.hash.hex()
    found |= {"bytes": len(reading.data), "texts": reading.texts}
    found["candidates"] = [candidate_document(reading, candidate) for candidate in reading.candidates]
    return found | {"note": reading.note} if reading.note else found


def candidate_document(reading: Reading, candidate: Candidate) -> dict[str, Any]:
    """A text that was tried: its values, or why there are none."""
    attempt = candidate.attempt
    found: dict[str, Any] = {"text_signature": attempt.text, "filtered": candidate.known.is_filtered(reading.hash)}
    if candidate.known.declaration:
        found["declaration"] = candidate.known.declaration
    if candidate.known.membership in (Membership.HAS, Membership.CANNOT):
        found["in_contract"] = candidate.known.membership is Membership.HAS
    if attempt.values is None:
        return found | {"decodes": False, "reason": attempt.reason, "detail": attempt.detail}
    found |= {"decodes": True, "exact": attempt.exact, "left_over": attempt.left_over}
    found |= {"confidence": candidate.confidence.value, "reasons": list(candidate.reasons)}
    if candidate.note:
        found["note"] = candidate.note
    if candidate.display is not None:
        found["display"] = candidate.display.to_dict()
    found["parameters"] = parameters(candidate)
    if candidate.others:
        found |= {"ambiguous": candidate.is_ambiguous, "other_splits": list(map(list, candidate.others))}
    elif reading.form is Form.RETURN:
        found["ambiguous"] = candidate.is_ambiguous
    nested = nested_documents(candidate)
    return found | {"nested": nested} if nested else found


def nested_documents(candidate: Candidate) -> list[dict[str, Any]]:
    """The readings inside of a candidate's values."""
    return [{"path": list(one.path)} | reading_document(one.reading) for one in candidate.nested]


def parameters(candidate: Candidate) -> list[dict[str, Any]]:
    """The parameters with their values; ``name`` and ``components`` as in an ABI, where a declaration has names.

    Those of a log have ``indexed``; an indexed value that a topic cannot hold has ``hash`` and no ``value``.
    """
    attempt, found = candidate.attempt, []
    for number, (type, value) in enumerate(zip(attempt.types, attempt.values or (), strict=True)):
        one = _named(type)
        if candidate.split is not None:
            one["indexed"] = number in candidate.split
        if isinstance(value, IndexedHash):
            one["hash"] = "0x" + value.hex()
        else:
            one["value"] = _value(type, value)
        found.append(one)
    return found


def _value(type: Type, value: Any) -> Any:
    """A message that is not UTF-8 has bytes for a string."""
    return "0x" + value.hex() if isinstance(value, bytes) else as_json(type, value)


def _named(type: Type) -> dict[str, Any]:
    """Type and name of a parameter or a component."""
    found: dict[str, Any] = {"name": type.name} if type.name else {}
    found["type"] = type.text
    if type.has_names:
        found["components"] = [_named(one) for one in type.components or ()]
    return found
