"""Decoding with eth-abi, strictly: bits of a word that its type does not use must be zero.

The coders are built from our own types and not by eth-abi's registry, which keeps every type that it ever saw.

Hostile data is bounded by how much of it is read. Many offsets may lead to the same place, so four thousand words
can stand for 10^12 values, and eth-abi reads static tuples twice at every level. Each attempt may read the data
``_READS`` times, all attempts together ``_ATTEMPTS`` times as much. Texts are tried in the order given, so adding
texts keeps none of the earlier ones from being tried. 128 KiB of the worst take 0.5 s.
"""

from __future__ import annotations

import io
import re
from typing import Any

from eth_abi import decoding, encoding
from eth_abi.decoding import ContextFramesBytesIO
from eth_abi.exceptions import DecodingError, InsufficientDataBytes, InvalidPointer, NonEmptyPaddingBytes

from sigdir.signatures.decode_attempt import OFFSET, PADDING, SELECTOR_BYTES, SHORT, TYPE, UTF8, WORK, DecodeAttempt
from sigdir.signatures.types import BadTypeList, Type, parameter_types

_READS = 16
_ATTEMPTS = 4
_LEAST_READ = 64 << 10
_WORD = 32


def attempt(data: bytes, text: str, budget: Budget) -> DecodeAttempt:
    """Decode the bytes after the selector with a canonical text."""
    try:
        types = parameter_types(text)
    except BadTypeList as error:
        return DecodeAttempt(text, reason=TYPE, detail=error.problem)
    stream = _Stream(data, budget)
    try:
        # Without parameters there is nothing to decode, and eth-abi knows no empty tuples.
        values = tuple(_tuple(types, "Decoder").decode(stream)) if types else ()
    except _TooMuch:
        return DecodeAttempt(
            text, types, reason=WORK, detail="its offsets lead to the same data too often, so decoding stopped"
        )
    except (DecodingError, UnicodeDecodeError) as error:
        reason, detail = _why(error, stream)
        return DecodeAttempt(text, types, reason=reason, detail=detail)
    left_over = len(data) - stream.end
    exact = not left_over and (not types or _tuple(types, "Encoder").encode(values) == data)
    return DecodeAttempt(text, types, values, exact, left_over)


def _why(error: Exception, stream: _Stream) -> tuple[str, str]:
    """The reason of an error, and a sentence with its place; bytes count from the selector's first."""
    at = stream.tell() - _WORD + SELECTOR_BYTES
    if isinstance(error, InsufficientDataBytes):
        return SHORT, str(error)
    if isinstance(error, InvalidPointer):
        return OFFSET, f"the offset at byte {at} points outside the data"
    if isinstance(error, UnicodeDecodeError):
        return UTF8, f"the string that ends before byte {at + _WORD} is not UTF-8: {error.reason}"
    if isinstance(error, NonEmptyPaddingBytes):
        return PADDING, f"the word at byte {at} is out of range for its type, or its padding is not zero"
    raise error


class Budget:
    """How many bytes each attempt may read, and how many are left for all of them."""

    def __init__(self, each: int) -> None:
        self.each, self.left = each, _ATTEMPTS * each

    @classmethod
    def of(cls, data: bytes) -> Budget:
        return cls(max(_LEAST_READ, _READS * len(data)))


class _TooMuch(DecodingError):
    pass


class _Stream(ContextFramesBytesIO):
    """The arguments of a call. Knows how far it was read, and stops reading where the budget is used up."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        super().__init__(data)  # type: ignore[no-untyped-call]
        self._size, self._left, self._budget = len(data), budget.each, budget
        self.end = 0

    def read(self, size: int | None = -1, /) -> bytes:
        at, size = self.tell(), size if size is not None and size >= 0 else self._size
        if size > self._size - at:
            raise InsufficientDataBytes(
                f"a value needs {size} bytes at byte {at + SELECTOR_BYTES}, but the data has {self._size + SELECTOR_BYTES} bytes"
            )
        self._left -= size
        self._budget.left -= size
        if self._left < 0 or self._budget.left < 0:
            raise _TooMuch
        self.end = max(self.end, at + size)
        return io.BytesIO.read(self, size)


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
