"""Readings, and transactions of a node, as the decode page shows them: every list is cut, every value is a short text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from sigdir.pipeline.transaction import (
    BadHash,
    ChainTransaction,
    Node,
    NodeError,
    UnknownTransaction,
    checked_hash,
    explain_transaction,
    read_transaction,
)
from sigdir.serve.http.answers import detail
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.abi_decoder import as_json, checksummed
from sigdir.signatures.clear_signing import CallDisplay
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.decode_input import BadInput
from sigdir.signatures.errors import visible
from sigdir.signatures.inner_calls import Path
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.readings import Candidate, Form, Reading
from sigdir.signatures.standards import is_filtered
from sigdir.signatures.types import Type
from sigdir.warehouse.index.ranked import read_alternatives
from sigdir.warehouse.index.view import View

_MAX_VALUES = 500
_MAX_PAGE_VALUES = 3000
_MAX_PAGE_CHARACTERS = 256 << 10
_MAX_CHARACTERS = 2000
_MAX_LEVELS = 6

TITLES = {
    Form.CALLDATA: "call", Form.REVERT: "error", Form.LOG: "event", Form.ARGUMENTS: "arguments of the text beside it",
    Form.PACKED: "packed values", Form.RETURN: "returned values", Form.AUTO: "data", Form.CODE: "code",
}  # fmt: skip


class ShownValue(NamedTuple):
    """A value on the page: ``text``, or for tuples and arrays ``items`` and how many ``more`` are not shown.

    ``note`` adds a remark, such as the size; ``nested`` is what its bytes were read as.
    """

    type: str
    text: str = ""
    items: tuple[ShownValue, ...] | None = None
    more: int = 0
    note: str = ""
    name: str = ""
    is_indexed: bool = False
    nested: ShownReading | None = None


class ShownCandidate(NamedTuple):
    """A signature that decodes, as the page shows it. ``display`` is None too where the page has no room for it."""

    candidate: Candidate
    display: CallDisplay | None
    is_filtered: bool
    values: tuple[ShownValue, ...]


class ShownReading(NamedTuple):
    """A reading; ``decoded`` are the signatures that decode, ``failed`` the others."""

    reading: Reading
    title: str
    address: str
    decoded: tuple[ShownCandidate, ...]
    failed: tuple[Candidate, ...]


class PageBudget:
    """How many more values a list and the page may show, and how many characters the page."""

    def __init__(self) -> None:
        self.page = _MAX_PAGE_VALUES
        self.characters = _MAX_PAGE_CHARACTERS
        self.left = 0

    @property
    def page_is_full(self) -> bool:
        return self.page <= 0 or self.characters <= 0

    def take(self, *texts: str) -> None:
        """Count a value with its texts, or a tuple or an array, for the page."""
        self.page -= 1
        self.characters -= sum(map(len, texts))

    def display_of(self, found: Candidate) -> CallDisplay | None:
        """How a call is shown to whoever signs it, as far as the page has room."""
        if found.display is None or found.display.size > self.characters:
            return None
        self.characters -= found.display.size
        return found.display


def shown_reading(reading: Reading, budget: PageBudget | None = None, level: int = 0) -> ShownReading:
    """A reading with everything inside it, as far as the page shows it."""
    budget = budget or PageBudget()
    decoded = tuple(_shown_candidate(reading, found, budget, level) for found in reading.candidates if found.decodes)
    failed = tuple(found for found in reading.candidates if not found.decodes)
    collection = EVENT_SIGNATURES if reading.form is Form.LOG else SIGNATURES
    address = hash_address(collection, reading.hash) if reading.hash else ""
    return ShownReading(reading, TITLES[reading.form], address, decoded, failed)


def _shown_candidate(reading: Reading, found: Candidate, budget: PageBudget, level: int) -> ShownCandidate:
    display = budget.display_of(found)
    return ShownCandidate(found, display, is_filtered(reading.hash, found.attempt.text), _values(found, budget, level))


def _values(found: Candidate, budget: PageBudget, level: int) -> tuple[ShownValue, ...]:
    before, budget.left = budget.left, _MAX_VALUES
    nested = {one.path: one.reading for one in found.nested} if level < _MAX_LEVELS else {}
    show = _Show(nested, budget, level)
    split = found.split or ()
    shown = [
        show.value(type, value, (number,), is_indexed=number in split)
        for number, (type, value) in enumerate(zip(found.attempt.types, found.attempt.values or (), strict=True))
    ]
    budget.left = before
    return tuple(shown)


@dataclass
class _Show:
    """Shows the values of one candidate."""

    _nested: dict[Path, Reading]
    _budget: PageBudget
    _level: int

    def value(self, type: Type, value: Any, path: Path, *, is_indexed: bool = False) -> ShownValue:
        if isinstance(value, IndexedHash):
            return ShownValue(
                type.text, "0x" + value.hex(), note="the hash of the value", name=type.name, is_indexed=True
            )
        if isinstance(value, tuple):
            self._budget.take(type.text)
            items = self._items(type, value, path)
            return ShownValue(type.text, items=items, more=len(value) - len(items), name=type.name)
        text, note = ("", "not shown") if self._budget.page_is_full else _text(type, value)
        self._budget.take(type.text, text)
        self._budget.left -= 1
        inner = self._nested.get(path)
        nested = shown_reading(inner, self._budget, self._level + 1) if inner else None
        return ShownValue(type.text, text, note=note, name=type.name, is_indexed=is_indexed, nested=nested)

    def _items(self, type: Type, values: tuple[Any, ...], path: Path) -> tuple[ShownValue, ...]:
        types = type.members or (type.element,) * len(values)
        items: list[ShownValue] = []
        for number, (item_type, item) in enumerate(zip(types, values, strict=True)):
            if self._budget.left <= 0 or self._budget.page_is_full:
                break
            items.append(self.value(item_type, item, (*path, number)))  # type: ignore[arg-type]
        return tuple(items)


def _text(type: Type, value: Any) -> tuple[str, str]:
    """A value as text, cut where it is long, and a remark on it."""
    json = "0x" + value.hex() if isinstance(value, bytes) else as_json(type, value, checksums=True)
    text = str(json).lower() if isinstance(json, bool) else str(json)
    if len(text) > _MAX_CHARACTERS:
        return visible(text[:_MAX_CHARACTERS]), f"… {_size(value)} in all"
    return visible(text), _note(type.text, value, type.name)


def _size(value: Any) -> str:
    return f"{len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}"


_TIMES = range(1_400_000_000, 2_200_000_000)  # seconds, 2014 to 2039
_LEAST_AMOUNT = 10**15
_MOST_AMOUNT = 10**30

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ETHER_WORDS = frozenset({"wei", "eth", "ether", "msgvalue"})
_TOKEN_WORDS = frozenset(
    {"amount", "amounts", "token", "tokens", "value", "values", "wad", "shares", "assets", "supply", "balance"}
)
_NUMBER_WORDS = frozenset({"id", "ids", "nonce", "salt", "hash", "index", "key", "root", "seed", "bitmap"})
"""Words of a parameter's name that say what its number is: wei, tokens, or nothing that is counted."""


