"""Archives: the members of a zip or a tar, each an input like a file in a folder.

Nothing is unpacked to disk, so a member's name is never used as a path: `../x` and links lead nowhere.
Links, hidden members, sparse files and archives inside archives are skipped. The size of the unpacked members
is bounded (``_MAX_RATIO``). Memory holds one member at a time, as it holds one file of a folder.

A tar is read from front to back, packed or not. A zip has its list of members at the end, so a zip that
is packed itself or comes from standard input is copied to disk first.
"""

from __future__ import annotations

import io
import posixpath
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.hash_lines import HASH_NAMED_BYTES, SAMPLE_FILES, are_of_tree, is_hash_named, joined_source
from sigdir.pipeline.report import HIDDEN, LINK, SPARSE, SPECIAL, UnreadInputs
from sigdir.pipeline.source import DOCUMENT_BYTES, READ_BYTES, UNPACK_ERRORS, PieceStream, Source, reason_of

_MAX_RATIO = 200
"""An archive may unpack to at most this many times its size. The Panoramix dump packed with xz has 13."""


def is_archive(source: Source) -> bool:
    """Whether an open source is a zip or a tar."""
    return _is_zip(source) or looks_like_tar(source.head)


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an archive that is not a folder. The data of a tar's can be read until the next member is taken."""

    name: str
    size: int
    open: Callable[[], Any]
    skip_reason: str
    """Why it is not read; empty for a regular file."""

    def folder_if_hash_named(self) -> str | None:
        folder, name = posixpath.split(self.name)
        return folder if is_hash_named(name, self.size) else None


def open_members(archive: Source, format: str | None, unread: UnreadInputs) -> Iterator[Source]:
    """The members of an open archive, each of them open until the next is taken; raises BadInput.

    ``unread`` takes the members that are not read.
    """
    members = _readable((_zip_members if _is_zip(archive) else _tar_members)(archive), archive, unread)
    for folder, group in groupby(members, key=_Member.folder_if_hash_named):
        for source in _sources(folder, group, archive, format, unread):
            source.label = archive.label
            with unread.faults_of(source), source.open(lambda _: None):  # the archive reports progress
                yield source


def _readable(members: Iterator[_Member], archive: Source, unread: UnreadInputs) -> Iterator[_Member]:
    for member in members:
        reason = HIDDEN if _is_hidden(member.name) else member.skip_reason
        if reason:
            unread.skip(_path_and_name(member.name, archive)[1], reason)
        else:
            yield member


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))


def _sources(
    folder: str | None, group: Iterator[_Member], archive: Source, format: str | None, unread: UnreadInputs
) -> Iterator[Source]:
    """Neighbouring members as inputs. Hash-named ones are one input if the first of them are those of a tree."""
    if folder is not None and format in (None, "tree"):
        first = [(member, _content(member, archive, unread)) for member in islice(group, SAMPLE_FILES)]
        group = chain((replace(member, open=partial(BytesIO, content)) for member, content in first), group)
        if format == "tree" or are_of_tree((posixpath.basename(one.name), content) for one, content in first):
            names: list[str] = []
            yield joined_source(
                *_path_and_name(folder, archive), names, _contents(group, archive, names, unread), 0,
                _below(folder, archive),
            )  # fmt: skip
            return
    for member in group:
        path, name = _path_and_name(member.name, archive)
        yield Source(path, False, name, member.size, member.open, _below(member.name, archive))


def _path_and_name(member: str, archive: Source) -> tuple[str, str]:
    """The path and the name of a member as an input: `a.zip/b` and `a.zip:b`."""
    return posixpath.join(archive.path, member.lstrip("/")), f"{archive.name}:{printable(member)}"


def _below(member: str, archive: Source) -> str:
    return f"{archive.below}:{printable(member)}"


def _contents(
    group: Iterator[_Member], archive: Source, names: list[str], unread: UnreadInputs
) -> Iterator[tuple[str, bytes]]:
    for member in group:
        name = posixpath.basename(member.name)
        names.append(name)
        yield name, _content(member, archive, unread)


def _content(member: _Member, archive: Source, unread: UnreadInputs) -> bytes:
    """A hash-named member; empty, and a fault, if it cannot be read."""
    try:
        with member.open() as file:
            content: bytes = file.read(HASH_NAMED_BYTES)
    except BadInput as error:
        unread.add_fault(error)
        return b""
    except UNPACK_ERRORS as error:
        unread.add_fault(BadInput(_path_and_name(member.name, archive)[1], reason_of(error)))
        return b""
    return content


