"""Streams of bytes: what is stored, counted and hashed, and its contents unpacked.

gzip, xz, zstd and bzip2 are recognised by their first bytes, not by the file's name.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from backports import zstd

from sigdir.signatures.interruption import check

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
        return gzip.GzipFile(fileobj=raw)
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
