"""A warehouse of colliding texts with sightings, and what plain Python makes of them: the oracle of SQL and the columns."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.candidates import Sightings
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.signatures.rank import Ranked, Summary, ranked
from sigdir.warehouse.evidence.mapped import BatchSightings, sightings_table, sorted_by_id, write_sightings
from sigdir.warehouse.log.manifest import (
    NO_EVIDENCE,
    POST,
    POST_SOURCE,
    EvidenceFile,
    EvidenceSource,
    Manifest,
    write_manifest,
)
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import Run, digest_of

TEXTS = [f"{name}(uint{8 * bits})" for bits in range(1, 13) for name in ("transfer", "owner", "shared_12345")]
TEXTS += [f"f_20932535{number}(bytes)" for number in range(30)]
TEXTS += ["transfer(address,uint256)", "many_msg_babbage(bytes1)", "join_tg_fd06787()", "execute_44g58pv()"]
EVENTS = ["Transfer(address,address,uint256)", "Other(bool)"]
LABELS = ["list.txt", "artifacts", "panoramix", "sourcify", "posted"]


def colliding(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Digests of which only a few differ in their first four bytes; transfer's standard keeps its own."""
    transfer = bytes.fromhex("a9059cbb")
    firsts = [transfer, *(bytes([n]) * 4 for n in range(1, 30))]
    joined = b""
    for item in text.to_pylist():
        digest = digest_of(item)
        joined += (transfer if item == "transfer(address,uint256)" else firsts[digest[9] % len(firsts)]) + digest[4:]
    return np.frombuffer(joined, np.uint8).reshape(-1, 32)


@dataclass(frozen=True)
class Seen:
    """A sighting as it is at rest."""

    collection: Collection
    id: int
    source: int
    import_id: int
    said: Sighting


@dataclass(frozen=True)
class Known:
    """A warehouse's version with evidence, and its sightings, those included that no longer count."""

    paths: Paths
    snapshot: Snapshot
    manifest: Manifest
    seen: list[Seen]

    def live(self, collection: Collection, id: int) -> list[Seen]:
        return [
            seen for seen in self.seen
            if (seen.collection, seen.id) == (collection, id) and self.manifest.counts(seen.source, seen.import_id)
        ]  # fmt: skip

    def summary(self, collection: Collection, id: int, text: str, first_seen: datetime) -> Summary:
        """One text's evidence, in the plainest way."""
        live = self.live(collection, id)
        if not live:
            return Summary(id, text, sources=0, first_seen=first_seen)
        found = [(seen.said.contract.key, seen.said.witness) for seen in live if seen.said.contract]
        compiled = {key for key, witness in found if witness == Witness.COMPILED}
        declarations = self.declarations(collection, id)
        return Summary(
            id, text, Witness(max(seen.said.witness for seen in live)),
            tuple(sorted({seen.said.kind for seen in live} - {Kind.UNKNOWN})), len({seen.source for seen in live}),
            max(len(dict(found)), *(seen.said.contracts for seen in live)), len(compiled), any(seen.said.verified for seen in live), first_seen,
            declarations[0][0] if declarations else "",
        )  # fmt: skip

    def declarations(self, collection: Collection, id: int) -> list[tuple[str, int]]:
        """The declarations of a text and how often each is found, the commonest first."""
        found = {
            (seen.said.declaration, seen.said.contract.key if seen.said.contract else seen.source)
            for seen in self.live(collection, id) if seen.said.declaration
        }  # fmt: skip
        first: dict[str, tuple[int, int]] = {}
        for number, seen in enumerate(self.live(collection, id)):
            place = seen.source, number
            first[seen.said.declaration] = min(place, first.get(seen.said.declaration, place))
        counts = Counter(text for text, _ in found)
        posted = {seen.said.declaration for seen in self.live(collection, id) if seen.source == POST}
        return sorted(counts.items(), key=lambda item: (-item[1], item[0] in posted, *first[item[0]]))

    def ranked(
        self, rows: Iterable[tuple[Collection, int, str, bytes, datetime]]
    ) -> dict[tuple[Collection, int], Ranked]:
        """Each text's place, by collection and id. ``rows`` are all rows: collection, id, text, hash, time."""
        rows = list(rows)
        names = Counter((collection, text.partition("(")[0]) for collection, _, text, _, _ in rows)
        groups: dict[tuple[Collection, bytes], list[Summary]] = {}
        for collection, id, text, hash, time in rows:
            groups.setdefault((collection, hash), []).append(self.summary(collection, id, text, time))
        return {
            (collection, found.summary.id): found
            for (collection, hash), texts in groups.items()
            for found in ranked(hash, texts, lambda name, of=collection: names[of, name] > 1)  # type: ignore[misc]
        }


def a_sighting(chance: random.Random) -> Sighting:
    """Any sighting; half of them a list's."""
    if chance.random() < 0.5:
        return Sighting()
    contract = Contract("C", chance.randbytes(1) * 8) if chance.random() < 0.6 else None
    witness = Witness.COMPILED if contract and chance.random() < 0.4 else Witness.DECLARED
    declaration = chance.choice(["", "function f(uint a)", "function f(uint b)", "error f(uint c)"])
    own = chance.choice([0, 0, 1, 7]) if contract is None else 0
    return Sighting(chance.choice(list(Kind)), witness, declaration, contract, own, chance.random() < 0.2)


def make_known(root: Path, seed: int = 0, files: int = 3) -> Known:
    """Two data files, and evidence for most of their texts in several files, part of it replaced."""
    paths, chance = Paths(root / "warehouse"), random.Random(seed)
    for texts, events in ((TEXTS[:40], EVENTS[:1]), (TEXTS[40:], EVENTS[1:])):
        with Run(paths, [texts], [events], digest=colliding) as run:
            run.publish()
    snapshot = read_snapshot(paths)
    # The sightings of the third source's first import were replaced by its second.
    since = {1: 1, 2: 1, 3: 2, 4: 2}
    sources = {
        n: EvidenceSource(n, LABELS[n - 1], first, 1, 0, "", is_added_to=False) for n, first in since.items()
    } | {POST: POST_SOURCE}
    highest = {c: snapshot.high_water[c].id for c in COLLECTIONS}
    drawn = []
    for _ in range(600):
        collection = chance.choices(COLLECTIONS, [9, 1])[0]
        id, source = chance.randint(1, highest[collection]), chance.choice([POST, 1, 1, 2, 3, 4])
        if id % 7:  # the others have no sighting
            import_id = 0 if source == POST else chance.choice([1, 2])
            drawn.append(Seen(collection, id, source, import_id, a_sighting(chance)))
    seen: list[Seen] = []
    written: dict[Collection, list[EvidenceFile]] = {collection: [] for collection in COLLECTIONS}
    for number in range(files):
        seen += drawn[number::files]
        for collection in COLLECTIONS:
            tables = [
                sightings_table(
                    np.array([one.id]), one.source, one.import_id, "a/file.json" if one.said.contract else None,
                    BatchSightings.of(Sightings.of([one.said])),
                )
                for one in drawn[number::files] if one.collection == collection
            ]  # fmt: skip
            path = paths.evidence_file(collection, "1-known", number)
            file = write_sightings(path, collection, [sorted_by_id(tables)])
            assert file is not None
            written[collection].append(replace(file, source_imports=None) if number == 1 else file)
    manifest = Manifest(sources, {c: tuple(written[c]) for c in COLLECTIONS})
    named = write_manifest(paths, "1-known", manifest, NO_EVIDENCE)
    return Known(paths, replace(snapshot, manifest=named), manifest, seen)
