"""The texts of a hash in the order of their rank, for the routes and pages that show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.rank import Ranked, is_mined, is_verified, ranked, witness_of
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.evidence.lookup import Text, TextEvidence, texts_evidence
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import View


class RankedText(NamedTuple):
    """A text of a hash, and what the evidence says of it in short."""

    text: str
    id: int
    digest: bytes
    key: int
    """``sigdir.signatures.rank`` reads it."""

    @property
    def is_filtered(self) -> bool:
        """Whether another text is meant: the standard's, or one that this text was mined to collide with."""
        return is_mined(self.key) or is_filtered(self.digest, self.text)

    @property
    def has_verified_contract(self) -> bool:
        """Whether bytecode proves that a contract has it, or a source that compiles contracts vouches for it."""
        return witness_of(self.key) == Witness.COMPILED or is_verified(self.key)


def ranked_texts(view: View, collection: Collection, digest: bytes, names: Names) -> list[RankedText]:
    """The texts with exactly this hash, the best first."""
    return [
        RankedText(segment.text_at(row), int(segment.ids[row]), digest, key)
        for segment, row, key in ranked_rows(view, collection, digest, names)
    ]


class Explained(NamedTuple):
    """A text of a hash with its place, the reasons for it, and all that is said of it."""

    ranked: Ranked
    evidence: TextEvidence


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def explained_texts(
    view: View, collection: Collection, digests: Sequence[bytes], names: Names
) -> list[list[Explained]]:
    """The texts of each of these hashes, the best first; raises UnreadableWarehouse."""
    groups = [
        [
            Text(int(segment.ids[row]), segment.text_at(row), _time(int(segment.created_at[row])), segment.is_staged)
            for segment, rows in view.with_hash(collection, digest)
            for row in rows.tolist()
        ]
        for digest in digests
    ]
    every = texts_evidence(view.snapshot.evidence, collection, [text for group in groups for text in group])
    of_id = {one.summary.id: one for one in every}

    def is_shared(name: str) -> bool:
        return len(names.rows(view, collection, name, 2)) > 1

    return [
        [
            Explained(one, of_id[one.summary.id])
            for one in ranked(digest, [of_id[text.id].summary for text in group], is_shared)
        ]
        for digest, group in zip(digests, groups, strict=True)
    ]
