"""Inputs: finding them, unpacking them, and reading them in bounded pieces.

Whatever an input is packed with (gzip, xz, zstd, bzip2: told by its first bytes, not its name), a
reader sees plain bytes. The bytes as they lie on disk are counted and hashed on the way.

Files that are named by a hash come by tens of thousands in a folder. They are one input, a tree, of
lines `name,content`: an input each would cost 0.8 ms for what takes 10 microseconds to read.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import stat
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import zstandard

from sigdir.pipeline.errors import BadInput, BrokenJSON
from sigdir.warehouse.parallel import in_background

HEAD_BYTES = 1 << 16
"""How much of an input its format is told by."""
BLOCK_BYTES = 1 << 21
"""The piece in which lines are read, and the longest line that a format may rely on."""
DOCUMENT_BYTES = 1 << 28
"""The largest JSON document; JSON lines have no such limit, for they are read piece by piece."""
DOCUMENT_VALUES = 1 << 23
"""The most values of a JSON document. 256 MiB of ``[],`` would take 7 GB as Python lists."""
UNPACKED_RATIO = 1000
"""How many times its packed size an input may unpack to, beyond the first GiB. Lists of signatures
come to 10; gzip can do 1,030 and bzip2 a million, and would keep an import busy for days."""

LEAF_BYTES = 1 << 16
"""The largest file of a tree; a larger one that has a hash for a name is some other file."""

STDIN = "-"

_READ_BYTES = 1 << 20
_FREE_BYTES = 1 << 30
_WINDOW_BYTES = 1 << 27  # what unpacking may look back on; xz -9 takes half of it
UNPACK_ERRORS = (
    EOFError, OSError, lzma.LZMAError, zlib.error, zstandard.ZstdError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip
_LEAF_NAME = re.compile(r"[0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?")


class _Raw(io.RawIOBase):
    """The bytes as stored: counted, hashed, and shown to the progress bar."""

    def __init__(self, file: BinaryIO, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self.bytes = 0
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        self.bytes += len(piece)
        self.sha256.update(piece)
        self._advance(len(piece))
        return len(piece)

    def drain(self) -> None:
        """Read what is left, so that count and hash are the whole file's."""
        while self.read(_READ_BYTES):
            pass


class Stream(io.RawIOBase):
    """Pieces of bytes as a file, read from front to back."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._held = piece
        piece, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def _unpacked(raw: Any, name: str) -> Any:
    magic = raw.peek(10)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return _Streams(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_WINDOW_BYTES))
    # "BZh" may begin a text; what follows in a bzip2 stream are the digits of pi, or of its root.
    is_bzip2 = magic[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90") or name.lower().endswith(".bz2")
    if magic.startswith(b"BZh") and is_bzip2:
        return _Streams(raw, bz2.BZ2Decompressor)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _Zstandard(raw)
    return raw


class _Streams(io.RawIOBase):
    """Streams of xz or bzip2, one behind the other.

    The readers of the standard library pass over what follows the first stream and is none: a second
    stream whose beginning is damaged would be lost without a word. And an xz stream may ask them for
    4 GB to unpack it.
    """

    def __init__(self, raw: BinaryIO, decoder: Callable[[], Any]) -> None:
        self._raw = raw
        self._new_decoder = decoder
        self._decoder = decoder()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while True:
            packed = b""
            if self._decoder.eof:
                # Zeros pad xz streams to a multiple of four bytes.
                packed = self._decoder.unused_data.lstrip(b"\0")
                while not packed:
                    read = self._raw.read(_READ_BYTES)
                    if not read:
                        return b""
                    packed = read.lstrip(b"\0")
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                packed = self._raw.read(_READ_BYTES)
                if not packed:
                    raise EOFError("the stream ends before its end marker")
            piece: bytes = self._decoder.decompress(packed, size)
            if piece:
                return piece


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Zstandard(io.RawIOBase):
    """A zstd stream of one or more frames that notices when the last one is cut short."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        self._frame = self._decoder.decompressobj()
        self._held = b""
        self._at = 0
        self._begun = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while self._at == len(self._held):
            packed = self._frame.unused_data if self._frame.eof else b""
            # Small pieces: a block of 4 bytes can unpack to 128 KiB, and so one of these to 64 MiB.
            packed = packed or self._raw.read(1 << 11)
            if not packed:
                if self._begun and not self._frame.eof:
                    raise EOFError("the stream ends before its end marker")
                return b""
            if self._frame.eof:
                self._frame = self._decoder.decompressobj()
            self._held, self._at = self._frame.decompress(packed), 0
            self._begun = True
        piece = self._held[self._at : self._at + size if size >= 0 else None]
        self._at += len(piece)
        return piece


