"""`sigdir decode tx` and the page of `serve --rpc`: a transaction of a real node, anvil, by the code of its contracts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sigdir.pipeline.transaction import Node, NodeCall
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.proxies import slot
from tests.clients.support import CAST, Front, Served, chain, need
from tests.clients.test_docs import PAGE
from tests.conftest import ROOT, SAFETY_SECONDS, import_files
from tests.pipeline.support import CommandResult, invoke
from tests.serve.support import SPAM, TRANSFER, application, get

EXAMPLES = ROOT / "docs" / "examples"
SENDER, RECIPIENT = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
TOKEN, BEACON = "0x" + "a1" * 20, "0x" + "c3" * 20
DEPLOYED = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
TRACE, DECODED, FAILED = re.findall(
    r"^```text\n(.*?)^```", PAGE.partition("## Explain a transaction")[2], re.MULTILINE | re.DOTALL
)
"""docs/clients.md, "Explain a transaction"."""
HOME = 5
"""The slot from which the proxies of the tests take the address to which they delegate."""


def delegating(place: str = f"60{HOME:02x}", before: str = "") -> str:
    """Code that passes its calls to the address in a slot; ``place`` pushes the slot, ``before`` runs first."""
    call = f"{before}365f5f375f5f365f{place}545af43d5f5f3e5f3d91"
    end = len(call) // 2 + 3
    return f"0x{call}60{end + 1:02x}57fd5bf3"


def answering(selector: str, words: list[str]) -> tuple[str, int]:
    """Code that returns words to calls of a selector, with the place after it where other calls go on, and that place."""
    stores = "".join(f"7f{word.zfill(64)}60{32 * at:02x}52" for at, word in enumerate(words))
    body = f"{stores}60{32 * len(words):02x}5ff3"
    head = "5f3560e01c63" + selector + "1415"
    after = len(head) // 2 + 3 + len(body) // 2
    return f"{head}60{after:02x}57{body}5b", after


class Chain:
    """A local chain with the token of docs/examples."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rpc("anvil_setCode", TOKEN, (EXAMPLES / "token.hex").read_text().strip())

    def rpc(self, method: str, *parameters: Any) -> Any:
        [found] = Node(self.url, 30).results([NodeCall(method, parameters)])
        return found

    def make(self, address: str, code: str, **slots: str) -> None:
        """A contract with this code, whose sender has 1,000 tokens; ``slots`` are those of storage."""
        self.rpc("anvil_setCode", address, code)
        balance = "0x" + keccak256(bytes.fromhex(SENDER[2:].zfill(64)) + bytes(32)).hex()
        for place, value in {f"0x{HOME:x}": TOKEN, balance: "0x3e8", **slots}.items():
            self.rpc("anvil_setStorageAt", address, place, "0x" + value[2:].zfill(64))

    def send(self, to: str | None, data: str) -> str:
        """The hash of a transaction that is in a block; the node answers before it is."""
        sent = {"from": SENDER, "data": data, "gas": "0x100000"} | ({"to": to} if to else {})
        hash = str(self.rpc("eth_sendTransaction", sent))
        end = time.monotonic() + SAFETY_SECONDS
        while self.rpc("eth_getTransactionReceipt", hash) is None:
            assert time.monotonic() < end, f"{hash} is in no block"
            time.sleep(0.01)
        return hash


