"""A hash's rows in the order of their rank, from the mapped columns; as decoding takes them; and readings of inputs by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures import rank, standards
from sigdir.signatures.abi import MAX_DECLARATIONS, Returned, returns_of
from sigdir.signatures.abi_decoder import SPARE
from sigdir.signatures.clear_signing import Descriptor, Place
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.given_contract import DeployedContract, InterfaceText
from sigdir.signatures.rank import Ranked
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import MAX_TEXTS, Form, Input, Known, Reading, Readings, add_displays, known_of
from sigdir.warehouse.evidence.contracts import deployed_contract, with_uses
from sigdir.warehouse.evidence.lookup import descriptors_of, text_evidence
from sigdir.warehouse.evidence.summaries import SightingCounts
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View, this_takes_long
from sigdir.warehouse.table.errors import WarehouseError


class RankedRow(NamedTuple):
    """A row of a hash in its place, from 1. ``mined`` says why its text looks mined, "" if it does not."""

    segment: Segment
    row: int
    digest: bytes
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
    def is_filtered(self) -> bool:
        """Whether another text is meant: the standard's, or one that this text was mined to collide with. Or nobody names
        it, and a search found it.
        """
        is_found = self.counts.witness == Witness.SOLVED
        return bool(self.mined) or is_found or standards.is_filtered(self.digest, self.text)

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
    if len(found) == 1 and len(found[0][1]) == 1:  # all but one in ten thousand; a loop would take twice as long
        segment, row = found[0][0], int(found[0][1][0])
        return [RankedRow(segment, row, digest, segment.counts_at(row))]
    if not found:
        return []
    # To order two texts takes 40 us, four times a lookup, and a search in all texts where their names look made up.
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
_MAX_WITH_NAME = 100


Found = list[tuple[Segment, npt.NDArray[np.int64]]]


def _ordered(view: View, collection: Collection, digest: bytes, found: Found) -> list[RankedRow]:
    this_takes_long()
    places = [(segment, row) for segment, rows in found for row in rows.tolist()]
    of_id = {int(segment.ids[row]): (segment, row) for segment, row in places}

    def is_shared(name: str) -> bool:
        found = view.with_name(collection, name, _MAX_WITH_NAME)
        return sum(not segment.counts_at(row).is_posted(segment.import_at(row)) for segment, row in found) > 1

    texts = with_uses(view.snapshot.evidence, digest, [segment.summary_at(row) for segment, row in places])
    rows = []
    for one in rank.ranked(digest, texts, is_shared):
        segment, row = of_id[one.summary.id]
        rows.append(RankedRow(segment, row, digest, segment.counts_at(row), one.position, one.mined))
    return rows


# As decoding takes them, and readings of inputs by the texts of a view.


def known_texts(view: View, hash: bytes) -> list[Known]:
    """The texts of a selector (4 bytes) or topic (32 bytes) in rank order. The list is shared and not to be changed.

    The view keeps it: most calls are of a few selectors, and to make it takes 35 of the 90 us of a decoded transfer.
    """
    return view.kept(
        ("texts", hash),
        lambda: [known_of(row.ranked) for row in ranked_rows(view, Collection.of_hash(hash), hash)],
        lambda found: sum(len(one.text) + len(one.declaration) + 64 for one in found),
    )


def known_returns(view: View, selector: bytes) -> tuple[Returned, ...]:
    """What the declarations of a selector's texts say that it returns, the commonest of each text first.

    The view keeps it: a text's declarations are in row groups of Parquet, and reading one takes 3 ms.
    """

    def find() -> tuple[Returned, ...]:
        rows = [row for row in ranked_rows(view, SIGNATURES, selector)[:MAX_TEXTS] if row.ranked.summary.declaration]
        if rows:
            this_takes_long()
        declared = chain.from_iterable(_declared(view, row) for row in rows)
        return tuple(returns_of(islice(declared, MAX_DECLARATIONS)))

    return view.kept(
        ("returns", selector), find, lambda found: sum(len(one.types) + len(one.declaration) + 64 for one in found)
    )


def _declared(view: View, row: RankedRow) -> Sequence[tuple[str, int]]:
    """The declarations of a text with their counts; the commonest alone where the evidence was vacuumed or is damaged."""
    try:
        return text_evidence(view.snapshot.evidence, SIGNATURES, row.id).declarations
    except (WarehouseError, OSError):
        return [(row.ranked.summary.declaration, 1)]


def known_descriptors(view: View, selector: bytes, place: Place) -> Sequence[Descriptor]:
    """The descriptors of a function of the contract at a place, the newest first.

    The view keeps those of the selector: they are in row groups of Parquet too.
    """

    def find() -> dict[Place, list[Descriptor]]:
        rows = [row for row in ranked_rows(view, SIGNATURES, selector) if row.counts.witness == Witness.DESCRIBED]
        if rows:
            this_takes_long()
        return descriptors_of(view.snapshot.evidence, (row.id for row in rows[:MAX_TEXTS]))

    return view.kept(("displays", selector), find, lambda _: 0).get(place, ())


def contract_at(view: View, chain: int, address: bytes) -> DeployedContract:
    """The contract at an address, as the imports of the view's version have seen it; raises UnreadableWarehouse.

    The view keeps it: finding it takes as long as decoding two words.
    """

    def find() -> DeployedContract:
        this_takes_long()
        return deployed_contract(view.snapshot.evidence, chain, address)

    return view.kept(("contract", chain, address), find, lambda found: _CONTRACT_CHARACTERS + 8 * len(found.texts))


_CONTRACT_CHARACTERS = 256


class InterfaceMember(NamedTuple):
    """A text of an interface: its selector or topic, of which the first 8 bytes are known without ``known``, the text."""

    kind: Kind
    hash: bytes
    known: Known | None


def members_of(view: View, texts: Iterable[InterfaceText], limit: int) -> list[InterfaceMember]:
    """The texts of an interface as a view has them, at most so many, by their names, unknown ones last."""
    found = [_member(view, one) for one in islice(sorted(texts), limit)]
    return sorted(found, key=lambda one: (one.known is None, one.known.text if one.known else "", one.hash))


def _member(view: View, text: InterfaceText) -> InterfaceMember:
    if text.kind is not Kind.EVENT:
        mine = (one for one in known_texts(view, text.selector) if text.is_of(one.text))
        return InterfaceMember(text.kind, text.selector, next(mine, None))
    for segment in view.segments[EVENT_SIGNATURES]:
        for row in segment.with_hashes(np.frombuffer(text.hash, np.uint8)[np.newaxis])[1].tolist():
            topic = segment.hash[row].tobytes()
            return InterfaceMember(text.kind, topic, known_texts(view, topic)[0])
    return InterfaceMember(text.kind, text.hash, None)


def texts_of_hashes(view: View, hashes: Iterable[bytes]) -> dict[bytes, list[Known]]:
    """What ``known_texts`` gives for each hash."""
    return {hash: known_texts(view, hash) for hash in hashes}


def read_inputs(view: View, inputs: Iterable[Input], spare: int = SPARE) -> list[list[Reading]]:
    """The readings of each input, the likeliest first. ``spare`` is that of ``Readings``."""
    inputs = [
        one._replace(returned=known_returns(view, one.selector)) if one.form is Form.RETURN else one for one in inputs
    ]
    readings = Readings(inputs, spare)
    while wanted := readings.wanted():
        readings.supply(texts_of_hashes(view, wanted))
    for input, found in zip(inputs, readings.results(), strict=True):
        add_displays(input, found, partial(known_descriptors, view), spare)
    return readings.results()


def read_alternatives(
    view: View, alternatives: Sequence[Input], spare: int = SPARE
) -> list[Reading]:  # fmt: skip
    """The readings of one input that may have several shapes, the surest first."""
    return ordered([reading for readings in read_inputs(view, alternatives, spare) for reading in readings])
