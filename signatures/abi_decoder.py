"""ABI-encoded bytes to values, and values as JSON has them. Bits of a word that its type does not use must be zero.

Invariants
    ``exact`` is found while reading: the encoder puts the content of each dynamic value right behind the one before
    it, so the layout is the encoder's if every offset leads to the place where the last content ended.
    Reading is bounded, and with it the answer. Many offsets may lead to the same place, so four thousand words can
    stand for 10^12 values. Every value takes a word at least (``types.py``). Each attempt may read the data ``_READS``
    times, all attempts together ``_ATTEMPTS`` times as much. Texts are tried in the order given, so adding texts keeps
    none of the earlier ones from being tried.
    The readers of a text are kept only for texts up to ``_KEPT_TEXT`` characters.

eth-abi is the oracle of the tests. With it, and an encoding of the values to tell the layout, a call of two words took
53 us; this takes 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from sigdir.signatures.errors import counted
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import BadTypeList, Type, parameter_types

MAX_BYTES = 128 << 10
"""Of calldata; larger transactions are rarely relayed."""
SELECTOR_BYTES = 4
WORD_BYTES = 32  # the ABI's unit, and the width of a topic

SHORT, OFFSET, PADDING, UTF8, WORK, TYPE = "too_short", "bad_offset", "bad_padding", "bad_utf8", "too_much", "bad_type"
TOPICS = "topic_count"  # of logs alone
REASONS = (SHORT, OFFSET, PADDING, UTF8, WORK, TYPE, TOPICS)

_READS = 4
_ATTEMPTS = 4
SPARE = 8 << 10
"""Bytes that each attempt on small data may read besides."""
_TEXT_BYTES = 64  # what an answer says about a text besides the text
_TUPLE_BYTES = 16
_KEPT_TEXT = 256
_FIXED_BITS = 200  # of an offset and a length, which hardly ever fit by chance


class DecodeAttempt(NamedTuple):
    """A text, and the values that it gives the data.

    ``values`` belong to ``types`` one by one, as Python values: int, bool, str, bytes, Decimal, and tuples of those.
    ``exact`` is true where encoding them gives the data again; ``left_over`` counts the bytes after the last one
    that was read. Where the text does not decode, ``values`` is None, ``reason`` one of REASONS and ``detail`` a
    sentence.
    """

    text: str
    types: tuple[Type, ...] = ()
    values: tuple[Any, ...] | None = None
    exact: bool = False
    left_over: int = 0
    reason: str = ""
    detail: str = ""


class Budget:
    """How many bytes each attempt may read, and how many are left for all of them and for their texts.

    An answer has a few characters for each of these bytes, so it is bounded by the bytes of its input.
    """

    __slots__ = ("each", "has_refused", "left")

    def __init__(self, each: int, left: int) -> None:
        self.each, self.left, self.has_refused = each, left, False

    @classmethod
    def of(cls, size: int, spare: int = SPARE) -> Budget:
        """The budget of the attempts on so many bytes, with ``spare`` bytes for each besides."""
        each = _READS * size + spare
        return cls(each, _ATTEMPTS * each)

    @property
    def is_used_up(self) -> bool:
        """Whether a text or a value had no room."""
        return self.has_refused or self.left < 0

    def admits(self, text: str, declaration: str = "") -> bool:
        """Whether an answer has room for one more text with its declaration.

        They count twice, because they are parsed too, and a tuple counts more, because it is an object of JSON.
        """
        tuples = text.count("(") + declaration.count("(")
        return self.takes(_TEXT_BYTES + 2 * (len(text) + len(declaration) + _TUPLE_BYTES * tuples))

    def takes(self, cost: int) -> bool:
        """Whether so many bytes are left, which are then taken."""
        if cost > self.left:
            self.has_refused = True
            return False
        self.left -= cost
        return True


def attempt(data: bytes, text: str, budget: Budget, first: int = SELECTOR_BYTES) -> DecodeAttempt:
    """Decode arguments (without the selector) with a canonical text.

    ``first`` is the place of ``data``'s first byte in the sentences of the attempt.
    """
    try:
        layout = layout_of(text)
    except BadTypeList as error:
        return DecodeAttempt(text, reason=TYPE, detail=error.problem)
    return attempt_of(data, text, layout, budget, first)


def attempt_of(data: bytes, text: str, layout: Layout, budget: Budget, first: int = SELECTOR_BYTES) -> DecodeAttempt:
    """``attempt`` with a layout: that of the text, or of some of its parameters."""
    source = _Source(data, budget, first)
    try:
        values = _frame(source, 0, layout.members, layout.head)
    except _Misfit as misfit:
        return DecodeAttempt(text, layout.types, reason=misfit.reason, detail=misfit.detail)
    exact = source.in_order and source.next == source.size
    return DecodeAttempt(text, layout.types, values, exact, source.size - source.end)


class Layout(NamedTuple):
    """How the parameters of a text are read; ``checked`` counts the bits that decoding compares with fixed values."""

    types: tuple[Type, ...]
    members: tuple[Reader, ...]
    head: int
    checked: int

    @classmethod
    def of(cls, types: tuple[Type, ...], members: tuple[Reader, ...]) -> Layout:
        return cls(types, members, _head(members), sum(member.checked for member in members))

    def without(self, left_out: Collection[int]) -> Layout:
        """The layout of the parameters whose numbers are not left out."""
        kept = [number for number in range(len(self.types)) if number not in left_out]
        return Layout.of(tuple(self.types[number] for number in kept), tuple(self.members[number] for number in kept))


def layout_of(text: str) -> Layout:
    """The layout of a canonical text's parameters; raises BadTypeList."""
    return _kept_layout(text) if len(text) <= _KEPT_TEXT else _layout(text)