class Source:
    """One input. Opened once, read once from front to back.

    A file, or standard input, or whatever ``stream`` gives when it is opened.
    """

    number = 0
    """What its candidates know it by; the import gives it."""

    def __init__(
        self, path: str, asked: bool, name: str = "", size: int | None = None, stream: Callable[[], Any] | None = None
    ) -> None:
        self.name = name or ("standard input" if path == STDIN else printable(path))
        self.path = path
        """Where it lies; of a member the archive's path and its own, which no file need have."""
        self.asked = asked
        """Whether the user named it, or it was met in a folder or an archive."""
        self.size = size if size is not None else 0 if path == STDIN else os.path.getsize(path)
        self.leaves: Sequence[str] | None = None
        """Of a tree the names of the files that are its lines, as far as they are read."""
        self._stream_of = stream
        self._unpacked_bytes = 0
        self._document: Any = None

    @contextmanager
    def open(self, advance: Callable[[int], None]) -> Iterator[None]:
        """Hold the input open. Raises BadInput for what cannot be opened or unpacked."""
        try:
            file = self._file()
        except OSError as error:
            raise BadInput(self.name, error.strerror or str(error)) from error
        try:
            self._raw = _Raw(cast(BinaryIO, file), advance)
            buffered = io.BufferedReader(self._raw, _READ_BYTES)
            try:
                self._stream = _unpacked(buffered, self.path)
                self.packed = self._stream is not buffered
            except UNPACK_ERRORS as error:
                raise BadInput(self.name, _reason(error)) from error
            self.head = b"".join(self._pieces(HEAD_BYTES)).removeprefix(b"\xef\xbb\xbf")
            yield
        finally:
            if self.path != STDIN:
                file.close()

    def _file(self) -> Any:
        if self._stream_of is not None:
            return self._stream_of()
        return sys.stdin.buffer if self.path == STDIN else Path(self.path).open("rb")

    def finish(self) -> tuple[int, str]:
        """The size and sha256 (hex) of the whole input as it is stored."""
        try:
            self._raw.drain()
        except UNPACK_ERRORS as error:
            raise BadInput(self.name, _reason(error)) from error
        return self._raw.bytes, self._raw.sha256.hexdigest()

    def first_line(self) -> bytes | None:
        """The first line that is not blank, read as far as it goes; None where it fits no block."""
        while True:
            line, newline, _ = self.head.lstrip().partition(b"\n")
            if newline or len(self.head) >= BLOCK_BYTES:
                return line if newline else None
            more = b"".join(self._pieces(HEAD_BYTES))
            if not more:
                return line
            self.head += more

    def _pieces(self, limit: int) -> Iterator[bytes]:
        """The next bytes, unpacked, up to ``limit``."""
        while limit > 0:
            try:
                piece = self._stream.read(min(limit, _READ_BYTES))
            except UNPACK_ERRORS as error:
                place = f"after {self._unpacked_bytes:,} bytes unpacked" if self.packed else ""
                raise BadInput(self.name, _reason(error), place) from error
            if not piece:
                return
            self._unpacked_bytes += len(piece)
            if self.packed and self._unpacked_bytes > max(_FREE_BYTES, UNPACKED_RATIO * self._raw.bytes):
                place = f"after {self._unpacked_bytes:,} bytes unpacked"
                raise BadInput(self.name, f"it unpacks to over {UNPACKED_RATIO:,} times its size", place)
            limit -= len(piece)
            yield piece

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """The input in pieces that end with a line, each with the number of its first line.

        Of a line that does not fit a piece only the beginning comes, which is longer than any text
        may be. Unpacking runs ahead in a thread of its own.
        """
        first_line = 1
        held = b""
        inside_long_line = False
        for piece in in_background(self._chunks(), ahead=2):
            if inside_long_line:
                end = piece.find(b"\n") + 1
                if not end:
                    continue
                piece = piece[end:]
            block = held + piece
            cut = block.rfind(b"\n") + 1
            inside_long_line = not cut and len(block) >= BLOCK_BYTES
            if inside_long_line:
                block += b"\n"
                cut = len(block)
            held = block[cut:]
            if cut:
                yield block[:cut], first_line
                first_line += count_lines(block)
        if held:
            yield held, first_line

    def _chunks(self) -> Iterator[bytes]:
        chunk = self.head
        while True:
            chunk += b"".join(self._pieces(BLOCK_BYTES - len(chunk)))
            if not chunk:
                return
            yield chunk
            chunk = b""

    def unpacked(self) -> Iterator[tuple[bytes, int]]:
        """The input in pieces, each with how many bytes of what is stored were read by then."""
        return ((chunk, self._raw.bytes) for chunk in self._chunks())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, without the space round them, and their numbers."""
        for block, first_line in self.blocks():
            for number, line in enumerate(block.split(b"\n"), first_line):
                if line and (line := line.strip()):
                    yield number, line

    def whole(self, what: str, instead: str = "") -> bytes:
        """All of the input; raises BadInput where it is larger than a document may be."""
        raw = self.head + b"".join(self._pieces(DOCUMENT_BYTES - len(self.head) + 1))
        if len(raw) > DOCUMENT_BYTES:
            raise BadInput(self.name, f"a {what} of over {DOCUMENT_BYTES >> 20} MiB{instead}")
        return raw

    def document(self) -> Any:
        """The input as one JSON document; raises BadInput with line and column.

        An object in which a key comes twice is a Repeated, so that no entry is lost.
        """
        if self._document is None:
            raw = self.whole("JSON document", "; use JSON lines")
            if sum(map(raw.count, (b",", b"[", b"{"))) > DOCUMENT_VALUES:
                raise BadInput(self.name, f"a JSON document of over {DOCUMENT_VALUES:,} values; use JSON lines")
            try:
                self._document = (json.loads(raw.decode(), object_pairs_hook=_object),)
            except json.JSONDecodeError as error:
                place = f"line {error.lineno} column {error.colno}"
                raise BrokenJSON(self.name, f"broken JSON: {error.msg}", place) from None
            except UnicodeDecodeError as error:
                raise BrokenJSON(self.name, "not UTF-8", f"byte {error.start + 1:,}") from None
            except RecursionError:
                raise BrokenJSON(self.name, "JSON nested too deeply") from None
            except ValueError as error:  # an integer of thousands of digits
                raise BrokenJSON(self.name, f"broken JSON: {error}") from None
        return self._document[0]

    @contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """The unpacked input as a file that can be searched, copied to disk where it is none as it is."""
        if self._is_plain_file():
            with Path(self.path).open("rb") as file:
                yield file
        else:
            with tempfile.TemporaryFile() as copy:
                self._copy_to(copy)
                copy.seek(0)
                yield copy

    @contextmanager
    def on_disk(self) -> Iterator[str]:
        """The same as the path of a file, for those who open it themselves."""
        if self._is_plain_file():
            yield self.path
        else:
            with tempfile.NamedTemporaryFile(prefix="sigdir-") as copy:
                self._copy_to(copy)
                copy.flush()
                yield copy.name

    def _is_plain_file(self) -> bool:
        return not self.packed and self._stream_of is None and self.path != STDIN

    def _copy_to(self, file: Any) -> None:
        file.write(self.head)
        for piece in self._pieces(sys.maxsize):
            file.write(piece)


def count_lines(block: bytes) -> int:
    """The line breaks in a block; NumPy finds them ten times faster than bytes.count."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == 0x0A))


