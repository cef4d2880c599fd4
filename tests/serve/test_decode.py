"""Decoding over HTTP and as a command: the same answers, from rows that were imported and rows that were POSTed."""

from __future__ import annotations

import json
import re
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from eth_abi.abi import encode

from sigdir.serve.pages.shown_reading import PageBudget
from sigdir.signatures.abi_decoder import MAX_BYTES
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import (
    EVENTS_PATH,
    FORM,
    SPAM,
    TOPIC,
    TRANSFER,
    Application,
    application,
    get,
    multipart,
    post,
    post_text,
    request,
    selector,
    topic,
)

PATH = "/api/v1/decode/"
TO = "0x" + "ab" * 20
CALLDATA = "0xa9059cbb" + encode(["address", "uint256"], [TO, 1000]).hex()


ANONYMOUS = "event LogNote(bytes4 indexed sig, uint256 value) anonymous"
NOTE_TOPIC, NOTE_DATA = "0x" + "12345678".ljust(64, "0"), f"0x{9:064x}"


def test_an_anonymous_log_is_decoded_by_its_declaration(app: Application) -> None:
    """The same by POST and by `decode log`; without a text it says what is missing."""
    answer = post(app, PATH, {"topics": [NOTE_TOPIC], "data": NOTE_DATA, "texts": [ANONYMOUS]}).json()
    [candidate] = answer["candidates"]
    assert candidate["text_signature"] == "LogNote(bytes4,uint256)"
    assert [(one["name"], one["indexed"], one["value"]) for one in candidate["parameters"]] == [
        ("sig", True, "0x12345678"), ("value", False, "9"),
    ]  # fmt: skip
    command = partial(invoke, app.folder, "decode", "log", "--topic", NOTE_TOPIC, "--json")
    assert json.loads(command("--text", ANONYMOUS, "--data", NOTE_DATA).stdout) == answer
    missing = command("--anonymous")
    assert missing.status == 1
    assert json.loads(missing.stdout)["note"] == "An anonymous event has no hash; its text has to be given."


def decoded(app: Application, data: str) -> Any:
    answer = get(app, f"{PATH}?data={quote(data)}")
    assert answer.status == 200
    return answer.json()


def test_each_text_of_the_selector_is_tried(app: Application) -> None:
    """A text that decodes comes first although it is newer; one that does not is listed with the reason."""
    assert decoded(app, CALLDATA) == {
        "kind": "calldata",
        "selector": "0xa9059cbb",
        "bytes": 68,
        "texts": 2,
        "candidates": [
            {
                "text_signature": TRANSFER,
                "filtered": False,
                "decodes": True,
                "exact": True,
                "left_over": 0,
                "confidence": "high",
                "reasons": ["text of ERC-20", "the values encode to the same bytes"],
                "parameters": [{"type": "address", "value": TO}, {"type": "uint256", "value": "1000"}],
            },
            {
                "text_signature": SPAM,
                "filtered": True,
                "decodes": False,
                "reason": "bad_padding",
                "detail": "the word at byte 4 is out of range for its type, or its padding is not zero",
            },
        ],
        "contract": None,
    }


def test_a_mined_text_that_alone_fits_is_filtered_and_in_doubt(tmp_path: Path) -> None:
    """As in lookups, where no standard has the selector either: contracts take bytes that are left over."""
    with application(import_lines(tmp_path / "warehouse", "upgrade()", "coral_cable_news(uint256)")) as app:
        [mined, meant] = decoded(app, f"{selector('upgrade()')}{9:064x}")["candidates"]
    assert [mined["text_signature"], meant["text_signature"]] == ["coral_cable_news(uint256)", "upgrade()"]
    assert (mined["filtered"], meant["filtered"], mined["confidence"]) == (True, False, "medium")
    assert mined["reasons"][-1].startswith("looks mined: coral_cable_news in its name looks made up")


def test_a_selector_without_texts_has_no_candidates(app: Application) -> None:
    assert decoded(app, "0x00000000") == {
        "kind": "calldata", "selector": "0x00000000", "bytes": 4, "texts": 0, "candidates": [],
        "note": "No text with this selector is known.", "contract": None,
    }  # fmt: skip


