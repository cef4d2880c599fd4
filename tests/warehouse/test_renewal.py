"""What an import's sightings do to the earlier ones of their sources, compared with the rule in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import ge
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.signatures.candidates import Sightings
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.warehouse.evidence.mapped import BatchSightings, sightings_table, sorted_by_id, write_sightings
from sigdir.warehouse.log.manifest import EvidenceFile, EvidenceSource, Manifest
from sigdir.warehouse.publish.renewal import Renewal, Withdrawn
from sigdir.warehouse.table.paths import Paths
from tests.examples import long_except

CONTRACTS = {"A": Contract.at("a.sol", "A"), "B": Contract.at("b.sol", "B")}


class Seen(NamedTuple):
    """A sighting as a row has it."""

    id: int
    source: int
    import_id: int
    kind: int
    witness: int
    contracts: int
    verified: bool
    contract: str | None
    declaration: str | None

    @property
    def place(self) -> Any:
        return self.id, self.source, self.contract

    @property
    def whole(self) -> Any:
        return *self.place, self.kind, self.declaration


def reach(ones: Iterable[Seen], wanted: Seen) -> bool:
    """Whether sightings of a chunk together have as good a witness and as many contracts as one."""
    amounts = [(one.witness, one.contracts, one.verified) for one in ones]
    best = [max(each) for each in zip(*amounts, strict=True)]
    return bool(best) and all(map(ge, best, (wanted.witness, wanted.contracts, wanted.verified)))


def after(old: Sequence[Seen], chunks: Sequence[Sequence[Seen]]) -> set[Seen]:
    """What sources say that add to what they said before."""
    known = {
        one for new in chunks for one in new
        if reach((o for o in old if o.place == one.place and one.kind in (0, o.kind)
                  and one.declaration in (None, o.declaration)), one)
    }  # fmt: skip
    others, again = [set(new) - known for new in chunks], {one.whole for one in known}
    superseded = {
        one for one in old for other in others
        if one.whole not in again
        and reach((n for n in other if n.place == one.place and one.kind in (0, n.kind)
                   and (n.declaration or not one.declaration)), one)
    }  # fmt: skip
    return (set(old) - superseded).union(*others)


def drawn(draw: random.Random, import_id: int) -> list[Seen]:
    """What an import says, each thing once."""
    rows = draw.choice((1, 20, 300))
    return list(dict.fromkeys(
        Seen(
            draw.randrange(1, 30), draw.choice((1, 2)), import_id, draw.choice((0, 0, Kind.FUNCTION, Kind.ERROR)),
            draw.choice((Witness.LISTED, Witness.LISTED, Witness.COMPILED)), draw.choice((0, 0, 7)), draw.random() < 0.1,
            draw.choice((None, None, *CONTRACTS)), draw.choice((None, None, "f(uint256 a)", "f(uint256 b)")),
        )
        for _ in range(rows)
    ))  # fmt: skip


def table_of(seen: Iterable[Seen]) -> pa.Table:
    """Their sightings at rest; the file makes one table of all that have the same source and import."""
    tables = []
    for one in seen:
        contract = CONTRACTS[one.contract] if one.contract else None
        said = Sighting(
            Kind(one.kind), Witness(one.witness), one.declaration or "", contract, one.contracts, one.verified
        )
        batch = BatchSightings.of(Sightings.of([said]))
        tables.append(sightings_table(np.array([one.id], np.int64), one.source, one.import_id, None, batch))
    return sorted_by_id(tables)


def rows_of(files: Iterable[EvidenceFile]) -> list[Seen]:
    tables = [pq.read_table(file.path, columns=list(Seen._fields)) for file in files]
    return [Seen(**row) for table in tables for row in table.to_pylist()]


def cut(seen: Sequence[Seen], parts: int) -> list[Sequence[Seen]]:
    return [seen[at::parts] for at in range(min(parts, len(seen)))]


class Imports:
    """The files of several imports, each of which is written in chunks."""

    def __init__(self, folder: Path) -> None:
        self.paths, self.files = Paths(folder), list[EvidenceFile]()
        self.manifest = Manifest({n: EvidenceSource(n, f"{n}.txt", 1, 1, 0, "", is_added_to=False) for n in range(3)})

    def add(
        self, import_id: int, chunks: Sequence[Sequence[Seen]], replaced: AbstractSet[int] = frozenset()
    ) -> Renewal:
        base = replace(self.manifest, files={SIGNATURES: tuple(self.files)})
        renewal = Renewal(base, SIGNATURES, {1, 2} - replaced, replaced)
        tables = [renewal.news(table_of(chunk)) for chunk in chunks]
        run = f"run-{import_id}"
        rewritten = {old.path: file for old, file, _ in renewal.without_superseded(self.paths, run, 2)}
        written = write_sightings(self.paths.evidence_file(SIGNATURES, run, 1), SIGNATURES, tables)
        files = [*(rewritten.get(file.path, file) for file in self.files), written]
        self.files = [file for file in files if file is not None]
        return renewal


@pytest.mark.parametrize("seed", long_except({1}, range(12)))
def test_sources_add_and_renew(tmp_path: Path, seed: int) -> None:
    """Import after import, in chunks or not, the files have what the rule says, and each thing once."""
    draw, imports = random.Random(seed), Imports(tmp_path)
    said: set[Seen] = set()
    for import_id in range(1, 6):
        new = drawn(draw, import_id)
        chunks = cut(new, draw.choice((1, 4)))
        said = after(list(said), chunks)
        imports.add(import_id, chunks)
        assert Counter(rows_of(imports.files)) == Counter(said)


@pytest.mark.parametrize("seed", long_except({1}, range(4)))
def test_what_replaced_sources_withdraw(tmp_path: Path, seed: int) -> None:
    """All sightings of the replaced source in places that it does not name again, and the texts that it does not name."""
    draw, imports = random.Random(seed), Imports(tmp_path)
    imports.add(1, [old := drawn(draw, 1)])
    new = drawn(draw, 2)
    renewal = imports.add(2, cut(new, 3), replaced={2})
    places, texts = {one.place for one in new}, {one.id for one in new if one.source == 2}
    mine = [one for one in old if one.source == 2]
    assert renewal.withdrawn() == Withdrawn(
        sum(one.place not in places for one in mine), len({one.id for one in mine} - texts)
    )
    assert {one for one in new if one.source == 2} < set(rows_of(imports.files)) or not texts


def test_what_an_import_says_nothing_of_is_not_read(tmp_path: Path) -> None:
    """Only what a replaced source withdraws has to be read; a source that was replaced meanwhile says it again."""
    imports = Imports(tmp_path)
    one = Seen(1, 1, 1, 0, Witness.LISTED, 0, False, None, None)
    imports.add(1, [[one]])
    assert imports.add(2, [], replaced={1}).withdrawn() == Withdrawn(1, 1)
    sources = imports.manifest.sources
    imports.manifest = replace(imports.manifest, sources={**sources, 1: replace(sources[1], import_id=2)})
    imports.add(3, [[one._replace(import_id=3)]])
    assert [row.import_id for row in rows_of(imports.files)] == [1, 3]
    imports.files[0].path.unlink()
    assert imports.add(4, [[]]).withdrawn() == Withdrawn()