class Repeated(dict[str, Any]):
    """A JSON object in which a key comes more than once; ``pairs`` has all of them."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else Repeated(pairs)


def printable(name: str) -> str:
    """A name as text that can be written anywhere: bytes that are no UTF-8 as ``\\xNN``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def find(paths: list[str]) -> list[Source]:
    """The inputs that the paths name, folders searched in name order; raises BadInput.

    Hidden files and folders are passed over, and links to folders are not followed. Files of a folder
    that are named by a hash are one input, a tree, where the first of them stands.
    """
    found: list[Source] = []
    for path in paths:
        if path == STDIN:
            found.append(Source(path, asked=True))
        elif os.path.isdir(path):
            found += _walk(path)
        elif os.path.exists(path):
            found.append(Source(path, asked=True))
        else:
            raise BadInput(printable(path), "no such file or folder")
    return found


def _walk(folder: str) -> Iterator[Source]:
    def refuse(error: OSError) -> None:
        raise BadInput(printable(error.filename), error.strerror or str(error))

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        leaves: list[str] = []
        size = 0
        sources: list[Source | None] = []
        for name in sorted(files):
            try:
                told = os.stat(os.path.join(where, name))
            except OSError:  # a link to nowhere
                continue
            if name.startswith(".") or not stat.S_ISREG(told.st_mode):
                continue
            if is_leaf(name, told.st_size):
                if not leaves:
                    sources.append(None)
                leaves.append(name)
                size += told.st_size
            else:
                sources.append(Source(os.path.join(where, name), asked=False, size=told.st_size))
        yield from (
            source or tree_source(where, printable(where), leaves, _leaves(where, leaves), size) for source in sources
        )


def is_leaf(name: str, size: int) -> bool:
    """Whether a file may be one of a tree, by its name and its size in bytes."""
    return size <= LEAF_BYTES and _LEAF_NAME.fullmatch(name) is not None


def tree_source(path: str, name: str, names: Sequence[str], files: Iterable[tuple[str, bytes]], size: int) -> Source:
    """Files named by hashes as one input of lines `name,content`; the line breaks in a file become `;`."""

    def lines() -> Iterator[bytes]:
        for leaf, content in files:
            yield b"%b,%b\n" % (leaf.encode(), content.strip().replace(b"\n", b";"))

    source = Source(path, False, name, size, lambda: Stream(_joined(lines())))
    source.leaves = names
    return source


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Many at once, for a reader takes a piece at a time."""
    while piece := b"".join(islice(lines, 4096)):
        yield piece


def _leaves(folder: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        path = os.path.join(folder, name)
        # A file object takes three times as long as the three calls below it.
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise BadInput(printable(path), error.strerror or str(error)) from error
        try:
            yield name, os.read(file, LEAF_BYTES)
        finally:
            os.close(file)