def _note(type: str, value: Any, name: str) -> str:
    if isinstance(value, bytes):
        return _size(value) if type in ("bytes", "string") else ""
    if isinstance(value, int) and type.startswith("uint"):
        return number_note(type, value, name)
    return "empty" if value == "" else ""


def number_note(type: str, value: int, name: str) -> str:
    """What an amount or a time is in people's units; ``name`` is the parameter's, as far as it is known."""
    words = {word.lower() for word in _WORD.findall(name)}
    if value and value == 2 ** int(type[4:]) - 1:
        return f"the largest {type}"
    if words & _ETHER_WORDS:
        return f"wei, {_of_18_decimals(value)} ether" if value >= _LEAST_AMOUNT else "wei"
    if words & _NUMBER_WORDS:
        return ""
    if value in _TIMES and not words & _TOKEN_WORDS:
        return f"as a time {datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if _LEAST_AMOUNT <= value < _MOST_AMOUNT:
        unit = "in tokens of" if words & _TOKEN_WORDS else "with"
        return f"{_of_18_decimals(value)} {unit} 18 decimals"
    return ""


def _of_18_decimals(value: int) -> str:
    whole, part = divmod(value, 10**18)
    return f"{whole:,}{f'.{part:018d}'.rstrip('0').rstrip('.')}"


# Transactions.

SECONDS = 10.0
"""For all that the node answers about one transaction."""


def shown_transaction(view: View, rpc: str, hash: str) -> dict[str, Any]:
    """What the template shows of a transaction; raises BadInput, and HttpError where the node does not have it."""
    try:
        found = read_transaction(Node(rpc, SECONDS, "the node"), checked_hash(hash))
    except BadHash as error:
        raise BadInput(str(error), "tx") from None
    except UnknownTransaction as error:
        raise detail(404, _sentence(error)) from None
    except NodeError as error:
        raise detail(502, _sentence(error)) from None
    explained = explain_transaction(found, partial(read_alternatives, view))
    budget = PageBudget()
    parts = [
        (one.title, _shown(one.address), one.input.contract, [shown_reading(one.readings[0], budget)])
        for one in explained.parts
        if not budget.page_is_full
    ]
    if len(parts) < len(explained.parts):
        found.notes.append(f"{len(explained.parts) - len(parts)} of its parts are not shown.")
    amount = f"{found.value} {number_note('uint256', found.value, 'wei')}"
    return {"explained": explained, "addresses": list(_addresses(found)), "parts": parts, "amount": amount}


def _sentence(error: NodeError) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."


def _addresses(one: ChainTransaction) -> Iterator[tuple[str, str]]:
    yield "From", _shown(one.sender)
    if one.to is not None:
        yield "To", _shown(one.to)
    if one.created is not None:
        yield "Makes", _shown(one.created)


def _shown(address: bytes | None) -> str:
    return checksummed(f"0x{address.hex()}") if address is not None else ""
