"""Archives: the members of a zip or a tar, each an input like a file in a folder.

Nothing is unpacked to disk, so a member's name is never used as a path: `../x` and links lead nowhere.
Links, hidden members, sparse files and archives inside archives are skipped. The size of the unpacked members
is bounded (``_MAX_RATIO``). Memory holds one member at a time, as it holds one file of a folder.

A tar is read from front to back, packed or not. A zip has its list of members at the end, so a zip that
is packed itself or comes from standard input is copied to disk first.
"""

from __future__ import annotations

import posixpath
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import chain, groupby
from typing import Any

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats import hash_lines
from sigdir.pipeline.hash_named import HASH_NAMED_BYTES, is_hash_named, joined_source
from sigdir.pipeline.report import HIDDEN, LINK, SPECIAL, UnreadInputs
from sigdir.pipeline.source import DOCUMENT_BYTES, Source
from sigdir.pipeline.streams import READ_BYTES, UNPACK_ERRORS, PieceStream, reason_of
from sigdir.pipeline.tar import looks_like_tar, tar_members

_MAX_RATIO = 200
"""An archive may unpack to at most this many times its size. The Panoramix dump packed with xz has 13."""


def is_archive(source: Source) -> bool:
    """Whether an open source is a zip or a tar."""
    return _is_zip(source) or looks_like_tar(source.head)


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an archive that is not a folder."""

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
    """Neighbouring members as inputs. Hash-named ones are one input if the first one's text has that hash."""
    if folder is not None and format in (None, "tree"):
        first = next(group)
        content = _content(first, archive, unread)
        group = chain([replace(first, open=partial(BytesIO, content))], group)
        if format == "tree" or hash_lines.hashes_to_name(posixpath.basename(first.name), content):
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

_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error)


def _is_zip(source: Source) -> bool:
    return source.head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def _zip_members(source: Source) -> Iterator[_Member]:
    with source.seekable() as file:
        try:
            archive = zipfile.ZipFile(file)
        except _ZIP_ERRORS as error:
            raise BadInput(source.name, f"broken zip: {error}") from None
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
        for member in tar_members(stream):
            yield _Member(member.name, member.size, partial(getattr, member, "data"), member.skip_reason)
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
