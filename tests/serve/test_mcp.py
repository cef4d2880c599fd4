"""`sigdir mcp`: its tools, asked by the protocol's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import falcon.testing
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters

from sigdir.cli.mcp import mcp
from sigdir.pipeline.directory import opened
from sigdir.serve.core.budget import Cost
from sigdir.serve.http.bodies import pieces_of
from sigdir.serve.mcp_http import McpResource
from sigdir.serve.mcp_server import MAX_ANSWER, mcp_server
from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_files
from tests.examples import examples
from tests.pipeline.support import invoke
from tests.pipeline.test_export_pack import CALL, SPAM, TOPIC, TRANSFER, export
from tests.serve.support import HOST, Answer, Application, application, get, listening, request
from tests.serve.support import opened as storage
from tests.signatures.assembly import dispatcher

SPAMMER = "0x" + "11" * 20
SPAM_ENTRY = {"type": "function", "name": "many_msg_babbage", "inputs": [{"type": "bytes1", "name": ""}]}
TOOLS = {"resolve", "search", "decode", "contract", "solve"}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def test_the_help_names_every_tool() -> None:
    """Those of `sigdir mcp`, each once."""
    [sentence] = re.findall(r"The tools are (.*?)\.", mcp.help or "", re.DOTALL)
    assert set(re.findall(r"\w+", sentence)) - {"and"} == TOOLS


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "list.txt").write_text(f"{SPAM}\ntransfer()\nmyTransfer()\n")
    import_files([folder / "list.txt"], folder / "warehouse")
    import_files([ROOT / "samples"], folder / "warehouse")
    (folder / "1").mkdir()
    (folder / "1" / f"{SPAMMER}.json").write_text(json.dumps([SPAM_ENTRY]))
    import_files([folder / "1"], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def app(stored: Path) -> Iterator[Application]:
    with application(stored, mcp=True, solve=True) as app:
        yield app


def asked(server: Any, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a client gets from a server in this process, by streamable HTTP at an address, or from a command."""

    async def talk() -> Any:
        async with Client(server, read_timeout_seconds=SAFETY_SECONDS) as client:
            return await ask(client)

    return _in_thread(lambda: asyncio.run(talk()))


def posted(app: Application, body: bytes, headers: Mapping[str, str] = HEADERS, method: str = "POST") -> Answer:
    """The answer of the route to a request."""
    answer: Answer = _in_thread(lambda: request(app, method, "/mcp", body, headers))
    return answer


def _in_thread(work: Callable[[], Any]) -> Any:
    """A browser of other tests leaves the loop of this thread running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize("source", ["warehouse", "pack", "HTTP"])
def test_agents_get_texts_and_reasons(stored: Path, app: Application, source: str) -> None:
    """Of a warehouse, of a pack and over HTTP, by all tools; each answer fits its schema and begins with a sentence."""
    code = (ROOT / "docs" / "examples" / "token.hex").read_text()

    async def ask(client: Client) -> tuple[Any, ...]:
        return (
            await client.list_tools(), await client.call_tool("resolve", {"hashes": ["0xa9059cbb", TOPIC, "0x00000001"]}),
            await client.call_tool("search", {"fragment": "TRANSFER", "limit": 3}),
            await client.call_tool("decode", {"data": CALL}),
            await client.call_tool("decode", {"data": "1".rjust(64, "0"), "returned_by": "0xa9059cbb"}), await client.call_tool("contract", {"code": code}),
            await client.call_tool("solve", {"hash": TOPIC}),
        )  # fmt: skip

    if source == "HTTP":
        with listening(app) as port:
            found = asked(f"http://{HOST}:{port}/mcp", ask)
    elif source == "pack":
        arguments = ["-m", "sigdir", "mcp", "--pack", str(export(stored, declarations=True))]
        variables = environment(Path("/nowhere"))
        found = asked(StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT, env=variables), ask)
    else:
        with opened(stored) as directory:
            found = asked(mcp_server(directory), ask)
    listed, resolved, searched, decoded, returned, contract, solved = found
    assert {tool.name for tool in listed.tools} == TOOLS
    for tool in listed.tools:
        assert tool.annotations.read_only_hint
        assert not tool.annotations.open_world_hint
        assert "summary" in tool.output_schema["properties"]
        assert tool.description
    first, event, unknown = resolved.structured_content["hashes"]
    assert first["texts"][0]["text_signature"] == TRANSFER
    assert event["texts"][0]["declaration"].startswith("event Transfer(address indexed")
    assert unknown["texts"] == []
    assert resolved.structured_content["summary"].startswith(f"0xa9059cbb is {TRANSFER} (text of ERC-20; ")
    assert resolved.structured_content["summary"].endswith("0x00000001 is unknown.")
    matches = [one["text_signature"] for one in searched.structured_content["matches"]]
    standards = {TRANSFER, "transfer(address,uint256,uint256)", "Transfer(address,address,uint256)"}
    assert set(matches) == standards  # not the shortest, transfer()
    assert searched.structured_content["has_more"]
    calldata = f"calldata: {TRANSFER}, with high confidence (text of ERC-20; "
    assert decoded.structured_content["summary"].startswith(calldata)
    assert decoded.structured_content["readings"][0]["candidates"][0]["parameters"][1]["value"] == "40"
    assert returned.structured_content["summary"].startswith("return: ")
    assert solved.structured_content["texts"][0]["posterior"] == 1
    assert contract.structured_content["functions"]
    assert contract.structured_content["summary"].split()[1] == "functions,"


def test_a_server_of_a_small_pack_starts_without_numba_and_pyarrow(stored: Path) -> None:
    """Loading these takes longer than an agent should wait for a first answer."""
    code = f"""
