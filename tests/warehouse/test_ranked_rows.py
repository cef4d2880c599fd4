"""A lookup in the order of rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Witness
from sigdir.warehouse.evidence.summaries import COUNTS, SightingCounts, Summaries, weights
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.snapshot import Snapshot

TRANSFER = bytes.fromhex("a9059cbb")


def segment_of(texts: list[str], hash: bytes = TRANSFER, is_staged: bool = False, first_id: int = 1) -> Segment:
    """Rows that all have one hash."""
    raw = [text.encode() for text in texts]
    hashes = np.array([list(hash)] * len(texts), np.uint8)
    numbers = np.arange(first_id, first_id + len(texts))
    found = {hash: list(range(len(texts)))} if is_staged else sorted_hashes(hashes)
    data = np.frombuffer(b"".join(raw), np.uint8)
    return Segment.of(len(texts), numbers, numbers, np.cumsum([0, *map(len, raw)]), data, hashes, found)


def texts_of(*segments: Segment, hash: bytes = TRANSFER) -> list[tuple[str, bool]]:
    """The texts in order, each with whether it is called mined."""
    view = View(Snapshot(), {SIGNATURES: segments, EVENT_SIGNATURES: ()}, "", b"")
    found = ranked_rows(view, SIGNATURES, hash)
    return [(row.text, bool(row.mined)) for row in found]


def test_staged_rows() -> None:
    """One source lists a staged text. The standard's is first, a mined one the last, the others by age."""
    file, staged = (
        segment_of(["many_msg_babbage(bytes1)", "b()"]),
        segment_of(["a()", "transfer(address,uint256)"], is_staged=True, first_id=3),
    )
    wanted = [("transfer(address,uint256)", False), ("b()", False), ("a()", False), ("many_msg_babbage(bytes1)", True)]
    assert texts_of(file, staged) == wanted
    assert texts_of(file, staged, hash=b"none") == []


def with_counts(segment: Segment, *counts: SightingCounts) -> Segment:
    of_type = np.array([tuple(one) for one in counts], COUNTS)
    summaries = Summaries(of_type, np.empty(0, np.int64), pa.nulls(0, pa.string()), weights(of_type))
    return replace(segment, summaries=summaries)


def test_ranks_of_files() -> None:
    """Rows of different files are ordered by their ranks."""
    counts = [
        SightingCounts(),
        SightingCounts(witness=Witness.COMPILED, contracts=1),
        SightingCounts(witness=Witness.DECLARED, contracts=9),
        SightingCounts(witness=Witness.COMPILED, contracts=2),
    ]
    first = with_counts(segment_of(["a()", "b()"], b"hash"), *counts[:2])
    second = with_counts(segment_of(["c()", "d()"], b"hash", first_id=3), *counts[2:])
    assert [text for text, _ in texts_of(first, second, hash=b"hash")] == ["d()", "b()", "c()", "a()"]


def test_shared_names_are_not_mined() -> None:
    """A name that several texts of the view have is not called mined, whichever selector the other text has."""
    made_up, rival = "f_2093253501(bytes)", "transfer(address,uint256)"
    assert texts_of(segment_of([made_up, rival]))[-1] == (made_up, True)
    other = segment_of(["f_2093253501()"], b"hash", first_id=3)
    assert texts_of(segment_of([made_up, rival]), other)[-1] == (made_up, False)
