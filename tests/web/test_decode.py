"""The decode page: with and without a script, short and long data, hostile data and data that is not calldata."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from urllib.parse import quote, urlencode

import pytest
from eth_abi.abi import encode
from playwright.sync_api import expect

from sigdir.serve.pages.decode import ANONYMOUS_EXAMPLE, EXAMPLE
from sigdir.signatures.keccak import keccak256
from tests.serve.support import FORM, Application, get, post, post_text, request
from tests.web.conftest import CODE, COLLIDING, DESKTOP, PHONE, Open

NESTED = "nest((uint8,string,bytes[])[],bool,uint256)"
EVIL = "<script>alert(1)</script>"


def call(text: str, types: list[str], values: list[object]) -> str:
    return "0x" + (keccak256(text.encode())[:4] + encode(types, values)).hex()


def nested(port: int) -> str:
    """Calldata of a call whose signature is stored first; one of its values is calldata itself."""
    post_text(port, NESTED)
    inner = bytes.fromhex(EXAMPLE[2:])
    types = ["(uint8,string,bytes[])[]", "bool", "uint256"]
    return call(NESTED, types, [[(7, EVIL, [inner, b""]), (8, "", [])], True, 2**256 - 1])


def test_calldata_is_decoded_as_it_is_pasted(page_of: Open) -> None:
    """Values appear without a reload, failed signatures below with the reason, and the address can be shared."""
    page = page_of("/decode/")
    page.evaluate("window.same = true")
    page.get_by_label("Calldata, log").fill(EXAMPLE)
    expect(page.get_by_role("heading", name="transfer(address,uint256)")).to_be_visible()
    expect(page.get_by_text("decodes exactly")).to_be_visible()
    assert page.locator(".decoded tbody tr").all_inner_texts() == [
        "to address\t0x742d35Cc6634C0532925a3b844Bc454e4438f44e",
        f"value uint256\t{10**18} 1 in tokens of 18 decimals",
    ]  # fmt: skip
    expect(page.get_by_role("region", name="Signatures that do not decode")).to_contain_text(COLLIDING)
    assert page.url.endswith(f"/decode/?data={EXAMPLE}")
    assert page.evaluate("window.same")
    page.get_by_label("Calldata, log").fill("")
    expect(page.locator("#decoded")).to_be_empty()


def test_the_address_is_that_of_what_is_shown(page_of: Open) -> None:
    """Input without an address leaves none of the input before; what is refused says why."""
    page = page_of("/decode/", expected="the server responded with a status of 4")
    box, decoded = page.get_by_label("Calldata, log"), page.locator("#decoded")
    for data, shown, address in (
        (EXAMPLE, "68 bytes", f"data={EXAMPLE}$"), (EXAMPLE + "00" * 4000, "4,068 bytes", "decode/$"),
        (EXAMPLE, "68 bytes", f"data={EXAMPLE}$"), ("xyz", "not a hex digit", "decode/$"),
        (EXAMPLE, "68 bytes", f"data={EXAMPLE}$"), ("", "", "decode/$"), ("0x" + "ab" * 600_000, "Request body over", "decode/$"),
    ):  # fmt: skip
        box.fill(data)
        expect(decoded).to_contain_text(shown)
        expect(page).to_have_url(re.compile(address))


def test_the_values_are_above_the_fold(page_of: Open) -> None:
    """The box has one line until it is used, the explanation stands below; an address has one line on a phone too."""
    wei = f"function pay(address to, uint256 feeInWei)\n{call('pay(address,uint256)', ['address', 'uint256'], ['0x' + '11' * 20, 15 * 10**17])}"
    for window in (DESKTOP, PHONE):
        page = page_of(f"/decode/?data={quote(wei)}", **window)
        box, row = page.get_by_label("Calldata, log"), page.locator(".decoded tbody tr").last
        assert box.evaluate("box => box.offsetHeight") < 50
        assert row.evaluate("row => row.getBoundingClientRect().bottom < innerHeight")
        assert "feeInWei uint256" in row.inner_text()
        assert f"{15 * 10**17} wei, 1.5 ether" in row.inner_text()
        assert page.locator(".value.word").first.evaluate("value => value.getClientRects().length") == 1
        box.click()
        assert box.evaluate("box => box.offsetHeight") > 100
        about = page.get_by_role("region", name="What can be decoded")
        assert about.bounding_box()["y"] > row.bounding_box()["y"]  # type: ignore[index]


def test_an_anonymous_log_has_its_event_before_it(app: Application) -> None:
    """The address of the form's answer has the lines, and the form shows them again."""
    sent = request(app, "POST", "/decode/", urlencode({"data": ANONYMOUS_EXAMPLE}).encode(), FORM)
    page = unescape(get(app, sent.header("Location")).body.decode())
    assert "LogNote(bytes4,address,uint256)" in page.replace("<wbr>", "")
    assert f">{ANONYMOUS_EXAMPLE}</textarea>" in page


