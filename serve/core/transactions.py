"""A transaction of a node, explained: its call, its logs and its revert, each by the code of the contract that it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from sigdir.pipeline.transaction import ChainTransaction
from sigdir.signatures.abi_decoder import MAX_BYTES
from sigdir.signatures.bytecode import BadBytecode
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
    address: bytes
    input: Input
    readings: list[Reading]

    def to_dict(self) -> dict[str, Any]:
        return {"address": _hex(self.address), **document(self.readings, self.input.contract)}


@dataclass(frozen=True, slots=True)
class ExplainedTransaction:
    """A transaction with its parts: first the call, then the logs, then the revert of a failed one."""

    transaction: ChainTransaction
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


def explain_transaction(transaction: ChainTransaction, read: ReadAlternatives) -> ExplainedTransaction:
    """Explain all parts. Hostile code takes seconds: a server does this in a process with a budget."""
    parts = [
        TransactionPart(name, title, address, input, read([input]))
        for name, title, address, input in _inputs(transaction)
    ]
    return ExplainedTransaction(transaction, parts)


def _inputs(one: ChainTransaction) -> Iterator[tuple[str, str, bytes, Input]]:
    contract_at = lru_cache(maxsize=None)(partial(_contract, one))
    if one.to is not None:
        size = len(one.input)
        if size > MAX_BYTES:
            one.notes.append(f"Its call has {size:,} bytes; the first {MAX_BYTES:,} are decoded.")
        yield "call", "The call", one.to, Input(Form.CALLDATA, one.input[:MAX_BYTES], contract=contract_at(one.to))
    left = 4 * MAX_BYTES
    for number, log in enumerate(one.logs):
        left -= len(log.data)
        if left < 0:
            one.notes.append(f"Its logs from number {number} on have no room in an answer.")
            break
        input = Input(Form.LOG, log.data, log.topics, contract=contract_at(log.address))
        yield "log", f"Log {number}", log.address, input
    if one.revert is not None and one.to is not None:
        input = Input(Form.REVERT, one.revert[:MAX_BYTES], contract=contract_at(one.to))
        yield "revert", "What it gave back", one.to, input


def _contract(one: ChainTransaction, address: bytes) -> CodeContract | None:
    """The contract at an address with what is behind it; None where it has no code that can be read."""
    own = one.accounts.get(address)
    code = _read(own.code) if own is not None and own.code else None
    if code is None:
        return None
    found = [(one.accounts[at], how) for at, how in one.behind(address).items() if at in one.accounts]
    behind = [(how, account.address, _read(account.code)) for account, how in found if account.code]
    called = Called(one.chain, address, one.sender, one.value if address == one.to else None)
    return CodeContract(code, tuple((how, at, code) for how, at, code in behind if code is not None), called)


@lru_cache(maxsize=64)
def _read(code: bytes) -> ContractCode | None:
    """What is in code; None where its functions cannot be read."""
    try:
        return read_code(code)
    except BadBytecode:
        return None
