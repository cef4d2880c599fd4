"""A hash's rows in the order of their rank, from the mapped columns."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures import rank, standards
from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.rank import Ranked
from sigdir.warehouse.evidence.summaries import SightingCounts
from sigdir.warehouse.evidence.usage import with_uses
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View


class RankedRow(NamedTuple):
    """A row of a hash in its place, from 1. ``mined`` says why its text looks mined, "" if it does not."""

    segment: Segment
    row: int
    counts: SightingCounts
    position: int = 1
    mined: str = ""

    @property
    def id(self) -> int:
        return int(self.segment.ids[self.row])

    @property
    def text(self) -> str:
        return self.segment.text_at(self.row)

    @property
    def digest(self) -> bytes:
        digest: bytes = self.segment.hash[self.row].tobytes()
        return digest

    @property
    def is_filtered(self) -> bool:
        """Whether another text is meant: the standard's, or one that this text was mined to collide with. Or nobody names
        it, and a search found it.
        """
        return (
            self.counts.witness == Witness.SOLVED or bool(self.mined) or standards.is_filtered(self.digest, self.text)
        )

    @property
    def has_verified_contract(self) -> bool:
        """Whether bytecode proves that a contract has it, or a source that compiles contracts vouches for it."""
        return self.counts.compiled > 0 or self.counts.verified

    @property
    def ranked(self) -> Ranked:
        """The text with its reasons and all that is known of it in short."""
        summary = self.segment.summary_at(self.row)
        return Ranked(summary, self.position, rank.standard_of(self.digest, summary.text), self.mined)


def ranked_rows(view: View, collection: Collection, digest: bytes) -> list[RankedRow]:
    """The rows with exactly this hash, the best first."""
    found = view.with_hash(collection, digest)
    if _is_one_row(found):  # all but one in ten thousand; a loop would take twice as long
        segment, row = found[0][0], int(found[0][1][0])
        return [RankedRow(segment, row, segment.counts_at(row))]
    if not found:
        return []
    # To order two texts takes 40 us, four times a lookup, and 60 ms for a million rows where the first needs their names.
    ordered = view.kept(
        ("order", digest),
        lambda: _ordered(view, collection, digest, found),
        lambda ordered: sum(len(one.text) + _ROW_CHARACTERS for one in ordered),
    )
    return list(ordered)


def ranked_range(view: View, collection: Collection, prefix: int, digits: int, most: int) -> list[RankedRow] | None:
    """The rows of all hashes that begin with these hex digits, without staged rows; None for more than ``most``."""
    filed = tuple(segment for segment in view.segments[collection] if segment.summaries is not None)
    found = [(segment, segment.with_digits(prefix, digits)) for segment in filed]
    if sum(len(rows) for _, rows in found) > most:
        return None
    digests = {segment.hash[row].tobytes() for segment, rows in found for row in rows.tolist()}
    of_files = replace(view, segments={collection: filed}, found={})
    return [row for digest in sorted(digests) for row in ranked_rows(of_files, collection, digest)]


def rival_of(view: View, collection: Collection, digest: bytes, text: str) -> str:
    """The other text that this hash is known for: a standard's, else one that a contract's bytecode has; "" for none."""
    standard = standards.canonical().get(digest, text)
    if standard not in (text, standards.NO_TEXT):
        return standard
    for segment, rows in view.with_hash(collection, digest):
        for row in rows.tolist():
            if segment.counts_at(row).witness >= Witness.COMPILED and segment.text_at(row) != text:
                return segment.text_at(row)
    return ""


_ROW_CHARACTERS = 100


def is_order_known(view: View, collection: Collection, digest: bytes) -> bool:
    """Whether ``ranked_rows`` takes microseconds: the hash has at most one text, or its order is kept."""
    found = view.with_hash(collection, digest)
    return not found or _is_one_row(found) or ("order", digest) in view.found


Found = list[tuple[Segment, npt.NDArray[np.int64]]]


def _is_one_row(found: Found) -> bool:
    return len(found) == 1 and len(found[0][1]) == 1


def _ordered(view: View, collection: Collection, digest: bytes, found: Found) -> list[RankedRow]:
    places = [(segment, row) for segment, rows in found for row in rows.tolist()]
    of_id = {int(segment.ids[row]): (segment, row) for segment, row in places}

    def is_shared(name: str) -> bool:
        return len(view.with_name(collection, name, 2)) > 1

    texts = with_uses(view.snapshot.evidence, digest, [segment.summary_at(row) for segment, row in places])
    ordered = rank.ranked(digest, texts, is_shared)
    return [_ranked_row(*of_id[one.summary.id], one) for one in ordered]


def _ranked_row(segment: Segment, row: int, ranked: Ranked) -> RankedRow:
    return RankedRow(segment, row, segment.counts_at(row), ranked.position, ranked.mined)
