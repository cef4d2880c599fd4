"""What a node may answer: every answer is bounded, and what is wrong with it is said in a sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sigdir.pipeline.transaction import (
    BadHash,
    ChainTransaction,
    ExplainedTransaction,
    Node,
    NodeError,
    UnknownTransaction,
    checked_hash,
    read_transaction,
)
from tests.pipeline.directories import running

HASH = "0x" + "5c" * 32
TO, TARGET = "0x" + "aa" * 20, "0x" + "bb" * 20
FOUND = {"from": "0x" + "11" * 20, "to": TO, "value": "0x1", "input": "0xa9059cbb"}
RECEIPT: dict[str, Any] = {
    "blockNumber": "0x10", "gasUsed": "0x5208", "status": "0x1", "contractAddress": None, "logs": [],
}  # fmt: skip
MINIMAL = f"0x363d3d373d3d3d363d73{TARGET[2:]}5af43d82803e903d91602b57fd5bf3"


class NodeServer(ThreadingHTTPServer):
    """A node whose answers a test gives: ``raw`` bytes with a status, or a result or an error for each call."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.raw: tuple[int, bytes] | None = None
        self.takes_batches, self.pause, self.asked = True, 0.0, list[Any]()
        self.results: dict[str, Any] = {}

    def answer(self, call: Any) -> Any:
        self.asked.append((call["method"], call["params"]))
        found = self.results[call["method"]]
        found = found(call["params"]) if callable(found) else found
        kind = "error" if isinstance(found, dict) and "code" in found else "result"
        return {"jsonrpc": "2.0", "id": call["id"], kind: found}


class _Handler(BaseHTTPRequestHandler):
    server: NodeServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.server.raw or (200, b"")
        if self.server.raw is None and isinstance(asked, list) and not self.server.takes_batches:
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no batch"}}).encode()
        elif self.server.raw is None:
            listed = [self.server.answer(one) for one in (asked if isinstance(asked, list) else [asked])]
            body = json.dumps(listed if isinstance(asked, list) else listed[0]).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), 64) if self.server.pause else ():
            self.wfile.write(body[at : at + 64])
            time.sleep(self.server.pause)
        if not self.server.pause:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def node() -> Iterator[NodeServer]:
    with running(NodeServer()) as server:
        server.results = {
            "eth_chainId": "0x1", "eth_getTransactionByHash": FOUND, "eth_getTransactionReceipt": RECEIPT,
            "eth_getCode": "0x", "eth_getStorageAt": "0x" + "00" * 32, "eth_call": {"code": 3, "message": "execution reverted"},
        }  # fmt: skip
        yield server


def read(server: NodeServer, seconds: float = 20.0) -> ChainTransaction:
    return read_transaction(Node(f"http://127.0.0.1:{server.server_port}/v3/key", seconds), HASH)


@pytest.mark.parametrize("takes_batches", [True, False])
def test_a_node_that_takes_no_batch_is_asked_one_by_one(node: NodeServer, takes_batches: bool) -> None:
    node.takes_batches = takes_batches
    node.results["eth_getCode"] = lambda parameters: MINIMAL if parameters[0] == TO else "0x6001"
    found = read(node)
    assert (found.chain, found.succeeded, found.block) == (1, True, 16)
    assert found.to is not None
    assert [found.accounts[at].code.hex() for at in (found.to, *found.behind(found.to))] == [MINIMAL[2:], "6001"]
    assert {parameters[1] for method, parameters in node.asked if method == "eth_getCode"} == {"0x10"}


