"""Decoding with the contract that was called: its ABI or its code puts its texts first and rules others out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest

import sigdir
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import FORM, SPAM, TOPIC, TRANSFER, Application, application, get, post, request, selector

PATH = "/api/v1/decode/"
FUNC = "func_2093253501(bytes)"
CALL = selector(TRANSFER) + f"{0xAB:064x}{32:064x}"
WORKED = "workMyDirefulOwner(uint256,uint256)"
"""It has the selector of ``TRANSFER`` too, and decodes the same bytes."""


def entry(name: str, *types: str, kind: str = "function", **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "inputs": [{"name": f"p{n}", "type": t} for n, t in enumerate(types)], **more}


WORK_ABI = [
    entry("workMyDirefulOwner", "uint256", "uint256", outputs=[{"name": "paid", "type": "uint8"}]),
    entry("Late", kind="error"),
]
OTHER_ABI = [entry("other")]


def dispatcher(text: str) -> str:
    """Runtime code that compares this selector, and reads no arguments."""
    return f"0x5f3560e01c8063{selector(text)[2:]}14610014575f5ffd005b00"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    texts = (TRANSFER, SPAM, FUNC, WORKED, "multicall(bytes[])", "error Late()")
    with application(import_lines(tmp_path_factory.mktemp("hand") / "warehouse", *texts)) as app:
        yield app


def decoded(app: Application, **fields: Any) -> Any:
    answer = post(app, PATH, {"data": CALL} | fields)
    assert answer.status == 200, answer.body
    return answer.json()


def memberships(found: Any) -> dict[str, bool | None]:
    return {one["text_signature"]: one.get("in_contract") for one in found["candidates"]}


@pytest.mark.parametrize("abi", [WORK_ABI, {"abi": WORK_ABI}, json.dumps(WORK_ABI)], ids=["list", "artifact", "text"])
def test_the_text_of_the_abi_comes_first(app: Application, abi: Any) -> None:
    """Before the standard's, with the ABI's names; the others are marked and say why."""
    without = decoded(app)
    assert (without["candidates"][0]["text_signature"], without["contract"]) == (TRANSFER, None)
    assert set(memberships(without).values()) == {None}
    found = decoded(app, abi=abi)
    first = found["candidates"][0]
    assert (first["text_signature"], first["confidence"], first["in_contract"]) == (WORKED, "high", True)
    assert [one["name"] for one in first["parameters"]] == ["p0", "p1"]
    assert "the contract's ABI has it" in first["reasons"]
    assert memberships(found) == {WORKED: True, TRANSFER: False, SPAM: False, FUNC: False}
    [transfer] = [one for one in found["candidates"] if one["text_signature"] == TRANSFER]
    assert (transfer["confidence"], transfer["reasons"][-1]) == ("low", "the contract's ABI has another text for it")
    assert found["contract"] == {"by": "abi", "functions": 1, "events": 0, "errors": 1, "unread": 0}
    assert decoded(app, abi=[*WORK_ABI, {"type": "poem"}])["contract"]["unread"] == 1


def test_a_function_that_the_abi_lacks_is_ruled_out_unless_it_has_a_fallback(app: Application) -> None:
    """Errors and calls inside may be another contract's. A text that the directory lacks is the ABI's."""
    [only] = decoded(app, data=selector("other()"), abi=OTHER_ABI)["candidates"]
    assert (only["text_signature"], only["confidence"]) == ("other()", "high")
    assert set(memberships(decoded(app, abi=[*OTHER_ABI, {"type": "receive"}])).values()) == {False}
    assert set(memberships(decoded(app, abi=[*OTHER_ABI, {"type": "fallback"}])).values()) == {None}
    assert decoded(app, abi=OTHER_ABI, texts=[WORKED])["candidates"][0]["confidence"] == "low"
    assert memberships(decoded(app, data=CALL, abi=WORK_ABI, texts=[TRANSFER, "other()"]))["other()"] is None
    late = decoded(app, data=selector("Late()"), abi=OTHER_ABI, **{"as": "revert"})
    assert memberships(late) == {"Late()": None}
    inner = bytes.fromhex(CALL[2:]).ljust(96, b"\0").hex()
    multicall = selector("multicall(bytes[])") + f"{32:064x}{1:064x}{32:064x}{68:064x}" + inner
    abi = [entry("multicall", "bytes[]"), WORK_ABI[0]]
    [nested] = decoded(app, data=multicall, abi=abi)["candidates"][0]["nested"]
    assert memberships(nested) == {WORKED: True, TRANSFER: None}


def test_a_log_is_read_as_its_abi_declares_it(app: Application) -> None:
    """The ABI says which parameters are indexed, also of an anonymous event."""
    transfer = entry("Transfer", "address", "address", "uint256", kind="event")
    transfer["inputs"][1]["indexed"] = True
    log = {"topics": [f"0x{TOPIC}", f"0x{1:064x}"], "data": f"0x{2:064x}{3:064x}", "abi": [transfer]}
    parameters = post(app, PATH, log).json()["candidates"][0]["parameters"]
    assert [(one["name"], one["indexed"]) for one in parameters] == [("p0", False), ("p1", True), ("p2", False)]
    note = entry("Note", "uint256", kind="event", anonymous=True)
    note["inputs"][0]["indexed"] = True
    for said in ({"anonymous": True}, {}):
        answer = post(app, PATH, {"topics": [f"0x{7:064x}"], "data": "0x", "abi": [note]} | said).json()
        [found] = answer["candidates"]
        assert (found["text_signature"], found["parameters"][0]["value"]) == ("Note(uint256)", "7")


def test_a_returned_value_is_not_read_by_a_text_that_the_contract_cannot_have(app: Application) -> None:
    """What it has says so, and what it lacks is last and marked, as for the call. Without a contract nothing is said."""
    call = {"as": "return", "data": f"0x{1:064x}", "selector": selector(TRANSFER)}
    found = decoded(app, **call, abi=WORK_ABI)
    assert found["candidates"][0]["parameters"] == [{"name": "paid", "type": "uint8", "value": 1}]
    assert memberships(found) == {WORKED: True, TRANSFER: False}
    assert "the contract's ABI has it" in found["candidates"][0]["reasons"]
    assert memberships(decoded(app, **call, abi=OTHER_ABI)) == {TRANSFER: False}
    lacks = decoded(app, **call, code=dispatcher("other()"))["candidates"][0]
    assert (lacks["confidence"], lacks["reasons"]) == ("low", ["the contract's code has no such function"])
    assert memberships(decoded(app, **call)) == {TRANSFER: None}


def test_code_says_which_functions_there_are(app: Application) -> None:
    """A selector that the dispatcher lacks is ruled out, but not by the code of a proxy, which is named."""
    found = decoded(app, code=dispatcher("other()"))
    assert (found["contract"]["by"], found["contract"]["functions"]) == ("code", 1)
    assert set(memberships(found).values()) == {False}
    assert False not in memberships(decoded(app, code=dispatcher(TRANSFER))).values()
    proxy = "0x363d3d373d3d3d363d73" + "ab" * 20 + "5af43d82803e903d91602b57fd5bf3"
    found = decoded(app, code=proxy)
    assert set(memberships(found).values()) == {None}
    assert found["contract"]["proxies"] == [{"name": "EIP-1167 minimal proxy", "address": "0x" + "ab" * 20}]
    assert post(app, PATH, {"code": proxy}).json()["kind"] == "contract"


def test_files_and_sql_take_it_too(app: Application, tmp_path: Path) -> None:
    """Of all rows, with the ABI's names, beside texts that the directory has and texts that it lacks."""
    calls = [CALL, selector("other()")]
    (rows := tmp_path / "rows.csv").write_text("input\n" + "".join(f"{call}\n" for call in calls))
    (abi := tmp_path / "abi.json").write_text(json.dumps([*WORK_ABI, *OTHER_ABI]))

    def first(*options: Any) -> list[tuple[str | None, str | None]]:
        ran = invoke(app.folder, "decode", "--file", rows, *options)
        return [(row["text_signature"], row["arguments"]) for row in map(json.loads, ran.stdout.splitlines())]

    assert first("--abi", abi) == [(WORKED, {"p0": str(0xAB), "p1": str(32)}), ("other()", None)]
    assert [text for text, _ in first()] == [TRANSFER, None]
    assert invoke(app.folder, "decode", "--file", rows, "--abi", rows).status == 2
    written = tmp_path / "rows.parquet"
    assert invoke(app.folder, "decode", "--file", rows, "--abi", abi, "--output", written).status == 0
    assert pq.read_table(written).column("p0").to_pylist()[0] == str(0xAB)
    opened = sigdir.open(app.folder)
    for contract, fields in (
        (abi.read_text(), {"abi": [*WORK_ABI, *OTHER_ABI]}), (dispatcher(WORKED), {"code": dispatcher(WORKED)}),
        (f"0x{'7' * 40}", {}), (f"1:0x{'7' * 40}", {"chain": 1, "to": f"0x{'7' * 40}"}),
    ):  # fmt: skip
        [(found,)] = opened.sql("SELECT decode_calldata($1, $2)", [CALL, contract]).rows()
        assert json.loads(found) == decoded(app, **fields)
    log = f"decode_log(['0x{TOPIC}', '0x{1:064x}'], '0x{2:064x}{3:064x}', $1)"
    event = entry("Transfer", "address", "address", "uint256", kind="event")
    [(found,)] = opened.sql(f"SELECT {log}", [json.dumps([event])]).rows()
    assert json.loads(found)["contract"]["events"] == 1


