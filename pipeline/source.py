"""One input of an import: read once, from front to back, in bounded pieces.

A reader sees unpacked bytes, however the input is packed. The stored bytes are counted and hashed.

Streams of bytes: what is stored, counted and hashed, and its contents unpacked.

gzip, xz, zstd and bzip2 are recognised by their first bytes, not by the file's name.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import sys
import tarfile
import tempfile
import zipfile
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from backports import zstd

from sigdir.pipeline.errors import BadInput, printable
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.interruption import check
from sigdir.warehouse.table.parallel import in_background

if TYPE_CHECKING:  # DuckDB, which a server that imports an ABI does without
    from sigdir.pipeline.contract_rows import ContractRows


READ_BYTES = 1 << 20
_WINDOW_LOG = 27
_WINDOW_BYTES = 1 << _WINDOW_LOG
"""Memory for unpacking; xz -9 takes half of it."""
UNPACK_ERRORS = (
    EOFError, OSError, lzma.LZMAError, zlib.error, zstd.ZstdError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip
_CUT_SHORT = "the stream ends before its end marker"


class StoredBytes(io.RawIOBase):
    """The bytes of an input as stored. Counts and hashes them, and reports progress."""

    def __init__(self, file: Any, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self.bytes = 0
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        check()
        size: int = self._file.readinto(buffer)
        self.bytes += size
        self.sha256.update(memoryview(buffer)[:size])
        self._advance(size)
        return size

    def drain(self) -> None:
        """Read the rest, so that count and hash cover the whole input."""
        while self.read(READ_BYTES):
            pass


class PieceStream(io.RawIOBase):
    """Pieces of bytes as a file that is read from front to back. An error of theirs is raised at every later read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        self._error: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = self._next_piece()
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        found, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)

    def _next_piece(self) -> bytes | None:
        if self._error is not None:
            raise self._error
        try:
            return next(self._pieces, None)
        except Exception as error:
            self._error = error
            raise


def unpacked(raw: Any, name: str) -> Any:
    """A stream of the contents of ``raw``; ``raw`` itself where it is not packed. ``name`` is the input's path."""
    magic = raw.peek(10)
    if magic.startswith(b"\x1f\x8b"):
        return _Gzip(fileobj=raw)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return _Streams(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_WINDOW_BYTES))
    # A text may begin with "BZh". In a bzip2 stream the digits of pi, or of its square root, follow.
    is_bzip2 = magic[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90") or name.lower().endswith(".bz2")
    if magic.startswith(b"BZh") and is_bzip2:
        return _Streams(raw, bz2.BZ2Decompressor)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        return _Streams(raw, lambda: zstd.ZstdDecompressor(options=options))
    return raw


class _Gzip(gzip.GzipFile):
    """Gives what was unpacked before an error: ``read`` of the standard library loses up to its whole size."""

    def read(self, size: int | None = -1) -> bytes:
        return self.read1(-1 if size is None else size)


class _Streams(io.RawIOBase):
    """One or more concatenated streams of xz, bzip2 or zstd.

    The standard library's readers ignore data after the first stream that is not a stream, so they
    would silently drop a second stream with a damaged header. They also let an xz stream allocate 4 GB.
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
                # xz streams are padded with zeros to a multiple of four bytes.
                packed = self._decoder.unused_data.lstrip(b"\0")
                while not packed:
                    read = self._raw.read(READ_BYTES)
                    if not read:
                        return b""
                    packed = read.lstrip(b"\0")
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                packed = self._raw.read(READ_BYTES)
                if not packed:
                    raise EOFError(_CUT_SHORT)
            piece: bytes = self._decoder.decompress(packed, size)
            if piece:
                return piece


def reason_of(error: Exception) -> str:
    """The message of an unpacking error, never empty."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


OVER_TIME = "over_time"
"""The bytecodes of the input before this one took too long; this one was not analysed."""


@dataclass
class BytecodeCounts:
    """How many contracts of an input, or of several, have bytecode, and what it proves."""

    contracts: int = 0
    """Those whose runtime code was read."""
    compiled: int = 0
    """Candidates whose hash is in the code of their contract."""
    declared: int = 0
    """Candidates whose hash is not in the code that was there."""
    misfits: int = 0
    """Contracts whose ABI has a function that their code lacks."""
    unread: Counter[str] = field(default_factory=Counter)
    """Contracts whose bytecode could not be read, by reason: a ``CodeProblem`` but EMPTY, or OVER_TIME."""

    def __bool__(self) -> bool:
        return bool(self.contracts or self.unread)

    def __iadd__(self, other: BytecodeCounts) -> Self:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"unread": dict(self.unread)}


