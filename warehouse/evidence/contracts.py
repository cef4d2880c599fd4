"""Contracts: which interface stands behind an address, and which texts an interface has.

A file of contracts has what one import says. Its columns (``mapped.py``):

::

    chains, chain_ends          the chains, rising, and where the deployments of each end
    addresses                   20 bytes a deployment, rising in each chain; several statements may have the same one
    interfaces, statements      for each deployment the number of its interface from 1, 0 for none, and its statement
    proxies, targets            the deployments that are proxies, rising, and the addresses that they delegate to
    keys, key_ends, by_code     the interfaces, rising by their keys of 32 bytes, and where the texts of each end
    texts, kinds                8 bytes of the Keccak-256 of each text, rising in each interface, and what it is

Invariants
    The key of an interface is the hash of the code, or the digest of its texts: equal ABIs are one interface in any file.
    A text is named by its hash, not by its id: a file stays true whatever is POSTed, compacted or suppressed, and says
    nothing of a text that a version does not have. 8 bytes that are a selector and zeros stand for any text of it.
    A deployment counts if its statement does. The newest statement about an address comes first.
    An address has the texts of every interface that counts for it; its newest target is the one that it delegates to.

How often selectors and topics are used, as sources have counted: a file a source, which its next import replaces.

Its columns (``mapped.py``): for each of ``TABLES`` the distinct keys, rising, and how often each was used. A key is a
hash, or a hash with the chain and the address of the contract that was called or made the log, where the source says
so. ``days`` has the first and the last day that were counted, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.given_contract import DeployedContract, InterfaceText
from sigdir.signatures.proxies import target_function
from sigdir.signatures.rank import Summary
from sigdir.signatures.readings import Known, Membership
from sigdir.warehouse.evidence.mapped import Columns, numbers_of, open_columns, raw_bytes, rows_between, write_columns
from sigdir.warehouse.log.manifest import CONTRACTS, USAGE, Manifest, MappedFile

MAX_PROXIES = 8
"""So many proxies are followed from one address."""
ADDRESS_BYTES, KEY_BYTES, HASH_BYTES = 20, 32, 8

# What an import gathers of contracts, for the engine to join.

BY_TEXTS, BY_CODE, BY_KEY = range(3)
"""How a holder of texts becomes an interface: by the digest of its texts, as the code of this hash, by this key."""

DEPLOYMENTS = pa.schema(
    [
        ("statement", pa.int32()), ("number", pa.int64()), ("chain", pa.uint64()), ("address", pa.binary()),
        ("holder", pa.binary()), ("how", pa.uint8()), ("target", pa.binary()),
    ]
)  # fmt: skip
"""Of the same address a statement's row with the highest number counts; holder and target are null where it has none."""
TEXTS = pa.schema(
    [("holder", pa.binary()), ("how", pa.uint8()), ("kind", pa.uint8()), ("text", pa.binary())]
)  # fmt: skip
"""``text`` has the first 8 bytes of the hash."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a statement says of an address: its interface's key, and where it delegates to; each empty where it does not say.

    ``by_code`` says that the key is the hash of the code.
    """

    source: str
    import_id: int
    interface: bytes
    by_code: bool
    target: bytes


def deployments_at(manifest: Manifest, chain: int, address: bytes) -> list[Deployment]:
    """What counts of an address, the newest statement first; raises UnreadableWarehouse."""
    return [found for file in manifest.mapped_of(CONTRACTS) for found in _in_file(manifest, file, chain, address)]


def _in_file(manifest: Manifest, file: MappedFile, chain: int, address: bytes) -> Iterator[Deployment]:
    columns = open_columns(file)
    at = int(columns["chains"].searchsorted(np.uint64(chain)))
    if at == len(columns["chains"]) or int(columns["chains"][at]) != chain:
        return
    start = int(columns["chain_ends"][at - 1]) if at else 0
    first, last = rows_between(columns["addresses"], address, start, int(columns["chain_ends"][at]))
    numbers, statements = (numbers_of(columns[name][first:last]).tolist() for name in ("interfaces", "statements"))
    for row, number, statement in reversed(list(zip(range(first, last), numbers, statements, strict=True))):
        said = file.statements[statement]
        if said is not None:
            source, import_id = said
            key = columns["keys"][number - 1 : number].tobytes() if number else b""
            by_code = bool(number and columns["by_code"][number - 1])
            yield Deployment(manifest.sources[source].label, import_id, key, by_code, _target(columns, row))


def _target(columns: Columns, row: int) -> bytes:
    """The address that a deployment delegates to; empty where it is no proxy."""
    at = int(columns["proxies"].searchsorted(row))
    if at == len(columns["proxies"]) or int(columns["proxies"][at]) != row:
        return b""
    return columns["targets"][at : at + 1].tobytes()


