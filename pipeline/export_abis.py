"""Declarations by contract, selector and topic, as the tables have them that glaciers and programs over cryo's files decode with.

First a hash has one row without an address, because a join would else give a log twice: its best text by rank, where that does
not look mined. Then each contract whose address is known has a row for each text of its interface, and of those that it
delegates to. Events without a declaration stay out, because nobody knows which of their parameters are indexed.

The rows of contracts are many, their interfaces are few: the engine sorts the addresses, and the texts are put in by batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.export_dataset import write_parquet
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.arrow import Array, numbers, values
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection, parse_hash
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import parse_declaration
from sigdir.warehouse import Warehouse

ABIS = "abis"
"""The name of the format."""

SCHEMA = pa.schema(
    [
        ("address", pa.binary()), ("chain", pa.uint64()), ("hash", pa.binary()), ("full_signature", pa.string()),
        ("name", pa.string()), ("anonymous", pa.bool_()), ("state_mutability", pa.string()), ("id", pa.string()),
    ]
)  # fmt: skip
"""glaciers' columns, and the chain. Address and chain are null where a row is of a hash and of no contract."""

_KINDS = {SIGNATURES: "function", EVENT_SIGNATURES: "event"}
_MEMBERS = """
    SELECT interface, id AS number
    FROM (SELECT interface, unnest(texts) AS text_signature, unnest(kinds) AS kind FROM interfaces)
    JOIN {view} USING (text_signature) WHERE kind = '{kind}' ORDER BY interface, number"""
_DECLARED = """
    WITH declared AS (
        SELECT id AS number, hash, hex_signature, text_signature, position = 1 AND NOT looks_mined AS is_best,
            CASE WHEN declaration IS NULL AND collection = 'signatures' THEN 'function ' || text_signature
                ELSE declaration END AS declaration
        FROM ranked WHERE collection = ?)
    SELECT number, hash, declaration AS full_signature, split_part(text_signature, '(', 1) AS name,
        CASE WHEN starts_with(declaration, 'event ') THEN ends_with(declaration, ' anonymous') END AS anonymous,
        CASE WHEN starts_with(declaration, 'function ') THEN coalesce(nullif(
            regexp_extract(split_part(declaration, ' returns (', 1), ' (view|pure|payable)$', 1), ''), 'nonpayable')
            END AS state_mutability,
        hex_signature || ' - ' || declaration AS id
    FROM declared WHERE (starts_with(declaration, 'event ') OR starts_with(declaration, 'function ')) AND """
_BEST = "is_best ORDER BY hash"
_PLACED = """
    WITH proxies AS (SELECT chain, address, implementation FROM contracts WHERE implementation IS NOT NULL),
    placed AS (
        SELECT chain, address, interface FROM contracts WHERE interface IS NOT NULL
        UNION ALL SELECT p.chain, p.address, c.interface FROM proxies AS p
            JOIN contracts AS c ON c.chain = p.chain AND c.address = p.implementation
        UNION ALL SELECT p.chain, p.address, c.interface FROM proxies AS p
            JOIN proxies AS q ON q.chain = p.chain AND q.address = p.implementation
            JOIN contracts AS c ON c.chain = q.chain AND c.address = q.implementation)
    SELECT chain, unhex(address[3:]) AS address, interface FROM placed ORDER BY chain, address"""


