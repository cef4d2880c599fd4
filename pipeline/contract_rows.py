"""What the inputs of an import say of contracts: where they are, and which texts they have.

Readers of tables add deployments. The texts of a contract come with the accepted candidates, whose sightings name it: an
ABI in a file that an address names, or beside its code. Nothing is made while no input says anything of a contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sigdir.pipeline.errors import BadInput
from sigdir.signatures.arrow import Array, numbers
from sigdir.signatures.candidates import Rows, binary_column
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.evidence import Contract, Deployed, Kind, Sighting, Witness
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.evidence.contracts import (
    ADDRESS_BYTES,
    BY_CODE,
    BY_TEXTS,
    DEPLOYMENTS,
    HASH_BYTES,
    KEY_BYTES,
    TEXTS,
)
from sigdir.warehouse.log.manifest import CONTRACTS
from sigdir.warehouse.publish.renewal import MappedDraft

if TYPE_CHECKING:
    from sigdir.warehouse.sql.contracts import ContractTables


class ContractRows(AbstractContextManager["ContractRows"]):
    """Gathers rows in the engine's tables, which ``make_tables`` makes.

    ``chain`` is that of addresses whose input names none. ``contract`` is the one that the user names for all ABIs.
    """

    def __init__(self, make_tables: Callable[[], ContractTables], chain: int, contract: Deployed | None) -> None:
        self._make_tables, self.chain, self._contract = make_tables, chain, contract
        self._open = ExitStack()
        self._tables: ContractTables | None = None
        self._labels: dict[str, int] = {}
        self._rows = 0
        self._places: dict[tuple[str, Deployed, bytes, int], None] = {}
        self._named: set[bytes] = set()
        """The keys of the contracts that the user's contract is said to be."""

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def tables(self) -> ContractTables:
        if self._tables is None:
            self._tables = self._open.enter_context(self._make_tables())
        return self._tables

    def statement(self, label: str) -> int:
        """The number of a source's statement."""
        return self._labels.setdefault(label, len(self._labels))

    def add_table(
        self, statements: Array, chains: Array, addresses: Array, holders: tuple[Array, Array] | None, how: Array,
        targets: tuple[Array, Array] | None,
    ) -> None:  # fmt: skip
        """Add deployments: their statements, chains (uint64), addresses, holders and targets (bytes a row, and flags)."""
        rows = len(addresses)
        nothing = np.zeros((rows, 1), np.uint8), np.zeros(rows, np.bool_)
        self.tables.add("deployments", pa.table(
            [
                numbers(statements), numbers(np.arange(self._rows, self._rows + rows, dtype=np.int64)), numbers(chains),
                binary_column(addresses), binary_column(*(holders or nothing)), numbers(how),
                binary_column(*(targets or nothing)),
            ],
            schema=DEPLOYMENTS,
        ))  # fmt: skip
        self._rows += rows

    def add_texts(self, label: str, collection: Collection, rows: Rows) -> None:
        """Add the texts of a batch of accepted candidates whose sightings name a contract, and where these are."""
        if rows.sightings is None:
            return
        said = rows.sightings
        is_used = np.bincount(said.base_of, minlength=len(said.bases)) > 0
        holders = [
            self._holder(label, base) if used else None for base, used in zip(said.bases, is_used.tolist(), strict=True)
        ]
        if not any(holders):
            return
        self.statement(label)  # an interface alone, as an artifact gives that of its code, is its source's too
        mine = np.flatnonzero(np.array([one is not None for one in holders])[said.base_of])
        held = np.frombuffer(b"".join(one[0] if one else bytes(KEY_BYTES) for one in holders), np.uint8)
        how = np.array([one[1] if one else BY_TEXTS for one in holders], np.uint8)
        default = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
        kinds = np.where(said.kinds[mine] == Kind.UNKNOWN, np.uint8(default), said.kinds[mine])
        of_row = said.base_of[mine]
        hashes = keccak256_column(rows.text.take(numbers(mine)))[:, :HASH_BYTES]
        self.add_members(held.reshape(-1, KEY_BYTES)[of_row], how[of_row], kinds, hashes)

    def add_members(self, holders: Array, how: Array, kinds: Array, hashes: Array) -> None:
        """Add texts: their holders (uint8 of (rows, size)), how these are one, their kinds, 8 bytes of each hash."""
        found = [binary_column(holders), numbers(how), numbers(kinds), binary_column(hashes)]
        self.tables.add("texts", pa.table(found, schema=TEXTS))

    def _holder(self, label: str, sighting: Sighting) -> tuple[bytes, int] | None:
        """The interface that a sighting's text is of: that of the code, else that of the address. Notes the address."""
        contract = sighting.contract or Contract("", b"")
        deployed = self._contract or contract.deployed
        if sighting.witness is Witness.LISTED or not (deployed or contract.code_hash):
            return None
        if self._contract is not None:
            self._note_named(contract)
        if deployed is None:
            return contract.code_hash, BY_CODE
        deployed = deployed._replace(chain=deployed.chain or self.chain)
        # All ABIs that a source gives for an address are one.
        own = deployed.chain.to_bytes(8) + deployed.address + self.statement(label).to_bytes(4)
        holder = (contract.code_hash, BY_CODE) if contract.code_hash else (own, BY_TEXTS)
        self._places.setdefault((label, deployed, *holder))
        return holder

    def _add_places(self) -> None:
        """Add the deployments of the contracts that sightings named."""
        labels, deployed, holders, how = zip(*self._places, strict=True)
        rows, is_proxy = len(labels), np.array([bool(one.target) for one in deployed])

        def joined(parts: Iterable[bytes]) -> Array:
            return np.frombuffer(b"".join(parts), np.uint8).reshape(rows, -1)

        targets = joined(one.target or bytes(ADDRESS_BYTES) for one in deployed)
        self.add_table(
            np.array(list(map(self.statement, labels)), np.int32), np.array([one.chain for one in deployed], np.uint64),
            joined(one.address for one in deployed), (joined(holders), np.ones(rows, np.bool_)), np.array(how, np.uint8),
            (targets, is_proxy),
        )  # fmt: skip

    def _note_named(self, contract: Contract) -> None:
        self._named.add(contract.key)
        if len(self._named) > 1:
            raise BadInput("--contract", "the inputs have several contracts; name it for the file of one ABI")

    def finish(self, folder: Path) -> tuple[MappedDraft, int] | None:
        """Write the file of contracts, a row a deployment; with how many interfaces it has. None if nothing is said of any."""
        if self._contract is not None and not self._places:
            raise BadInput("--contract", "no ABI is among the inputs")
        if self._places:
            self._add_places()
        if self._tables is None:
            return None
        path = folder / "contracts.mapped"
        deployments, interfaces = self._tables.write(path, max(1, len(self._labels)))
        draft = MappedDraft(path, CONTRACTS, deployments, tuple(self._labels))
        return (draft, interfaces) if deployments or interfaces else None