def texts_of_interface(manifest: Manifest, key: bytes) -> frozenset[InterfaceText]:
    """The texts that imports found behind a key; raises UnreadableWarehouse."""
    found: set[InterfaceText] = set()
    for file in manifest.mapped_of(CONTRACTS):
        columns = open_columns(file)
        at, end = rows_between(columns["keys"], key)
        if at < end:
            first, last = int(columns["key_ends"][at - 1]) if at else 0, int(columns["key_ends"][at])
            texts = columns["texts"][first:last].tobytes()
            kinds = columns["kinds"][first:last].tolist()
            found.update(InterfaceText(Kind(kind), texts[8 * n : 8 * n + 8]) for n, kind in enumerate(kinds))
    return frozenset(found)


def deployed_contract(manifest: Manifest, chain: int, address: bytes) -> DeployedContract:
    """The contract at an address with the texts of its interfaces, and of the addresses that it delegates to.

    A proxy's target is followed on the same chain, MAX_PROXIES times, and no address twice. Raises UnreadableWarehouse.
    """
    path: list[bytes] = []
    texts: set[InterfaceText] = set()
    sources: dict[str, None] = {}
    following, key = address, b""
    while following and following not in path and len(path) <= MAX_PROXIES:
        said = deployments_at(manifest, chain, following)
        if not said:
            break
        path.append(following)
        sources |= dict.fromkeys(one.source for one in said)
        named, found = _interface(manifest, said)
        key, texts = key or named, texts | found
        following = next((one.target for one in said if one.target), b"")
    return DeployedContract(
        chain, address, tuple(path[1:]), _distinct(texts), tuple(sources), key, _end(path, following, texts)
    )


def _interface(manifest: Manifest, said: list[Deployment]) -> tuple[bytes, frozenset[InterfaceText]]:
    """The key of an address's first interface whose texts are known, else of its first one; and the texts of all."""
    keys = dict.fromkeys(one.interface for one in said if one.interface)
    texts = {key: texts_of_interface(manifest, key) for key in keys}
    key = next((key for key, found in texts.items() if found), next(iter(keys), b""))
    return key, frozenset().union(*texts.values())


def _distinct(texts: Iterable[InterfaceText]) -> frozenset[InterfaceText]:
    """The texts, without the bare selectors of which one of them is the text."""
    named = {(one.kind, one.selector) for one in texts if not one.is_any}
    return frozenset(one for one in texts if not one.is_any or (one.kind, one.selector) not in named)


def _end(path: list[bytes], following: bytes, texts: Iterable[InterfaceText]) -> str:
    """Why the proxies were not followed to their end; "" where they were."""
    shown = f"0x{following.hex()}"
    if not following:
        function = target_function({one.selector for one in texts if one.kind is Kind.FUNCTION})
        is_proxy = len(path) == 1 and function
        return f"it has {function}, as proxies do, and no import says what it delegates to" if is_proxy else ""
    if not path:
        return ""
    if following in path:
        return f"the proxies lead back to {shown}"
    return (
        f"the implementation {shown} is not known" if len(path) <= MAX_PROXIES else f"more than {MAX_PROXIES} proxies"
    )


# Columns of many.


class Deployments(NamedTuple):
    """Deployments of a file. Keys and targets, uint8 of (rows, bytes), are any where a row has none."""

    chains: Array
    addresses: Array
    statements: Array
    keys: Array
    has_key: Array
    by_code: Array
    targets: Array
    has_target: Array


def deployments_of(columns: Columns, part: slice) -> Deployments:
    """The deployments of some rows."""
    rows = np.arange(part.start, part.stop)
    numbers, statements = (numbers_of(columns[name][part]) for name in ("interfaces", "statements"))
    first, last = columns["proxies"].searchsorted([part.start, part.stop]).tolist()
    places = columns["proxies"][first:last].astype(np.int64) - part.start
    targets, has_target = np.zeros((len(rows), ADDRESS_BYTES), np.uint8), np.zeros(len(rows), np.bool_)
    targets[places], has_target[places] = raw_bytes(columns["targets"][first:last]), True
    key = np.maximum(numbers - 1, 0)
    keys, by_code = (
        column[key] if len(column) else np.zeros(len(rows), column.dtype)
        for column in (columns["keys"], columns["by_code"])
    )
    return Deployments(
        columns["chains"][columns["chain_ends"].searchsorted(rows, side="right")].astype(np.uint64),
        raw_bytes(columns["addresses"][part]), statements, raw_bytes(keys), numbers > 0, by_code, targets, has_target,
    )  # fmt: skip


class InterfaceTexts(NamedTuple):
    """Texts of a file, each with the key of its interface: hashes and keys are uint8 of (rows, bytes)."""

    keys: Array
    by_code: Array
    kinds: Array
    texts: Array


def interface_texts_of(columns: Columns, part: slice) -> InterfaceTexts:
    """The texts of some rows."""
    key = columns["key_ends"].searchsorted(np.arange(part.start, part.stop, dtype=np.uint64), side="right")
    return InterfaceTexts(
        raw_bytes(columns["keys"][key]),
        columns["by_code"][key],
        np.array(columns["kinds"][part]),
        raw_bytes(columns["texts"][part]),
    )