def write_abis(
    warehouse: Warehouse, collections: Sequence[Collection], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write functions and events into one Parquet file; gives the number of rows."""
    progress.stage("abis", sum(map(warehouse.count, collections)))
    return write_parquet(SCHEMA, ((one, _rows(warehouse, one)) for one in collections), out)


def _rows(warehouse: Warehouse, collection: Collection) -> Iterator[pa.RecordBatch]:
    for batch in warehouse.sql(_DECLARED + _BEST, [collection.value]).reader():
        nothing = pa.nulls(len(batch))
        yield from _batches(pa.Table.from_batches([batch]), nothing, nothing)
    members = _MEMBERS.format(view=collection.view_name, kind=_KINDS[collection])
    declared = f"{_DECLARED} number IN (SELECT number FROM ({members})) ORDER BY number"
    texts = warehouse.sql(declared, [collection.value]).arrow().combine_chunks()
    interfaces = _Interfaces(warehouse.sql(members).arrow(), values(texts["number"]))
    for placed in _whole_addresses(warehouse.sql(_PLACED).reader()):
        place, text = interfaces.texts_of(placed)
        yield from _batches(
            texts.take(numbers(text)), *(placed[name].take(numbers(place)) for name in ("address", "chain"))
        )


class _Interfaces:
    """The texts of each interface, as rows of the table of texts."""

    def __init__(self, members: pa.Table, known: Array) -> None:
        """``members`` are interfaces with numbers of texts, in their order; ``known`` are the numbers that have a row."""
        self._known = max(1, len(known))
        rows = known.searchsorted(values(members["number"]))
        is_known = np.append(known, -1)[rows] == values(members["number"])
        self._rows = rows[is_known]
        counted = members["interface"].filter(numbers(is_known)).combine_chunks().value_counts()
        self._keys = counted.field("values")
        self._ends = np.cumsum(values(counted.field("counts")))

    def texts_of(self, placed: pa.Table) -> tuple[Array, Array]:
        """Row numbers of ``placed`` and of texts, each text once for an address; interfaces without texts have none."""
        key = pc.index_in(placed["interface"], self._keys)
        rows, at = np.flatnonzero(values(key.is_valid())), values(key.drop_null())
        ends = self._ends[at]
        counts = np.diff(self._ends, prepend=0)[at]
        filled = np.cumsum(counts)
        text = self._rows[np.arange(filled[-1] if len(filled) else 0) + np.repeat(ends - filled, counts)]
        return np.divmod(np.unique(np.repeat(_address_of(placed)[rows], counts) * self._known + text), self._known)


def _address_of(placed: pa.Table) -> Array:
    """The number of the first row of each row's address."""
    is_new = np.ones(len(placed), np.bool_)
    columns = [placed[name].combine_chunks() for name in ("address", "chain")]
    differs = [values(pc.not_equal(column[1:], column[:-1])) for column in columns]
    is_new[1:] = differs[0] | differs[1]
    return np.maximum.accumulate(np.where(is_new, np.arange(len(placed)), 0))


def _whole_addresses(placed: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The rows in tables, none of which ends within an address."""
    rest = placed.schema.empty_table()
    for batch in placed:
        rows = pa.concat_tables([rest, pa.Table.from_batches([batch])])
        last = int(_address_of(rows)[-1])
        yield rows[:last]
        rest = rows[last:]
    yield rest


def _batches(texts: pa.Table, address: pa.Array, chain: pa.Array) -> Iterator[pa.RecordBatch]:
    table = texts.drop_columns("number").add_column(0, "address", address).add_column(1, "chain", chain)
    yield from table.cast(SCHEMA).combine_chunks().to_batches()


# An ABI of chosen texts: each entry from the commonest declaration, with the names of its parameters.
#
# A selector or a topic gives the first of its texts by rank. A text without a declaration gives an entry without names,
# as a function where no source says its kind.


_TEXTS = "SELECT collection, hash, text_signature, declaration FROM ranked WHERE hash IN ({}) ORDER BY position"
_Declared = tuple[str, str | None]
"""A text and its declaration."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A hash, and the one of its texts that is wanted, "" for the best."""

    shown: str
    collection: Collection
    digest: bytes
    text: str = ""


def write_abi(
    warehouse: Warehouse, texts: Sequence[str], hashes: Sequence[str], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write the entries in the order of the texts and then the hashes; gives their number by collection.

    A text or a hash that the warehouse does not have, or that no ABI can have, is noted. Raises BadTarget for one that
    is none.
    """
    if not texts and not hashes:
        raise BadTarget("abi", "is of chosen signatures: name them with --text or --hashes")
    wanted = dict.fromkeys([*map(_of_text, texts), *map(_of_hash, hashes)])
    ranked = _ranked(warehouse, wanted)
    entries: list[dict[str, Any]] = []
    counts = {SIGNATURES: 0, EVENT_SIGNATURES: 0}
    for one in wanted:
        texts_of_hash = ranked.get((one.collection, one.digest), ())
        found = next((each for each in texts_of_hash if one.text in ("", each[0])), None)
        declaration = _declaration(one.collection, *found) if found else ""
        if declaration:
            entries.append(parse_declaration(declaration).abi_entry())
            counts[one.collection] += 1
        else:
            problem = "its text is too long or nested too deeply for an ABI" if found else "not in the warehouse"
            progress.note(f"{printable(one.shown)}: {problem}")
    out.write(orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    return counts


def _of_text(text: str) -> _Wanted:
    try:
        signature = normalise(text)
    except GrammarError as error:
        raise BadTarget(printable(text), str(error)) from None
    collection = next(one for one in (SIGNATURES, EVENT_SIGNATURES) if one.code == signature.collection)
    digest = keccak256(signature.text.encode())[: collection.hash_bytes]
    return _Wanted(signature.text, collection, digest, signature.text)


def _of_hash(hash: str) -> _Wanted:
    digest = parse_hash(hash.strip())
    if digest is None:
        raise BadTarget(printable(hash), "is neither a selector nor a topic: 8 or 64 hex digits")
    return _Wanted(f"0x{digest.hex()}", Collection.of_hash(digest), digest)


def _ranked(warehouse: Warehouse, wanted: Iterable[_Wanted]) -> dict[tuple[Collection, bytes], list[_Declared]]:
    """The texts of each hash that has any, the best first, with their declarations."""
    digests = sorted({one.digest for one in wanted})
    found: dict[tuple[Collection, bytes], list[_Declared]] = {}
    query = _TEXTS.format(", ".join("?" * len(digests)))
    for collection, hash, text, declaration in warehouse.sql(query, digests).rows():
        found.setdefault((Collection.of_name(collection), hash), []).append((text, declaration))
    return found


def _declaration(collection: Collection, text: str, declaration: str | None) -> str:
    """The declaration of a text; "" where it is too long or nested too deeply for one."""
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return declaration or canonicalise_one(f"{kind.name.lower()} {text}", collection.code, kind).declaration
