"""What calls returned: over HTTP, as a command and on the page the same answers, by the declarations of sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from eth_abi.abi import encode

from sigdir.signatures.readings import NOTHING_RETURNED
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import FORM, TRANSFER, Application, application, get, post, request, selector

PATH = "/api/v1/decode/"
ONE = f"0x{1:064x}"
PRICE = "price(address)"
SOURCES = {
    "a": [f"function {TRANSFER} returns (bool)", f"function {PRICE} view returns (uint256 amount, bool ok)", "listed()"],
    "b": [f"function {TRANSFER} returns (bool done)", f"function {PRICE} view returns (uint256)", "error Broken(uint256 code)"],
    "c": [f"function {TRANSFER}", "function raw(address) returns (bytes)"],
    "d": [f"function {TRANSFER} returns (uint256)", "function watch_tg_invmru_119a5a98(address a, uint256 b, uint256 c)"],
}  # fmt: skip
TUPLE = "function pair(uint256 id) returns ((address owner, uint8[] kinds) found, string name)"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    folder = tmp_path_factory.mktemp("returns")
    for name, declarations in SOURCES.items():
        import_lines(folder / "warehouse", *declarations, name=f"{name}.txt")
    with application(folder / "warehouse") as app:
        yield app


def returned(app: Application, **fields: Any) -> Any:
    answer = post(app, PATH, {"as": "return", **fields})
    assert answer.status == 200, answer.body
    return answer.json()


def values(reading: Any, number: int = 0) -> list[tuple[str, Any]]:
    return [(one.get("name", ""), one["value"]) for one in reading["candidates"][number]["parameters"]]


def test_what_is_declared_most_comes_first(app: Application) -> None:
    """Two sources say bool, one says uint256: both fit a word of 1, and the answer says so. Only one fits a word of 2."""
    found = returned(app, data=ONE, selector=selector(TRANSFER))
    assert (found["kind"], found["selector"], found["texts"]) == ("return", selector(TRANSFER), 2)
    assert [(one["declaration"].partition(" returns ")[2], one["confidence"], one["ambiguous"]) for one in found["candidates"]] == [
        ("(bool)", "medium", True), ("(uint256)", "low", False),
    ]  # fmt: skip
    assert found["candidates"][0]["reasons"] == [
        "declared 2 times", "the values encode to the same bytes", "1 other declaration fits as well",
    ]  # fmt: skip
    assert found["note"] == "It is ambiguous: 2 declarations fit, and the one that is declared most comes first."
    sure = returned(app, data=f"0x{2:064x}", selector=selector(TRANSFER))
    assert (values(sure), sure["candidates"][0]["confidence"]) == ([("", "2")], "high")
    assert sure["candidates"][1]["detail"].startswith("as (bool): the word at byte 0 is out of range")


def test_the_types_that_use_all_of_the_data_come_before_commoner_ones(app: Application) -> None:
    found = returned(app, data="0x" + encode(["uint256", "bool"], [7, True]).hex(), selector=selector(PRICE))
    assert values(found) == [("amount", "7"), ("ok", True)]
    assert found["candidates"][1]["reasons"] == ["declared 1 time", "32 bytes left over"]


def test_a_declaration_may_be_given(app: Application) -> None:
    """It is tried first, once, and needs no directory; its selector is that of the call. Calls inside of bytes are decoded."""
    data = encode(["(address,uint8[])", "string"], [("0x" + "ab" * 20, [1, 2]), "é"])
    found = returned(app, data=data.hex(), texts=[TUPLE])
    assert found["selector"] == selector("pair(uint256)")
    assert values(found) == [("found", ["0x" + "ab" * 20, [1, 2]]), ("name", "é")]
    mine = f"function {TRANSFER} returns (uint8 mine)"
    assert values(returned(app, data=ONE, texts=[mine])) == [("mine", 1)]
    same = returned(app, data=ONE, texts=[f"function {TRANSFER} returns (bool mine)"])
    assert [values(same, number) for number in range(len(same["candidates"]))] == [[("mine", True)], [("", "1")]]
    call = bytes.fromhex(selector(TRANSFER)[2:]) + bytes(64)
    nested = returned(app, data=encode(["bytes"], [call]).hex(), selector=selector("raw(address)"))
    assert nested["candidates"][0]["nested"][0]["candidates"][0]["text_signature"] == TRANSFER


def test_a_standard_is_known_and_its_selector_makes_no_other_text_likely(app: Application) -> None:
    """A mined text that returns nothing fits no data, as a call of an address without code has it: it comes last."""
    found = returned(app, data=f"0x{42:064x}", selector="70a08231")
    assert (values(found), found["candidates"][0]["confidence"]) == ([("balance", "42")], "high")
    mined = "watch_tg_invmru_119a5a98(address,uint256,uint256)"
    texts = returned(app, data="0x", selector=selector(mined))["candidates"]
    assert [(one["text_signature"], one["decodes"]) for one in texts] == [("balanceOf(address)", False), (mined, True)]
    assert (texts[1]["confidence"], texts[1]["reasons"]) == (
        "low", ["declared 1 time", "its selector is that of balanceOf(address) of ERC-20"],
    )  # fmt: skip
    given = returned(app, data=ONE, texts=[f"function {mined} returns (bool)"])["candidates"][0]
    assert (given["text_signature"], given["confidence"]) == (mined, "high")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("0x4e487b71" + f"{0x11:064x}", "Panic(uint256)"), (selector("Broken(uint256)") + f"{7:064x}", "Broken(uint256)"),
        ("0x08c379a0" + encode(["string"], ["no"]).hex(), "Error(string)"),
    ],
)  # fmt: skip
def test_a_revert_in_its_place_is_recognised(app: Application, data: str, text: str) -> None:
    """The reading as values is there too, and says that nothing fits."""
    found = returned(app, data=data, selector=selector(TRANSFER))
    assert (found["kind"], found["candidates"][0]["text_signature"]) == ("revert", text)
    assert [other["kind"] for other in found["others"]] == ["return"]


def test_data_that_no_declaration_fits_says_so(app: Application) -> None:
    """Each declaration with its reason; a text without declarations, an unknown selector and no data say it as well."""
    found = returned(app, data="0x" + "ff" * 33, selector=selector("raw(address)"))
    assert (found["note"], found["candidates"][0]["reason"]) == ("No known declaration fits.", "bad_offset")
    for unknown in (selector("listed()"), "0x00000001"):
        found = returned(app, data=ONE, selector=unknown)
        assert (found["candidates"], found["note"]) == ([], "No known declaration says what this function returns.")
    nothing = returned(app, data="0x", selector=selector(TRANSFER))
    assert (values(nothing), nothing["note"]) == ([], NOTHING_RETURNED)
    assert nothing["candidates"][0]["declaration"] == "function transfer(address, uint256)"


def test_a_get_a_command_and_the_page_answer_the_same(app: Application) -> None:
    """By selector and by text. The page's form leads to an address that can be shared, with the API's answer behind it."""
    fields = {"data": ONE, "as": "return", "selector": selector(TRANSFER)}
    expected = post(app, PATH, fields).json()
    assert get(app, f"{PATH}?{urlencode(fields)}").json() == expected
    declared = {"data": ONE, "as": "return", "text": f"{TRANSFER} returns (uint8 x)"}
    by_text = get(app, f"{PATH}?{urlencode(declared)}").json()
    for arguments, answer in ((["--selector", selector(TRANSFER)], expected), (["--text", declared["text"]], by_text)):
        ran = invoke(app.folder, "decode", "return", ONE, *arguments, "--json")
        assert (ran.status, ran.stderr, json.loads(ran.stdout)) == (0, "", answer)
    shown = invoke(app.folder, "decode", "return", ONE, "--selector", selector(TRANSFER)).stdout.decode().splitlines()
    assert shown[0].startswith(f"{TRANSFER}  (medium: declared 2 times; ")
    assert shown[0].endswith("as declared: function transfer(address, uint256) returns (bool)")
    assert shown[1].split() == ["bool", "true"]
    for call, name in ((selector(TRANSFER), "selector"), (declared["text"], "text")):
        sent = request(app, "POST", "/decode/", urlencode({"data": ONE, "call": call}).encode(), FORM)
        address = "/decode/?" + urlencode({"data": ONE, "as": "return", name: call})
        assert (sent.status, sent.header("Location")) == (303, address)
        page = get(app, address).body.decode()
        assert "As returned values: 32 bytes" in page
        assert f'href="{PATH}?' in page


def test_a_bad_selector_on_the_command_line_and_the_page(app: Application) -> None:
    """One line and status 2; a page that says what is wrong and keeps what was entered."""
    ran = invoke(app.folder, "decode", "return", ONE, "--selector", "0xa9059c")
    assert (ran.status, ran.stderr) == (2, "Error: selector: 3 bytes; a selector has 4\n")
    page = request(app, "POST", "/decode/", urlencode({"data": ONE, "call": "0xa9059c"}).encode(), FORM)
    assert (page.status, b"selector: 3 bytes; a selector has 4" in page.body) == (400, True)
    assert b'value="0xa9059c"' in page.body
