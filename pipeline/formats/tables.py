"""Which column of a table is what: the text, its hashes, its kind. CSV, Parquet, SQLite and JSON rows ask here.

The user's word (`--column`) comes first, then the values of the first rows, then the names. A column whose values hash
to those of another one is the text. Otherwise a text column has a known name and signatures in it. A name alone decides
only if it can mean nothing else. Nothing is guessed: a table in doubt is refused, with what each column looks like.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hash_lines import collection_of, entry_with_hash, listed
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import UNKNOWN, parse_hash
from sigdir.signatures.evidence import LISTED, Sighting
from sigdir.signatures.grammar import BAD_ENTRY, HASH_MISMATCH, OK, GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import KINDS

SAMPLE_ROWS = 64
TEXT, HASH, KIND = ROLES = ("text", "hash", "kind")
"""What `--column` can name."""

_CLEAR_TEXT_NAMES = ("textsignature", "functionsignature", "eventsignature", "errorsignature")
_TEXT_NAMES = (
    *_CLEAR_TEXT_NAMES, "signature", "textsig", "sig", "text", "declaration", "name", "method", "function", "event",
    "error",
)  # fmt: skip
_CLEAR_HASH_NAMES = frozenset(["hexsignature", "hash", "selector", "bytesig", "signaturehash32", "signaturehash4"])
"""Columns that are read whatever their values are, unless another column has the hashes of the texts."""
_HASH_NAMES = _CLEAR_HASH_NAMES | {
    "hex", "bytes4", "topic0", "topic", "id", "sig", "signature", "methodid", "functionid", "signaturehash",
    "functionselector", "errorselector", "eventtopic", "eventhash",
}  # fmt: skip
_KIND_NAMES = ("kind", "type")
_HASHES_OF_ALL_KINDS = frozenset([("text", "hash"), ("signature", "signaturehash32"), ("signature", "signaturehash4")])
"""Etherface's and Sourcify's columns: 32 bytes are a function's hash too."""

_KINDS = {word: Sighting(kind) for word, kind in KINDS.items()}
"""What a row says whose kind stands beside its text."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]*\.[0-9]+")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_NO_HASH = (None, "", b"")
_SHOWN_COLUMNS = 24
_SHOWN_CHARACTERS = 64
_SHOWN_HASH = 2 * _SHOWN_CHARACTERS

Row = Sequence[Any]
"""The values of the columns, in their order: text as str or bytes, None for no value. It may be too short."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbers of a table's columns."""

    text: int
    hashes: tuple[int, ...]
    """Rising."""
    kind: int | None = None
    tells_kind: bool = True
    """Whether the length of a hash tells functions and events apart."""

    @property
    def read(self) -> tuple[int, ...]:
        """All of them, the text first and the kind last."""
        return (self.text, *self.hashes, *(() if self.kind is None else (self.kind,)))

    def entry(self, text: bytes, line: int, written: Sequence[Any], kind: Any = None) -> Entry:
        """The candidate of a row by the hashes that are written in it (None or nothing for none) and its kind.

        Hashes of one length tell the collection, a selector beside a whole hash does not.
        """
        if kind is None and len(written) == 1 and self.tells_kind:  # as most rows, in half of the time
            if written[0] in _NO_HASH:
                return Entry(text, line)
            digest = digest_of(written[0])
            return _with_bad_hash(text, line, written[0]) if digest is None else entry_with_hash(text, line, digest)
        sighting = _KINDS.get(_shown(kind).lower(), LISTED) if kind is not None else LISTED
        collection = sighting.kind.collection
        written = [value for value in written if value not in _NO_HASH]
        declared = list(map(digest_of, written))
        if not declared:
            return Entry(text, line, collection, sighting=sighting)
        known = [digest for digest in declared if digest is not None]
        if len(known) < len(declared):
            return _with_bad_hash(text, line, written[declared.index(None)], collection)
        longest = known[0] if len(known) == 1 else max(known, key=len)
        if collection == UNKNOWN and self.tells_kind and all(len(digest) == len(longest) for digest in known):
            collection = collection_of(longest)
            sighting = listed(collection)
        agree = all(longest.startswith(digest) for digest in known)
        return Entry(text, line, collection, longest, OK if agree else HASH_MISMATCH, sighting)