def test_the_command_and_the_page_take_it_too(app: Application, tmp_path: Path) -> None:
    """The command's JSON is the API's; both say by which contract the bytes were read."""
    (abi := tmp_path / "abi.json").write_text(json.dumps(WORK_ABI))
    (code := tmp_path / "code.hex").write_text(dispatcher("other()") + "\n")
    decode = partial(invoke, app.folder, "decode")
    for arguments in ([CALL], ["calldata", CALL]):
        ran = decode(*arguments, "--abi", abi, "--json")
        assert (ran.status, json.loads(ran.stdout)) == (0, decoded(app, abi=WORK_ABI))
    assert json.loads(decode(CALL, "--code", code, "--json").stdout) == decoded(app, code=dispatcher("other()"))
    assert decode(CALL, "--abi", abi).stderr == "Read by the contract's ABI: 1 function, 0 events, 1 error.\n"
    assert decode(CALL).stderr == "Read without a contract.\n"
    code.write_text(dispatcher("other()")[:-2] + "5f5f5f5f5f5af4")
    delegates = ": 1 function. It delegates calls, and may take more than its code shows.\n"
    assert decode(CALL, "--code", code).stderr.endswith(delegates)
    abi.write_text("{}")
    ran = decode(CALL, "--abi", abi)
    assert (ran.status, f"Error: {abi}: an ABI is a list of objects" in ran.stderr) == (2, True)
    for contract, status, sentence in (
        (json.dumps(WORK_ABI), 200, "contract&#39;s ABI: 1 function"),
        (dispatcher("other()"), 200, "contract&#39;s code 0x"),
        ('["f(uint8)"]', 400, "an object with such a list as abi; declarations in words"),
        (f"0x{'7' * 40}", 400, f"contract: an address needs its chain before it, as 1:0x{'7' * 40}"),
    ):
        page = request(app, "POST", "/decode/", urlencode({"data": CALL, "contract": contract}).encode(), FORM)
        assert page.status == status
        assert sentence in page.body.decode()
        assert ("not of this contract" in page.body.decode()) == (status == 200)
    assert "Read without a contract." in get(app, f"/decode/?data={CALL}").body.decode()
    without_node = get(app, f"/decode/?tx=0x{'7' * 64}")
    assert (without_node.status, 'name="tx"' in without_node.body.decode()) == (200, False)
