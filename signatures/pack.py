"""``Pack``: the texts of selectors and topics from one file, without a warehouse. `docs/packs.md` has the format.

Theory
    The form for lookups has, for each collection, the first four bytes of each text's hash as rising numbers, and beside
    each the place of its text. A lookup is a binary search among the numbers. The first four bytes are all of a selector;
    a topic's text is hashed to see that it is the one. A pack in the form for transport is brought into that form when it
    is opened, and each text is hashed then. A pack in the form for lookups is mapped, and only its digest is checked:
    ``check`` hashes its texts.
"""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sigdir.signatures import pack_texts
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection, parse_hash
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import MAX_TEXT_BYTES
from sigdir.signatures.pack_file import INDEXED, BadPack, PackColumns, PrivateKey, pack_bytes, public_key_of, read_pack
from sigdir.signatures.types import parsed_declaration


class Pack:
    """A pack, opened from its file or its bytes.

    ::

        pack = sigdir.Pack("functions.pack")
        pack.lookup("0xa9059cbb")  # ["transfer(address,uint256)"]

    ``key`` is the public key, 64 hex digits, that must have signed it. Raises BadPack for what is no pack or fails a
    check, BadKey, OSError. Safe for use by several threads.
    """

    def __init__(self, source: str | Path | bytes, key: str | None = None) -> None:
        data = source if isinstance(source, bytes) else _mapped(Path(source))
        file = read_pack(data, public_key_of(key) if key is not None else None)
        self.form, self.version = file.form, file.version
        """``version`` is that of the warehouse that it was made from."""
        self.signed_by = file.key.hex()
        """The key of whoever says to have signed it, empty for nobody: it is checked where ``key`` is given."""
        self._indexes = {
            collection: _Index(columns if file.form == INDEXED else _indexed(columns))
            for collection, columns in file.collections.items()
        }

    def __len__(self) -> int:
        return sum(index.rows for index in self._indexes.values())

    def count(self, collection: Collection) -> int:
        return self._indexes[collection].rows if collection in self._indexes else 0

    def lookup(self, hash: str | bytes) -> list[str]:
        """The texts of a selector (4 bytes or 8 hex digits) or a topic (32 or 64), the best first.

        Raises ValueError for another hash, BadPack for a text that has another one.
        """
        return [text for text, _ in self.entries(hash)]

    def declarations(self, hash: str | bytes) -> list[str]:
        """Declarations of the same texts, in their order, of those that have one; raises ValueError, BadPack."""
        return [declaration for _, declaration in self.entries(hash) if declaration]

    def entries(self, hash: str | bytes) -> list[tuple[str, str]]:
        """The texts of a hash, the best first, each with its declaration, "" for none; raises ValueError, BadPack."""
        digest = parse_hash(hash) if isinstance(hash, str) else hash if isinstance(hash, bytes) else None
        if digest is None or len(digest) not in (SIGNATURES.hash_bytes, EVENT_SIGNATURES.hash_bytes):
            raise ValueError(f"neither a selector, 4 bytes or 8 hex digits, nor a topic, 32 or 64: {hash!r:.80}")
        index = self._indexes.get(Collection.of_hash(digest))
        return index.entries(digest) if index is not None else []

    def texts(self, collection: Collection) -> Iterator[str]:
        """All texts of a collection, in alphabetical order. Those of the form for lookups are not checked here."""
        index = self._indexes.get(collection)
        return iter(index.lines()) if index is not None else iter(())

    def check(self) -> None:
        """Hash every text of the form for lookups, as opening the form for transport does; raises BadPack."""
        for index in self._indexes.values():
            index.check()

    def indexed(self, key: PrivateKey | None = None) -> bytes:
        """The same pack in the form for lookups, to be kept and mapped; signed where a key is given."""
        return pack_bytes(INDEXED, self.version, [index.columns for index in self._indexes.values()], key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """A file stays mapped until the pack is freed."""


class _Index:
    """The form for lookups of a collection."""

    def __init__(self, columns: PackColumns) -> None:
        prefixes, starts, texts, declared_at, declared = (memoryview(column) for column in columns.columns)
        if len(prefixes) != 4 * columns.rows or len(starts) != 4 * columns.rows or len(declared_at) % 4:
            raise BadPack(f"{columns.collection}: columns of other lengths than its number of texts")
        if sys.byteorder == "big":
            raise BadPack("packs are read on machines whose numbers are little-endian")
        self.columns, self.rows = columns, columns.rows
        self._prefixes, self._starts = prefixes.cast("I"), starts.cast("I")
        self._texts, self._declared_at, self._declared = texts, declared_at.cast("I"), declared
        self._is_topics = columns.collection == EVENT_SIGNATURES

    def entries(self, digest: bytes) -> list[tuple[str, str]]:
        prefix = int.from_bytes(digest[:4])
        at = bisect_left(self._prefixes, prefix)
        found: list[tuple[str, str]] = []
        read: set[str] = set()
        while at < self.rows and self._prefixes[at] == prefix:
            text = _line(self._texts, self._starts[at])
            if text in read:  # a small pack would take the time of a large one
                raise BadPack(f"it has a text twice: {text[:80]}")
            read.add(text)
            hash = pack_texts.checked_hash(self.columns.collection, text.encode())
            if not hash.startswith(digest[:4]):
                raise BadPack(f"it has {text[:80]} under 0x{digest[:4].hex()}, which is not of its hash")
            if hash.startswith(digest):
                found.append((text, self._declaration(at, text) if self._declared_at else ""))
            at += 1
        return found

    def _declaration(self, at: int, text: str) -> str:
        declaration = _line(self._declared, self._declared_at[at])
        if declaration and not _declares(declaration, text, self._is_topics):
            raise BadPack(f"the declaration of {text[:80]} declares another text")
        return declaration

    def lines(self) -> Sequence[str]:
        return bytes(self._texts).decode("ascii", "backslashreplace").split("\n")[:-1]

    def check(self) -> None:
        """Compare the numbers and places with those of the texts."""
        bounds = pack_texts.bounds_of(self._texts, self.rows)
        found = pack_texts.checked_prefixes(self.columns.collection, self._texts, bounds)
        rows = np.searchsorted(bounds[:-1], np.frombuffer(self._starts, np.uint32))
        numbers = np.frombuffer(self._prefixes, np.uint32)
        is_right = len(np.unique(rows)) == self.rows and (not self.rows or rows.max() < self.rows)
        if not is_right or not np.array_equal(found[rows], numbers) or (np.diff(numbers.astype(np.int64)) < 0).any():
            raise BadPack("a number beside a text is not of its hash, or not in order")


def _indexed(columns: PackColumns) -> PackColumns:
    """The form for lookups of columns in the form for transport; raises BadPack."""
    texts = pack_texts.decoded(columns)
    order = pack_texts.in_order(texts)
    declared_at = pack_texts.bounds_of(texts.declared, columns.rows)[order] if texts.declared else order[:0]
    prefixes, starts = _numbers(texts.prefixes[order]), _numbers(texts.bounds[order])
    parts = [prefixes, starts, texts.data, _numbers(declared_at), texts.declared]
    return PackColumns(columns.collection, columns.rows, parts)


def _numbers(values: npt.NDArray[Any]) -> bytes:
    return values.astype("<u4").tobytes()


def _line(lines: memoryview, start: int) -> str:
    """The line that begins at a place. Texts are short, so a piece is looked at before the rest is."""
    piece = bytes(lines[start : start + 128])
    end = piece.find(b"\n")
    if end < 0:
        piece = bytes(lines[start : start + 2 * MAX_TEXT_BYTES])
        end = piece.find(b"\n")
    if end < 0:
        raise BadPack("a text does not end")
    return piece[:end].decode("ascii", "backslashreplace")


def _declares(declaration: str, text: str, is_event: bool) -> bool:
    """Whether it does; raises BadPack where what it returns has no types."""
    found = parsed_declaration(declaration)
    if found is None or found.text != text or (found.kind is Kind.EVENT) != is_event:
        return False
    pack_texts.check_canonical(SIGNATURES, f"f({','.join(one.text for one in found.outputs)})".encode())
    return True


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, mapped; raises BadPack for an empty one, OSError."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:
            raise BadPack("it is empty") from None
