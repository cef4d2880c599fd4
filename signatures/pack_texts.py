"""The texts of a pack as columns, and back. `docs/packs.md` has the columns.

Texts are sorted by name, then by parameter list. A name is written as the number of bytes that it shares with the name
before it, and the rest of it; a parameter list as its number in a table, the commonest first. Compressed separately these
take 4.3 bytes for each of a million texts; the sorted texts as they are take 5.5.

Reading trusts nothing: lengths are added up before a text is made, each text must be canonical, and each is hashed.
Large packs are read by kernels (``pack_kernels.py``), small ones by plain Python, which takes less time than to load numba.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import Collection
from sigdir.signatures.grammar import MAX_TEXT_BYTES, GrammarError, normalise
from sigdir.signatures.pack_file import MAX_BYTES, TEXTS, BadPack, PackColumns, pack_bytes
from sigdir.signatures.types import MAX_TUPLES

Array = npt.NDArray[Any]

COLUMNS = 6
"""Of a collection in the transport form: shared bytes, rests of names, list numbers, lists, places, declarations."""
MAX_ROWS = 1 << 24
_MOST_PLACES = 256  # of a selector's texts; those behind are in any order
_MAX_SHARED = 255
_FREE_BYTES, _MOST_TIMES = 1 << 18, 16
_NUMBER_BYTES = 3
_LEAST_OF_ROW = _NUMBER_BYTES + 2  # with its shared bytes and the line break of its rest
KERNEL_ROWS = 50_000
"""From so many texts on kernels are used: numba and they take a second to load, plain Python takes 8 us a text."""


class PackRow(NamedTuple):
    """A text with its place among the texts of its selector, from 1, and its declaration; "" for none."""

    text: str
    position: int = 1
    declaration: str = ""


class Texts(NamedTuple):
    """The texts of a collection in the order of a pack, each with a line break after it.

    ``ends`` are the places of these line breaks, ``prefixes`` the first four bytes of each text's hash as a number.
    """

    data: bytes | memoryview
    ends: Array  # int64
    prefixes: Array  # uint32
    positions: Array  # int64
    declarations: Sequence[bytes]
    """One a text, empty for none; none at all where the pack has no declarations."""


# Writing.


def readable(rows: Sequence[PackRow]) -> list[PackRow]:
    """The rows that a reader takes. Texts that no ABI can have are left out, and long ones that share a list with too many."""
    kept = [row for row in rows if not is_too_deep(row.text.encode())]
    made = [len(row.text) + 1 for row in kept]
    if sum(made) <= most_bytes(_LEAST_OF_ROW * len(kept)):
        return kept
    total, columns, lists, fitting = 0, 0, set[str](), set[int]()
    for at in sorted(range(len(kept)), key=made.__getitem__):
        _, list = _split(kept[at].text)
        more = _LEAST_OF_ROW + (len(list) + 1) * (list not in lists)
        if total + made[at] <= most_bytes(columns + more):
            total, columns = total + made[at], columns + more
            lists.add(list)
            fitting.add(at)
    return [row for at, row in enumerate(kept) if at in fitting]


def encoded(rows: Iterable[PackRow]) -> list[bytes]:
    """The columns of canonical texts."""
    split = sorted((*_split(row.text), row) for row in rows)
    counts = Counter(list for _, list, _ in split)
    numbers = {list: number for number, list in enumerate(sorted(counts, key=lambda one: (-counts[one], one)))}
    shared, rests, previous = bytearray(), [], ""
    for name, _, _ in split:
        same = _shared(name, previous)
        shared.append(same)
        rests.append(name[same:])
        previous = name
    later = (f"{at} {row.position}" for at, (_, _, row) in enumerate(split) if row.position > 1)
    declarations = [row.declaration for _, _, row in split]
    of_row = np.array([numbers[list] for _, list, _ in split], "<u4").view(np.uint8).reshape(-1, 4)
    return [
        bytes(shared),
        _lines(rests),
        of_row[:, :_NUMBER_BYTES].T.tobytes(),
        _lines(numbers),
        _lines(later),
        _lines(declarations) if any(declarations) else b"",
    ]


def _split(text: str) -> tuple[str, str]:
    """The name of a text, and its list with the parentheses."""
    at = text.index("(")
    return text[:at], text[at:]


def _shared(name: str, previous: str) -> int:
    """How many characters two names have in common at their beginnings, at most 255."""
    most = min(len(name), len(previous), _MAX_SHARED)
    return next((at for at in range(most) if name[at] != previous[at]), most)


def _lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


# Reading.


def decoded(collection: Collection, rows: int, columns: Sequence[bytes | memoryview]) -> Texts:
    """The texts of columns; raises BadPack."""
    shared, rests, numbers, lists, places, declared = map(bytes, columns)
    if rows > MAX_ROWS or len(shared) != rows:
        raise BadPack(f"{collection}: {len(shared):,} names for {rows:,} texts; at most {MAX_ROWS:,} are read")
    if max(lists.count(b"\n"), places.count(b"\n")) > rows:  # a small pack would fill the memory with them
        raise BadPack(f"{collection}: more parameter lists or places than texts")
    if declared and (declared.count(b"\n") != rows or not declared.endswith(b"\n")):
        raise BadPack(f"{collection}: other declarations than one for each of {rows:,} texts")
    names = names_of(np.frombuffer(shared, np.uint8), rests)
    of_row, table = _numbers(numbers, rows), lists.split(b"\n")[:-1]
    if rows and of_row.max() >= len(table):
        raise BadPack(f"{collection}: a text has a parameter list that the pack does not have")
    if any(map(is_too_deep, table)):
        raise BadPack(f"{collection}: a text has more than {MAX_TUPLES} lists within each other")
    sizes = np.fromiter(map(len, table), np.int64, len(table))[of_row] if rows else np.zeros(0, np.int64)
    lengths = names.lengths + sizes
    if int(lengths.sum()) + rows > most_bytes(len(rests) + len(lists) + (_NUMBER_BYTES + 1) * rows) or (
        rows and lengths.max() > MAX_TEXT_BYTES
    ):
        raise BadPack(f"{collection}: its texts are longer than a reader allows")
    ends = np.cumsum(lengths + 1) - 1
    data = _data(names, of_row, table, ends)
    check_canonical(collection, names, table, data, ends)
    return Texts(data, ends, prefixes_of(data, ends), _positions(places, rows), declared.split(b"\n")[:-1])


def most_bytes(columns: int) -> int:
    """How many bytes of texts so many bytes of columns may make: many rows may share a long list. Real ones make at most
    three times as many.
    """
    return min(_FREE_BYTES + _MOST_TIMES * columns, MAX_BYTES)


class Names(NamedTuple):
    """Names as they are written; ``ends`` are the places of the line breaks in ``rests``."""

    shared: Array  # uint8
    rests: bytes
    ends: Array  # int64
    lengths: Array  # int64, of the names


def names_of(shared: Array, rests: bytes) -> Names:
    """Raises BadPack where a name shares more bytes than the name before it has, or is missing."""
    ends = ends_of(rests, len(shared))
    lengths: Array = shared + np.diff(ends, prepend=-1) - 1
    if (shared > np.concatenate([[0], lengths[:-1]])[: len(lengths)]).any():
        raise BadPack("a name shares more bytes than the name before it has")
    return Names(shared, rests, ends, lengths)


def is_too_deep(text: bytes) -> bool:
    """Whether more than MAX_TUPLES lists are within each other, the text's own counted: then no ABI can have it."""
    if text.count(b"(") <= MAX_TUPLES:
        return False
    return max(accumulate((byte == 0x28) - (byte == 0x29) for byte in text)) > MAX_TUPLES