def test_long_data_is_posted(app: Application) -> None:
    """POST accepts JSON and both kinds of form; data over the bound is refused."""
    data = (
        selector("set(bytes,(uint8,string)[])")
        + encode(["bytes", "(uint8,string)[]"], [bytes(60_000), [(1, "é")]]).hex()
    )
    body, headers = multipart({"data": data})
    for answer in (
        post(app, PATH, {"data": data}),
        request(app, "POST", PATH, f"data={data}".encode(), FORM),
        request(app, "POST", PATH, body, headers),
    ):
        assert answer.status == 200
        [found] = answer.json()["candidates"]
        assert found["exact"]
        assert found["parameters"][1] == {"type": "(uint8,string)[]", "value": [[1, "é"]]}
    answer = post(app, PATH, {"data": "00" * (MAX_BYTES + 1)})
    assert (answer.status, list(answer.json())) == (400, ["data"])
    assert post(app, PATH, {"data": "00" * (2 * MAX_BYTES)}).status == 413


MULTICALL = "multicall(bytes[])"
MULTICALL_DATA = selector(MULTICALL) + encode(["bytes[]"], [[bytes.fromhex(CALLDATA[2:])]]).hex()
LOG = {"topics": ["0x" + digits.zfill(64) for digits in (TOPIC, "ab" * 20, "cd" * 20)], "data": f"0x{1000:064x}"}
PANIC = f"0x4e487b71{0x11:064x}"


def test_a_list_of_mixed_inputs_is_answered_in_its_order(app: Application) -> None:
    """Calldata, a log, a revert, code and an input that cannot be read, in one POST; nothing else is lost with the last."""
    code = "0x6080604052600080fd"
    inputs = [MULTICALL_DATA, LOG, {"data": PANIC, "as": "revert"}, code, {"data": "0xzz"}, 7]
    post_text(app, MULTICALL)
    for body in (inputs, {"inputs": inputs}):
        answer = post(app, PATH, body)
        assert answer.status == 200
        call, log, panic, contract, bad, number = answer.json()
        assert call["candidates"][0]["text_signature"] == MULTICALL
        assert (log["kind"], log["candidates"][0]["text_signature"]) == ("log", "Transfer(address,address,uint256)")
        assert [one["indexed"] for one in log["candidates"][0]["parameters"]] == [True, True, False]
        assert panic["candidates"][0]["note"].startswith("panic 0x11: arithmetic overflow")
        assert contract["kind"] == "contract"
        assert (bad["kind"], bad["field"]) == ("error", "data")
        assert number["kind"] == "error"


