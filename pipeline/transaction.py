"""A transaction as a node has it: the call, its logs, what it reverted with, and the code of the contracts in it.

The contracts are the one that was called and those that made logs. A proxy's code says little, so the code behind it
is read too: the slots of EIP-1967 and EIP-1822, a beacon's implementation, a diamond's facets, the address in a
minimal proxy, the first slot of a Safe's proxy. They are read as they were after the transaction's block, or, of a
node that has no state of that block, as they are now.

Bounds: MAX_LOGS logs, MAX_ADDRESSES addresses, MAX_DEPTH proxies one behind the other, and those of ``Node``.

``Node`` asks by JSON-RPC: several calls in one request, everything bounded. ``explain_transaction`` reads the call, the
logs and the revert, each by the code of the contract that it is of.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sigdir.pipeline.errors import PipelineError, one_line
from sigdir.pipeline.fetch import Fetcher, FetchError, RetryPolicy
from sigdir.signatures.abi_decoder import MAX_BYTES
from sigdir.signatures.bytecode import BadBytecode, RuntimeCode, analyse
from sigdir.signatures.clear_signing import Called
from sigdir.signatures.contract import ContractCode, read_code
from sigdir.signatures.given_contract import CodeContract
from sigdir.signatures.proxies import proxy_patterns, slot
from sigdir.signatures.reading_json import document
from sigdir.signatures.readings import Form, Input, Reading
from sigdir.warehouse.table.stores import is_http_url

ANSWER_BYTES = 16 << 20
"""Of one request. A receipt with ten thousand logs has 8 MB."""
_BATCH_CALLS = 50
_MAX_REQUESTS = 200
_SHOWN = 200


class NodeError(PipelineError):
    """A node cannot be asked, or answered with an error; the sentence says what it answered, and not its whole URL."""


class NodeAnswer(NamedTuple):
    """What a node answers to one call: the result, or an error and its data as hex digits, "" for none."""

    result: Any = None
    error: str = ""
    data: str = ""


class NodeCall(NamedTuple):
    """A method of JSON-RPC and its parameters."""

    method: str
    parameters: tuple[Any, ...] = ()


class Node:
    """A node at a URL, which may hold a key: messages name its host alone.

    No request begins ``seconds`` after the first could, and each ends within as many.
    """

    def __init__(self, url: str, seconds: float, name: str = "") -> None:
        """``name`` stands in messages in place of the host. Raises NodeError for a URL that is none."""
        host = checked_url(url)
        self._url, self._name = url, name or host
        self._ends = time.monotonic() + seconds
        self._fetcher = Fetcher(RetryPolicy(rate=1e6, tries=1, timeout=seconds, deadline=seconds))

    def ask(self, calls: Sequence[NodeCall]) -> list[NodeAnswer]:
        """The answer to each call; raises NodeError where the node gives none."""
        answers: list[NodeAnswer] = []
        for first in range(0, len(calls), _BATCH_CALLS):
            answers += self._batch(calls[first : first + _BATCH_CALLS])
        return answers

    def results(self, calls: Sequence[NodeCall]) -> list[Any]:
        """The result of each call; raises NodeError for the first that has an error."""
        answers = self.ask(calls)
        for call, answer in zip(calls, answers, strict=True):
            if answer.error:
                raise NodeError(f"{self._name} answered {call.method} with {answer.error}")
        return [answer.result for answer in answers]

    def _batch(self, calls: Sequence[NodeCall]) -> list[NodeAnswer]:
        """The answers to one request. A node that takes no batch gets a request for each call."""
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.parameters}
            for number, call in enumerate(calls)
        ]
        found = self._post(requests if len(calls) > 1 else requests[0])
        if isinstance(found, dict) and len(calls) > 1:
            return [self._batch([call])[0] for call in calls]
        listed = found if isinstance(found, list) else [found]
        by_id = {one.get("id"): _answer(one) for one in listed if isinstance(one, dict)}
        if not all(number in by_id for number in range(len(calls))):
            raise NodeError(f"{self._name} answered no JSON-RPC: {json.dumps(found)[:_SHOWN]}")
        return [by_id[number] for number in range(len(calls))]

    def _post(self, request: Any) -> Any:
        if self._fetcher.requests >= _MAX_REQUESTS:
            raise NodeError(f"{self._name}: over {_MAX_REQUESTS} requests for one transaction")
        if time.monotonic() > self._ends:
            raise NodeError(f"{self._name}: it answers too slowly")
        try:
            raw = self._fetcher.get(self._url, ANSWER_BYTES, data=json.dumps(request).encode())
        except FetchError as error:
            raise NodeError(f"{self._name}: {error.reason}") from None
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            shown = raw[:_SHOWN].decode("ascii", "backslashreplace")
            raise NodeError(f"{self._name} answered no JSON: {shown}") from None


def checked_url(url: str) -> str:
    """The scheme and host of a node's URL; raises NodeError for a URL that is none."""
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if not is_plain or not is_http_url(url) or urlsplit(url).username is not None:
        raise NodeError("the URL of a node begins with http:// or https:// and a host, and names no user")
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _answer(found: dict[str, Any]) -> NodeAnswer:
    error = found.get("error")
    if error is None:
        return NodeAnswer(found.get("result"))
    if not isinstance(error, dict):
        return NodeAnswer(error=json.dumps(error)[:_SHOWN])
    data = error.get("data")
    shown = f"error {error.get('code')}: {str(error.get('message'))[:_SHOWN]}"
    return NodeAnswer(error=one_line(shown), data=data if isinstance(data, str) else "")


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

    ``to`` is None where it makes a contract, which is then ``created``. ``succeeded`` is None while it is pending, and in
    receipts of before Byzantium, which do not say so.
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
        one = self.transaction
        if one.succeeded is None:
            return "pending" if one.block is None else "mined"
        return "succeeded" if one.succeeded else "failed"

    @property
    def is_read(self) -> bool:
        """Whether each part with data has a text."""
        return all(part.readings[0].best or not (part.input.data or part.input.topics) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        one = self.transaction
        found: dict[str, Any] = {
            "hash": one.hash, "chain": one.chain, "block": one.block, "status": self.status, "from": _hex(one.sender),
            "to": _hex(one.to) if one.to else None, "created": _hex(one.created) if one.created else None, "value": str(one.value), "gas_used": one.gas_used,
            "call": None, "logs": [], "revert": None, "notes": one.notes,
        }  # fmt: skip
        for part in self.parts:
            if part.name == "log":
                found["logs"].append(part.to_dict())
            else:
                found[part.name] = part.to_dict()
        return found


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