import sys
from pathlib import Path
from sigdir.pipeline.directory import PackSource, open_directory
from sigdir.serve.mcp_server import mcp_server
mcp_server(directory := open_directory(PackSource(Path({str(export(stored))!r}))))
print(directory.ranked(bytes.fromhex("a9059cbb"))[0].text, {{"numba", "pyarrow"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{TRANSFER} set()\n", "")


def test_a_contract_may_stand_beside_the_bytes(call: Any) -> None:
    """By its ABI or its address. Every summary says by which contract it was read; an address alone is refused."""
    spam = "0xa9059cbb" + "01".ljust(64, "0")
    assert call("decode", {"data": spam})[1].count("Read without a contract.") == 1
    is_error, text = call("decode", {"data": spam, "abi": [SPAM_ENTRY]})
    assert (is_error, "calldata: many_msg_babbage(bytes1)" in text) == (False, True)
    is_error, text = call("decode", {"data": spam, "chain": 1, "to": SPAMMER})
    assert (is_error, "Read by the contract 1:" in text, '"by": "deployment"' in text) == (False, True, True)
    assert "the contract 1:0x1111" in text
    is_error, text = call("decode", {"data": spam, "chain": 2, "to": SPAMMER})
    assert (is_error, "no import has seen the interface of 2:0x1111" in text) == (False, True)


def test_the_sentence_has_the_remarks(call: Any) -> None:
    """An agent that repeats it alone says what a panic means, and whose code a DELEGATECALL runs."""
    _, text = call("decode", {"data": "0x4e487b71" + f"{0x11:064x}"})
    assert json.loads(text)["summary"].startswith(
        "revert: Panic(uint256), with high confidence (an error of the language; "
    )
    assert (
        "). Panic 0x11: arithmetic overflow or underflow outside of an unchecked block. Read"
        in json.loads(text)["summary"]
    )


def test_what_a_contract_has_is_counted(call: Any) -> None:
    """Also the functions without a text."""
    code = dispatcher([bytes.fromhex("a9059cbb"), b"\1\2\3\4"]).hex()
    assert '"2 functions, 0 events, 0 errors, 1 of them unknown."' in call("contract", {"code": code})[1]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("resolve", {"hashes": ["0x12"]}, "neither a selector nor a topic"),
    ("resolve", {"hashes": ["zz"]}, "8 or 64 hex digits"),
    ("resolve", {"hashes": []}, "at least 1"),
    ("resolve", {"hashes": ["0xa9059cbb"] * 101}, "at most 100"),
    ("resolve", {"hashes": ["0" * 70]}, "at most 66"),
    ("search", {"fragment": "t"}, "at least 2"),
    ("search", {"fragment": "tr", "limit": 0}, "greater than or equal to 1"),
    ("search", {"fragment": "tr", "kind": "other"}, "functions and errors"),
    ("decode", {"data": "0x12"}, "a selector has 4"),
    ("decode", {"data": "0x01", "returned_by": "0x12"}, "selector"),
    ("decode", {"data": "[" * 5000}, "data"),
    ("decode", {"data": CALL, "abi": "{}"}, "abi: an ABI is a list of objects"),
    ("decode", {"data": CALL, "to": SPAMMER}, "chain: an address needs"),
    ("decode", {"data": CALL, "chain": 1}, "to: a chain needs"),
    ("contract", {"code": "0xzz"}, "code"),
    ("contract", {"code": "00" * 262_145}, "at most 524288"),
    ("other", {}, "other"),
]


@pytest.fixture(scope="module")
def call(stored: Path) -> Any:
    """Calls a tool of a server in this process; gives whether it is an error, and its text."""
    with opened(stored) as directory:
        server = mcp_server(directory)

        def call(name: str, arguments: dict[str, Any]) -> tuple[bool, str]:
            found = asked(server, lambda client: client.call_tool(name, arguments))
            return bool(found.is_error), found.content[0].text

        yield call


@pytest.mark.parametrize(("name", "arguments", "told"), BAD)
def test_bad_arguments_are_refused_with_their_reason(
    call: Any, name: str, arguments: dict[str, Any], told: str
) -> None:
    """The agent reads what is wrong."""
    is_error, text = call(name, arguments)
    assert (is_error, told in text) == (True, True)


def test_an_answer_that_is_too_long_is_its_summary(call: Any) -> None:
    """Refused with how long it is, and what there is in short."""
    calls = 700
    places = "".join(f"{32 * calls + 96 * number:064x}" for number in range(calls))
    bodies = f"{36:064x}4e487b71{17:064x}{'0' * 56}" * calls
    is_error, text = call("decode", {"data": f"0xac9650d8{32:064x}{calls:064x}{places}{bodies}"})
    told = "bytes; at most 262,144 are given. Ask for less. In short: calldata: multi"
    assert (is_error, told in text) == (True, True)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(TOOLS)),
    st.dictionaries(
        st.sampled_from(["hashes", "fragment", "kind", "limit", "data", "code"]),
        st.one_of(st.text(max_size=40), st.integers(), st.none(), st.lists(st.text("0x12af", max_size=12), max_size=4), st.text("0x12af;() ", max_size=80)),
        max_size=3,
    ),
)  # fmt: skip
def test_any_arguments_get_a_bounded_answer(call: Any, name: str, arguments: dict[str, Any]) -> None:
    """Nothing that an agent sends is a crash: those have no reason in their text."""
    _, text = call(name, arguments)
    assert 0 < len(text) <= 4 * MAX_ANSWER
    assert text != f"Error executing tool {name}"


