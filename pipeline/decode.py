"""Calldata and the texts of its selector to values, or to the reason why a text does not fit.

eth-abi decodes, strictly: what a word does not use must be zero. Its coders are put together here, from
the canonical text, and not by its registry, which keeps every type that it ever saw. Three things bound what
hostile data may ask for:

- data over ``MAX_BYTES`` and types over ``MAX_DEPTH`` deep or ``MAX_TEXT`` long are refused;
- offsets may lead many times to the same place, so four thousand words can stand for 10^12 values, and
  eth-abi reads static tuples twice at every level: each candidate may read its data ``_READS`` times;
- all candidates together may do so ``_CANDIDATES`` times. Nobody can keep a text from being tried by
  adding others: those that are given first are tried first.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from eth_abi import decoding, encoding
from eth_abi.decoding import ContextFramesBytesIO
from eth_abi.exceptions import DecodingError, InsufficientDataBytes, InvalidPointer, NonEmptyPaddingBytes

from pipeline.errors import PipelineError

MAX_BYTES = 128 << 10
"""Of calldata; a transaction of that size is hardly relayed."""
MAX_DEPTH = 16
MAX_TEXT = 8192

_READS = 16
_CANDIDATES = 4
_LEAST_READ = 64 << 10
_WORD = 32
_SELECTOR = 4
_MAX_DIGITS = 18
_EXACT_BITS = 48  # integers up to this width are JSON numbers: 2^53 is where those cease to be exact

SHORT, OFFSET, PADDING, UTF8, WORK, TYPE = "too_short", "bad_offset", "bad_padding", "bad_utf8", "too_much", "bad_type"
REASONS = (SHORT, OFFSET, PADDING, UTF8, WORK, TYPE)


class BadCalldata(PipelineError):
    """The data is no calldata: not hex, too short for a selector, or too long."""


@dataclass(frozen=True, slots=True)
class Type:
    """A canonical type: a tuple of ``members``, an array of ``element``, or a word of the grammar.

    ``length`` is None for arrays of any length; ``depth`` counts the tuples and arrays within each other.
    """

    text: str
    members: tuple[Type, ...] | None = None
    element: Type | None = None
    length: int | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text, and what came of decoding with it.

    ``values`` beside ``types``, as Python values: int, bool, str, bytes, Decimal, and tuples of those. ``exact``
    where encoding them gives the data again; ``left_over`` counts the bytes behind the last one that was read.
    Where the text does not decode, ``values`` is None, ``reason`` one of REASONS and ``detail`` a sentence.
    """

    text: str
    types: tuple[Type, ...] = ()
    values: tuple[Any, ...] | None = None
    exact: bool = False
    left_over: int = 0
    reason: str = ""
    detail: str = ""


def calldata(text: str) -> bytes:
    """The bytes that hex digits write, with 0x or without, blanks and line ends between them left out.

    Raises BadCalldata.
    """
    digits = "".join(text.split())
    digits = digits[2:] if digits[:2] in ("0x", "0X") else digits
    if len(digits) > 2 * MAX_BYTES:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; at most {MAX_BYTES} are decoded")
    wrong = re.search("[^0-9a-fA-F]", digits)
    if wrong:
        raise BadCalldata(f"calldata: {wrong[0]!a} at digit {wrong.start() + 1} is no hex digit")
    if len(digits) % 2:
        raise BadCalldata(f"calldata: {len(digits)} hex digits are no whole bytes")
    if len(digits) < 2 * _SELECTOR:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; a selector has {_SELECTOR}")
    return bytes.fromhex(digits)


def decode(data: bytes, texts: Iterable[str]) -> list[Candidate]:
    """Try each text on the calldata; the best first, those that fit equally well in the order given.

    Texts are canonical and have the data's selector. Best is what encodes to the same data, then what uses
    all of it in another order, then what leaves the least over, then what does not decode.
    """
    work = _Work(_CANDIDATES * _allowed(data))
    return sorted((_try(data[_SELECTOR:], text, work) for text in texts), key=_rank)


def _rank(candidate: Candidate) -> tuple[bool, bool, int]:
    return candidate.values is None, not candidate.exact, candidate.left_over


def _allowed(data: bytes) -> int:
    return max(_LEAST_READ, _READS * len(data))


def _try(data: bytes, text: str, work: _Work) -> Candidate:
    try:
        types = types_of(text)
    except ValueError as error:
        return Candidate(text, reason=TYPE, detail=str(error))
    stream = _Stream(data, work)
    try:
        # Without parameters there is nothing to decode, and eth-abi knows no empty tuples.
        values = tuple(_tuple(types, "Decoder").decode(stream)) if types else ()
    except _TooMuch:
        return Candidate(
            text, types, reason=WORK, detail="its offsets ask for more than is decoded of data of this size"
        )
    except (DecodingError, UnicodeDecodeError) as error:
        reason, detail = _why(error, stream)
        return Candidate(text, types, reason=reason, detail=detail)
    left_over = len(data) - stream.end
    exact = not left_over and (not types or _tuple(types, "Encoder").encode(values) == data)
    return Candidate(text, types, values, exact, left_over)


