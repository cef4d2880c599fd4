"""A transaction of a node, explained: its call, its logs and its revert, each by the code of the contract that it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sigdir.pipeline.transaction import Transaction
from sigdir.signatures.bytecode import BadBytecode
from sigdir.signatures.calldata import MAX_BYTES
from sigdir.signatures.clear_signing import Called
from sigdir.signatures.contract import ContractCode, read_code
from sigdir.signatures.given_contract import CodeContract
from sigdir.signatures.reading_json import document
from sigdir.signatures.readings import Form, Input, Reading

ReadAlternatives = Callable[[list[Input]], list[Reading]]
"""Gives the readings of one input that may have several shapes, the surest first."""


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """The call, a log or the revert of a transaction: ``title`` says which, ``address`` is the contract's."""

    name: str
    title: str
    address: bytes | None
    input: Input
    readings: list[Reading]

    def to_dict(self) -> dict[str, Any]:
        return {"address": _hex(self.address), **document(self.readings, self.input.contract)}


@dataclass(frozen=True, slots=True)
class ExplainedTransaction:
    """A transaction with its parts: first the call, then the logs, then the revert of a failed one."""

    transaction: Transaction
    parts: list[TransactionPart]

    @property
    def status(self) -> str:
        return {None: "pending", True: "succeeded", False: "failed"}[self.transaction.succeeded]

    @property
    def is_read(self) -> bool:
        """Whether each part with data has a text."""
        return all(part.readings[0].best or not (part.input.data or part.input.topics) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        one = self.transaction
        found: dict[str, Any] = {
            "hash": one.hash, "chain": one.chain, "block": one.block, "status": self.status, "from": _hex(one.sender),
            "to": _hex(one.to), "created": _hex(one.created), "value": str(one.value), "gas_used": one.gas_used,
            "call": None, "logs": [], "revert": None, "notes": one.notes,
        }  # fmt: skip
        for part in self.parts:
            if part.name == "log":
                found["logs"].append(part.to_dict())
            else:
                found[part.name] = part.to_dict()
        return found


def _hex(data: bytes | None) -> str | None:
    return None if data is None else f"0x{data.hex()}"


def explain_transaction(transaction: Transaction, read: ReadAlternatives) -> ExplainedTransaction:
    """Explain all parts. Hostile code takes seconds: a server does this in a process with a budget."""
    contracts = _Contracts(transaction)
    parts = [
        TransactionPart(name, title, address, input, read([input]))
        for name, title, address, input in _inputs(transaction, contracts)
    ]
    return ExplainedTransaction(transaction, parts)


def _inputs(one: Transaction, contracts: _Contracts) -> Iterator[tuple[str, str, bytes | None, Input]]:
    if one.to is not None:
        if len(one.input) > MAX_BYTES:
            one.notes.append(f"Its call has {len(one.input):,} bytes; at most {MAX_BYTES:,} are decoded.")
        else:
            called = Called(one.chain, (one.to, *one.behind(one.to)), one.sender, one.value)
            input = Input(Form.CALLDATA, one.input, contract=contracts.at(one.to), called=called)
            yield "call", "The call", one.to, input
    left = 4 * MAX_BYTES
    for number, log in enumerate(one.logs):
        left -= len(log.data)
        if left < 0:
            one.notes.append(f"Its logs from number {number} on have no room in an answer.")
            break
        input = Input(Form.LOG, log.data, log.topics, contract=contracts.at(log.address))
        yield "log", f"Log {number}", log.address, input
    if one.revert is not None:
        contract = contracts.at(one.to) if one.to is not None else None
        yield "revert", "What it gave back", one.to, Input(Form.REVERT, one.revert[:MAX_BYTES], contract=contract)


class _Contracts:
    """The contracts of a transaction's addresses; one whose functions cannot be read counts as unknown."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._known: dict[bytes, CodeContract | None] = {}
        self._read: dict[bytes, ContractCode | None] = {}

    def at(self, address: bytes) -> CodeContract | None:
        """The contract at an address with what is behind it; None where it has no code that can be read."""
        if address not in self._known:
            self._known[address] = self._made(address)
        return self._known[address]

    def _made(self, address: bytes) -> CodeContract | None:
        found = [(at, self._code(code)) for at, code in self._transaction.codes(address)]
        read: Sequence[tuple[bytes, ContractCode]] = [(at, code) for at, code in found if code is not None]
        if not read or read[0][0] != address:
            return None
        names = {at: name for one in self._transaction.accounts.values() for at, name in one.behind.items()}
        return CodeContract(read[0][1], tuple((names[at], at, code) for at, code in read[1:]))

    def _code(self, code: bytes) -> ContractCode | None:
        if code not in self._read:
            try:
                self._read[code] = read_code(code)
            except BadBytecode as error:
                self._transaction.notes.append(f"A contract is read without its code: {error}.")
                self._read[code] = None
        return self._read[code]
