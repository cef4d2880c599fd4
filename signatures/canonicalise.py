"""A batch of candidates to canonical texts and rejects.

``canonicalise`` knows no files and no warehouse, so threads of an import and tasks of other engines can call it.
The heavy parts are compiled and release the GIL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures import arrow
from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import Candidates, Rows, Sightings, bytes_of
from sigdir.signatures.collections import COLLECTIONS, FUNCTIONS, UNKNOWN, Collection
from sigdir.signatures.evidence import LISTED, Kind
from sigdir.signatures.fingerprints import fingerprints_of
from sigdir.signatures.grammar import (
    ENCODING,
    HASH_MISMATCH,
    MAX_TEXT_BYTES,
    OK,
    REASONS,
    GrammarError,
    check_encoding,
)
from sigdir.signatures.grammar_rows import Normalised, normalise_rows, normalised
from sigdir.signatures.keccak_rows import digests_of, keccak256_rows
from sigdir.signatures.kernels import kernel

MAX_VARIANTS = 64
"""So many declarations of a text are kept of a batch. Real texts have a dozen; a flood of them says nothing more."""

_KINDS = tuple(Kind)
_COLLECTION_NAMES = arrow.strings([None, *map(str, COLLECTIONS)])


@dataclass(frozen=True, slots=True)
class Rejected:
    """The rejected rows: the text as read, reason, column (from 1, 0 for none), line, collection."""

    text: pa.StringArray
    reasons: Array
    columns: Array
    lines: Array
    collections: pa.StringArray


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The rows of a batch: every candidate is in ``accepted`` or in ``rejected``."""

    file: int
    read: int
    accepted: dict[Collection, Rows]
    rejected: Rejected
    variants_left_out: int = 0
    """Rows whose declaration is not kept, because their text has MAX_VARIANTS others in the batch."""


def canonicalise(candidates: Candidates, default_kind: int = FUNCTIONS) -> BatchResult:
    """Check encoding, grammar and declared hash of each row.

    ``default_kind`` is the collection of rows that state none.
    """
    rows = len(candidates)
    refused, refused_at = _refused(candidates)
    ends = candidates.ends
    if refused is not None:  # the grammar gets a refused row as an empty one
        ends = np.where(refused == OK, ends, candidates.starts)
    kinds = candidates.declared_kinds if candidates.declared_kinds is not None else np.full(rows, UNKNOWN, np.uint8)
    stated = candidates.sightings
    stated_kinds = np.zeros(rows, np.uint8) if stated is None else stated.kinds
    result = normalise_rows(candidates.data, candidates.starts, ends, kinds, default_kind, stated_kinds)
    reasons, columns = result.reasons, result.columns
    if refused is not None:
        reasons = np.where(refused == OK, reasons, refused)
        columns = np.where(refused == OK, columns, refused_at)
    wrong = _mismatches(candidates, reasons, result)
    if wrong is not None:
        reasons = np.where(wrong, np.uint8(HASH_MISMATCH), reasons)
        columns = np.where(wrong, 0, columns)
    text = result.texts()
    sightings, left_out = stated, 0
    says_more = (np.diff(result.spelled_offsets) > 0) | (result.kinds != stated_kinds)
    if (says_more & (reasons == OK)).any():
        bases, base_of = (stated.bases, stated.base_of) if stated is not None else ((LISTED,), np.zeros(rows, np.int32))
        every = Sightings(bases, base_of, result.kinds, result.declarations())
        sightings, left_out = _bounded(every, np.flatnonzero(reasons == OK), text)
    accepted = {}
    for collection in COLLECTIONS:
        mine = (reasons == OK) & (result.collections == collection.code)
        if mine.all():
            accepted[collection] = Rows(text, sightings)
        elif mine.any():
            filtered = sightings.filter(mine) if sightings is not None else None
            accepted[collection] = Rows(text.filter(arrow.numbers(mine)), filtered)
    rejected = _rejected(candidates, reasons, columns, result.collections)
    return BatchResult(candidates.file, rows, accepted, rejected, left_out)


def _bounded(sightings: Sightings, rows: Array, text: pa.StringArray) -> tuple[Sightings, int]:
    """The sightings with at most MAX_VARIANTS declarations of a text: those that come first. The others have none, and
    their number is the second result. ``rows`` are the accepted ones.
    """
    keys = fingerprints_of(text)[rows, 0]
    buckets = (keys & np.uint64(0xFFFF)).astype(np.int64)
    is_crowded = np.bincount(buckets)[buckets] > MAX_VARIANTS  # no other text can have too many
    rows, keys = rows[is_crowded], keys[is_crowded]
    declarations = sightings.declarations.take(arrow.numbers(rows)).dictionary_encode()
    is_declared, codes = arrow.values(declarations.is_valid()), arrow.values(declarations.indices)
    variants: dict[int, set[int]] = {}
    left_out = np.zeros(len(sightings), np.bool_)
    for row, key, code in zip(
        rows[is_declared].tolist(), keys[is_declared].tolist(), codes[is_declared].tolist(), strict=True
    ):
        kept = variants.setdefault(key, set())
        if code in kept:
            continue
        if len(kept) < MAX_VARIANTS:
            kept.add(code)
        else:
            left_out[row] = True
    if not left_out.any():
        return sightings, 0
    fewer = pc.if_else(arrow.numbers(left_out), arrow.strings([None])[0], sightings.declarations)
    return Sightings(sightings.bases, sightings.base_of, sightings.kinds, fewer), int(np.count_nonzero(left_out))