def test_without_the_state_of_the_block_contracts_are_read_as_they_are_now(node: NodeServer) -> None:
    pruned = {"code": -32000, "message": "missing trie node"}
    node.results["eth_getCode"] = lambda parameters: "0x6001" if parameters[1] == "latest" else pruned
    found = read(node)
    assert found.to is not None
    assert found.accounts[found.to].code == b"\x60\x01"
    assert found.notes == [
        "Contracts are read as they are now: the node has no state of its block (error -32000: missing trie node)."
    ]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ((200, b"<html>"), "answered no JSON: <html>"), ((429, b"slow down"), "429 Too Many Requests: slow down"), ((200, b"7"), "answered no JSON-RPC: 7"),
        ((401, b"{}"), "401 Unauthorized"), ((200, b"[]"), "answered no JSON-RPC: []"), ((200, b"[" * 100_000), "answered no JSON: [[["),
        ((200, b" " * (17 << 20)), "an answer of over 16,777,216 bytes"), ((307, b""), "307 Temporary Redirect"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_said(node: NodeServer, raw: tuple[int, bytes], problem: str) -> None:
    """With what the node answered, and without its path, which may be a key."""
    node.raw = raw
    with pytest.raises(NodeError) as error:
        read(node)
    assert problem in str(error.value)
    assert "key" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "value", "problem"),
    [
        ("eth_getTransactionByHash", {"code": -32601, "message": "no such method"}, "eth_getTransactionByHash with error -32601: no such method"),
        ("eth_getTransactionByHash", FOUND | {"input": "0xzz"}, "cannot be read"), ("eth_getTransactionByHash", {}, "cannot be read"),
        ("eth_getTransactionReceipt", RECEIPT | {"logs": 7}, "cannot be read"), ("eth_chainId", [], "cannot be read"),
    ],
)  # fmt: skip
def test_a_transaction_that_cannot_be_read_is_said(node: NodeServer, method: str, value: Any, problem: str) -> None:
    node.results[method] = value
    with pytest.raises(NodeError, match=problem):
        read(node)


def test_what_a_node_says_is_one_line_without_control_characters(node: NodeServer) -> None:
    node.results["eth_getTransactionByHash"] = {"code": -32000, "message": "pay\n\x1b[2K\u202eecila"}
    with pytest.raises(NodeError, match=r"error -32000: pay\\n\\x1b\[2K\\u202eecila"):
        read(node)


def test_an_unknown_transaction_and_a_hash_that_is_none(node: NodeServer) -> None:
    node.results["eth_getTransactionByHash"] = None
    with pytest.raises(UnknownTransaction, match=HASH):
        read(node)
    for text in ("", "0x12", "5c" * 32, HASH + "00"):
        with pytest.raises(BadHash):
            checked_hash(text)


def test_a_node_that_drips_its_answer_is_left(node: NodeServer) -> None:
    """However many bytes arrive: the whole answer has its time."""
    node.results["eth_getTransactionByHash"] = FOUND | {"input": "0x" + "00" * 100_000}
    node.pause = 0.02
    with pytest.raises(NodeError, match=r"no end of the answer in 0\.3 s|no answer in 0\.3 s|answers too slowly"):
        read(node, seconds=0.3)


def test_proxies_that_lead_in_a_circle_and_many_contracts_end(node: NodeServer) -> None:
    """Each address is read once, and at most 64 of them."""
    node.results["eth_getCode"] = MINIMAL
    logs = [{"address": f"0x{n:040x}", "topics": [], "data": "0x"} for n in range(200)]
    node.results["eth_getTransactionReceipt"] = RECEIPT | {"logs": logs}
    found = read(node)
    assert (len(found.accounts), len(found.logs)) == (64, 200)
    assert len(found.notes) == 1
    codes = [parameters[0] for method, parameters in node.asked if method == "eth_getCode"]
    assert len(codes) == len(set(codes)) == 64


def test_a_failed_call_that_succeeds_when_it_is_made_again_says_so(node: NodeServer) -> None:
    node.results["eth_getTransactionReceipt"] = RECEIPT | {"status": "0x0"}
    node.results["eth_call"] = "0x"
    found = read(node)
    assert found.revert is None
    assert found.notes == ["It failed. Called again before its block, the node answers that the call succeeds."]
    node.results["eth_call"] = {"code": 3, "message": "execution reverted", "data": "0x4e487b71"}
    assert read(node).revert == bytes.fromhex("4e487b71")


def test_a_receipt_that_does_not_say_how_it_ended_is_of_a_transaction_in_a_block(node: NodeServer) -> None:
    """Receipts of before Byzantium have no status. Only what has no receipt is pending."""
    for receipt, status in (
        (RECEIPT, "succeeded"), (RECEIPT | {"status": "0x0"}, "failed"), (RECEIPT | {"status": None}, "mined"), (None, "pending"),
    ):  # fmt: skip
        old = receipt and {name: value for name, value in receipt.items() if value is not None}
        node.results |= {"eth_getTransactionReceipt": old, "eth_call": "0x"}
        assert ExplainedTransaction(read(node), []).status == status
