"""How a call is shown to whoever signs it, by a descriptor of ERC-7730 that is made for the contract.

What needs the chain's state is shown raw with its label: decimals and tickers of tokens, names of addresses. A field that
never is to be shown, and one that the descriptor hides for this value, is left out. A call with a value that is none of those
that the descriptor demands (``mustMatch``) is not shown by it.

Source: ERC-7730, "Path references", "Value interpolation", "Field formats".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, NamedTuple

from sigdir.signatures.abi_decoder import Budget, as_json
from sigdir.signatures.types import Type, parsed_declaration

_MAX_VALUES = 100
"""Of one field whose path leads to many."""
_MAX_CHARACTERS = 2000
"""Of one field, and of the values in a sentence."""
_FIELD_CHARACTERS = 64
"""What an answer says about a field besides its texts."""
_NOT_KNOWN = "not known here"
_LAST_SECOND = 253_402_300_799  # 9999-12-31
_CURRENCY_DECIMALS = 18
_EXACT = Context(prec=200)
_ESCAPED, _INSERTED = re.compile(r"\{\{|\}\}"), re.compile(r"\{([^{}]*)\}")
_STEP = re.compile(r"\[(-?\d{1,18})?(?:(:)(-?\d{1,18})?)?\]|([^.\[\]]+)", re.ASCII)


Place = tuple[int, bytes]
"""The chain and the address of a contract."""


class Called(NamedTuple):
    """Where a call goes, who sends it and how much; each None where unknown. A descriptor binds the address that is called:
    anybody may put a proxy in front of the contract of another.
    """

    chain: int
    address: bytes | None
    sender: bytes | None = None
    value: int | None = None

    @property
    def place(self) -> Place | None:
        """What descriptors name it by; None where the address is unknown."""
        return None if self.address is None else (self.chain, self.address)


class ShownField(NamedTuple):
    """A field as a signer sees it: its label, where its value is from, its format and its text."""

    label: str
    path: str
    format: str
    text: str


class CallDisplay(NamedTuple):
    """A call as a signer sees it. ``intent`` and ``sentence`` are "" where the descriptor has none."""

    intent: str
    sentence: str
    owner: str
    contract: str
    source: str
    fields: tuple[ShownField, ...]

    @property
    def size(self) -> int:
        """Its characters in an answer."""
        texts = [*self[:5], *(text for field in self.fields for text in field)]
        return sum(map(len, texts)) + _FIELD_CHARACTERS * (1 + len(self.fields))

    def to_dict(self) -> dict[str, Any]:
        return self._asdict() | {"fields": [one._asdict() for one in self.fields]}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a descriptor says of one function: its declaration, what is kept of its format, and the source that has it."""

    declaration: str
    format: Mapping[str, Any]
    source: str

    @classmethod
    def of(cls, declaration: str, display: str, source: str) -> Descriptor:
        return cls(declaration, json.loads(display), source)

    @property
    def places(self) -> Iterator[Place]:
        """The chains and addresses of the contracts that it is made for."""
        return ((chain, bytes.fromhex(address[2:])) for chain, address in self.format["chains"])

    def shown(self, types: Sequence[Type], values: Sequence[Any], called: Called, budget: Budget) -> CallDisplay | None:
        """A call with these values; None where the declaration is of other types, the descriptor demands another value, or
        the budget has no room.
        """
        if not budget.takes(len(self.declaration)):
            return None
        said = parsed_declaration(self.declaration)
        if said is None or [one.text for one in said.inputs] != [one.text for one in types]:
            return None
        call = _Call(_Value(Type("", components=said.inputs), tuple(values)), called, self.format.get("token"))
        try:
            fields = list(call.fields(self.format["fields"], budget))
        except _OtherValue:
            return None
        intent = self.format.get("intent", "")
        if isinstance(intent, dict):
            intent = ", ".join(f"{name}: {value}" for name, value in intent.items())
        owner, contract = self.format.get("owner", ""), self.format.get("contract", "")
        sentence = _sentence(self.format.get("sentence", ""), fields)
        head = CallDisplay(intent, sentence, owner, contract, self.source, ())
        has_room = budget.takes(head.size) and not budget.is_used_up
        return head._replace(fields=tuple(fields)) if has_room else None


def _sentence(template: str, fields: Iterable[ShownField]) -> str:
    """A sentence with the texts of fields in it; "" where it names one that is not shown or not known, or has no room."""
    texts = {_plain(one.path): one.text for one in fields if one.text != _NOT_KNOWN}
    marked = _ESCAPED.sub(lambda found: "\1" if found[0] == "{{" else "\2", template)
    inserted = [texts.get(_plain(path)) for path in _INSERTED.findall(marked)]
    if None in inserted or sum(map(len, filter(None, inserted))) > _MAX_CHARACTERS:
        return ""
    return _INSERTED.sub(lambda found: texts[_plain(found[1])], marked).replace("\1", "{").replace("\2", "}")


def _plain(path: str) -> str:
    return path.strip().removeprefix("#.").replace(".[", "[")


_ADDRESS, _NUMBER = Type("address"), Type("uint256")


class _OtherValue(Exception):
    """A value is none of those that the descriptor demands."""


class _Value(NamedTuple):
    type: Type
    value: Any


