"""Tables of contracts: a row an address, with the hash of its code, its implementation, its ABI, or one of its texts.

::

    chain,address,code_hash
    1,0xdac17f958d2ee523a2206206994597c13d831ec7,0xb44fb4e949d0f78f87f79ee46428f23a2a5713ce6fc6e0beb3dda78c2ac1ea55

Parquet, CSV with a header, or JSON lines. Without a column of chains they are on the chain that the import names. A
table with a column of texts or of ABIs has candidates, which its addresses declare; a text without an address, as in
`sigdir export abis`, is of no contract. A column of selectors says which functions they have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from sigdir.pipeline.contract_rows import ContractRows
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import parquet
from sigdir.pipeline.formats.column_tables import (
    CHAIN_NAMES,
    BadRows,
    ColumnBatch,
    chains_of,
    column_batches,
    has_open_texts,
    hashes_of,
    head_of,
    roles_of,
)
from sigdir.pipeline.formats.json_contracts import read_rows
from sigdir.pipeline.formats.json_reader import first_object, is_document, values_of
from sigdir.pipeline.formats.tables import Columns, Table, encoded
from sigdir.pipeline.source import Source
from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.candidates import Entry, ReadTask, pack
from sigdir.signatures.evidence import Contract, Deployed, Kind, Witness
from sigdir.warehouse.evidence.contracts import ADDRESS_BYTES, BY_CODE, BY_TEXTS, KEY_BYTES

NAMES = {
    "chain": CHAIN_NAMES,
    "address": ("address", "contractaddress", "contract"),
    "code": ("codehash", "runtimecodehash", "bytecodehash", "codehashkeccak", "extcodehash"),
    "target": ("implementation", "implementationaddress", "target", "proxytarget"),
    "selectors": ("selectors", "selector"),
    "abi": ("abi",),
}
_OF_CONTRACTS = ("code", "target", "selectors")
_ADDRESS = re.compile(r"(0[xX])?[0-9a-fA-F]{40}")
_LINES = 256
"""Lines of JSON that are read at once; an ABI may have a megabyte."""
_SELECTOR = re.compile(r"0[xX][0-9a-fA-F]{8}(?![0-9a-fA-F])")


def looks_like(source: Source) -> bool:
    """Whether a column has addresses, and others have what this module knows of them."""
    roles = roles_of(source, NAMES) if not source.columns else {}
    if "address" not in roles:
        return False
    head = head_of(source)
    is_told = _says_more(roles) or head.columns(is_named=True) is not None
    # One object with an address and an ABI is an artifact: without a chain of its own it may be of any.
    is_told |= _has_abis(head, roles) and ("chain" in roles or not is_document(source))
    return is_told and _has_addresses(head, roles["address"]) and not has_open_texts(source)


def read(source: Source) -> Iterator[ReadTask]:
    """The candidates of a column of texts or of ABIs; what the rows say of contracts goes to the import's contracts."""
    roles, bad, contracts = roles_of(source, NAMES), BadRows(), source.contracts
    if "address" not in roles:
        raise BadInput(source.name, "no column is named address")
    chain = contracts.chain if contracts is not None else 1
    head = head_of(source)
    columns = head.columns(is_named=True)
    if not _has_abis(head, roles):
        roles.pop("abi", None)
    if columns is not None:
        roles |= {_role(number): head.names[number] for number in columns.read}
        entries = (_entries(batch, columns, chain, bad) for batch in column_batches(source, roles))
        yield from pack((entry for of_batch in entries for entry in of_batch), source.number)
    elif "abi" in roles and (contracts is not None or not _says_more(roles)):
        yield from read_rows(source, _abi_rows(source, roles, chain, bad))
    elif contracts is None:
        raise BadInput(source.name, "a table of contracts is read by this machine alone, without --engine")
    else:
        for batch in column_batches(source, roles):
            _add(contracts, source.statement, _good(batch, _places(batch, chain, bad)), bad)
    source.warnings += bad.sentences()


def _says_more(roles: Mapping[str, str]) -> bool:
    return any(role in roles for role in _OF_CONTRACTS)