def ends_of(lines: bytes | memoryview, rows: int) -> Array:
    """The places of the line breaks of so many lines; raises BadPack for another number."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == 0x0A)
    if len(ends) != rows or len(lines) != (ends[-1] + 1 if rows else 0):
        raise BadPack(f"{len(ends):,} lines for {rows:,} texts")
    return ends


def _numbers(data: bytes, rows: int) -> Array:
    """The number of each row: the lowest bytes of all, then the next ones, then the highest."""
    if len(data) != _NUMBER_BYTES * rows:
        raise BadPack(f"{len(data):,} bytes of numbers for {rows:,} texts")
    numbers = np.zeros((rows, 4), np.uint8)
    numbers[:, :_NUMBER_BYTES] = np.frombuffer(data, np.uint8).reshape(_NUMBER_BYTES, rows).T
    return numbers.view("<u4").ravel()


_PLACE = re.compile(rb"(\d{1,9}) (\d{1,9})\n")


def _positions(places: bytes, rows: int) -> Array:
    """The place of each text among those of its selector; lines name the rows whose place is not 1."""
    found = [(int(row), int(position)) for row, position in _PLACE.findall(places)]
    if len(found) != places.count(b"\n") or any(row >= rows for row, _ in found):
        raise BadPack("a place cannot be read, or is of a text that the pack does not have")
    positions = np.ones(rows, np.int64)
    for row, position in found:
        positions[row] = position
    return positions


def _data(names: Names, of_row: Array, table: list[bytes], ends: Array) -> bytes | memoryview:
    """The texts, each with a line break after it."""
    if kernels := _kernels(len(ends)):
        joined: memoryview = kernels.joined(names.shared, names.rests, names.ends, of_row, table, ends)
        return joined
    texts, name = [], b""
    for shared, rest, number in zip(names.shared.tolist(), names.rests.split(b"\n"), of_row.tolist(), strict=False):
        name = name[:shared] + rest
        texts.append(name + table[number] + b"\n")
    return b"".join(texts)


def prefixes_of(data: bytes | memoryview, ends: Array) -> Array:
    """The first four bytes of each text's hash as a number."""
    if kernels := _kernels(len(ends)):
        prefixes: Array = kernels.prefixes(data, ends)
        return prefixes
    from sigdir.signatures.keccak import keccak256  # takes 35 ms to load

    digests = b"".join(keccak256(text)[:4] for text in bytes(data).split(b"\n")[:-1])
    return np.frombuffer(digests, ">u4").astype(np.uint32)