HEAD_BYTES = 1 << 16
"""How much of an input format detection sees."""
BLOCK_BYTES = 1 << 21
"""The size of the blocks that lines are read in, and the longest line that a format may rely on."""
DOCUMENT_BYTES = 1 << 28
"""The largest JSON document. JSON lines have no limit because they are read block by block."""
UNPACKED_RATIO = 1000
"""An input may unpack to at most this many times its stored size, beyond the first GiB. Lists of
signatures reach 10. gzip can reach 1,030 and bzip2 a million, and would keep an import busy for days."""
_UNCHECKED_BYTES = 1 << 30

STDIN = "-"
PACKED_ENDINGS = (".gz", ".xz", ".zst", ".bz2")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ENDS_INSIDE = "it ends inside a comment or a quoted field: what follows its beginning is not read"
"""A warning of readers of lines."""


_FIRST_OF_SECTIONS = 1 << 40
"""Numbers from here on are lines of sections. No input has so many lines or entries of its own."""


class Sections:
    """Gives each source inside an input a range of numbers, and finds the source and the line of a number."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._starts: list[int] = []
        self._end = _FIRST_OF_SECTIONS

    def add(self, name: str, lines: int) -> int:
        """Take a source of so many lines; gives the number before its first line."""
        self._names.append(name)
        self._starts.append(self._end)
        self._end += lines
        return self._starts[-1] - 1

    def place(self, number: int) -> tuple[str, int] | None:
        """The source and the line in it, from 1; None for a number of the input's own."""
        at = bisect_right(self._starts, number) - 1
        return None if at < 0 else (self._names[at], number - self._starts[at] + 1)

    def __bool__(self) -> bool:
        return bool(self._names)


