"""Where the texts of hashes come from: a warehouse, or a pack in its place. Commands and the MCP server ask either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sigdir.pipeline.errors import BadInput
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import BadPack
from sigdir.signatures.pack_texts import check_canonical
from sigdir.signatures.rank import INSIDE, OF_STANDARD, PREFIX, WHOLE_NAME, noted_reasons, standard_of
from sigdir.signatures.standards import canonical
from sigdir.signatures.types import parsed_declaration
from sigdir.warehouse.table.paths import Paths

if TYPE_CHECKING:  # numba takes 0.3 s to load, pyarrow 0.05 s, and looking a hash up in a pack does without
    import pyarrow as pa

    from sigdir.pipeline.warehouse_directory import WarehouseDirectory
    from sigdir.signatures.abi import Returned
    from sigdir.signatures.clear_signing import Descriptor, Place
    from sigdir.signatures.given_contract import DeployedContract
    from sigdir.signatures.readings import Input, Known, Reading

READ_ROWS = 1 << 20
"""Texts that are read at once."""


@dataclass(frozen=True, slots=True)
class PackSource:
    """The file of a pack, and the public key that must have signed it; None for any."""

    path: Path
    key: str | None = None


Source = Path | Paths | PackSource
"""What a directory is opened from: the folder of a warehouse, its paths as another process has them, or a pack."""


class RankedText(NamedTuple):
    """A text of a hash, with its declaration ("" for none) and the reasons for its place, the weightiest first."""

    text: str
    declaration: str
    reasons: tuple[str, ...]


class PackDirectory:
    """The texts of a pack."""

    def __init__(self, source: PackSource) -> None:
        self.source = source
        """What another process opens to have the same texts."""
        self._pack = open_pack(source)

    def known(self, hash: bytes) -> list[Known]:
        """The texts as decoding takes them."""
        return [_known(hash, text, declaration) for text, declaration in self._entries(hash)]

    def returns(self, selector: bytes) -> tuple[Returned, ...]:
        """What the declarations of a selector's texts say that it returns; a pack does not know how often they are declared."""
        from sigdir.signatures.abi import returns_of

        found = self._entries(selector) if len(selector) == SIGNATURES.hash_bytes else ()
        return tuple(returns_of((declaration, 0) for _, declaration in found if declaration))

    def descriptors(self, selector: bytes, place: Place) -> Sequence[Descriptor]:
        """How calls of a function of the contract at a chain and address are shown: a pack has no descriptors."""
        return ()

    def contract(self, chain: int, address: bytes) -> DeployedContract:
        """The contract at an address, which no pack knows."""
        from sigdir.signatures.given_contract import DeployedContract

        return DeployedContract(chain, address)

    def ranked(self, hash: bytes) -> list[RankedText]:
        """The texts with their reasons."""
        entries = self._entries(hash)
        return [
            RankedText(
                text, said, (*noted_reasons(standard_of(hash, text), ""), f"text {place} of {len(entries)} in the pack")
            )
            for place, (text, said) in enumerate(entries, 1)
        ]

    def containing(self, collections: Iterable[Collection], fragment: str, limit: int) -> list[tuple[str, Collection]]:
        """The best texts that have a fragment, whatever its case. A pack has no counts: of those that match alike the
        shorter ones come first.
        """
        wanted = fragment.lower()
        standard = {(text, Collection.of_hash(hash)) for hash, text in canonical().items()}
        found = (
            (text, collection) for collection in collections
            for text in self._pack.texts(collection) if wanted in text.lower()
        )  # fmt: skip
        best = nsmallest(limit, found, key=lambda one: (_match_kind(one[0], wanted, one in standard), len(one[0]), one))
        with _named(self.source):
            for text, collection in best:
                check_canonical(collection, text.encode())
        return best

    def texts(self, collection: Collection) -> Iterator[pa.StringArray]:
        """All texts of a collection."""
        import pyarrow as pa

        texts = iter(self._pack.texts(collection))
        while some := list(islice(texts, READ_ROWS)):
            yield pa.array(some, pa.string())

    def _entries(self, hash: bytes) -> list[tuple[str, str]]:
        with _named(self.source):
            return self._pack.entries(hash)

    def close(self) -> None:
        """The file stays mapped until the pack is freed."""


Directory: TypeAlias = "PackDirectory | WarehouseDirectory"
"""Gives the texts of a selector (4 bytes) or a topic (32 bytes), the best first."""


def _known(hash: bytes, text: str, declaration: str) -> Known:
    from sigdir.signatures.readings import Known

    kind = Kind.EVENT if Collection.of_hash(hash) == EVENT_SIGNATURES else Kind.UNKNOWN
    if found := parsed_declaration(declaration) if declaration else None:
        kind = found.kind
    return Known(text, kind, Witness.LISTED, declaration)  # a pack does not say where a declaration is from


def _match_kind(text: str, wanted: str, is_standard: bool) -> int:
    """How a text matches, the best lowest. ``warehouse/index/search.py`` tells it for a whole column."""
    if not text.lower().startswith(wanted):
        return INSIDE
    is_whole = text[len(wanted) : len(wanted) + 1] in ("(", "")
    return (WHOLE_NAME if is_whole else PREFIX) - (OF_STANDARD if is_standard else 0)


def open_pack(source: PackSource) -> Pack:
    """The pack of a file; raises BadInput with its name, BadKey, OSError."""
    with _named(source):
        return Pack(source.path, source.key)


@contextmanager
def _named(source: PackSource) -> Iterator[None]:
    """Raise BadInput with the pack's name for what is wrong with it."""
    try:
        yield
    except BadPack as error:
        raise BadInput(str(source.path), str(error)) from None


def open_directory(source: Source) -> Directory:
    """Raises UnreadableWarehouse, BadInput, BadKey, OSError."""
    if isinstance(source, PackSource):
        return PackDirectory(source)
    from sigdir.pipeline.warehouse_directory import WarehouseDirectory

    return WarehouseDirectory.of(source)


@contextmanager
def opened(source: Source) -> Iterator[Directory]:
    """A directory that is closed at the end."""
    directory = open_directory(source)
    try:
        yield directory
    finally:
        directory.close()


def readings_of(directory: Directory, alternatives: Sequence[Input]) -> list[Reading]:
    """The readings of one input that may have several shapes, the surest first."""
    from sigdir.signatures.reading_json import ordered
    from sigdir.signatures.readings import Form, Readings, add_displays

    readings = Readings(
        one._replace(returned=directory.returns(one.selector)) if one.form is Form.RETURN else one
        for one in alternatives
    )
    while wanted := readings.wanted():
        readings.supply(known_of_all(directory, wanted))
    results = readings.results()
    for one, found in zip(alternatives, results, strict=True):
        add_displays(one, found, directory.descriptors)
    return ordered([reading for found in results for reading in found])


def known_of_all(directory: Directory, hashes: Iterable[bytes]) -> dict[bytes, list[Known]]:
    """The texts of each hash."""
    return {hash: directory.known(hash) for hash in hashes}