class _Call:
    """The values of a call by their paths, and how they are shown. ``root`` has all parameters as one tuple."""

    def __init__(self, root: _Value, called: Called, token: Any) -> None:
        self._root, self._called, self._token = root, called, token

    def fields(self, formats: Iterable[Mapping[str, Any]], budget: Budget) -> Iterator[ShownField]:
        """Each field that is shown, as far as the budget has room; a hidden one takes some too, for its work.

        Raises _OtherValue, also for values that are not known here or too many to be checked.
        """
        for one in formats:
            if not budget.takes(_FIELD_CHARACTERS):
                return
            path, label, format = one.get("path", ""), one.get("label", ""), one.get("format", "raw")
            found = [_Value(Type("string"), str(one["value"]))] if "value" in one else self._at(path)
            found = [each for value in found for each in _elements(value)]
            visible = one.get("visible", "always")
            demanded = visible.get("mustMatch") if isinstance(visible, dict) else None
            if demanded is not None:
                if not 0 < len(found) <= _MAX_VALUES or not all(_is_one_of(each.value, demanded) for each in found):
                    raise _OtherValue
                continue
            shown = [each for each in found if _is_visible(visible, each.value)]
            if found and not shown:
                continue
            text = _joined([self._text(one, format, each) for each in shown[:_MAX_VALUES]], len(shown) > _MAX_VALUES)
            field = ShownField(label or path, path, format, text if found else _NOT_KNOWN)
            if not budget.takes(sum(map(len, field))):
                return
            yield field

    def _at(self, path: str) -> list[_Value]:
        """The values at a path; none where it leads nowhere."""
        if path.startswith("@."):
            return self._of_container(path[2:])
        found = [self._root]
        for step in _STEP.finditer(path.removeprefix("#.")):
            found = [inner for one in found for inner in _inside(one, step)][: _MAX_VALUES + 1]
        return found if found != [self._root] else []

    def _of_container(self, name: str) -> list[_Value]:
        called = self._called
        known = {"to": called.address, "from": called.sender, "value": called.value, "chainId": called.chain}
        value = known.get(name)
        if isinstance(value, bytes):
            return [_Value(_ADDRESS, f"0x{value.hex()}")]
        return [] if value is None else [_Value(_NUMBER, value)]

    def _text(self, field: Mapping[str, Any], format: str, one: _Value) -> str:
        if isinstance(one.value, int) and not isinstance(one.value, bool):
            shown = self._number(field, format, one.value)
            if shown:
                return shown
        raw = "0x" + one.value.hex() if isinstance(one.value, bytes) else as_json(one.type, one.value, checksums=True)
        text = raw if isinstance(raw, str) else json.dumps(raw)
        return str(field["enum"].get(text, text)) if isinstance(field.get("enum"), dict) else text

    def _number(self, field: Mapping[str, Any], format: str, value: int) -> str:
        """A number in its format; "" for one that is shown raw."""
        if format == "date":
            if field.get("encoding") == "blockheight":
                return f"block {value}"
            return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC" if 0 <= value <= _LAST_SECOND else ""
        if format == "duration":
            minutes, seconds = divmod(abs(value), 60)
            return f"{'-' if value < 0 else ''}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        if format == "unit":
            base = str(field.get("base", ""))
            return f"{_scaled(value, field.get('decimals', 0))}{'' if base == '%' else ' '}{base}"
        if format == "amount":
            return f"{_scaled(value, _CURRENCY_DECIMALS)} of the chain's currency"
        return self._tokens(field, value) if format == "tokenAmount" else ""

    def _tokens(self, field: Mapping[str, Any], value: int) -> str:
        threshold = field.get("threshold")
        if threshold is not None and value >= _integer(threshold):
            return str(field.get("message", "Unlimited"))
        if field.get("is_own") and self._token:
            return f"{_scaled(value, self._token['decimals'])} {self._token['ticker']}"
        return ""


def _joined(texts: list[str], has_more: bool) -> str:
    """The texts of a field's values, cut where they are long."""
    text = ", ".join(texts)
    return f"{text[:_MAX_CHARACTERS]} ..." if has_more or len(text) > _MAX_CHARACTERS else text


def _elements(one: _Value) -> Iterator[_Value]:
    """The elements of an array, those of arrays in it too: a format is for each of them."""
    element = one.type.element
    if element is None:
        yield one
    else:
        for each in one.value[: _MAX_VALUES + 1]:
            yield from _elements(_Value(element, each))


def _inside(one: _Value, step: re.Match[str]) -> list[_Value]:
    """What a step of a path leads to: a member by its name, an element or a slice by its numbers."""
    first, colon, last, name = step.groups()
    if name is not None:
        return _members(one, name)
    element = one.type.element
    if element is None and (one.type.text == "address" or not isinstance(one.value, bytes | str)):
        return []
    is_one = first is not None and colon is None
    part = (
        slice(int(first), int(first) + 1 or None) if is_one else slice(*(int(n) if n else None for n in (first, last)))
    )
    found = one.value[part]
    return [_Value(one.type, found)] if element is None else [_Value(element, each) for each in found]


def _members(one: _Value, name: str) -> list[_Value]:
    """The members of a tuple that have a name."""
    if one.type.members is None:
        return []
    return [each for each in map(_Value, one.type.members, one.value) if each.type.name == name]


def _is_visible(rule: Any, value: Any) -> bool:
    if isinstance(rule, dict):
        return not _is_one_of(value, rule.get("ifNotIn", ()))
    return bool(rule != "never")


def _is_one_of(value: Any, listed: Iterable[Any]) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):  # a descriptor may have it as hex digits
        return value in map(_integer, listed)
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value).lower()
    return text in {str(one).lower() for one in listed}


def _integer(text: Any) -> int:
    """A number as a descriptor has it: an integer, or a text of one with 0x or without; too large a one for no number."""
    try:
        return int(str(text), 0)
    except ValueError:
        return 1 << 256


def _scaled(value: int, decimals: int) -> str:
    found = _EXACT.scaleb(Decimal(value), -decimals)
    return f"{found:,f}".rstrip("0").rstrip(".") if decimals else f"{value:,}"
