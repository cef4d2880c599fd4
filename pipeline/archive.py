"""Archives: in the place of a zip or a tar come its members, each an input like a file in a folder.

Nothing of an archive is unpacked to disk, so a member's name is never a path: `../x` and links lead
nowhere. Links and hidden members are passed over, and so are archives in archives. What members
unpack to is bounded by what is stored (``_MOST_TIMES``); memory is one member's, as it is one file's.

A tar is read from front to back, packed or not, so its members are read as they come. A zip has its
list at the end; one that is packed itself or comes on standard input is copied to disk for that.
"""

from __future__ import annotations

import posixpath
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, groupby
from typing import Any, Self

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import tree
from sigdir.pipeline.source import (
    DOCUMENT_BYTES,
    LEAF_BYTES,
    UNPACK_ERRORS,
    Source,
    Stream,
    is_leaf,
    printable,
    tree_source,
)

_MOST_TIMES = 200
"""How often its own size an archive may unpack to. The Panoramix dump packed with xz has 13 times."""
_MOST_RECORD_BYTES = 1 << 20
"""The longest name, and the largest set of attributes, of a tar's member."""


def opened(sources: Iterable[Source], advance: Callable[[int], None], format: str | None) -> Iterator[Source]:
    """The inputs one after the other, each open while it is looked at; raises BadInput.

    Archives are replaced by their members, and what only looked like a tree by its files. ``format``
    is the one that the user named.
    """
    for source in sources:
        with source.open(advance):
            if is_archive(source):
                yield from _open_members(source, format)
            elif source.leaves is not None and not (tree.looks_like(source) if format is None else format == "tree"):
                files = [Source(posixpath.join(source.path, name), asked=False) for name in source.leaves]
                yield from opened(files, advance, format)
            else:
                yield source


def is_archive(source: Source) -> bool:
    return _is_zip(source) or _is_tar(source)


@dataclass(frozen=True, slots=True)
class _Member:
    """A regular file of an archive."""

    name: str
    size: int
    open: Callable[[], Any]

    def folder_of_leaves(self) -> str | None:
        """The folder, where the member may be a file of a tree."""
        folder, name = posixpath.split(self.name)
        return folder if is_leaf(name, self.size) else None


def _open_members(archive: Source, format: str | None) -> Iterator[Source]:
    members = (_zip_members if _is_zip(archive) else _tar_members)(archive)
    wanted = (member for member in members if not _is_hidden(member.name))
    for folder, group in groupby(wanted, key=_Member.folder_of_leaves):
        for source in _sources(folder, group, archive, format):
            with source.open(lambda _: None):  # progress is the archive's
                yield source


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))


def _sources(folder: str | None, group: Iterator[_Member], archive: Source, format: str | None) -> Iterator[Source]:
    """Members that stand side by side as inputs; those of a tree, which their first one tells, as one."""
    if folder is not None and format in (None, "tree"):
        first = next(group)
        content = _content(first, archive)
        group = chain([_Member(first.name, first.size, partial(BytesIO, content))], group)
        if format == "tree" or tree.is_leaf_of(posixpath.basename(first.name), content):
            names: list[str] = []
            yield tree_source(*_named(folder, archive), names, _leaves(group, archive, names), 0)
            return
    for member in group:
        path, name = _named(member.name, archive)
        yield Source(path, False, name, member.size, member.open)


def _named(member: str, archive: Source) -> tuple[str, str]:
    """The path and the name of an input: `a.zip/b` and `a.zip:b`."""
    return posixpath.join(archive.path, member.lstrip("/")), f"{archive.name}:{printable(member)}"


def _leaves(group: Iterator[_Member], archive: Source, names: list[str]) -> Iterator[tuple[str, bytes]]:
    for member in group:
        name = posixpath.basename(member.name)
        names.append(name)
        yield name, _content(member, archive)


def _content(member: _Member, archive: Source) -> bytes:
    try:
        content: bytes = member.open().read(LEAF_BYTES)
    except UNPACK_ERRORS as error:
        raise BadInput(_named(member.name, archive)[1], str(error) or type(error).__name__) from error
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
        # No more comes out of a member than the list says, so the list is all that has to be asked.
        _refuse_bombs(source, sum(member.file_size for member in archive.infolist()), file.seek(0, 2))
        for member in archive.infolist():
            # The upper half of the attributes is the mode, where the archive was made on Unix.
            kind = stat.S_IFMT(member.external_attr >> 16)
            if not member.filename.endswith("/") and kind in (0, stat.S_IFREG):
                name = _named(member.filename, source)[1]
                yield _Member(member.filename, member.file_size, partial(_open_zipped, archive, member, name))


def _open_zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Any:
    if member.flag_bits & 1:
        raise BadInput(name, "encrypted; unpack the archive first")
    try:
        return archive.open(member)
    except _ZIP_ERRORS as error:
        raise BadInput(name, f"broken zip: {error}") from None


# Tar.

_RECORDS = frozenset(
    [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)


class _Header(tarfile.TarInfo):
    """A header, read strictly: tarfile takes a broken one for the archive's end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):
                raise tarfile.ReadError(str(error)) from None
            raise  # nothing but zeros, or nothing, is its end
        if header.size < 0 or (header.type in _RECORDS and header.size > _MOST_RECORD_BYTES):
            raise tarfile.ReadError(f"a header with a size of {header.size:,} bytes")
        return header


def _is_tar(source: Source) -> bool:
    try:
        tarfile.TarInfo.frombuf(source.head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _tar_members(source: Source) -> Iterator[_Member]:
    stream = Stream(_bounded(source))
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, encoding="utf-8") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined] # it keeps them all, and nothing here goes back
                if member.isreg() and not member.issparse():
                    yield _Member(member.name, member.size, partial(archive.extractfile, member))
    except (tarfile.TarError, RecursionError) as error:
        raise BadInput(source.name, f"broken tar: {error}") from None
    while stream.read(LEAF_BYTES):  # so that a packed one that is cut short is told
        pass


def _bounded(source: Source) -> Iterator[bytes]:
    unpacked = 0
    for piece, stored in source.unpacked():
        unpacked += len(piece)
        _refuse_bombs(source, unpacked, stored)
        yield piece


def _refuse_bombs(source: Source, unpacked: int, stored: int) -> None:
    if unpacked > max(DOCUMENT_BYTES, _MOST_TIMES * stored):
        raise BadInput(source.name, f"unpacks to over {_MOST_TIMES} times its size; unpack it first")