Counts = Mapping[str, tuple[Array, npt.NDArray[np.int64]]]
"""For each table the keys, uint8 of (rows, width), rising, and their counts."""

Days = npt.NDArray[np.datetime64]
NO_DAYS: Days = np.empty(0, "<M8[D]")

PLACE_BYTES = 28
"""Of a chain, 8, and an address."""
MAX_CONTRACTS = 64
"""So many contracts are asked which texts of a hash they have, those that use it most."""


def by_contract(collection: Collection) -> str:
    """The table of a collection's uses by contract."""
    return f"{collection} by contract"


TABLES: Mapping[str, int] = {str(collection): collection.hash_bytes for collection in COLLECTIONS} | {
    by_contract(collection): collection.hash_bytes + PLACE_BYTES for collection in COLLECTIONS
}
"""The bytes of a key of each."""


def write_usage(path: Path, counts: Counts, days: Days) -> int:
    """Write a file of usage, to be synced; returns its rows. ``days`` are the first and the last, or none."""
    columns: dict[str, Array] = {"days": days.astype(NO_DAYS.dtype)}
    for table, (keys, uses) in counts.items():
        columns |= {table: np.ascontiguousarray(keys).view(f"S{TABLES[table]}").reshape(-1), f"{table} uses": uses}
    write_columns(path, columns)
    return sum(len(keys) for keys, _ in counts.values())


def with_uses(manifest: Manifest, hash: bytes, texts: Sequence[Summary]) -> Sequence[Summary]:
    """The texts of a hash with their uses by contracts that have one of them and no other; raises UnreadableWarehouse."""
    if len(texts) < 2:
        return texts
    uses = dict.fromkeys((one.text for one in texts), 0)
    known = [Known(text) for text in uses]
    for chain, address, count in _callers(manifest, hash):
        contract = deployed_contract(manifest, chain, address)
        had = [one.text for one in contract.preferred(hash, known) if one.membership is Membership.HAS]
        if len(had) == 1:
            uses[had[0]] += count
    return [replace(one, uses=uses[one.text]) for one in texts] if any(uses.values()) else texts


def _callers(manifest: Manifest, hash: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Chain, address and count of the contracts that use a hash most, in each file."""
    name = by_contract(Collection.of_hash(hash))
    for columns in map(open_columns, manifest.mapped_of(USAGE)):
        keys = columns[name]
        first, last = (
            int(keys.searchsorted(np.array([hash + end], keys.dtype))[0]) for end in (b"", b"\xff" * PLACE_BYTES)
        )
        uses = columns[f"{name} uses"][first:last]
        for row in np.argsort(-uses, kind="stable")[:MAX_CONTRACTS].tolist():
            place = keys[first + row : first + row + 1].tobytes()[len(hash) :]
            yield int.from_bytes(place[:-ADDRESS_BYTES], "big"), place[-ADDRESS_BYTES:], int(uses[row])


def uses_of(manifest: Manifest, hash: bytes) -> int:
    """How often a selector or topic is used, over all sources that counted it; raises UnreadableWarehouse."""
    return int(uses_of_hashes(manifest, np.frombuffer(hash, np.uint8)[np.newaxis])[0])


def hashes_used(manifest: Manifest, collection: Collection, least: int, most: int) -> Array:
    """The hashes, rising, that all sources together have counted so often, at least once: uint8 of (rows, width)."""
    columns = [open_columns(file) for file in manifest.mapped_of(USAGE)]
    hashes = np.concatenate([np.empty(0, f"S{collection.hash_bytes}"), *(one[collection] for one in columns)])
    distinct, places = np.unique(hashes, return_inverse=True)
    uses = np.zeros(len(distinct), np.int64)
    np.add.at(uses, places, np.concatenate([uses[:0], *(one[f"{collection} uses"] for one in columns)]))
    return distinct[(least <= uses) & (uses <= most)].view(np.uint8).reshape(-1, collection.hash_bytes)


def uses_of_hashes(manifest: Manifest, hashes: Array) -> npt.NDArray[np.int64]:
    """The same for hashes of one collection, uint8 of (rows, width)."""
    found = np.zeros(len(hashes), np.int64)
    for file in manifest.mapped_of(USAGE):
        found += uses_in(file, hashes)
    return found


def uses_in(file: MappedFile, hashes: Array) -> npt.NDArray[np.int64]:
    """How often each of these hashes is used by what one file has counted."""
    width = hashes.shape[1]
    collection = next(one for one in COLLECTIONS if one.hash_bytes == width)
    columns, wanted = open_columns(file), np.ascontiguousarray(hashes).view(f"S{width}").reshape(-1)
    known, uses = columns[collection], columns[f"{collection} uses"]
    if not len(known):
        return np.zeros(len(hashes), np.int64)
    at = np.minimum(known.searchsorted(wanted), len(known) - 1)
    return np.where(known[at] == wanted, uses[at], 0)


def days_in(file: MappedFile) -> Days:
    """The first and the last day that a file has counted; none where its source did not say."""
    return open_columns(file).get("days", NO_DAYS)
