"""A transaction as a node has it: the call, its logs, what it reverted with, and the code of the contracts in it.

The contracts are the one that was called and those that made logs. A proxy's code says little, so the code behind it is
read too: the slots of EIP-1967 and EIP-1822, a beacon's implementation, a diamond's facets, the address in a minimal proxy,
the first slot of a Safe's proxy. They are read as they were after the transaction's block, or, of a node that has no state
of that block, as they are now.

Bounds: MAX_LOGS logs, MAX_ADDRESSES addresses, MAX_DEPTH proxies one behind the other, and those of ``Node``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sigdir.pipeline.errors import PipelineError
from sigdir.pipeline.node import Node, NodeAnswer, NodeCall, NodeError
from sigdir.signatures.bytecode import RuntimeCode, analyse
from sigdir.signatures.proxies import proxy_patterns, slot

MAX_LOGS = 1000
MAX_ADDRESSES = 64
MAX_DEPTH = 3

_HASH = re.compile("0[xX][0-9a-fA-F]{64}")
_REVERT_DATA = re.compile("0x(?:[0-9a-fA-F]{2})*")
_FACETS = "0x52ef6b2c"  # facetAddresses() of ERC-2535
_IMPLEMENTATION = "0x5c60da1b"  # implementation() of a beacon


class BadHash(PipelineError):
    """A text that is no hash of a transaction."""


class UnknownTransaction(NodeError):
    """The node does not have the transaction."""


class EventLog(NamedTuple):
    """A log: who made it, its topics and its data."""

    address: bytes
    topics: tuple[bytes, ...]
    data: bytes


@dataclass(slots=True)
class Account:
    """An address and its code, empty where it has none; ``behind`` are the addresses to which it delegates, by how."""

    address: bytes
    code: bytes = b""
    behind: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class ChainTransaction:
    """What a node says about a transaction.

    ``to`` is None where it makes a contract, which is then ``created``. ``succeeded`` is None while it is pending.
    ``revert`` is what a failed call gives back, None where the node does not say so. ``notes`` are sentences.
    """

    hash: str
    chain: int
    sender: bytes
    to: bytes | None
    value: int
    input: bytes
    block: int | None = None
    succeeded: bool | None = None
    created: bytes | None = None
    gas_used: int | None = None
    logs: list[EventLog] = field(default_factory=list)
    revert: bytes | None = None
    accounts: dict[bytes, Account] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def behind(self, address: bytes) -> dict[bytes, str]:
        """The addresses to which an address delegates, and those to which they do, each with how."""
        found, waiting = dict[bytes, str](), [address]
        for at in waiting:
            account = self.accounts.get(at)
            new = {one: how for one, how in (account.behind if account else {}).items() if one not in (address, *found)}
            found |= new
            waiting += new
        return found


def checked_hash(text: str) -> str:
    """A transaction's hash in lower case; raises BadHash for a text that is none."""
    if not _HASH.fullmatch(text.strip()):
        raise BadHash(f"{text.strip()[:80]!a} is no hash of a transaction: 0x and 64 hex digits")
    return text.strip().lower()


def read_transaction(node: Node, hash: str) -> ChainTransaction:
    """A transaction with all that explains it; raises NodeError."""
    chain, found, receipt = node.results([
        NodeCall("eth_chainId"), NodeCall("eth_getTransactionByHash", (hash,)),
        NodeCall("eth_getTransactionReceipt", (hash,)),
    ])  # fmt: skip
    if not isinstance(found, dict):
        raise UnknownTransaction(f"the node knows no transaction {hash}")
    try:
        read = _transaction(hash, chain, found)
        if isinstance(receipt, dict):
            _add_receipt(read, receipt)
        else:
            read.notes.append("It is pending: the node has no receipt.")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeError(f"the node's transaction {hash} cannot be read: {error!r}") from None
    if read.succeeded is False:
        _add_revert(node, read, found)
    _Contracts(node, read).add()
    return read