def _layout(text: str) -> Layout:
    types = parameter_types(text)
    return Layout.of(types, tuple(map(_reader, types)))


_kept_layout = lru_cache(maxsize=2048)(_layout)


class _Misfit(Exception):
    """The data does not fit the type."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class _Source:
    """The bytes that are decoded. Knows how far they were read, and stops where the budget is used up."""

    __slots__ = ("budget", "data", "end", "first", "in_order", "left", "next", "size")

    def __init__(self, data: bytes, budget: Budget, first: int) -> None:
        self.data, self.size, self.first = data, len(data), first
        self.budget, self.left = budget, budget.each
        self.in_order = True
        self.next = 0  # where the content of the next dynamic value begins if the layout is the encoder's
        self.end = 0  # after the last byte that was read

    def take(self, at: int, size: int, step: int = 0) -> None:
        """Make sure that these bytes are there, and count them; ``step`` is the size of each element of an array."""
        end = at + size
        if end > self.size:
            raise self.short(at + (self.size - at) // step * step, step) if step else self.short(at, size)
        self.spend(size)
        if end > self.end:
            self.end = end

    def spend(self, size: int) -> None:
        self.left -= size
        self.budget.left -= size
        if self.left < 0 or self.budget.left < 0:
            raise _Misfit(WORK, "its values are more than are read of data of this size")

    def short(self, at: int, size: int) -> _Misfit:
        place, there = at + self.first, self.size + self.first
        return _Misfit(SHORT, f"a value needs {size} bytes at byte {place}, but the data has {counted(there, 'byte')}")

    def padding(self, at: int) -> _Misfit:
        place = at + self.first
        return _Misfit(PADDING, f"the word at byte {place} is out of range for its type, or its padding is not zero")

    def number(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + WORD_BYTES])

    def follow(self, at: int, place: int, head: int) -> int:
        """Where the dynamic value is whose offset stands at ``place``. An offset leads behind the frame's head."""
        offset = self.number(place)
        target = at + offset
        if offset < head or target >= self.size:
            raise _Misfit(OFFSET, f"the offset at byte {place + self.first} points outside the data")
        if target != self.next:
            self.in_order = False
        return target

    # Elementary types. The words of static ones were taken with their frame.

    def unsigned(self, at: int, bits: int) -> int:
        value = int.from_bytes(self.data[at : at + WORD_BYTES])
        if value >> bits:
            raise self.padding(at)
        return value

    def signed(self, at: int, bits: int) -> int:
        value = int.from_bytes(self.data[at : at + WORD_BYTES], signed=True)
        if value >> (bits - 1) not in (0, -1):
            raise self.padding(at)
        return value

    def flag(self, at: int) -> bool:
        value = self.number(at)
        if value > 1:
            raise self.padding(at)
        return value == 1

    def address(self, at: int) -> str:
        word = self.data[at : at + WORD_BYTES]
        if word[:12] != _ZEROS[:12]:
            raise self.padding(at)
        return "0x" + word[12:].hex()

    def left_aligned(self, at: int, size: int) -> bytes:
        word = self.data[at : at + WORD_BYTES]
        if word[size:] != _ZEROS[size:]:
            raise self.padding(at)
        return word[:size]

    def content(self, at: int) -> bytes:
        self.take(at, WORD_BYTES)
        size = self.number(at)
        begin = at + WORD_BYTES
        padded = -(-size // WORD_BYTES) * WORD_BYTES
        self.take(begin, padded)
        value = self.data[begin : begin + size]
        if self.data[begin + size : begin + padded] != _ZEROS[: padded - size]:
            raise self.padding(begin + padded - WORD_BYTES)
        self.next = begin + padded
        return value

    def string(self, at: int) -> str:
        value = self.content(at)
        self.budget.left -= _ESCAPED * (len(value) - len(value.translate(None, _CONTROLS)))
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            place = self.next + self.first
            raise _Misfit(UTF8, f"the string that ends before byte {place} is not UTF-8: {error.reason}") from None


_ZEROS = bytes(WORD_BYTES)
_EXACT = Context(prec=100)
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\f\r"))
_ESCAPED = 5  # JSON has so many characters more for each of them


_Read = Callable[[_Source, int], Any]


class Reader(NamedTuple):
    """How a type is read: ``read`` gets a source and the place of its content, ``head`` counts its bytes in its frame."""

    read: _Read
    head: int
    is_dynamic: bool
    checked: int


def _head(members: tuple[Reader, ...]) -> int:
    return sum(member.head for member in members)


def _frame(source: _Source, at: int, members: tuple[Reader, ...], head: int) -> tuple[Any, ...]:
    """The values of a tuple whose offsets count from ``at``."""
    source.take(at, head)
    source.next = at + head
    values, place = [], at
    for member in members:
        values.append(member.read(source, source.follow(at, place, head) if member.is_dynamic else place))
        place += member.head
    return tuple(values)


def _reader(type: Type) -> Reader:
    if type.members is not None:
        return _tuple_reader(type.members)
    if type.element is not None:
        return _array_reader(_reader(type.element), type.length)
    return _elementary(type.text)


def _tuple_reader(types: tuple[Type, ...]) -> Reader:
    members = tuple(map(_reader, types))
    head, checked = _head(members), sum(member.checked for member in members)
    if any(member.is_dynamic for member in members):
        return _dynamic(lambda source, at: _frame(source, at, members, head))

    def read(source: _Source, at: int) -> tuple[Any, ...]:
        values = []
        for member in members:
            values.append(member.read(source, at))
            at += member.head
        return tuple(values)

    return Reader(read, head, False, checked)


def _dynamic(read: _Read) -> Reader:
    return Reader(read, WORD_BYTES, True, _FIXED_BITS)


def _array_reader(element: Reader, length: int | None) -> Reader:
    if length is None:
        return _dynamic(lambda source, at: _counted_elements(source, at, element))
    if element.is_dynamic:
        return _dynamic(lambda source, at: _elements(source, at, element, length))
    head, checked = element.head * length, element.checked * length
    return Reader(lambda source, at: _static_elements(source, at, element, length), head, False, checked)


def _counted_elements(source: _Source, at: int, element: Reader) -> tuple[Any, ...]:
    source.take(at, WORD_BYTES)
    return _elements(source, at + WORD_BYTES, element, source.number(at))


def _elements(source: _Source, at: int, element: Reader, count: int) -> tuple[Any, ...]:
    """The elements of an array whose first head stands at ``at``."""
    step = element.head
    size = count * step
    source.take(at, size, step)
    source.next = at + size
    if not element.is_dynamic:
        return _static_elements(source, at, element, count)
    places = range(at, at + size, step)
    return tuple([element.read(source, source.follow(at, place, size)) for place in places])


def _static_elements(source: _Source, at: int, element: Reader, count: int) -> tuple[Any, ...]:
    read, step = element.read, element.head
    return tuple([read(source, at + number * step) for number in range(count)])


_SPLIT = re.compile(r"([a-z]+)(\d*)x?(\d*)")


@lru_cache(maxsize=1024)
def _elementary(word: str) -> Reader:
    """The reader of a type without parts; raises BadTypeList for a word that is no type."""
    base, digits, places = _SPLIT.fullmatch(word).groups()  # type: ignore[union-attr]
    width = int(digits or 0)
    if word == "bytes":
        return _dynamic(_Source.content)
    if word == "string":
        return _dynamic(_Source.string)
    if word == "bool":
        return _word(_Source.flag, 1)
    if word == "address":
        return _word(_Source.address, 160)
    if word == "function" or (base == "bytes" and 1 <= width <= 32):
        size = width or 24  # an address and a selector
        return _word(lambda source, at: source.left_aligned(at, size), 8 * size)
    if base in ("int", "uint", "fixed", "ufixed") and 8 <= width <= 256 and bool(places) == ("fixed" in base):
        return _number(base[0] == "u", width, int(places or 0))
    raise BadTypeList("unknown type", word)


def _word(read: _Read, bits: int) -> Reader:
    return Reader(read, WORD_BYTES, False, 256 - bits)


def _number(is_unsigned: bool, bits: int, places: int) -> Reader:
    whole = _Source.unsigned if is_unsigned else _Source.signed
    if not places:
        return _word(lambda source, at: whole(source, at, bits), bits)
    return _word(lambda source, at: _EXACT.scaleb(Decimal(whole(source, at, bits)), -places), bits)


# Values as JSON.

_EXACT_BITS = 48  # integers up to this width are JSON numbers: 2^53 is where those cease to be exact

JsonForm = Callable[[Any], Any]
"""Gives a value of one type as JSON has it."""


def as_json(type: Type, value: Any, *, checksums: bool = False) -> Any:
    """A value as JSON has it. The kind of JSON depends on the type alone, never on the value.

    Bytes are hex with 0x, addresses lower-case, integers of up to 48 bits numbers and wider ones decimal text,
    fixed-point numbers decimal text, tuples and arrays lists. With ``checksums`` addresses have the capitals of EIP-55.
    """
    return json_form(type, checksums=checksums)(value)


def json_form(type: Type, *, checksums: bool = False) -> JsonForm:
    """What ``as_json`` does for one type: to walk the type for each value would take three times as long."""
    return _kept_form(type, checksums) if len(type.text) <= _KEPT_TEXT else _form(type, checksums)


def _form(type: Type, checksums: bool) -> JsonForm:
    if type.members is not None:
        forms = [_form(member, checksums) for member in type.members]
        return lambda value: [form(one) for form, one in zip(forms, value, strict=True)]
    if type.element is not None:
        element = _form(type.element, checksums)
        return lambda value: [element(one) for one in value]
    if type.text == "address":
        return checksummed if checksums else _itself
    if type.text.startswith(("bytes", "function")):
        return lambda value: "0x" + value.hex()
    if type.text.startswith(("fixed", "ufixed")):
        return lambda value: f"{value:f}"
    is_exact = type.text in ("bool", "string") or int(type.text.lstrip("uint")) <= _EXACT_BITS
    return _itself if is_exact else str


_kept_form = lru_cache(maxsize=2048)(_form)


def _itself(value: Any) -> Any:
    return value


def checksummed(address: str) -> str:
    """An address (0x and 40 hex digits, in any case) with the capitals of EIP-55.

    A letter is a capital if the hash of the lower-case digits has a digit of 8 or more at its place.
    """
    digits = address[2:].lower()
    marks = keccak256(digits.encode()).hex()[: len(digits)]
    return "0x" + "".join(digit.upper() if mark >= "8" else digit for digit, mark in zip(digits, marks, strict=True))