def test_tuples_are_nested_lists(page_of: Open, port: int) -> None:
    """A call inside a value is opened in its place, and closes; markup in a value is text."""
    page = page_of(f"/decode/?data={nested(port)}")
    first = page.locator(".decoded > tbody > tr").first
    assert first.locator("> td > .values > li").count() == 2
    expect(first.locator(".values .values").first).to_contain_text(EVIL)
    expect(first).to_contain_text("none")
    expect(page.locator(".decoded")).to_contain_text("the largest uint256")
    inside = page.locator("details.inside")
    expect(inside).to_contain_text("0x742d35Cc6634C0532925a3b844Bc454e4438f44e")
    inside.get_by_text("transfer(address,uint256)").click()
    expect(inside.get_by_text("1 in tokens of 18 decimals")).to_be_hidden()


@pytest.mark.parametrize(
    ("name", "heading", "reason"),
    [
        ("a transfer", "transfer(address,uint256)", "text of ERC-20"),
        ("a multicall", "multicall(bytes[])", "the values encode to the same bytes"),
        ("a log", "Transfer(address,address,uint256)", "text of ERC-20"),
        ("an anonymous log", "LogNote(bytes4,address,uint256)", "usr"),
        ("a custom error", "ERC20InsufficientBalance(address,uint256,uint256)", "the values encode to the same bytes"),
        ("a panic", "Panic(uint256)", "Panic 0x11: arithmetic overflow or underflow"),
        ("a proxy's code", "Contract", "delegates every call to 0x742d35cc"),
    ],
)
def test_each_example_is_explained(app: Application, name: str, heading: str, reason: str) -> None:
    """The links below the box show one of each kind, each with its reasons."""
    links = re.findall(r'<a href="([^"]*)">([^<]*)</a>', get(app, "/decode/").body.decode())
    [link] = [unescape(link) for link, text in links if unescape(text) == name]
    page = unescape(get(app, link).body.decode()).replace("<wbr>", "")
    assert any(heading in found for found in re.findall("<h[23][^>]*>(.*?)</h[23]>", page, re.DOTALL))
    assert reason in re.sub("<[^>]*>", "", page)


def test_code_is_explained_as_it_is_pasted(page_of: Open) -> None:
    """Known functions with their names, unknown ones with the shape of their arguments, the event and the error."""
    page = page_of("/decode/")
    page.get_by_label("Calldata, log").fill(CODE)
    known = page.get_by_role("region", name="Functions").locator("li").filter(has_text=COLLIDING).first
    expect(known.locator(".declared")).to_contain_text(
        "function transfer(address to, uint256 value) payable returns (bool"
    )
    expect(known).to_contain_text("its types encode as those that the code reads")
    expect(known.get_by_text("the code reads other arguments")).to_be_hidden()
    known.get_by_text("1 other signature").click()
    expect(known.get_by_text("the code reads other arguments")).to_be_visible()
    expect(page.get_by_role("region", name="Functions")).to_contain_text("unknown (uint256,uint256)")
    expect(page.get_by_role("region", name="Events")).to_contain_text("event Transfer(address indexed from")
    expect(page.get_by_role("region", name="Errors")).to_contain_text("error ERC20InvalidSender(address sender)")
    with page.expect_download() as started:  # the script leaves this button alone
        page.get_by_role("button", name="Download abi.json").click()
    assert {entry["name"] for entry in json.loads(started.value.path().read_text())} == {
        "transfer", "Transfer", "ERC20InvalidSender",
    }  # fmt: skip