def _number(value: Any) -> int:
    return int(value, 16)


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(value.removeprefix("0x"))


def _transaction(hash: str, chain: Any, found: Mapping[str, Any]) -> ChainTransaction:
    to = found.get("to")
    return ChainTransaction(
        hash, _number(chain), _bytes(found["from"]), _bytes(to) if to else None, _number(found.get("value", "0x0")),
        _bytes(found.get("input", found.get("data"))),
    )  # fmt: skip


def _add_receipt(read: ChainTransaction, receipt: Mapping[str, Any]) -> None:
    read.block, read.gas_used = _number(receipt["blockNumber"]), _number(receipt["gasUsed"])
    if "status" in receipt:
        read.succeeded = _number(receipt["status"]) == 1
    created = receipt.get("contractAddress")
    read.created = _bytes(created) if created else None
    logs = receipt["logs"]
    for log in logs[:MAX_LOGS]:
        read.logs.append(EventLog(_bytes(log["address"]), tuple(map(_bytes, log["topics"])), _bytes(log["data"])))
    if len(logs) > MAX_LOGS:
        read.notes.append(f"It has {len(logs):,} logs; the first {MAX_LOGS:,} are read.")


def _add_revert(node: Node, read: ChainTransaction, found: Mapping[str, Any]) -> None:
    """Call again what failed, at the end of the block before its own: a receipt does not have what it gave back."""
    call = {name: found[name] for name in ("from", "to", "input", "value", "gas") if found.get(name)}
    assert read.block is not None
    [answer] = node.ask([NodeCall("eth_call", (call, hex(max(0, read.block - 1))))])
    read.revert = _revert_data(answer)
    if read.revert is None:
        told = answer.error or "that the call succeeds"
        read.notes.append(f"It failed. Called again before its block, the node answers {told}.")
    else:
        read.notes.append("What it gave back is that of the same call before its block.")


def _revert_data(answer: NodeAnswer) -> bytes | None:
    if not answer.error or not ("revert" in answer.error.lower() or answer.data):
        return None
    found = _REVERT_DATA.search(answer.data)
    return bytes.fromhex(found[0][2:]) if found else b""


