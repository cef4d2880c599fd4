"""The texts of a pack as columns, and back. `docs/packs.md` has the columns.

Texts are sorted by name, then by parameter list. A name is written as the number of bytes that it shares with the name
before it, and the rest of it; its parameter list is a line of another column. Compressed separately these take 4.2 bytes
for each of a million texts; the sorted texts as they are take 5.5.

Reading trusts nothing: lengths are added up before a text is made, each text must be canonical, and each is hashed.
Large packs are read by kernels (``pack_kernels.py``), small ones by plain Python, which takes less time than to load numba.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import Collection
from sigdir.signatures.grammar import MAX_TEXT_BYTES, GrammarError, normalise
from sigdir.signatures.pack_file import MAX_BYTES, TEXTS, BadPack, PackColumns, pack_bytes
from sigdir.signatures.types import MAX_TUPLES

Array = npt.NDArray[Any]

MAX_ROWS = 1 << 24
_MAX_BYTE = 255
"""The most bytes that two names share, and the last place. Texts after it are in any order."""
KERNEL_ROWS = 50_000
"""From so many texts on kernels are used: numba and they take a second to load, plain Python takes 6 us a text."""


class PackRow(NamedTuple):
    """A text with its place among the texts of its selector, from 1, and its declaration; "" for none."""

    text: str
    position: int = 1
    declaration: str = ""


class Texts(NamedTuple):
    """The texts of a collection in the order of a pack, each with a line break after it."""

    data: bytes | memoryview
    bounds: Array
    """Where each text begins, and where the last one ends; int64, one more than texts."""
    prefixes: Array
    """The first four bytes of each text's hash as a number; uint32."""
    places: Array
    """The place of each text among those of its selector, from 0; uint8."""
    declared: bytes
    """A line a text, empty for none; empty where the pack has no declarations."""


# Writing.


def encoded(collection: Collection, rows: Iterable[PackRow]) -> PackColumns:
    """The columns of canonical texts. Those that no ABI can have are left out, as readers refuse them."""
    split = sorted((*_split(row.text), row) for row in rows if not _is_too_deep(row.text.encode()))
    names = [name for name, _, _ in split]
    shared = [_shared(name, previous) for name, previous in zip(names, ["", *names], strict=False)]
    declarations = [row.declaration for _, _, row in split]
    columns = [
        bytes(shared),
        _lines(name[same:] for name, same in zip(names, shared, strict=True)),
        _lines(list for _, list, _ in split),
        bytes(min(row.position - 1, _MAX_BYTE) for _, _, row in split),
        _lines(declarations) if any(declarations) else b"",
    ]
    return PackColumns(collection, len(split), columns)


def _split(text: str) -> tuple[str, str]:
    """The name of a text, and its list with the parentheses."""
    at = text.index("(")
    return text[:at], text[at:]


def _shared(name: str, previous: str) -> int:
    """How many characters two names have in common at their beginnings, at most 255."""
    most = min(len(name), len(previous), _MAX_BYTE)
    return next((at for at in range(most) if name[at] != previous[at]), most)


def _lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


# Reading.


def decoded(columns: PackColumns) -> Texts:
    """The texts of columns; raises BadPack."""
    rows = columns.rows
    shared, rests, lists, places, declared = map(bytes, columns.columns)
    if rows > MAX_ROWS or not rows == len(shared) == len(places):
        raise BadPack(f"other names or places than one for each of {rows:,} texts; at most {MAX_ROWS:,} are read")
    same = np.frombuffer(shared, np.uint8)
    names: Array = same + np.diff(bounds_of(rests, rows)) - 1
    if (same > np.concatenate([[0], names])[:rows]).any():
        raise BadPack("a name shares more bytes than the name before it has")
    bounds = np.cumsum(np.concatenate([[0], names + np.diff(bounds_of(lists, rows))]))
    if bounds[-1] > MAX_BYTES:
        raise BadPack("its texts are longer than a reader allows")
    data = _joined(shared, rests, lists, int(bounds[-1]))
    return Texts(
        data, bounds, checked_prefixes(columns.collection, data, bounds), np.frombuffer(places, np.uint8), declared
    )


def bounds_of(lines: bytes | memoryview, rows: int) -> Array:
    """Where each of so many lines begins, and where the last one ends; raises BadPack for another number of lines."""
    bounds = np.concatenate([[0], np.flatnonzero(np.frombuffer(lines, np.uint8) == 0x0A) + 1])
    if len(bounds) != rows + 1 or bounds[-1] != len(lines):
        raise BadPack(f"{len(bounds) - 1:,} lines for {rows:,} texts, or one that does not end")
    return bounds


def _joined(shared: bytes, rests: bytes, lists: bytes, size: int) -> bytes | memoryview:
    """The texts, each with a line break after it."""
    if kernels := _kernels(len(shared)):
        joined: memoryview = kernels.joined(shared, rests, lists, size)
        return joined
    texts, name = [], b""
    for same, rest, list in zip(shared, rests.split(b"\n"), lists.split(b"\n"), strict=False):
        name = name[:same] + rest
        texts.append(name + list + b"\n")
    return b"".join(texts)