def _kernels(rows: int) -> Any:
    """The module of the kernels for a large pack; None for a small one, and without numba."""
    if rows < KERNEL_ROWS:
        return None
    try:
        from sigdir.signatures import pack_kernels
    except ImportError:
        return None
    return pack_kernels


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$"
_PARTS = _LETTERS + b"0123456789\n"
_KEYWORDS = (b"function", b"event")
"""Names that the grammar of a collection may refuse, because it reads them as keywords."""


def check_canonical(
    collection: Collection, names: Names, lists: Sequence[bytes], data: bytes | memoryview, ends: Array
) -> None:
    """Raise BadPack for a text that is not canonical. Each list is parsed once; names are looked at as columns."""
    whole = np.flatnonzero(names.shared == 0)
    begins = np.frombuffer(names.rests, np.uint8)[starts_of(names.ends, whole)]
    other = [names.rests.index(byte) for byte in names.rests.translate(None, _PARTS)[:1]]
    wrong = [whole[~np.isin(begins, np.frombuffer(_LETTERS, np.uint8))], np.searchsorted(names.ends, other)]
    for word in _KEYWORDS:
        if not _is_canonical(word + b"()", collection):
            rows = np.flatnonzero(names.lengths == len(word))
            letters = np.frombuffer(data, np.uint8)[starts_of(ends, rows)[:, np.newaxis] + np.arange(len(word))]
            wrong.append(rows[(letters == np.frombuffer(word, np.uint8)).all(axis=1)])
    for row in np.concatenate(wrong)[:1]:
        raise _not_canonical(_line(data, ends, row))
    kernels = _kernels(len(ends))
    named = [list for list in lists if not list.startswith(b"(")]  # with the rest of a name before it
    if named:
        raise _not_canonical(b"f" + named[0])
    for list in set(kernels.unknown_lists(lists) if kernels else lists):
        if not _is_canonical(b"f" + list, collection):
            raise _not_canonical(b"f" + list)


def _is_canonical(text: bytes, collection: Collection) -> bool:
    try:
        return normalise(text, collection.code).text.encode() == text
    except GrammarError:
        return False


def _not_canonical(text: bytes) -> BadPack:
    return BadPack(f"it has a text that is not canonical: {text[:80].decode('ascii', 'backslashreplace')}")


def starts_of(ends: Array, rows: Array) -> Array:
    """Where some lines begin; the line breaks of all are at ``ends``."""
    return np.where(rows > 0, ends[rows - 1] + 1, 0)


def _line(data: bytes | memoryview, ends: Array, row: int) -> bytes:
    return bytes(data[int(ends[row - 1]) + 1 if row else 0 : int(ends[row])])


# The order for lookups.


def in_order(texts: Texts) -> Array:
    """The rows by the first four bytes of their hashes, those of one selector in their places; raises BadPack for a text twice."""
    rows = np.arange(len(texts.ends), dtype=np.uint64)
    places = (np.clip(texts.positions, 1, _MOST_PLACES) - 1).astype(np.uint64) * np.uint64(MAX_ROWS)
    keys = np.sort(texts.prefixes.astype(np.uint64) << np.uint64(32) | places | rows)
    order, prefixes = (keys % np.uint64(MAX_ROWS)).astype(np.int64), keys >> np.uint64(32)
    is_same = np.concatenate([[False], prefixes[1:] == prefixes[:-1], [False]])
    shared = np.flatnonzero(is_same[1:] | is_same[:-1])[: len(prefixes)].tolist()
    if len({_line(texts.data, texts.ends, int(order[at])) for at in shared}) < len(shared):
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


def range_bytes(collection: Collection, version: int, rows: Sequence[PackRow], *, padded: bool) -> bytes:
    """The pack of a range; ``padded`` to a size that many ranges share. The same rows give the same bytes."""
    kept = readable(rows)
    return pack_bytes(TEXTS, version, [PackColumns(collection, len(kept), encoded(kept))], padded=padded)