class _Contracts:
    """Reads the contracts of a transaction, level by level of what is behind proxies."""

    def __init__(self, node: Node, read: ChainTransaction) -> None:
        self._node, self._read = node, read
        self._block = "latest" if read.block is None else hex(read.block)

    def add(self) -> None:
        """Fill ``accounts``."""
        first = [self._read.to, self._read.created, *(log.address for log in self._read.logs)]
        wanted = [one for one in dict.fromkeys(first) if one is not None]
        for _ in range(1 + MAX_DEPTH):
            taken = self._taken(wanted)
            if not taken:
                return
            wanted = self._behind(self._with_code(taken))

    def _taken(self, wanted: Iterable[bytes]) -> list[bytes]:
        """The new addresses, as many as there is room for."""
        accounts = self._read.accounts
        new = [one for one in dict.fromkeys(wanted) if one not in accounts]
        room = MAX_ADDRESSES - len(accounts)
        if len(new) > room:
            note = f"It has more than {MAX_ADDRESSES} contracts; the others are read without code."
            self._read.notes = [*dict.fromkeys([*self._read.notes, note])]
        return new[:room]

    def _with_code(self, addresses: Sequence[bytes]) -> list[tuple[Account, RuntimeCode]]:
        """The accounts that delegate calls, with their code."""
        codes = self._at_block([("eth_getCode", (_hex(one),)) for one in addresses])
        found = []
        for address, code in zip(addresses, codes, strict=True):
            account = self._read.accounts[address] = Account(address, _data(code))
            runtime = analyse(account.code, selectors=frozenset())  # finding those of hostile code takes seconds
            if runtime.delegates or any(one.address for one in proxy_patterns(runtime)):
                found.append((account, runtime))
        return found

    def _behind(self, proxies: Sequence[tuple[Account, RuntimeCode]]) -> list[bytes]:
        """Note where proxies delegate to; returns these addresses."""
        for account, runtime in proxies:
            for pattern in proxy_patterns(runtime):
                if pattern.address:
                    account.behind[pattern.address] = pattern.name
        self._follow_slots([one for one in proxies if not one[0].behind])
        self._follow_facets([account for account, _ in proxies if not account.behind])
        return [address for account, _ in proxies for address in account.behind]

    def _follow_slots(self, proxies: Sequence[tuple[Account, RuntimeCode]]) -> None:
        """The addresses in the slots of standards. A beacon is asked for its implementation."""
        wanted = [(account, *place) for account, runtime in proxies for place in _slots(runtime)]
        values = self._at_block([("eth_getStorageAt", (_hex(one.address), place)) for one, _, place in wanted])
        beacons = []
        for (account, name, _), value in zip(wanted, values, strict=True):
            address = _address(value)
            if address and name == _BEACON:
                beacons.append((account, address))
            elif address:
                account.behind[address] = name
        targets = self._at_block([("eth_call", ({"to": _hex(at), "data": _IMPLEMENTATION},)) for _, at in beacons])
        for (account, _), value in zip(beacons, targets, strict=True):
            if address := _address(value):
                account.behind[address] = _BEACON

    def _follow_facets(self, accounts: Sequence[Account]) -> None:
        answers = self._at_block([("eth_call", ({"to": _hex(one.address), "data": _FACETS},)) for one in accounts])
        for account, answer in zip(accounts, answers, strict=True):
            words = _words(_data(answer))
            if words[:1] == [32] and words[1:2] == [len(words) - 2]:  # an array, and nothing more
                account.behind |= {word.to_bytes(32)[12:]: "EIP-2535 facet" for word in words[2:]}

    def _at_block(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[NodeAnswer]:
        """The answers at the block, or as it is now for all that follows where the node has no state of the block."""
        if not calls:
            return []
        answers = self._asked(calls)
        if self._block != "latest" and all(one.error for one in answers):
            self._block = "latest"
            again = self._asked(calls)
            if not all(one.error for one in again):
                reason = f"the node has no state of its block ({answers[0].error})"
                self._read.notes.append(f"Contracts are read as they are now: {reason}.")
            answers = again
        return answers

    def _asked(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[NodeAnswer]:
        return self._node.ask([NodeCall(method, (*parameters, self._block)) for method, parameters in calls])


_BEACON = "EIP-1967 beacon"
_SAFE = ("Safe proxy", "0x0")
_SLOTS = (
    ("EIP-1967 implementation", "0x" + slot("eip1967.proxy.implementation").hex()),
    (_BEACON, "0x" + slot("eip1967.proxy.beacon").hex()),
    ("EIP-1822 implementation", "0x" + slot("PROXIABLE", 0).hex()),
)


def _slots(runtime: RuntimeCode) -> tuple[tuple[str, str], ...]:
    """The slots that may have an implementation's address, each with its name. Any contract uses the first slot."""
    is_safe = any(pattern.name == _SAFE[0] for pattern in proxy_patterns(runtime))
    return (*_SLOTS, _SAFE) if is_safe else _SLOTS


def _hex(address: bytes) -> str:
    return "0x" + address.hex()


def _data(answer: NodeAnswer) -> bytes:
    """The bytes of a result; none for an error."""
    try:
        return b"" if answer.error else _bytes(answer.result)
    except (AttributeError, TypeError, ValueError):
        return b""


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 32]) for at in range(0, len(data), 32)]


def _address(answer: NodeAnswer) -> bytes:
    """The address in a word; empty where there is none."""
    word = _data(answer).rjust(32, b"\0")
    return word[12:] if len(word) == 32 and not any(word[:12]) and any(word) else b""