def test_http_solves_for_older_clients(app: Application) -> None:
    """They name the tool in the body alone."""
    named = {"name": "solve", "arguments": {"hash": "0x12345678", "seconds": 2}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": named}).encode()
    answer = posted(app, body)
    assert (answer.status, "texts tried" in answer.json()["result"]["structuredContent"]["summary"]) == (200, True)


def test_only_what_names_solve_waits_for_what_solves(stored: Path) -> None:
    """Any other tool of an older client does not; the process that answers gets the whole body."""
    with storage(stored) as (reader, _):
        resource = McpResource(reader, solves=True)
        for name in TOOLS:
            named = {"name": name, "arguments": {"fragment": "solve"}}
            for indent in (None, 2):
                body = json.dumps({"method": "tools/call", "params": named}, indent=indent)
                req = falcon.testing.create_req(method="POST", path="/mcp", body=body)
                assert (resource.cost(req) is Cost.PATIENCE) == (name == "solve")
                assert b"".join(pieces_of(req, 1000)) == body.encode()
        call = '{"method":"tools/call","params":{"name":"solve"}}'
        spelled = (call.replace("solve", "s\\u006flve"), call.replace("name", "n\\u0061me"))
        for sent in (*map(str.encode, spelled), call.encode("utf-16-le")):
            req = falcon.testing.create_req(method="POST", path="/mcp", body=sent)
            assert resource.cost(req) is Cost.PATIENCE


def test_no_answer_is_without_an_end(app: Application) -> None:
    """Nobody is told of changes: the answer to who listens would hold the process of costly requests."""
    modern = "io.modelcontextprotocol/"
    about = {f"{modern}protocolVersion": "2026-07-28", f"{modern}clientInfo": {"name": "a", "version": "1"}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": {**about, f"{modern}clientCapabilities": {}}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()
    headers = {**HEADERS, "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    assert posted(app, body, headers).json()["error"]["message"] == "Method not found"


def test_http_refuses_what_is_no_message(app: Application, stored: Path) -> None:
    """With a status and a reason. Without --solve there is no such tool, without --mcp there is no route."""
    for method, body, status in (
        ("GET", b"", 405), ("POST", b"{", 400), ("POST", b"[" * 100_000, 400), ("POST", b"x" * 4_000_000, 413),
    ):  # fmt: skip
        assert posted(app, body, method=method).status == status
    assert posted(app, b"{}", {"Content-Type": "text/plain"}).status in (400, 406, 415)
    asking = {"Origin": "https://a.test", "Access-Control-Request-Method": "POST"}
    assert posted(app, b"", asking, "OPTIONS").header("Access-Control-Allow-Origin") == "*"
    told = get(app, "/llms.txt").body.decode()
    assert "streamable HTTP" in told
    for address in re.findall(r"\]\((/\S+)\)", told):
        assert get(app, address).status == 200, address
    assert "/api/v1/search/?q=" in told
    with application(stored, mcp=True) as without:
        listed = posted(without, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}').json()["result"]["tools"]
    assert {tool["name"] for tool in listed} == TOOLS - {"solve"}
    with application(stored) as without:
        assert posted(without, b"{}").status == 404


def test_a_warehouse_that_is_missing_is_one_line(tmp_path: Path) -> None:
    """On standard error, with status 2; standard output is the protocol's."""
    done = invoke(tmp_path / "no", "mcp")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (2, b"", 1)