def _with_bad_hash(text: bytes, line: int, value: Any, collection: int = UNKNOWN) -> Entry:
    """The reject of a text beside a value that is no hash. It shows both, because the text may be a good one."""
    shown = value if isinstance(value, bytes) else encoded(str(value)) if isinstance(value, str | int | float) else b"?"
    return Entry(shown[:_SHOWN_HASH] + b"," + text, line, collection, reject_reason=BAD_ENTRY)


def digest_of(value: Any) -> bytes | None:
    """4 or 32 bytes from a binary value or from hex digits; None for anything else."""
    if isinstance(value, bytes):
        return value if len(value) in (4, 32) else parse_hash(value.decode("latin-1"))
    return parse_hash(value.strip()) if isinstance(value, str) else None


def encoded(text: str) -> bytes:
    """The bytes of a text in the input."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Table:
    """The head of a table: the names of its columns and its first rows."""

    names: Sequence[str]
    rows: Sequence[Row]
    chosen: Sequence[tuple[str, str]] = ()
    """The user's columns: what each is (ROLES), and its name."""

    def columns(self, is_named: bool = False) -> Columns | None:
        """Which column is what; None in doubt.

        With ``is_named`` the user says that the input is a table of signatures, so that `signature` is a clear name.
        """
        chosen = [(role, self._number(name)) for role, name in self.chosen]
        if any(number is None for _, number in chosen):
            return None
        of_role = {role: [number for one, number in chosen if one == role and number is not None] for role in ROLES}
        text = of_role[TEXT][0] if of_role[TEXT] else self._text(is_named)
        if text is None:
            return None
        hashes = tuple(sorted(of_role[HASH] or self._hashes(text)))
        kind = of_role[KIND][0] if of_role[KIND] else self._first_of(_KIND_NAMES)
        names = {(self._known[text], self._known[one]) for one in hashes}
        return Columns(text, hashes, kind if kind != text else None, _HASHES_OF_ALL_KINDS.isdisjoint(names))

    def sure_columns(self, source: Source, first: str = "") -> Columns:
        """Which column is what, where the user says that the input has signatures. Raises BadInput in doubt."""
        columns = self.columns(is_named=True)
        if columns is None:
            raise self.refusal(source, first=first)
        return columns

    def refusal(self, source: Source, place: str = "", first: str = "") -> BadInput:
        """The error for a table in doubt. ``first`` shows its first row, where the names alone do not."""
        if not self.names:
            return BadInput(source.name, "it has no columns", place)
        missing = [name for _, name in self.chosen if self._number(name) is None]
        why = f"no column is named {missing[0]}" if missing else "it is not clear which column has the signatures"
        shown = f"; the first row is {first}" if first else ""
        name = self.names[self._of_signatures[0]] if len(self._of_signatures) == 1 else "NAME"
        option = shlex.quote(f"text={name}")
        what = f"it has {self.described()}{shown}; say --column {option} to `sigdir import`, or call it text_signature"
        return BadInput(source.name, f"{why}; {what}", place)

    def described(self) -> str:
        """The names of the columns, and what each looks like."""
        shown = [
            f"{name[:_SHOWN_CHARACTERS]}: {self._look(number)}"
            for number, name in enumerate(self.names[:_SHOWN_COLUMNS])
        ]
        more = len(self.names) - len(shown)
        return ", ".join(shown) + (f" and {more:,} more" if more else "")

    def unread(self, columns: Columns) -> list[str]:
        """A sentence for each column of 0x values that is not read."""
        read = set(columns.read)
        return [
            f"column {self.names[number].strip().lower()[:_SHOWN_CHARACTERS]!r} has 0x values that are not hashes of the"
            " texts; it was not read"
            for number, values in self._values.items()
            if number not in read and all(_HEX.fullmatch(_shown(value)) for value in values)
        ]

    @cached_property
    def _known(self) -> list[str]:
        return list(map(plain_name, self.names))

    @cached_property
    def _values(self) -> dict[int, list[Any]]:
        """The values of each column that has some."""
        found: dict[int, list[Any]] = {}
        for row in self.rows:
            for number, value in enumerate(row[: len(self.names)]):
                if value is not None and value not in ("", b""):
                    found.setdefault(number, []).append(value)
        return found

    @cached_property
    def _of_signatures(self) -> list[int]:
        return [number for number in self._values if self._are(number, _signed)]

    @cached_property
    def _of_hashes(self) -> list[int]:
        return [number for number in self._values if self._are(number, digest_of)]

    @cached_property
    def _pairs(self) -> set[tuple[int, int]]:
        """The columns of texts and of hashes that belong together: in some row one is the hash of the other."""
        found = set()
        for row in self.rows:
            texts = {}
            for number in reversed(self._of_signatures):
                if number < len(row) and (text := _signed(row[number])) is not None:
                    digest = keccak256(text.encode())
                    texts[digest] = texts[digest[:4]] = number
            for number in self._of_hashes:
                digits = digest_of(row[number]) if number < len(row) else None
                if digits in texts:
                    found.add((texts[digits], number))
        return found

    def _are(self, number: int, test: Callable[[Any], object]) -> bool:
        """Whether at least half of a column's values pass a test."""
        values = self._values.get(number, [])
        return bool(values) and 2 * sum(map(bool, map(test, values))) >= len(values)

    def _number(self, name: str) -> int | None:
        """The column that a user means, by its exact name or in any case."""
        if name in self.names:
            return list(self.names).index(name)
        return self._first_of([plain_name(name)])

    def _first_of(self, names: Iterable[str]) -> int | None:
        return next((self._known.index(name) for name in names if name in self._known), None)

    def _text(self, is_named: bool) -> int | None:
        hashed = {text for text, _ in self._pairs}
        named = [number for number in self._of_signatures if self._known[number] in _TEXT_NAMES]
        of_signatures = sorted(named, key=lambda number: _TEXT_NAMES.index(self._known[number]))
        best = [number for number in of_signatures if number in hashed] or sorted(hashed) or of_signatures
        if best:
            return best[0]
        clear = self._first_of(_CLEAR_TEXT_NAMES)
        if clear is None and is_named:
            plain = self._first_of(["signature"])
            return plain if plain is not None and self._look(plain) in ("text", "empty") else None
        return clear

    def _hashes(self, text: int) -> list[int]:
        """Those that belong to the text and those without values yet; without any such, those that are named so."""
        others = [number for number, name in enumerate(self._known) if number != text and name in _HASH_NAMES]
        related = sorted(number for of_text, number in self._pairs if of_text == text)
        if related:
            empty = [n for n in others if n not in self._values and self._known[n] in _CLEAR_HASH_NAMES]
            return sorted({*related, *empty})
        return [n for n in others if self._known[n] in _CLEAR_HASH_NAMES or self._look(n).endswith("hashes")]

    def _look(self, number: int) -> str:
        """What a column's values look like."""
        values = self._values.get(number, [])
        tests: dict[str, Callable[[Any], object]] = {
            "signatures": _signed,
            "integers": lambda value: isinstance(value, int) or _INTEGER.fullmatch(_shown(value)),
            "numbers": lambda value: isinstance(value, float) or _NUMBER.fullmatch(_shown(value)),
            "4-byte hashes": lambda value: len(digest_of(value) or b"") == 4,
            "32-byte hashes": lambda value: len(digest_of(value) or b"") == 32,
            "hex digits": lambda value: _HEX.fullmatch(_shown(value)),
            "text": lambda value: isinstance(value, str | bytes),
            "objects": lambda value: isinstance(value, dict),
            "lists": lambda value: isinstance(value, list),
        }
        return next(
            (look for look, test in tests.items() if self._are(number, test)), "other values" if values else "empty"
        )


def plain_name(name: str) -> str:
    """A column's name without case, blanks and marks between words."""
    return re.sub(r"[ _.-]+", "", name).lower()


def _shown(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value.strip() if isinstance(value, str) else ""


def _signed(value: Any) -> str | None:
    """The canonical text of a value that is a signature."""
    if not isinstance(value, str | bytes) or ("(" if isinstance(value, str) else b"(") not in value:  # type: ignore[operator]
        return None
    try:
        return normalise(encoded(value) if isinstance(value, str) else value).text
    except (GrammarError, UnicodeError):
        return None
