"""Hashes in inputs, and lines of a hash and a text: OpenChain's export, what solc prints, and hash-named files.

::

    0xa9059cbb,transfer(address,uint256)                OpenChain; commas in the text need no quotes

    ======= contracts/Token.sol:Token =======           solc --hashes, for each contract
    Function signatures:
    a9059cbb: transfer(address,uint256)

    a9059cbb,transfer(address,uint256);x(bytes)         the file a9059cbb, in a line of ``joined_source``

Files are hash-named in ethereum-lists/4bytes and topic0. A file has one text, or several separated by `;`. Some texts
have parameter names (``with_parameter_names/``), and are read like any other. There are tens of thousands of files: as
an input of its own each would cost 0.8 ms, as a line of one input it costs 10 us.

Source: ``CommandLineInterface::handleSignatureHashes`` of solc 0.8, and its tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sigdir.pipeline.source import PieceStream, Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN, parse_hash
from sigdir.signatures.evidence import LISTED, LISTED_EVENT, Contract, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import KINDS


def is_hash_of(declared: bytes, text: bytes) -> bool:
    """Whether a hash of 4 or 32 bytes is that of a text."""
    try:
        signature = normalise(text, collection_of(declared))
    except GrammarError:
        return False
    return keccak256(signature.text.encode()).startswith(declared)


def collection_of(digest: bytes) -> int:
    """The collection that a hash of this length belongs to."""
    return {4: FUNCTIONS, 32: EVENTS}.get(len(digest), UNKNOWN)


def listed(collection: int) -> Sighting:
    """What a list says about a text of a collection: an event is one, a function may be an error."""
    return LISTED_EVENT if collection == EVENTS else LISTED


def entry_with_hash(text: bytes, line: int, declared: bytes | None, collection: int = UNKNOWN) -> Entry:
    """A text with the hash that the input gives for it, whose length tells the collection where nothing else does.

    The entry is rejected if the hash is None: malformed.
    """
    if declared is None:
        return Entry(text, line, reject_reason=BAD_ENTRY)
    collection = collection or collection_of(declared)
    return Entry(text, line, collection, declared, sighting=listed(collection))


_OPENCHAIN = re.compile(rb"\s*0x(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{64}),")
_SOLC = re.compile(rb"\s*(?:======= [^\n]* =======\s*)?(?:Function|Error|Event) signatures:\s*?(?:\n|\Z)")
_HEADING = re.compile(
    rb"(?P<kind>Function|Error|Event) signatures:|======= (?:(?P<path>.*):)?(?P<contract>[^:]*) ======="
)
SAMPLE_FILES = 8
"""So many files of a folder, the first ones, say whether it is a tree."""


def _parted(line: bytes, mark: bytes) -> tuple[bytes | None, bytes]:
    """The hash in front of the mark, and what follows it; None and the line where there is no such hash."""
    written, found, text = line.partition(mark)
    declared = parse_hash(written.decode("latin-1")) if found else None
    return declared, text if declared is not None else line


def is_openchain(source: Source) -> bool:
    return _OPENCHAIN.match(source.head) is not None


def openchain_entries(source: Source) -> Iterator[Entry]:
    for number, line in source.lines():
        declared, text = _parted(line, b",")
        if text[:1] == b'"' == text[-1:]:  # as pandas and DuckDB write a text with commas
            text = text[1:-1]
        yield entry_with_hash(text, number, declared)


def is_solc_hashes(source: Source) -> bool:
    return _SOLC.match(source.head) is not None


def solc_entries(source: Source) -> Iterator[Entry]:
    declares = Sighting(witness=Witness.DECLARED)
    for number, line in source.lines():
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            declares = _under(heading, declares, source.below)
            continue
        declared, text = _parted(line, b":")
        entry = entry_with_hash(text.strip(), number, declared)
        yield entry if declared is None else entry._replace(sighting=declares)


def _under(heading: re.Match[bytes], declares: Sighting, path: str) -> Sighting:
    """What the lines under a heading say: their kind, or their contract."""
    if heading["kind"]:
        return declares._replace(kind=KINDS[heading["kind"].decode().lower()])
    names = ((heading[group] or b"").decode("utf-8", "replace") for group in ("path", "contract"))
    source, name = names
    return declares._replace(contract=Contract.at(source or path, name))


# Hash-named files.

HASH_NAMED_BYTES = 1 << 16
"""The largest hash-named file. A larger file with such a name is read as an input of its own."""
_LINES_PER_PIECE = 4096
_NAME = re.compile(r"[0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?")


def is_hash_named(name: str, size: int) -> bool:
    """Whether a file's name and its size in bytes are those of a hash-named file."""
    return size <= HASH_NAMED_BYTES and _NAME.fullmatch(name) is not None


def joined_source(
    path: str, name: str, names: Sequence[str], files: Iterable[tuple[str, bytes]], size: int, below: str
) -> Source:
    """Files, given as name and content, as one input of lines `name,content`. Line breaks in a file become `;`.

    ``names`` has the files' names; it may grow while ``files`` is read.
    """
    lines = (b"%b,%b\n" % (name.encode(), content.strip().replace(b"\n", b";")) for name, content in files)
    source = Source(path, False, name, size, lambda: PieceStream(_pieces(lines)), below)
    source.file_names = names
    return source


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Many lines at once, because a reader takes one piece per call."""
    while piece := b"".join(islice(lines, _LINES_PER_PIECE)):
        yield piece


def is_tree(source: Source) -> bool:
    """Whether the first hash-named files of a folder are those of a tree."""
    if source.file_names is None:
        return False
    lines = [line.partition(b",") for line in source.head.split(b"\n")[:SAMPLE_FILES] if line]
    return are_of_tree((name.decode("latin-1"), content) for name, _, content in lines)


def are_of_tree(files: Iterable[tuple[str, bytes]]) -> bool:
    """Whether at least half of the files, given as name and content, have a text that hashes to their name."""
    matches = [_hashes_to_name(name, content) for name, content in files]
    return 0 < len(matches) <= 2 * sum(matches)


def _hashes_to_name(name: str, content: bytes) -> bool:
    """Whether one of the texts in a file hashes to its name."""
    declared = parse_hash(name)
    return declared is not None and any(is_hash_of(declared, text) for text in _texts(content))


def _texts(content: bytes) -> Iterator[bytes]:
    return (text for part in re.split(rb"[;\n]", content) if (text := part.strip()))


def tree_entries(source: Source) -> Iterator[Entry]:
    for number, line in source.lines():
        declared, content = _parted(line, b",")
        if declared is None:
            yield Entry(line, number, reject_reason=BAD_ENTRY)
        else:
            yield from (entry_with_hash(text, number, declared) for text in _texts(content))