ONE = f"0x{1:064x}"
CALLED: dict[str, Any] = {"data": ONE, "selector": selector(TRANSFER), "as": "return"}
BAD_TYPE = {"type": "function", "name": "f", "inputs": [{"name": "p0", "type": "uint7"}]}
BAD: list[tuple[dict[str, Any], str, str]] = [
    *(({"data": data}, "data", "") for data in ("", "0xa9", "xyz", "0xa9059cb", 7)),
    ({}, "data", ""), ({"data": "", "input": None}, "data", "This field may not be blank."),
    *(({"topics": topics}, "topics", "") for topics in (["0x12"], ["0x" + "11" * 32] * 5, 7)),
    ({"topics": [], "texts": ["x"] * 9}, "texts", ""), ({"data": "0x12345678", "as": "poem"}, "as", ""),
    ({"data": ONE, "as": "return"}, "selector", ""), ({"topics": [ONE], "selector": "0xa9059cbb", "as": "return"}, "topics", ""),
    *((CALLED | {"selector": selector}, "selector", "") for selector in ("0xa9059c", 7, "0xzz")),
    (CALLED | {"data": None}, "data", ""), (CALLED | {"data": "0x1"}, "data", ""), (CALLED | {"texts": ["f()"]}, "texts", ""),
    *(({"data": ONE, "texts": [text], "as": "return"}, "texts", "") for text in ("event E()", "f(")),
    *(({"data": CALLDATA, "abi": abi}, "abi", why) for abi, why in (
        ("[", "not JSON"), (7, "a list"), ({}, "a list"), ([1], "a list"),
        ([{"type": "poem"}], 'the first is entry 1, bad entry at column 1 in \'{"type": "poem"}\''),
        ([BAD_TYPE], "the first is entry 1, bad width 'uint7' at column 12 in 'function f(uint7 p0)'"),
    )),
    ({"data": CALLDATA, "abi": [], "code": "0x00"}, "abi", "not both"),
    ({"data": CALLDATA, "code": 7}, "code", "hex digits"), ({"data": CALLDATA, "code": "0xzz"}, "code", "'z'"),
    *(({"data": CALLDATA, "to": TO, "chain": chain}, "chain", why) for chain, why in (
        (0, "0 is no chain"), (True, "true is no chain"), ("x", "'x' is no chain"),
        *((bad, f"'{bad}' is no chain") for bad in ("0x", "0x0", "0x1g", "1x1", "0x8000000000000000", "0x" + "1" * 17, "0x\u0661")),
    )),
    ({"data": CALLDATA, "chain": 1, "to": "0x12"}, "to", "'0x12' is no address"),
    ({"data": CALLDATA, "chain": 1, "to": ["0x"]}, "to", '["0x"] is no address'), ({"data": CALLDATA, "chain": 1}, "to", "needs an address"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field", "why"), BAD, ids=lambda value: ascii(value)[:40])
def test_an_input_that_cannot_be_read_names_its_field(
    app: Application, fields: dict[str, Any], field: str, why: str
) -> None:
    """Alone it is a 400; in a list the other inputs are answered."""
    answer = post(app, PATH, fields)
    assert (answer.status, list(answer.json())) == (400, [field])
    assert why in answer.json()[field][0]
    bad, good = post(app, PATH, [fields, CALLDATA]).json()
    assert (bad["kind"], bad["field"], good["kind"]) == ("error", field, "calldata")


def test_what_no_request_can_be_is_refused(app: Application) -> None:
    """A list of too many inputs, and in a query data of odd length, or a word that is no kind."""
    assert list(post(app, PATH, [CALLDATA] * 1001).json()) == ["inputs"]
    assert list(get(app, f"{PATH}?data=0xa9059cb").json()) == ["data"]
    assert list(get(app, f"{PATH}?data={PANIC}&as=poem").json()) == ["as"]


def test_what_a_node_answers_is_pasted_as_it_is(app: Application) -> None:
    """Into a request, the page, whose link to JSON works, and the command."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": [LOG]}
    text = json.dumps(answer)
    wanted = post(app, PATH, LOG).json()
    page = get(app, f"/decode/?data={quote(text)}").body.decode()
    [link] = re.findall(f'href="({PATH}[^"]*)"', page)
    for read in (post(app, PATH, answer), get(app, unescape(link))):
        assert (read.status, read.json()) == (200, wanted)
    ran = invoke(app.folder, "decode", "-", "--json", stdin=text.encode())
    assert json.loads(ran.stdout) == wanted


# The command.


def test_each_kind_has_its_command(app: Application) -> None:
    """calldata, log, revert and auto give what the server answers; a tree is indented."""
    post_text(app, MULTICALL)
    command = partial(invoke, app.folder, "decode")
    log = [part for topic in LOG["topics"] for part in ("--topic", topic)] + ["--data", str(LOG["data"])]
    for arguments, given in (
        (["calldata", MULTICALL_DATA], {"data": MULTICALL_DATA, "as": "calldata"}),
        (["log", *log], LOG), (["revert", PANIC], {"data": PANIC, "as": "revert"}), (["auto", PANIC], {"data": PANIC}),
    ):  # fmt: skip
        ran = command(*arguments, "--json")
        assert (ran.status, ran.stderr, json.loads(ran.stdout)) == (0, "", post(app, PATH, given).json())
    shown = command(MULTICALL_DATA).stdout.decode().splitlines()
    assert [line.split("  ")[0] for line in shown if not line.startswith(" ")] == [MULTICALL]
    assert f"    [0.0] {TRANSFER}  (high: text of ERC-20; the values encode to the same bytes)" in shown
    shown = command("log", *log).stdout.decode().splitlines()
    assert shown[1].split() == ["address", "from", "indexed", "0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB"]
    post_text(app, "Pair(uint256,uint256)", EVENTS_PATH)
    pair = ["--topic", topic("Pair(uint256,uint256)"), "--topic", f"{1:#066x}", "--data", f"{2:#066x}"]
    assert b"other parameters may be indexed, counted from 0: 1\n" in command("log", *pair).stdout
    empty = command("revert", "0x")
    assert (empty.status, empty.stdout, "without a message" in empty.stderr) == (1, b"", True)
    shown = command(CALLDATA + "00").stdout.decode().splitlines()
    assert shown[0] == f"{TRANSFER}  (low: text of ERC-20; 1 byte left over)"
    assert shown[1:3] == ["  address  0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB", "  uint256  1000"]
    assert shown[3].startswith(f"{SPAM}  does not decode: ")


def test_the_exit_status_is_whether_a_text_decodes(app: Application, tmp_path: Path) -> None:
    """1 if no text decodes; 2 and one line if the data, the file or the warehouse cannot be read. A file may have lines."""
    (file := tmp_path / "data.hex").write_text(CALLDATA[:40] + "\n" + CALLDATA[40:] + "\n")
    for argument, status in {f"@{file}": 0, "0xa9059cbb": 1, "0x00000000": 1, "0xa9": 2, f"@{file}.none": 2}.items():
        assert invoke(app.folder, "decode", argument).status == status
    for arguments in (["-"], ["calldata", ""], ["revert", "-"]):
        ran = invoke(app.folder, "decode", *arguments, stdin=b"\n")
        assert (ran.status, ran.stderr) == (2, "Error: nothing was entered; no data is written 0x\n")
    ran = invoke(tmp_path / "none", "decode", CALLDATA)
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "none").exists()


BOMBS = {
    "elements without bytes": ("f(uint8[0][65000])", ""),
    "arrays in arrays": (f"f(uint8{'[1]' * 15}[])", f"{32:064x}{500:064x}" + f"{1:064x}" * 500),
    "long strings": ("f(string[])", encode(["string[]"], [['"' * 2000] * 60]).hex()),
    "values in long types": (f"f(({','.join(['uint8'] * 1000)})[])", f"{32:064x}{2:064x}" + f"{1:064x}" * 2000),
    "two long texts": ("\n".join(f"f{n}({','.join(['uint8'] * 1300)})" for n in range(2)), f"{1:064x}" * 1300),
}


@pytest.mark.parametrize("name", BOMBS)
def test_answers_and_pages_are_bounded_by_their_request(app: Application, name: str) -> None:
    """64 times the request at most, beside what every page has; the same in a list of inputs."""
    texts, arguments = BOMBS[name]
    entered = f"{texts}\n0x12345678{arguments}"
    body = urlencode({"data": entered}).encode()
    empty = len(get(app, "/decode/").body)
    page = request(app, "POST", "/decode/", body, FORM)
    if page.status == 303:
        page = get(app, page.header("Location"))
    assert (page.status, len(page.body) <= empty + 64 * len(entered)) == (200, True)
    one = {"data": "0x12345678" + arguments, "texts": texts.splitlines()}
    many = [one] * min(1000, 200_000 // len(json.dumps(one)))
    answer = post(app, PATH, many)
    assert (answer.status, len(answer.body) <= 64 * len(json.dumps(many))) == (200, True)


def test_a_page_is_full_of_values_or_of_characters() -> None:
    for texts in ([""] * 3000, ["x" * (256 << 10)]):
        page = PageBudget()
        for text in texts:
            assert not page.page_is_full
            page.take(text)
        assert page.page_is_full


def test_the_commands_of_a_router_are_shown(app: Application) -> None:
    """In the JSON, on the page and by the command: the arguments of each, and why one is not unpacked."""
    text = "execute(bytes,bytes[],uint256)"
    post_text(app, text)
    inputs = [encode(["address", "address", "uint256"], [TO, TO, 5]), b"\1\2"]
    data = selector(text) + encode(["bytes", "bytes[]", "uint256"], [bytes([0x84, 0x3B]), inputs, 9]).hex()
    sweep, unknown = decoded(app, data)["candidates"][0]["nested"]
    assert (sweep["kind"], sweep["path"]) == ("packed", [1, 0])
    assert (unknown["path"], unknown["candidates"]) == ([1, 1], [])
    page = get(app, f"/decode/?data={data}").body.decode()
    shown = invoke(app.folder, "decode", data).stdout.decode()
    for found in (json.dumps(sweep) + json.dumps(unknown), page, shown):
        assert "amountMin" in found
        assert "0x3b is no known command" in found
        assert "If it fails, the others go on." in found


def test_a_text_does_not_turn_the_line_that_shows_it(app: Application) -> None:
    """Control characters of a value, those for the direction of writing too, are escaped for people; JSON has the text."""
    for control, shown in (
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\u061c", "\\u061c"),
        ("\x1b", "\\u001b"),
        ("\x9b", "\\u009b"),
        ("\u200b", "\\u200b"),
        ("\u2028", "\\u2028"),
    ):
        text = f"pay {control}ecila\nnow"
        data = "0x08c379a0" + encode(["string"], [text]).hex()
        assert decoded(app, data)["candidates"][0]["parameters"][0]["value"] == text
        page, command = get(app, f"/decode/?data={data}"), invoke(app.folder, "decode", data)
        for found in (page.body.decode(), command.stdout.decode()):
            assert (control in found, f"pay {shown}ecila" in found) == (False, True)
        assert "\nnow</span>" in page.body.decode()
