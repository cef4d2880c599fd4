"""The suppress list: texts that servers hide. The operator keeps it as a file of lines, ``suppressed.txt``.

A line is a text in any spelling, with the keyword ``function``, ``error`` or ``event``, or without one, which means
both collections. Blank lines and lines that begin with ``#`` are kept and mean nothing. The rows themselves stay;
``sigdir.warehouse.index.visible`` decides by the list what servers show.

In a store the list is sealed: its first line has a version and the digest of the rest. What a store gives in its place
while it fails, an empty or an older list, would show what is hidden.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.grammar import GrammarError
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import file_state
from sigdir.warehouse.table.paths import Paths

Entry = tuple[Collection, str]
"""A collection and a canonical text."""


@dataclass(frozen=True)
class Suppressed:
    """The texts of a list, and their stored hashes by collection."""

    entries: frozenset[Entry] = frozenset()
    hashes: frozenset[tuple[Collection, bytes]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def id(self) -> str:
        """Differs between any two lists that hide other texts; empty for a list that hides none."""
        lines = "\n".join(sorted(map(declaration, self.entries)))
        return hashlib.sha256(lines.encode()).hexdigest()[:12] if lines else ""

    def hides(self, collection: Collection, text: str) -> bool:
        return (collection, text) in self.entries


NONE = Suppressed()


def declaration(entry: Entry) -> str:
    """An entry as a line of the list."""
    collection, text = entry
    return f"{'function' if collection == SIGNATURES else 'event'} {text}"


def entries_of(text: str) -> dict[Entry, bytes]:
    """What a text in any spelling names, each with its stored hash; raises GrammarError if it is no signature."""
    found: dict[Entry, bytes] = {}
    problem: GrammarError | None = None
    for collection in COLLECTIONS:
        try:
            canonical = canonicalise_one(text, collection.code)
        except GrammarError as error:
            problem = problem or error
        else:
            found[collection, canonical.text] = canonical.digest[: collection.hash_bytes]
    if problem is not None and not found:
        raise problem
    return found


def read(paths: Paths) -> Suppressed:
    """The warehouse's list, empty if there is none; raises UnreadableWarehouse, naming the line at fault."""
    return parse(read_text(paths), str(paths.suppressed))


def read_text(paths: Paths) -> str:
    """The list as it is written; raises UnreadableWarehouse."""
    try:
        return paths.suppressed.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableWarehouse(f"{paths.suppressed}: {error}") from error


def parse(text: str, name: str) -> Suppressed:
    """The list that a text holds; raises UnreadableWarehouse with ``name`` and the line at fault."""
    found: dict[Entry, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found |= _entries_of_line(line)
        except GrammarError as error:
            raise UnreadableWarehouse(f"{name}, line {number}: {error}") from error
    if not found:
        return NONE
    return Suppressed(frozenset(found), frozenset((entry[0], hash) for entry, hash in found.items()))


_SEAL = re.compile(rb"\A# version ([1-9]\d{0,17}) of this list, sha256 [0-9a-f]{64}\n")


def sealed(raw: bytes, version: int) -> bytes:
    """A list as it is written into a store."""
    rest = unsealed(raw)
    return b"# version %d of this list, sha256 %s\n%s" % (version, _digest(version, rest), rest)


def unsealed(raw: bytes) -> bytes:
    """A list without its seal."""
    return _SEAL.sub(b"", raw)


def sealed_version(raw: bytes) -> int:
    """The version of a sealed list; 0 for a list that has no seal, or another than its own."""
    seal = _SEAL.match(raw)
    return int(seal[1]) if seal and sealed(raw, int(seal[1])) == raw else 0


def _digest(version: int, rest: bytes) -> bytes:
    return hashlib.sha256(b"%d\n%s" % (version, rest)).hexdigest().encode()


class SuppressList:
    """A warehouse's list as it is now, for several threads. Looking costs 2 us while the file has not changed."""

    def __init__(self, paths: Paths) -> None:
        """Raises UnreadableWarehouse."""
        self._paths = paths
        self._name = os.fsencode(paths.suppressed)
        self._lock = threading.Lock()
        self._seen = file_state(self._name)
        self._list = read(paths)

    def newest(self) -> Suppressed:
        """The list. While the file cannot be used, the last one that could: standard error has one line about it."""
        state = file_state(self._name)
        if state != self._seen:
            self._read(state)
        return self._list

    def _read(self, state: bytes) -> None:
        with self._lock:
            if state == self._seen:
                return
            try:
                self._list = read(self._paths)
            except UnreadableWarehouse as error:
                with suppress(OSError):  # a log that cannot be written stops no request
                    print(f"error: {error}; the previous list is used", file=sys.stderr, flush=True)
            self._seen = state


def _entries_of_line(line: str) -> dict[Entry, bytes]:
    text = line.strip()
    return entries_of(text) if text and not text.startswith("#") else {}


def changed(text: str, add: Iterable[Entry] = (), remove: Iterable[Entry] = ()) -> str:
    """The text of a list with more or fewer entries. Its other lines stay as they are. The list must be readable."""
    gone, known = set(remove), parse(text, "").entries
    lines = [kept for line in text.splitlines() for kept in _without(line, gone)]
    lines += [declaration(entry) for entry in sorted(set(add) - known)]
    return "".join(f"{line}\n" for line in lines)


def _without(line: str, gone: set[Entry]) -> Iterator[str]:
    """A line, or what is left of it."""
    entries = _entries_of_line(line)
    if gone.isdisjoint(entries):
        yield line
    else:
        yield from (declaration(entry) for entry in entries if entry not in gone)