class Source:
    """One input: a file, standard input, or the stream that ``stream`` returns when it is opened."""

    number = 0
    """The import's number for this input; its candidates carry it."""
    lines_from = 1
    """The number of the first line of ``blocks``."""
    blocks_read = 0
    """How many of ``blocks`` were taken."""
    columns: Sequence[tuple[str, str]] = ()
    """The columns that the user names, for readers of tables: what each is, and its name."""
    contracts: ContractRows | None = None
    """Where readers put what the input says of contracts; None where nobody gathers it."""
    statement = ""
    """The source in evidence that the input is."""

    def __init__(
        self,
        path: str,
        explicit: bool,
        name: str = "",
        size: int | None = None,
        stream: Callable[[], Any] | None = None,
        below: str = "",
    ) -> None:
        self.name = name or ("standard input" if path == STDIN else printable(path))
        self.below = below or (self.name if path == STDIN else os.path.basename(self.name.rstrip("/")))
        """Its name below what the user named, which says nothing of the folders above."""
        self.label = self.below
        """What evidence calls its source: the name of the file on disk. All members of an archive are one source."""
        self.path = path
        """The file's path. For a member of an archive: the archive's path joined with the member's."""
        self.explicit = explicit
        """True if the user named this input, False if it was found in a folder or an archive."""
        self.size = size if size is not None else 0 if path == STDIN else os.path.getsize(path)
        self.file_names: Sequence[str] | None = None
        """For hash-named files read as one input: the name of the file of each line read so far."""
        self.sections = Sections()
        """The sources that were found inside, as in a standard JSON input."""
        self.bytecode = BytecodeCounts()
        """What the bytecode of its contracts proves."""
        self.warnings: list[str] = []
        """Sentences of the reader for the report, about what it does not understand."""
        self._stream_of = stream
        self._reading = Lock()
        self._copy: Any = None
        self._close()

    def _close(self) -> None:
        """Forget what was read. An import holds all of its inputs, so a closed one keeps its names alone."""
        self.head = b""
        self._unpacked_bytes = 0
        self._parsed: dict[Callable[..., Any], Any] = {}
        self._stream: Any = None
        self._stored: Any = None
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    @property
    def unpacked_name(self) -> str:
        """The path in lower case, without the endings of packed files."""
        return without_packing(self.path.lower())

    def has_ending(self, *endings: str) -> bool:
        """Whether the name of the unpacked file ends so."""
        return self.unpacked_name.endswith(endings)

    @contextmanager
    def open(self, advance: Callable[[int], None]) -> Iterator[None]:
        """Hold the input open. Raises BadInput if it cannot be opened or unpacked."""
        try:
            file = self._open_file()
        except OSError as error:
            raise BadInput(self.name, error.strerror or str(error)) from error
        try:
            self._stored = StoredBytes(file, advance)
            buffered = io.BufferedReader(self._stored, READ_BYTES)
            try:
                self._stream = unpacked(buffered, self.path)
                self.packed = self._stream is not buffered
            except UNPACK_ERRORS as error:
                raise BadInput(self.name, reason_of(error)) from error
            self.head = b"".join(self._pieces(HEAD_BYTES)).removeprefix(BYTE_ORDER_MARK)
            yield
        finally:
            self._close()
            if self.path != STDIN:
                file.close()

    def stop(self) -> None:
        """End the reading of an open input: when this returns, no thread reads ahead in it or its archive."""
        with self._reading:
            self._stream = None

    def _open_file(self) -> Any:
        if self._stream_of is not None:
            return self._stream_of()
        return sys.stdin.buffer if self.path == STDIN else Path(self.path).open("rb")

    def finish(self) -> tuple[int, str]:
        """The size and the sha256 (hex) of the whole input as stored. Reads what is left of it."""
        try:
            self._stored.drain()
        except UNPACK_ERRORS as error:
            raise BadInput(self.name, reason_of(error)) from error
        return self._stored.bytes, self._stored.sha256.hexdigest()

    def first_line(self) -> bytes | None:
        """The first line that is not blank; None if it is longer than a block."""
        while True:
            line, newline, _ = self.head.lstrip().partition(b"\n")
            if newline or len(self.head) >= BLOCK_BYTES:
                return line if newline else None
            more = b"".join(self._pieces(HEAD_BYTES))
            if not more:
                return line
            self.head += more

    def _pieces(self, limit: int) -> Iterator[bytes]:
        """The next unpacked bytes, at most ``limit``."""
        while limit > 0:
            try:
                with self._reading:
                    piece = self._stream.read(min(limit, READ_BYTES)) if self._stream is not None else b""
            except UNPACK_ERRORS as error:
                raise BadInput(self.name, reason_of(error), self._position() if self.packed else "") from error
            if not piece:
                return
            self._unpacked_bytes += len(piece)
            if self.packed and self._unpacked_bytes > max(_UNCHECKED_BYTES, UNPACKED_RATIO * self._stored.bytes):
                reason = f"it unpacks to over {UNPACKED_RATIO:,} times its size"
                raise BadInput(self.name, reason, self._position())
            limit -= len(piece)
            yield piece

    def _position(self) -> str:
        return f"after {self._unpacked_bytes:,} bytes unpacked"

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole lines, each with the number of its first line.

        A line longer than a block is cut to one block, which is longer than any text may be.
        A background thread unpacks ahead.
        """
        first_line = self.lines_from
        rest, inside_long_line = b"", False
        for chunk in in_background(self.chunks(), ahead=2):
            if inside_long_line:
                end = chunk.find(b"\n") + 1
                if not end:
                    continue
                chunk = chunk[end:]
            cut = chunk.rfind(b"\n") + 1
            inside_long_line = not cut and len(rest) + len(chunk) >= BLOCK_BYTES
            if inside_long_line:
                chunk += b"\n"
                cut = len(chunk)
            if not cut:
                rest += chunk
                continue
            block, rest = b"".join((rest, memoryview(chunk)[:cut])), chunk[cut:]
            self.blocks_read += 1
            yield block, first_line
            first_line += count_lines(block)
        if rest:
            self.blocks_read += 1
            yield rest, first_line

    def chunks(self) -> Iterator[bytes]:
        """The unpacked input in chunks of BLOCK_BYTES."""
        chunk = self.head
        while True:
            pieces = [chunk]
            try:
                for piece in self._pieces(BLOCK_BYTES - len(chunk)):
                    pieces.append(piece)  # noqa: PERF402 - extend may lose the pieces before an error
            except BadInput:
                yield b"".join(pieces)  # what comes before the broken place
                raise
            chunk = b"".join(pieces)
            if not chunk:
                return
            yield chunk
            chunk = b""

    def unpacked_chunks(self) -> Iterator[tuple[bytes, int]]:
        """The unpacked input in chunks, each with the number of stored bytes read so far."""
        return ((chunk, self._stored.bytes) for chunk in self.chunks())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, stripped, with their numbers."""
        for block, first_line in self.blocks():
            for number, line in enumerate(block.split(b"\n"), first_line):
                if line and (line := line.strip()):
                    yield number, line

    def batches(self, entries: Iterable[Entry]) -> Iterator[Candidates]:
        """Gather the entries of the input into batches, none of which has entries of two blocks.

        So the batches are the same where tasks read some of the blocks each: evidence is compared batch by batch.
        """
        for _, of_block in groupby(entries, lambda _: self.blocks_read):
            yield from pack(of_block, self.number)

    def read_all(self, what: str, advice: str = "") -> bytes:
        """The whole input. Raises BadInput, naming ``what`` it is, if it is larger than a document may be."""
        raw = self.head + b"".join(self._pieces(DOCUMENT_BYTES - len(self.head) + 1))
        if len(raw) > DOCUMENT_BYTES:
            raise BadInput(self.name, f"a {what} of over {DOCUMENT_BYTES >> 20} MiB{advice}")
        return raw

    def parsed(self, parse: Callable[[str, bytes], Any], what: str, advice: str = "") -> Any:
        """The value that ``parse`` makes of the input's name and content, made once. Raises BadInput as read_all does."""
        if parse not in self._parsed:
            self._parsed[parse] = parse(self.name, self.read_all(what, advice))
        return self._parsed[parse]

    def on_disk(self) -> str:
        """The path of a file with the unpacked input, copied if necessary; the copy goes when the input is closed."""
        if self.is_plain_file():
            return self.path
        if self._copy is None:
            self._copy = tempfile.NamedTemporaryFile(prefix="sigdir-")  # noqa: SIM115 - the input may be asked again
            self._copy.write(self.head)
            self._copy.writelines(self._pieces(sys.maxsize))
            self._copy.flush()
        name: str = self._copy.name
        return name

    def is_plain_file(self) -> bool:
        """Whether the open input is a file on disk that is not packed."""
        return not self.packed and self._stream_of is None and self.path != STDIN


def without_packing(path: str) -> str:
    """The path without the endings of packed files."""
    for ending in PACKED_ENDINGS:
        path = path.removesuffix(ending)
    return path


def numbered_matches(pattern: re.Pattern[bytes], code: bytes) -> Iterator[tuple[int, re.Match[bytes]]]:
    """The places where a pattern is found, each with the number of its line."""
    line, counted = 1, 0
    for found in pattern.finditer(code):
        line, counted = line + code.count(b"\n", counted, found.start()), found.start()
        yield line, found


def count_lines(block: bytes) -> int:
    """The line breaks in a block. NumPy takes 0.25 ms for 4 MiB, bytes.count eight times as long, with the GIL held."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == 0x0A))