def checked_prefixes(collection: Collection, data: bytes | memoryview, bounds: Array) -> Array:
    """The first four bytes of each text's hash as a number; raises BadPack for a text that is not canonical."""
    rows = len(bounds) - 1
    if rows and np.diff(bounds).max() > MAX_TEXT_BYTES + 1:
        raise BadPack("its texts are longer than a reader allows")
    if kernels := _kernels(rows):
        prefixes: Array
        prefixes, is_known = kernels.hashed(data, bounds)
        for row in np.flatnonzero(~is_known).tolist():
            check_canonical(collection, line(data, bounds, row))
        return prefixes
    texts = bytes(data).split(b"\n")[:-1]
    return np.frombuffer(b"".join(checked_hash(collection, text)[:4] for text in texts), ">u4").astype(np.uint32)


def checked_hash(collection: Collection, text: bytes) -> bytes:
    """The hash of a text; raises BadPack for one that is not canonical."""
    from sigdir.signatures.keccak import keccak256  # takes 35 ms to load

    check_canonical(collection, text)
    return keccak256(text)


def check_canonical(collection: Collection, text: bytes) -> None:
    """Raises BadPack."""
    if len(text) <= MAX_TEXT_BYTES and _PLAIN.fullmatch(text):
        return
    if _is_too_deep(text) or not _is_canonical(text, collection):
        shown = text[:80].decode("ascii", "backslashreplace")
        raise BadPack(f"it has a text that is not canonical, or that no ABI can have: {shown}")


def _kernels(rows: int) -> Any:
    """The module of the kernels for a large pack; None for a small one, and without numba."""
    if rows < KERNEL_ROWS:
        return None
    try:
        from sigdir.signatures import pack_kernels
    except ImportError:
        return None
    return pack_kernels


_WIDTH = "|".join(str(bits) for bits in range(256, 0, -8))
_TYPE = rf"(?:address|bool|string|bytes(?:[12]\d|3[0-2]|[1-9])?|u?int(?:{_WIDTH}))(?:\[(?:[1-9]\d*)?\])*"
_PLAIN = re.compile(rf"(?!(?:function|event)\()[A-Za-z_$][A-Za-z0-9_$]*\((?:{_TYPE}(?:,{_TYPE})*)?\)".encode())
"""Most canonical texts: those without tuples and rare types. A name that is a keyword is for the grammar to decide."""


def _is_canonical(text: bytes, collection: Collection) -> bool:
    try:
        return normalise(text, collection.code).text.encode() == text
    except GrammarError:
        return False


def _is_too_deep(text: bytes) -> bool:
    """Whether more than MAX_TUPLES lists are within each other, the text's own counted: then no ABI can have it."""
    if text.count(b"(") <= MAX_TUPLES:
        return False
    return max(accumulate((byte == 0x28) - (byte == 0x29) for byte in text)) > MAX_TUPLES


def line(lines: bytes | memoryview, bounds: Array, row: int) -> bytes:
    """A line without its line break."""
    return bytes(lines[bounds[row] : bounds[row + 1] - 1])


# The order for lookups.


def in_order(texts: Texts) -> Array:
    """The rows by the first four bytes of their hashes, those of one selector in their places; raises BadPack for a text twice."""
    rows = np.arange(len(texts.prefixes), dtype=np.uint64)
    places = texts.places.astype(np.uint64) * np.uint64(MAX_ROWS)
    keys = np.sort(texts.prefixes.astype(np.uint64) << np.uint64(32) | places | rows)
    order, prefixes = (keys % np.uint64(MAX_ROWS)).astype(np.int64), keys >> np.uint64(32)
    is_same = np.concatenate([[False], prefixes[1:] == prefixes[:-1], [False]])
    shared = order[np.flatnonzero(is_same[1:] | is_same[:-1])[: len(order)]].tolist()
    if len({line(texts.data, texts.bounds, row) for row in shared}) < len(shared):
        raise BadPack("it has a text twice")
    return order


# A range: all texts whose hashes begin with the same three hex digits, as a pack.
#
# Whoever asks for a range tells the server one of 4,096 prefixes, and not which of the texts is wanted.


DIGITS = 3
"""At a million texts two digits are 70 kB a range, four are 17 texts, which hides little, and five are one."""
COUNT = 16**DIGITS
_PREFIX = re.compile(f"[0-9a-fA-F]{{{DIGITS}}}")


def is_prefix(text: str) -> bool:
    return _PREFIX.fullmatch(text) is not None


def range_bytes(collection: Collection, version: int, rows: Iterable[PackRow], *, padded: bool) -> bytes:
    """The pack of a range; ``padded`` to a size that many ranges share. The same rows give the same bytes."""
    return pack_bytes(TEXTS, version, [encoded(collection, rows)], padded=padded)