# Zip.

_MEMBER = b"PK\x03\x04"
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error)


def _is_zip(source: Source) -> bool:
    return source.head.startswith((_MEMBER, b"PK\x05\x06"))


def _zip_members(source: Source) -> Iterator[_Member]:
    with Path(source.on_disk()).open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except _ZIP_ERRORS as error:
            raise BadInput(source.name, f"broken zip: {error}") from None
        # zipfile takes the last list that it finds. In a zip that was cut short it is that of a zip inside.
        if source.head.startswith(_MEMBER) and all(member.header_offset for member in archive.infolist()):
            raise BadInput(source.name, "broken zip: its list lacks its first member; it may be cut short")
        # zipfile reads no more of a member than the list states, so checking the list is enough.
        _check_ratio(source, sum(member.file_size for member in archive.infolist()), file.seek(0, 2))
        for member in archive.infolist():
            if not member.filename.endswith("/"):
                name = _path_and_name(member.filename, source)[1]
                opener = partial(_open_zipped, archive, member, name)
                yield _Member(member.filename, member.file_size, opener, _skip_reason_of_zipped(member))


def _skip_reason_of_zipped(member: zipfile.ZipInfo) -> str:
    # The upper 16 bits of the attributes are the mode if the archive was made on Unix.
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return LINK
    return "" if kind in (0, stat.S_IFREG) else SPECIAL


def _open_zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Any:
    if member.flag_bits & 1:
        raise BadInput(name, "encrypted; unpack the archive first")
    try:
        return archive.open(member)
    except _ZIP_ERRORS as error:
        raise BadInput(name, f"broken zip: {error}") from None


# Tar.


def _tar_members(source: Source) -> Iterator[_Member]:
    stream = PieceStream(_bounded_chunks(source))
    try:
        yield from tar_members(stream)
    except tarfile.TarError as error:
        raise BadInput(source.name, f"broken tar: {error}") from None
    while stream.read(READ_BYTES):  # read to the end, so that a truncated packed tar is an error
        pass


def _bounded_chunks(source: Source) -> Iterator[bytes]:
    unpacked = 0
    for piece, stored in source.unpacked_chunks():
        unpacked += len(piece)
        _check_ratio(source, unpacked, stored)
        yield piece


def _check_ratio(source: Source, unpacked: int, stored: int) -> None:
    if unpacked > max(DOCUMENT_BYTES, _MAX_RATIO * stored):
        raise BadInput(source.name, f"unpacks to over {_MAX_RATIO} times its size; unpack it first")


# Reading a tar from front to back, with bounded memory.
#
# tarfile decodes one header (``TarInfo.frombuf``). Its own reader expands the maps of sparse members while it
# looks for the next header: without a bound on their length, and for ever if a map is cut short. A tar of 10 kB
# could hang an import. Here a header's records are bounded, and a sparse member is skipped without its map.
#
# Source: POSIX.1-2008, pax, "pax Extended Header"; GNU tar's manual, "Basic Tar Format" and "Storing Sparse Files".


_BLOCK = tarfile.BLOCKSIZE
_MAX_RECORD_BYTES = 1 << 20
"""The longest name, and the largest set of attributes, of a member."""
_RECORDS = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE
)  # fmt: skip
_SIZE_DIGITS = 20
_SPARSE_EXTENDED, _SPARSE_MORE = 482, 504
"""Where the header of a sparse member, and each block after it, says whether another block of its map follows."""


def looks_like_tar(head: bytes) -> bool:
    """Whether an input's first bytes are the header of a tar."""
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def tar_members(stream: io.RawIOBase) -> Iterator[_Member]:
    """The members up to the end of the stream, or an end mark that no other tar follows, as where two were joined by cat.
    Raises tarfile.TarError.
    """
    attributes: dict[str, str] = {}
    is_record = has_ended = False
    while block := _up_to(stream, _BLOCK):
        if not any(block):
            has_ended = True
            continue
        if has_ended and not looks_like_tar(block):
            break
        has_ended = False
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
            yield _Member(name, size, data.__enter__, _skip_reason(header, attributes))
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