def _has_addresses(head: Table, name: str) -> bool:
    """Whether at least half of a column's values are addresses: a column `contract` may have names."""
    values = _values(head, name)
    return 2 * sum(map(_is_address, values)) >= len(values)


def _has_abis(head: Table, roles: Mapping[str, str]) -> bool:
    """Whether a column `abi` has an ABI and no other column has texts. A contract without a known source has none."""
    if "abi" not in roles or head.columns(is_named=True) is not None:
        return False
    return not head.rows or any(map(_is_list, _values(head, roles["abi"])))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, str | bytes) and value.lstrip()[:1] in ("[", b"["))


def _values(head: Table, name: str) -> list[Any]:
    at = list(head.names).index(name)
    return [row[at] for row in head.rows if at < len(row) and row[at] not in (None, "", b"")]


def _is_address(value: Any) -> bool:
    if isinstance(value, bytes):  # Parquet has texts as bytes too
        return len(value) == ADDRESS_BYTES or _ADDRESS.fullmatch(value.decode("latin-1")) is not None
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def _role(number: int) -> str:
    """The role of a column that a candidate is read from, by its number in the table."""
    return f"column {number}"


_ALONE = "read without an address: "


def _places(
    batch: ColumnBatch, chain: int, bad: BadRows, done: str = "not read: ", may_lack: bool = False
) -> tuple[Any, Any, Any]:
    """The chain and the address of each row, and which rows have both; ``done`` is what becomes of the others.

    ``may_lack``: a row with nothing in place of an address is not counted as bad.
    """
    addresses, is_address = hashes_of(batch.columns["address"], ADDRESS_BYTES)
    chains, is_chain = chains_of(batch, chain)
    is_alone = may_lack & values(batch.columns["address"].is_null())
    bad.add("no address of 20 bytes", batch, is_address | is_alone, done)
    bad.add("no number of a chain", batch, is_chain | is_alone, done)
    return chains, addresses, is_address & is_chain


def _good(batch: ColumnBatch, places: tuple[Any, Any, Any]) -> tuple[ColumnBatch, Any, Any]:
    """The rows of a batch whose address and chain can be read, with these."""
    chains, addresses, is_good = places
    kept = np.flatnonzero(is_good)
    columns = {role: column.take(numbers(kept)) for role, column in batch.columns.items()}
    return ColumnBatch(batch.first, len(kept), columns), chains[kept], addresses[kept]


def _entries(batch: ColumnBatch, columns: Columns, default_chain: int, bad: BadRows) -> Iterator[Entry]:
    """The candidates of all rows; one whose address or chain cannot be read is of no contract."""
    contracts: dict[bytes, Contract] = {}
    read = {number: batch.columns[_role(number)].to_pylist() for number in columns.read}
    chains, addresses, is_good = _places(batch, default_chain, bad, _ALONE, may_lack=True)
    for at, (chain, address) in enumerate(zip(chains.tolist(), addresses, strict=True)):
        text = read[columns.text][at]
        raw = text if isinstance(text, bytes) else encoded(text or "")
        written = [read[number][at] for number in columns.hashes]
        kind = None if columns.kind is None else read[columns.kind][at]
        entry = columns.entry(raw, batch.first + at, written, kind)
        if not is_good[at]:
            yield entry
            continue
        place = chain.to_bytes(8) + address.tobytes()
        if place not in contracts:
            contracts[place] = _contract_at(chain, address.tobytes())
        said = entry.sighting._replace(witness=Witness.DECLARED, contract=contracts[place])
        yield entry._replace(sighting=said)


def _contract_at(chain: int, address: bytes, code_hash: bytes = b"") -> Contract:
    deployed = Deployed(chain, address)
    return Contract.at(str(chain), f"0x{address.hex()}")._replace(code_hash=code_hash, deployed=deployed)


