"""Reading a tar from front to back, with bounded memory.

tarfile decodes one header (``TarInfo.frombuf``). Its own reader expands the maps of sparse members while it
looks for the next header: without a bound on their length, and for ever if a map is cut short. A tar of 10 kB
could hang an import. Here a header's records are bounded, and a sparse member is skipped without its map.

Source: POSIX.1-2008, pax, "pax Extended Header"; GNU tar's manual, "Basic Tar Format" and "Storing Sparse Files".
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sigdir.pipeline.report import LINK, SPARSE, SPECIAL
from sigdir.pipeline.streams import READ_BYTES

_BLOCK = tarfile.BLOCKSIZE
_MAX_RECORD_BYTES = 1 << 20
"""The longest name, and the largest set of attributes, of a member."""
_RECORDS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE
)  # fmt: skip
_SIZE_DIGITS = 20
_SPARSE_EXTENDED, _SPARSE_MORE = 482, 504
"""Where the header of a sparse member, and each block after it, says whether another block of its map follows."""


@dataclass(frozen=True, slots=True)
class TarMember:
    """A member that is not a folder. Its data can be read until the next member is taken."""

    name: str
    size: int
    data: io.RawIOBase
    skip_reason: str
    """Why it is not read; empty for a regular file."""


def looks_like_tar(head: bytes) -> bool:
    """Whether an input's first bytes are the header of a tar."""
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def tar_members(stream: io.RawIOBase) -> Iterator[TarMember]:
    """The members up to the end mark or the end of the stream. Raises tarfile.TarError."""
    attributes: dict[str, str] = {}
    is_record = False
    while any(block := _up_to(stream, _BLOCK)):
        header = _header(block)
        is_record = header.type in _RECORDS
        if is_record:
            attributes |= _attributes_in(_record(stream, header), header.type)
            continue
        if header.type == tarfile.GNUTYPE_SPARSE:
            _skip_sparse_map(stream, block)
        size = _size(header, attributes)
        data = _Data(stream, size if _has_data(header) else 0)
        if not header.isdir():
            name = attributes.get("path", header.name)
            yield TarMember(name, size, data, _skip_reason(header, attributes))
        _skip(stream, data.left + (-size % _BLOCK if _has_data(header) else 0))
        attributes = {}
    if is_record:
        raise tarfile.ReadError("attributes without a member")


class _Data(io.RawIOBase):
    """The data of one member."""

    def __init__(self, stream: io.RawIOBase, size: int) -> None:
        self._stream = stream
        self.left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.left)
        if not wanted:
            return 0
        count = self._stream.readinto(memoryview(buffer)[:wanted])
        if not count:
            raise tarfile.ReadError("unexpected end of data")
        self.left -= count
        return count


def _header(block: bytes) -> tarfile.TarInfo:
    header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    if header.size < 0:
        raise tarfile.ReadError(f"a header with a size of {header.size:,} bytes")
    return header


def _has_data(header: tarfile.TarInfo) -> bool:
    """Whether data follows the header. Members of a type that nobody knows have data, as POSIX says."""
    return header.type in (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE) or header.type not in tarfile.SUPPORTED_TYPES


def _skip_reason(header: tarfile.TarInfo, attributes: dict[str, str]) -> str:
    if header.issym() or header.islnk():
        return LINK
    if header.type == tarfile.GNUTYPE_SPARSE or "sparse" in attributes:
        return SPARSE
    return "" if header.isreg() else SPECIAL


def _size(header: tarfile.TarInfo, attributes: dict[str, str]) -> int:
    """The bytes of the member's data. An attribute holds what is too large for the header."""
    digits = attributes.get("size")
    if digits is None:
        return header.size
    if not digits.isdecimal() or len(digits) > _SIZE_DIGITS:
        raise tarfile.ReadError("a size that is no number")
    return int(digits)


def _record(stream: io.RawIOBase, header: tarfile.TarInfo) -> bytes:
    if header.size > _MAX_RECORD_BYTES:
        raise tarfile.ReadError(f"a header with a size of {header.size:,} bytes")
    record = _exactly(stream, header.size)
    _skip(stream, -header.size % _BLOCK)
    return record


def _attributes_in(record: bytes, kind: bytes) -> dict[str, str]:
    """What a record says about the next member: ``path``, ``size``, and ``sparse`` if it is a sparse file."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": record.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    found: dict[str, str] = {}
    if kind in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):  # of no use here: what is true of all members
        for key, value in _pax_records(record):
            if key in (b"path", b"size"):
                found[key.decode()] = value.decode("utf-8", "surrogateescape")
            elif key.startswith(b"GNU.sparse."):
                found["sparse"] = ""
    return found


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of records ``<length> <key>=<value>\\n``; the length counts the whole record."""
    at = 0
    while at < len(data):
        digits = data[at : at + _SIZE_DIGITS].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        record = data[at : at + length]
        if not record.endswith(b"\n") or len(record) < length:
            raise tarfile.ReadError("broken attributes")
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals:
            raise tarfile.ReadError("broken attributes")
        yield key, value
        at += length


def _skip_sparse_map(stream: io.RawIOBase, block: bytes) -> None:
    more = block[_SPARSE_EXTENDED]
    while more:
        more = _exactly(stream, _BLOCK)[_SPARSE_MORE]


def _skip(stream: io.RawIOBase, count: int) -> None:
    while count:
        count -= len(_exactly(stream, min(count, READ_BYTES)))


def _exactly(stream: io.RawIOBase, count: int) -> bytes:
    found = _up_to(stream, count)
    if len(found) < count:
        raise tarfile.ReadError("unexpected end of data")
    return found


def _up_to(stream: io.RawIOBase, count: int) -> bytes:
    """The next bytes of the stream; fewer than ``count`` at its end."""
    found = b""
    while len(found) < count and (piece := stream.read(count - len(found))):
        found += piece
    return found