def check_canonical(collection: Collection, text: pa.StringArray) -> tuple[Array, Array]:
    """Check stored texts again, at least one. Gives their digests, uint8 of (rows, 32), and a flag per row.

    The flag is set if the text normalises to itself in its collection.
    """
    bounds, data = bytes_of(text)
    code = collection.code
    result = normalise_rows(data, bounds[:-1], bounds[1:], np.full(len(text), code, np.uint8), code)
    good = (result.reasons == OK) & (result.collections == code) & arrow.values(pc.equal(result.texts(), text))
    return keccak256_rows(data, bounds), good


OTHER_COLLECTION = "other_collection"
"""The reason for one text that is right, but an event among functions or a function among events."""


class Canonical(NamedTuple):
    """One text: canonical, its digest, and what it says besides."""

    text: str
    digest: bytes
    kind: Kind
    declaration: str
    """Empty for a text that says no more than its canonical form."""


def canonicalise_one(text: str, collection: int, kind: Kind = Kind.UNKNOWN) -> Canonical:
    """One declaration of this collection; raises GrammarError. ``kind`` is what the input states beside it.

    The same result as a batch of one row, without a batch's columns, in a fifth of plain Python's time. It holds the
    GIL, because a busy server would wait longer to reacquire it.
    """
    if not text.isascii():
        check_encoding(_bytes(text))
    row: Any = _canonicalise_one(np.frombuffer(_bytes(text), np.uint8), collection, int(kind))
    reason, column, found, canonical, digest, found_kind, declaration = row
    if reason != OK:
        raise GrammarError(REASONS[reason], column, text)
    if found != collection:
        raise GrammarError(OTHER_COLLECTION, 1, text)
    return Canonical(canonical.tobytes().decode(), digest.tobytes(), _KINDS[found_kind], declaration.tobytes().decode())


def _bytes(text: str) -> bytes:
    """The bytes of a text; of one that is too long so many that the grammar sees it."""
    return text.encode("utf-8", "surrogatepass")[: MAX_TEXT_BYTES + 1]


@kernel()
def _canonicalise_one(data: Array, collection: int, kind: int) -> tuple[int, int, int, Array, Array, int, Array]:
    """The reason, column, collection, text, digest, kind and declaration of one text."""
    out, offsets, reasons, columns, collections, kinds, spelled, spelled_offsets = normalised(
        data, np.zeros(1, np.int32), np.full(1, len(data), np.int32), np.full(1, collection, np.uint8), collection,
        np.full(1, kind, np.uint8),
    )  # fmt: skip
    digests = np.empty((1, 4), np.uint64)
    digests_of(out, offsets, digests)
    return (
        reasons[0], columns[0], collections[0], out[: offsets[1]], digests[0], kinds[0], spelled[: spelled_offsets[1]]
    )  # fmt: skip


def _refused(candidates: Candidates) -> tuple[Array | None, Array]:
    """The reject reason and column of each row that the reader refused or that is not UTF-8; None without such rows."""
    reasons = candidates.reject_reasons
    if reasons is not None and not reasons.any():
        reasons = None
    data = candidates.data
    if not len(data) or data.max() < 0x80:
        return reasons, np.zeros(len(candidates), np.int32)
    reasons = np.zeros(len(candidates), np.uint8) if reasons is None else reasons.copy()
    columns = np.zeros(len(candidates), np.int32)
    raw = data.tobytes()
    for row, (start, end) in enumerate(zip(candidates.starts.tolist(), candidates.ends.tolist(), strict=True)):
        text = raw[start:end]
        if reasons[row] == OK and end - start <= MAX_TEXT_BYTES and not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError as error:
                reasons[row], columns[row] = ENCODING, error.start + 1
    return reasons, columns


def _mismatches(candidates: Candidates, reasons: Array, result: Normalised) -> Array | None:
    """Flags of rows whose declared hash differs from their text's; None if no row declares one."""
    widths = candidates.declared_hash_bytes
    if widths is None or candidates.declared_hashes is None:
        return None
    differs = keccak256_rows(result.data, result.offsets) != candidates.declared_hashes
    beyond = np.arange(32) >= widths[:, None]
    wrong: Array = (differs & ~beyond).any(axis=1) & (reasons == OK)
    return wrong


def _rejected(candidates: Candidates, reasons: Array, columns: Array, collections: Array) -> Rejected:
    rows = np.flatnonzero(reasons != OK)
    starts = candidates.starts[rows]
    ends = np.minimum(candidates.ends[rows], starts + MAX_TEXT_BYTES)
    texts = _texts(candidates.data, starts, ends)
    names = _COLLECTION_NAMES.take(arrow.numbers(collections[rows]))
    return Rejected(texts, reasons[rows], columns[rows], candidates.lines[rows], names)


def _texts(data: Array, starts: Array, ends: Array) -> pa.StringArray:
    """The texts as read; bytes that are not UTF-8 are written as ``\\xNN``."""
    parts = [data.data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if all(map(bytes.isascii, parts)):
        return arrow.blobs(parts).view(pa.string())
    return arrow.strings([part.decode("utf-8", "backslashreplace") for part in parts])
