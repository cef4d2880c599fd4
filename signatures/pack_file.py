"""The bytes of a pack: a header, the columns of its collections, a digest and a signature. `docs/packs.md` has the format.

Nothing here knows what a column holds. Numbers are little-endian, and each column begins at a multiple of four bytes,
so that readers map it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.operator_key import PrivateKey, is_signed_by

MAGIC = b"sigpack\n"
FORMAT = 1
MAX_BYTES = 1 << 30
"""Of a pack, of all its columns when they are unpacked, and of all its texts."""
TEXTS, INDEXED = "texts", "indexed"
"""The transport form, whose columns are compressed, and the form for lookups, whose columns are mapped."""

_HEAD = struct.Struct("<8sII")
_MAX_HEADER = 1 << 16
_PADDED = (1 << 13, 1 << 14, 1 << 15)
_DIGEST, _KEY, _SIGNATURE = 32, 32, 64
_TRAILER = _DIGEST + _KEY + _SIGNATURE
_UNSIGNED = bytes(_KEY + _SIGNATURE)


class BadPack(SigdirError, ValueError):
    """Bytes that are no pack, or one that cannot be trusted; the message says why."""


@dataclass(frozen=True, slots=True)
class PackColumns:
    """A collection of a pack: the number of its texts, and its columns, unpacked."""

    collection: Collection
    rows: int
    columns: Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack whose digest is right. ``version`` is that of the warehouse; ``key`` has signed it, empty for nobody."""

    form: str
    version: int
    collections: Mapping[Collection, PackColumns]
    key: bytes = b""


def pack_bytes(
    form: str, version: int, collections: Sequence[PackColumns], key: PrivateKey | None = None, *, padded: bool = False
) -> bytes:
    """Write a pack; raises BadPack if it would be too large.

    ``padded`` fills the header with spaces up to 8, 16 or a multiple of 32 KiB.
    """
    described: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for each in collections:
        packed = [zlib.compress(column, 9) if form == TEXTS else bytes(column) for column in each.columns]
        sizes = [[len(part), len(column)] for part, column in zip(packed, each.columns, strict=True)]
        described.append({"name": each.collection.value, "texts": each.rows, "columns": sizes})
        parts += map(_padded, packed)
    header = json.dumps({"form": form, "version": version, "collections": described}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 4)
    size = _HEAD.size + len(header) + sum(map(len, parts)) + _TRAILER
    header += b" " * (-size % next(step for step in _PADDED if size <= step or step == _PADDED[-1]) if padded else 0)
    body = b"".join([_HEAD.pack(MAGIC, FORMAT, len(header)), header, *parts])
    if (
        len(body) + _TRAILER > MAX_BYTES
        or sum(len(column) for each in collections for column in each.columns) > MAX_BYTES
    ):
        raise BadPack(f"a pack of more than {MAX_BYTES >> 20} MiB; choose fewer texts")
    digest = hashlib.sha256(body).digest()
    return body + digest + (_UNSIGNED if key is None else key.public + key.sign(MAGIC + digest))


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)


def read_pack(data: bytes | memoryview, key: bytes | None = None, columns: Mapping[str, int] | None = None) -> PackFile:
    """Check a pack's frame, digest and signature, and unpack its columns; raises BadPack.

    With ``key``, 32 bytes, it must be signed by that key. ``columns`` is how many columns a collection has, by form.
    Columns of the indexed form are views of ``data``.
    """
    view = memoryview(data)
    header, start, end = _frame(view)
    signer = bytes(view[end + _DIGEST : end + _DIGEST + _KEY])
    digest = hashlib.sha256(view[:end]).digest()
    if digest != view[end : end + _DIGEST]:
        raise BadPack("its digest differs: it was cut short or changed")
    _check_signature(digest, signer, bytes(view[end + _DIGEST + _KEY :]), key)
    form, version, described = _described(header, columns or {})
    collections, left = {}, MAX_BYTES
    for collection, rows, sizes in described:
        parts = []
        for packed, size in sizes:
            left -= size
            if left < 0 or packed > end - start:
                raise BadPack("its columns are longer than it is, or than a reader allows")
            part = view[start : start + packed]
            parts.append(_unpacked(part, size) if form == TEXTS else part)
            start += packed + -packed % 4
        collections[collection] = PackColumns(collection, rows, parts)
    if start != end:
        raise BadPack("its columns do not end where it ends")
    return PackFile(form, version, collections, signer if any(signer) else b"")


def _frame(view: memoryview) -> tuple[bytes, int, int]:
    """The header's bytes, and where the columns begin and end."""
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise BadPack("it is no pack: it does not begin as one")
    if len(view) < _HEAD.size + _TRAILER:
        raise BadPack("it was cut short")
    if len(view) > MAX_BYTES:
        raise BadPack(f"it has more than {MAX_BYTES >> 20} MiB")
    _, format, length = _HEAD.unpack_from(view)
    if format != FORMAT:
        raise BadPack(f"its format has the number {format}; this reader knows {FORMAT}")
    start, end = _HEAD.size + length, len(view) - _TRAILER
    if length > _MAX_HEADER or start > end:
        raise BadPack("its header is too long, or it was cut short")
    return bytes(view[_HEAD.size : start]), start, end


def _check_signature(digest: bytes, signer: bytes, signature: bytes, key: bytes | None) -> None:
    is_signed = any(signer) or any(signature)
    if key is not None and not is_signed:
        raise BadPack("it is not signed, and a key was given")
    if key is not None and key != signer:
        raise BadPack(f"it is signed by another key, {signer.hex()}")
    if key is not None and not is_signed_by(key, signature, MAGIC + digest):
        raise BadPack("its signature is wrong")


def _described(
    header: bytes, columns: Mapping[str, int]
) -> tuple[str, int, list[tuple[Collection, int, list[list[int]]]]]:
    """What the header says: the form, the version, and for each collection its texts and the sizes of its columns."""
    try:
        found = json.loads(header)
        form, version = found["form"], found["version"]
        described = [(Collection.of_name(one["name"]), one["texts"], one["columns"]) for one in found["collections"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise BadPack("its header cannot be read") from None
    wanted = columns.get(form) if isinstance(form, str) else None
    numbers = [version, *(rows for _, rows, _ in described)]
    for _, _, sizes in described:
        if not isinstance(sizes, list) or len(sizes) != wanted or not all(map(_is_pair, sizes)):
            raise BadPack("its header has another form or other columns than this reader knows")
        numbers += [number for pair in sizes for number in pair]
    if wanted is None or len({name for name, _, _ in described}) != len(described) or not all(map(_is_size, numbers)):
        raise BadPack("its header has another form, a collection twice, or a size that cannot be")
    return form, version, described


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_BYTES


def _unpacked(part: memoryview, size: int) -> bytes:
    """A column of so many bytes. No more are unpacked, however many there are."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(part, size) if size else unpacker.decompress(part, 1)
        rest = b"" if unpacker.eof else unpacker.decompress(unpacker.unconsumed_tail, 1)
    except zlib.error:
        raise BadPack("a column cannot be unpacked") from None
    if len(found) != size or rest or not unpacker.eof or unpacker.unused_data:
        raise BadPack("a column has another length than the header says")
    return found
