"""Hash-named files: a folder of files, each named by the hash of the text in it, read as one input.

ethereum-lists/4bytes and topic0 have tens of thousands of them. As an input of its own each file would
cost 0.8 ms; as a line `name,content` of one input it costs 10 us. ``formats/hash_lines.py`` reads these lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.report import UnreadInputs
from sigdir.pipeline.source import Source
from sigdir.pipeline.streams import PieceStream

HASH_NAMED_BYTES = 1 << 16
"""The largest hash-named file. A larger file with such a name is read as an input of its own."""

_LINES_PER_PIECE = 4096
_NAME = re.compile(r"[0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?")


def is_hash_named(name: str, size: int) -> bool:
    """Whether a file's name and its size in bytes are those of a hash-named file."""
    return size <= HASH_NAMED_BYTES and _NAME.fullmatch(name) is not None


def folder_source(
    folder: str, names: Sequence[str], size: int, unread: UnreadInputs, below: str, shown: str = ""
) -> Source:
    """The hash-named files ``names`` of a folder as one input; ``size`` is their total size in bytes.

    Messages call the folder ``shown``, by default its path.
    """
    shown = shown or printable(folder)
    return joined_source(folder, shown, names, _contents(folder, names, unread, shown), size, below)


def joined_source(
    path: str, name: str, names: Sequence[str], files: Iterable[tuple[str, bytes]], size: int, below: str
) -> Source:
    """Files, given as name and content, as one input of lines `name,content`. Line breaks in a file become `;`.

    ``names`` has the files' names; it may grow while ``files`` is read.
    """

    def lines() -> Iterator[bytes]:
        for file_name, content in files:
            yield b"%b,%b\n" % (file_name.encode(), content.strip().replace(b"\n", b";"))

    source = Source(path, False, name, size, lambda: PieceStream(_pieces(lines())), below)
    source.file_names = names
    return source


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Many lines at once, because a reader takes one piece per call."""
    while piece := b"".join(islice(lines, _LINES_PER_PIECE)):
        yield piece


def _contents(folder: str, names: Sequence[str], unread: UnreadInputs, shown: str) -> Iterator[tuple[str, bytes]]:
    for name in names:
        try:
            content = _content(os.path.join(folder, name))
        except OSError as error:
            unread.add_fault(BadInput(os.path.join(shown, printable(name)), error.strerror or str(error)))
            content = b""  # the line stays, because the lines are numbered as the names are
        yield name, content


def _content(path: str) -> bytes:
    # These three calls take a third of the time of a file object.
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, HASH_NAMED_BYTES)
    finally:
        os.close(file)