def _abi_rows(
    source: Source, roles: Mapping[str, str], chain: int, bad: BadRows
) -> Iterator[tuple[int, Any, Contract | None]]:
    """The number of each row, what holds its ABI, and the contract; None where its address or chain cannot be read."""
    for batch, rows in _abi_batches(source, roles):
        places = _places(batch, chain, bad, _ALONE)
        if source.contracts is not None and _says_more(roles):
            _add(source.contracts, source.statement, _good(batch, places), bad)
        codes = [b""] * batch.rows
        if "code" in batch.columns:
            found, is_code = hashes_of(batch.columns["code"], KEY_BYTES)
            codes = [one.tobytes() if good else b"" for one, good in zip(found, is_code, strict=True)]
        for (number, row), code, at, address, is_good in zip(rows, codes, *places, strict=True):
            yield number, row, _contract_at(int(at), address.tobytes(), code) if is_good else None


def _abi_batches(source: Source, roles: Mapping[str, str]) -> Iterator[tuple[ColumnBatch, list[tuple[int, Any]]]]:
    """Batches of rows, and what holds the ABI of each: of JSON the whole row, which may have bytecode and sources too.

    Arrow reads a column of JSON only if all of its values have the same members, which ABIs have not.
    """
    if parquet.looks_like(source) or first_object(source) is None:
        for batch in column_batches(source, roles):
            yield batch, list(enumerate(_abis(batch.columns["abi"]), batch.first))
        return
    lines = values_of(source.lines())
    while some := list(islice(lines, _LINES)):
        objects = [row if isinstance(row, dict) else {} for _, row in some]
        values = {role: [row.get(name) for row in objects] for role, name in roles.items() if role != "abi"}
        columns = {
            role: pa.array([None if one is None else str(one) for one in of_role], pa.string())
            for role, of_role in values.items()
        }
        yield ColumnBatch(some[0][0], len(some), columns), some


def _abis(column: pa.Array) -> list[dict[str, str]]:
    """An object with each ABI; that of a proxy's clones is one."""
    if pa.types.is_dictionary(column.type):
        abis = [*_abis(column.dictionary), {"abi": ""}]
        return [abis[-1 if at is None else at] for at in column.indices.to_pylist()]
    return [{"abi": (abi or b"").decode("utf-8", "replace")} for abi in column.cast(pa.large_binary()).to_pylist()]


def _add(contracts: ContractRows, label: str, batch: tuple[ColumnBatch, Any, Any], bad: BadRows) -> None:
    rows, chains, addresses = batch
    statements = np.full(rows.rows, contracts.statement(label), np.int32)
    targets = codes = None
    how = np.full(rows.rows, BY_CODE, np.uint8)
    if "target" in rows.columns:
        targets = hashes_of(rows.columns["target"], ADDRESS_BYTES)
        targets = targets[0], targets[1] & targets[0].any(axis=1)
    if "code" in rows.columns:
        codes = hashes_of(rows.columns["code"], KEY_BYTES)
        bad.add("no code hash of 32 bytes", rows, codes[1] | values(rows.columns["code"].is_null()))
    if "selectors" in rows.columns:
        own = np.hstack(
            [chains.astype(">u8").view(np.uint8).reshape(-1, 8), addresses, statements.view(np.uint8).reshape(-1, 4)]
        )
        codes, how = (own, np.ones(rows.rows, np.bool_)), np.full(rows.rows, BY_TEXTS, np.uint8)
        _add_selectors(contracts, rows.columns["selectors"].to_pylist(), own)
    contracts.add_table(statements, chains, addresses, codes, how, targets)


def _add_selectors(contracts: ContractRows, written: Iterable[Any], holders: Any) -> None:
    """Add selectors, of which no text is known: a list, or a text with separators."""
    found = [
        (row, bytes.fromhex(selector[2:]))
        for row, one in enumerate(written)
        for selector in _SELECTOR.findall(one if isinstance(one, str) else " ".join(map(str, one or ())))
    ]
    if found:
        rows, selectors = zip(*found, strict=True)
        hashes = np.frombuffer(b"".join(one.ljust(8, b"\0") for one in selectors), np.uint8).reshape(-1, 8)
        count = len(rows)
        contracts.add_members(
            holders[list(rows)], np.full(count, BY_TEXTS, np.uint8), np.full(count, Kind.FUNCTION, np.uint8), hashes
        )
