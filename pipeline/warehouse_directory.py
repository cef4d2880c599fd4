"""A warehouse as a ``Directory``; ``PackDirectory`` says what each of its methods gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa

from sigdir.pipeline.directory import RankedText
from sigdir.signatures.abi import Returned
from sigdir.signatures.clear_signing import Descriptor, Place
from sigdir.signatures.collections import Collection
from sigdir.signatures.given_contract import DeployedContract
from sigdir.signatures.readings import Known
from sigdir.warehouse.index.matches import best_matches, rows_with_fragment
from sigdir.warehouse.index.ranked import contract_at, known_descriptors, known_returns, known_texts, ranked_rows
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths, existing


class WarehouseDirectory:
    """The texts of a warehouse, staged ones too, as they are when each is asked for."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.source = reader.paths

    @classmethod
    def of(cls, source: Path | Paths) -> Self:
        """The directory of a folder, or of its paths as another process has them; raises UnreadableWarehouse."""
        found = existing(source if isinstance(source, Path) else source.root)
        return cls(Reader(found if isinstance(source, Path) else source, makes_staging=False))

    def known(self, hash: bytes) -> list[Known]:
        return known_texts(self._reader.current(), hash)

    def returns(self, selector: bytes) -> tuple[Returned, ...]:
        return known_returns(self._reader.current(), selector)

    def descriptors(self, selector: bytes, place: Place) -> Sequence[Descriptor]:
        return known_descriptors(self._reader.current(), selector, place)

    def contract(self, chain: int, address: bytes) -> DeployedContract:
        return contract_at(self._reader.current(), chain, address)

    def ranked(self, hash: bytes) -> list[RankedText]:
        rows = ranked_rows(self._reader.current(), Collection.of_hash(hash), hash)
        return [RankedText(one.ranked.summary.text, one.ranked.summary.declaration, one.ranked.reasons) for one in rows]

    def containing(self, collections: Iterable[Collection], fragment: str, limit: int) -> list[tuple[str, Collection]]:
        view = self._reader.current()
        found = []
        for collection in collections:
            rows = rows_with_fragment(view, collection, fragment)
            found += [(match, collection) for match in best_matches(view, collection, rows, fragment, 0, limit)]
        found.sort(key=lambda one: one[0].weight)
        return [(match.segment.text_at(match.row), collection) for match, collection in found[:limit]]

    def texts(self, collection: Collection) -> Iterator[pa.StringArray]:
        return self._reader.current().texts(collection)

    def close(self) -> None:
        self._reader.close()