@pytest.fixture(scope="module")
def node() -> Iterator[Chain]:
    with chain() as url:
        yield Chain(url)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The selector of transfer has two texts here."""
    folder = tmp_path_factory.mktemp("transactions")
    (folder / "texts.txt").write_text(
        f"{SPAM}\n{TRANSFER}\nmulticall(bytes[])\nerror ERC20InsufficientBalance(address,uint256,uint256)"
    )
    fields = [
        {"path": "value", "label": "Amount", "format": "tokenAmount"},
        {"path": "to", "label": "Receiver", "format": "addressName"},
    ]
    shown = {"intent": "Send", "interpolatedIntent": "Send {value} to {to}", "fields": fields}
    descriptor = {
        "context": {"contract": {"deployments": [{"chainId": 31337, "address": TOKEN}]}},
        "display": {"formats": {"transfer(address to,uint256 value)": shown}},
    }
    (folder / "calldata-token.json").write_text(json.dumps(descriptor))
    sources = [folder / "texts.txt", folder / "calldata-token.json", ROOT / "samples"]
    import_files(sources, folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture
def explain(node: Chain, warehouse: Path) -> Callable[..., CommandResult]:
    return lambda hash, *options: invoke(warehouse, "decode", "tx", hash, "--rpc", node.url, *options)


@pytest.fixture(params=["warehouse", "pack"])
def explain_either(
    request: pytest.FixtureRequest, node: Chain, warehouse: Path, tmp_path: Path
) -> Callable[..., CommandResult]:
    """By the warehouse, and by a pack of its texts where there is no warehouse."""
    folder, options = warehouse, list[str | Path]()
    if request.param == "pack":
        folder, options = tmp_path / "none", ["--pack", tmp_path / "texts.pack"]
        assert invoke(warehouse, "export", "pack", options[1], "--with-declarations", "-q").status == 0
    return lambda hash, *others: invoke(folder, "decode", "tx", hash, "--rpc", node.url, *options, *others)


def call(value: int) -> str:
    return f"0xa9059cbb{RECIPIENT[2:].zfill(64)}{value:064x}"


def values(part: Any) -> list[Any]:
    return [one.get("value") for one in part["candidates"][0]["parameters"]]


def test_a_call_with_calls_inside_and_logs(node: Chain, explain_either: Callable[..., CommandResult]) -> None:
    """Each part is read by the code of its contract, which rules out the text that it does not have."""
    node.make(TOKEN, (EXAMPLES / "token.hex").read_text().strip())
    sent = node.send(TOKEN, (EXAMPLES / "multicall.hex").read_text().strip())
    ran = explain_either(sent, "--json")
    assert (ran.status, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert (found["status"], found["chain"], found["to"], found["notes"]) == ("succeeded", 31337, TOKEN, [])
    first = found["call"]["candidates"][0]
    assert (first["text_signature"], first["in_contract"]) == ("multicall(bytes[])", True)
    assert [one["candidates"][0]["text_signature"] for one in first["nested"]] == [TRANSFER] * 2
    assert [values(log)[2] for log in found["logs"]] == ["40", "2"]
    assert {log["contract"]["by"] for log in found["logs"]} == {"code"}
    shown = explain_either(sent).stdout.decode()
    assert shown.startswith(f"{sent} succeeded, chain 31337, block ")
    assert "[0.1] transfer(address,uint256)" in shown
    assert "\n\nLog 1, 0x" in shown


def test_a_revert_is_that_of_the_call_made_again(node: Chain, explain_either: Callable[..., CommandResult]) -> None:
    node.make(TOKEN, (EXAMPLES / "token.hex").read_text().strip())
    ran = explain_either(node.send(TOKEN, call(5000)), "--json")
    found = json.loads(ran.stdout)
    assert (found["status"], found["logs"], values(found["revert"])[1:]) == ("failed", [], ["1000", "5000"])
    assert found["revert"]["candidates"][0]["text_signature"] == "ERC20InsufficientBalance(address,uint256,uint256)"
    assert found["notes"] == ["What it gave back is that of the same call before its block."]


BEACON_ANSWER = answering("5c60da1b", [TOKEN[2:]])[0] + "5f5ffd"
FACETS = answering("52ef6b2c", ["20", "1", TOKEN[2:]])
MINIMAL = f"0x363d3d373d3d3d363d73{TOKEN[2:]}5af43d82803e903d91602b57fd5bf3"


@pytest.mark.parametrize(
    ("code", "slots", "how"),
    [
        (MINIMAL, {}, "EIP-1167 minimal proxy"),
        (delegating(f"7f{slot('eip1967.proxy.implementation').hex()}"),
         {"0x" + slot("eip1967.proxy.implementation").hex(): TOKEN}, "EIP-1967 implementation"),
        (delegating(), {"0x" + slot("PROXIABLE", 0).hex(): TOKEN}, "EIP-1822 implementation"),
        (delegating(), {"0x" + slot("eip1967.proxy.beacon").hex(): BEACON}, "EIP-1967 beacon"),
        (delegating(before=FACETS[0]), {}, "EIP-2535 facet"),
    ],
    ids=["minimal", "1967", "1822", "beacon", "diamond"],
)  # fmt: skip
def test_a_proxy_is_followed(
    node: Chain, explain: Callable[..., CommandResult], code: str, slots: dict[str, str], how: str
) -> None:
    """The functions of what is behind it are its own; the descriptor of what is behind it says nothing of the proxy."""
    node.make(TOKEN, (EXAMPLES / "token.hex").read_text().strip())
    node.rpc("anvil_setCode", BEACON, f"0x{BEACON_ANSWER}")
    proxy = "0x" + keccak256(how.encode()).hex()[:40]
    node.make(proxy, code, **slots)
    found = json.loads(explain(node.send(proxy, call(7)), "--json").stdout)
    assert (found["status"], len(found["logs"])) == ("succeeded", 1)
    for part in (found["call"], found["logs"][0]):
        assert part["contract"]["proxies"] == [{"name": how, "address": TOKEN}]
    [first, *others] = found["call"]["candidates"]
    assert (first["text_signature"], first["in_contract"], "display" in first) == (TRANSFER, True, False)
    assert [one["in_contract"] for one in others if one["text_signature"] == SPAM] == [False]


def test_what_the_node_answers_is_said(node: Chain, explain: Callable[..., CommandResult], warehouse: Path) -> None:
    """One line and status 2: an unknown transaction, an address where no node is."""
    unknown = explain("0x" + "7" * 64)
    assert (unknown.status, unknown.stderr) == (2, f"Error: the node knows no transaction 0x{'7' * 64}\n")
    for url, problem in (("http://127.0.0.1:1/secret", "Connection refused"), ("ftp://x", "begins with http")):
        ran = invoke(warehouse, "decode", "tx", "0x" + "7" * 64, "--rpc", url)
        assert ran.status == 2
        assert problem in ran.stderr
        assert "secret" not in ran.stderr
    plain = json.loads(explain(node.send(RECIPIENT, "0x"), "--json").stdout)
    assert plain["call"]["note"] == "No data: a plain transfer of value, which `receive` takes."
    made = json.loads(explain(node.send(None, f"0x{BEACON_ANSWER}"), "--json").stdout)
    assert (made["to"], made["call"], made["created"][:2]) == (None, None, "0x")


def test_the_page_of_a_server_with_a_node(node: Chain, warehouse: Path) -> None:
    """It shows the call, the logs, and what each was read by; a hash that is none is an answer of 400."""
    node.make(TOKEN, (EXAMPLES / "token.hex").read_text().strip())
    sent = node.send(TOKEN, call(7))
    with application(warehouse, rpc=node.url) as app:
        assert 'name="tx"' in get(app, "/decode/").body.decode()
        page = get(app, f"/decode/?tx={sent}")
        assert page.status == 200
        for part in (
            "The call",
            "Log 0",
            "contract&#39;s code 0x",
            "succeeded",
            "Transfer(address",
            "<dt>Value</dt><dd>0 wei</dd>",
            "Send 7 to 0x7099",
            "Receiver",
        ):
            assert part in page.body.decode().replace("<wbr>", "")
        for wrong, status in (("0x12", 400), ("0x" + "7" * 64, 404)):
            answer = get(app, f"/decode/?tx={wrong}")
            assert answer.status == status
            assert "transaction" in answer.body.decode()
            assert node.url not in answer.body.decode()


# docs/clients.md: cast's trace of a transaction and what `sigdir decode` says, as the page has them.


@pytest.fixture(scope="module")
def deployed(node: Chain) -> str:
    """The contract of the page."""
    node.make(DEPLOYED, (EXAMPLES / "token.hex").read_text().strip())
    return DEPLOYED


def traced(front: Front, node: Chain, sent: str, home: Path) -> str:
    """What cast prints of a transaction, which may have failed. It keeps no names of earlier runs."""
    need(CAST)
    done = front.tried("env", f"HOME={home}", CAST, "run", "--rpc-url", node.url, sent)
    assert done.returncode == 0 or "Transaction failed" in done.stderr, done.stderr
    return done.stdout


def assert_shows(printed: str, page: str) -> None:
    """Each line of the page was printed, in order; ``...`` stands for anything."""
    lines = iter(printed.splitlines())
    for wanted in filter(None, page.splitlines()):
        pattern = re.escape(wanted.rstrip()).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, line.rstrip()) for line in lines), (wanted, printed)


def output_of(page: str, command: str) -> str:
    """What a command printed on the page, up to the next one."""
    return page.partition(f"$ {command}")[2].partition("\n")[2].partition("\n$ ")[0]


@pytest.mark.long
def test_a_transaction_is_explained_as_the_page_says(
    front: Front, node: Chain, deployed: str, server: Served, tmp_path: Path
) -> None:
    """cast replays two transfers in one call; our trees of its input and of its first log have the same calls and values."""
    data = (EXAMPLES / "multicall.hex").read_text().strip()
    sent = node.send(deployed, data)
    assert_shows(traced(front, node, sent, tmp_path), output_of(TRACE, "cast run"))
    log = json.dumps(node.rpc("eth_getTransactionReceipt", sent)["logs"][0])
    parts = [invoke(server.folder, "decode", part).stdout.decode() for part in (data, log)]
    assert_shows("".join(parts), DECODED)


@pytest.mark.long
def test_a_failed_transaction_is_explained_as_the_page_says(
    front: Front, node: Chain, deployed: str, server: Served, tmp_path: Path
) -> None:
    """cast shows the data of an error that it does not know; it is all that we need."""
    printed = traced(front, node, node.send(deployed, call(5000)), tmp_path)
    assert_shows(printed, output_of(FAILED, "cast run"))
    selector, arguments = re.findall(r"custom error (0x[0-9a-f]{8}): ([0-9a-f]+)", printed)[0]
    decoded = invoke(server.folder, "decode", "revert", selector + arguments)
    assert_shows(decoded.stdout.decode(), output_of(FAILED, "sigdir decode revert"))