def _why(error: Exception, stream: _Stream) -> tuple[str, str]:
    """The reason of a fault, and a sentence that says where; bytes count from the selector's first."""
    at = stream.tell() - _WORD + _SELECTOR
    if isinstance(error, InsufficientDataBytes):
        return SHORT, str(error)
    if isinstance(error, InvalidPointer):
        return OFFSET, f"the offset at byte {at} leads outside of the data"
    if isinstance(error, UnicodeDecodeError):
        return UTF8, f"the string that ends before byte {at + _WORD} is not UTF-8: {error.reason}"
    if isinstance(error, NonEmptyPaddingBytes):
        return PADDING, f"the word at byte {at} has a value beyond its type, or padding that is not zero"
    raise error


class _Work:
    """How many bytes all candidates may still read."""

    def __init__(self, left: int) -> None:
        self.left = left


class _TooMuch(DecodingError):
    pass


class _Stream(ContextFramesBytesIO):
    """The arguments of a call. Knows how far it was read, and ends the reading where it is too much."""

    def __init__(self, data: bytes, work: _Work) -> None:
        super().__init__(data)
        self._size, self._left, self._work = len(data), _allowed(data), work
        self.end = 0

    def read(self, size: int | None = -1, /) -> bytes:
        at, size = self.tell(), size if size is not None and size >= 0 else self._size
        if size > self._size - at:
            raise InsufficientDataBytes(
                f"{size} bytes wanted at byte {at + _SELECTOR}, and the data has {self._size + _SELECTOR}"
            )
        self._left -= size
        self._work.left -= size
        if self._left < 0 or self._work.left < 0:
            raise _TooMuch
        self.end = max(self.end, at + size)
        return io.BytesIO.read(self, size)


# Types.


def types_of(text: str) -> tuple[Type, ...]:
    """The types of a canonical text's parameters; raises ValueError for what is not decoded."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"a text of {len(text)} characters; at most {MAX_TEXT} are decoded")
    words = iter(_WORDS.findall(text[text.index("(") :]))
    next(words)
    return _members(words, 1)


_WORDS = re.compile(r"[(),]|[a-z][a-z0-9]*|\[\d*\]")


def _members(words: Iterator[str], depth: int) -> tuple[Type, ...]:
    """The types up to the parenthesis that ends them; the one that began them has been taken."""
    found: list[Type] = []
    for word in words:
        if word == ")":
            break
        if word == "(":
            _bound(depth)
            found.append(_tuple_type(_members(words, depth + 1)))
        elif word[0] == "[":
            found[-1] = _array_type(found[-1], word)
        elif word != ",":
            found.append(Type(word))
    return tuple(found)


def _tuple_type(members: tuple[Type, ...]) -> Type:
    if not members:
        raise ValueError("a tuple without members, which no contract takes")
    depth = 1 + max(member.depth for member in members)
    return Type("(" + ",".join(member.text for member in members) + ")", members, depth=_bound(depth))


def _array_type(element: Type, brackets: str) -> Type:
    length = brackets[1:-1]
    if len(length) > _MAX_DIGITS:
        raise ValueError(f"an array whose length has {len(length)} digits")
    depth = _bound(element.depth + 1)
    return Type(element.text + brackets, element=element, length=int(length) if length else None, depth=depth)


def _bound(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return depth


def _tuple(types: tuple[Type, ...], kind: str) -> Any:
    """eth-abi's Decoder or Encoder of a tuple."""
    coders: Any = tuple(_coder(one, kind) for one in types)
    if kind == "Decoder":
        return decoding.TupleDecoder(decoders=coders)
    return encoding.TupleEncoder(encoders=coders)


def _coder(type: Type, kind: str) -> Any:
    if type.members is not None:
        return _tuple(type.members, kind)
    if type.element is not None:
        item = {f"item_{kind.lower()}": _coder(type.element, kind)}
        if type.length is None:
            return _class("DynamicArray", kind)(**item)
        return _class("SizedArray", kind)(array_size=type.length, **item)
    return _word(type.text, kind)


def _word(word: str, kind: str) -> Any:
    """The coder of a type without parts."""
    base, width, decimals = _SPLIT.fullmatch(word).groups()  # type: ignore[union-attr]
    if word == "string":
        return decoding.StringDecoder() if kind == "Decoder" else encoding.TextStringEncoder()
    if word == "bytes":
        return _class("ByteString", kind)()
    if word == "function":  # an address and a selector
        return _class("Bytes", kind)(value_bit_size=192)
    if base == "bytes":
        return _class("Bytes", kind)(value_bit_size=8 * int(width))
    if decimals:
        name = {"fixed": "SignedFixed", "ufixed": "UnsignedFixed"}[base]
        return _class(name, kind)(value_bit_size=int(width), frac_places=int(decimals))
    if width:
        return _class({"int": "SignedInteger", "uint": "UnsignedInteger"}[base], kind)(value_bit_size=int(width))
    return _class({"address": "Address", "bool": "Boolean"}[word], kind)()


_SPLIT = re.compile(r"([a-z]+)(\d*)x?(\d*)")


def _class(name: str, kind: str) -> Any:
    return getattr(decoding if kind == "Decoder" else encoding, name + kind)


# Values as JSON.


def as_json(type: Type, value: Any) -> Any:
    """A value as JSON has it: which kind of JSON depends on the type alone, never on the value.

    Bytes are hex with 0x, addresses lower-case, integers of up to 48 bits numbers and wider ones decimal text,
    fixed-point numbers decimal text, tuples and arrays lists.
    """
    if type.members is not None:
        return [as_json(member, one) for member, one in zip(type.members, value, strict=True)]
    if type.element is not None:
        return [as_json(type.element, one) for one in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int) and type.text != "bool":
        return value if int(type.text.lstrip("uint")) <= _EXACT_BITS else str(value)
    return value