def test_an_interface_is_downloaded_without_a_script(page_of: Open, port: int) -> None:
    """Both files are what the API answers; code too long for an address is answered to the POST."""
    page = page_of("/decode/", java_script_enabled=False)
    page.get_by_label("Calldata, log").fill(CODE)
    page.get_by_role("button", name="Decode").click()
    assert page.url.endswith(f"/decode/?data={CODE}")
    wanted = post(port, "/api/v1/contract/", {"code": CODE}).json()
    found = {}
    for name in ("interface.sol", "abi.json"):
        with page.expect_download() as started:
            page.get_by_role("button", name=f"Download {name}").click()
        assert started.value.suggested_filename == name
        found[name] = started.value.path().read_text()
    assert (found["interface.sol"], json.loads(found["abi.json"])) == (wanted["solidity"], wanted["abi"])
    long = urlencode({"data": "0x6080604052" + "00" * 4000}).encode()
    answer = request(port, "POST", "/decode/", long, FORM)
    assert (answer.status, answer.header("Cache-Control")) == (200, "no-store")
    assert b"The code compares no selector" in answer.body


def test_the_data_is_shown_in_words(page_of: Open) -> None:
    """The search leads here; words are below the values, open where no signature decodes, the last as short as it is."""
    page = page_of("/")
    page.get_by_role("searchbox").fill(EXAMPLE)
    page.get_by_role("link", name="Decode it").click()
    expect(page.get_by_text("decodes exactly")).to_be_visible()
    words = page.locator(".words tbody tr")
    expect(words.first).to_be_hidden()
    page.get_by_text("The data in words of 32 bytes").click()
    assert words.all_inner_texts() == [f"4\t0x{EXAMPLE[10:74]}", f"36\t0x{EXAMPLE[74:]}"]
    page.goto("/decode/?data=0x00000000" + "11" * 33)
    assert words.all_inner_texts() == ["4\t0x" + "11" * 32, "36\t0x11"]


@pytest.mark.parametrize("data", ["xyz", "0xa9059c", "0xa9059cbb0", EVIL])
def test_input_that_is_not_calldata_is_an_error(app: Application, data: str) -> None:
    """The status is 400, with the reason; the box keeps it, and markup is text."""
    for answer in (
        get(app, "/decode/?" + urlencode({"data": data})),
        request(app, "POST", "/decode/", urlencode({"data": data}).encode(), FORM),
    ):
        assert answer.status == 400
        assert b"This cannot be decoded: " in answer.body
        assert f">{escape(data)}</textarea>" in answer.body.decode()
        assert EVIL.encode() not in answer.body


def test_long_data_is_answered_to_the_post(app: Application) -> None:
    """It gets no address of its own; of very many or very long values the page shows the first part."""
    text = "long(uint256[],bytes,string)"
    assert post_text(app, text).status == 201
    data = call(text, ["uint256[]", "bytes", "string"], [list(range(1000)), bytes(9000), "é" * 5000])
    answer = request(app, "POST", "/decode/", urlencode({"data": data}).encode(), FORM)
    assert (answer.status, answer.header("Cache-Control")) == (200, "no-store")
    body = answer.body.decode()
    assert "and 500 more" in body
    assert "9,000 bytes in all" in body
    assert "5,000 characters in all" in body
    assert len(re.findall(r'class="value( word)?"', body)) == 502
    assert len(body) < len(data) + 90_000
    assert "and 1,401 more" in body


def test_bytes_left_over_and_unknown_selectors_are_shown(app: Application) -> None:
    assert b"1 byte left over" in get(app, f"/decode/?data={EXAMPLE}00").body
    assert b"No text with this selector is known" in get(app, "/decode/?data=0x00000000").body
