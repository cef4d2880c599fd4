"""The pages as a person uses them: in Chromium, with and without a script, by mouse and by keys."""

from __future__ import annotations

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from sigdir.serve.pages.decode import EXAMPLE
from tests.examples import long_except
from tests.serve.support import HOST, SIGNATURES_PATH, TRANSFER, found, get, request
from tests.web.conftest import COLLIDING, PHONE, SOME_PATHS, Open


def rows(page: Page, heading: str) -> list[str]:
    """The texts under a heading."""
    section = page.get_by_role("region", name=re.compile(f"^{heading}"))
    return section.locator(".rows .text").all_inner_texts()


def results(page: Page) -> list[str]:
    return page.locator("#results .rows .text").all_inner_texts()


def follow(page: Page, link: Locator) -> None:
    """Click what leads to another page, and wait until that one is there: a click waits for its beginning alone."""
    with page.expect_event("load"):
        link.click()


# Search.


def test_results_appear_while_typing(page_of: Open) -> None:
    """Typing is enough: rows of both collections, a sentence for screen readers, an address to share, no reload."""
    page = page_of("/")
    page.evaluate("window.same = true")
    page.get_by_role("searchbox").press_sequentially("transfer(addr", delay=15)
    expect(page.get_by_role("status")).to_contain_text("found.")
    expect(page).to_have_url(re.compile(r"/search/\?q=transfer%28addr$"))  # changed once the last results are there
    expect(page.locator("#results .rows li").first).to_contain_text("transfer(address")
    assert rows(page, "Functions and errors")[0] == TRANSFER
    assert "Transfer(address,address,uint256)" in rows(page, "Events")
    assert page.evaluate("window.same")
    expect(page.locator("#welcome")).to_be_hidden()
    page.get_by_role("searchbox").fill("")
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("#results .rows")).to_have_count(0)


def test_an_older_request_never_overwrites_a_newer_one(page_of: Open) -> None:
    """The answer to the first letters arrives late and is not shown."""
    page = page_of("/")

    def late(route: Any) -> None:
        page.wait_for_timeout(400)
        route.continue_()

    page.route("**/search/results/?q=pagedRow1", late)
    box = page.get_by_role("searchbox")
    box.fill("pagedRow1")
    page.wait_for_timeout(200)
    box.fill("balanceOf(")
    expect(page.locator("#results .text").first).to_contain_text("balanceOf(")
    page.wait_for_timeout(600)
    assert all("balanceOf(" in text for text in results(page))


def test_results_are_those_of_the_box(page_of: Open) -> None:
    """A letter that is taken back before its answer has none; what is typed before the script runs has one."""
    page = page_of("/")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    box = page.get_by_role("searchbox")
    box.fill("balanceOf")
    expect(page.locator("#results .text").first).to_contain_text("balanceOf(")
    page.route("**/search/results/?q=balanceOfx", hold)
    with page.expect_request("**/search/results/?q=balanceOfx"):
        box.press("x")
    box.press("Backspace")
    page.wait_for_timeout(300)
    held.pop().continue_()
    page.wait_for_timeout(300)
    expect(page).to_have_url(re.compile(r"q=balanceOf$"))
    assert all("balanceOf" in text for text in results(page))
    assert results(page)
    page.route("**/assets/site-*.js", hold)
    page.goto("/?new", wait_until="commit")
    box.fill("balanceOf")
    page.wait_for_timeout(100)
    held.pop().continue_()
    expect(page.locator("#results .text").first).to_contain_text("balanceOf(")


def test_rows_look_like_links(page_of: Open) -> None:
    """The text of a row has the colour and the underline of every other link."""
    page = page_of("/search/?q=Transfer(address,address,uint256)&in=events")
    look = "link => [getComputedStyle(link).color, getComputedStyle(link).textDecorationLine]"
    row, link = (page.locator(link).first.evaluate(look) for link in (".rows a", ".pages.json a"))
    assert row == link
    assert row[1] == "underline"


def test_copy_buttons_copy(page_of: Open) -> None:
    """A button copies its hash and shows Copied."""
    page = page_of("/search/?q=0xa9059cbb", permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy hash").first
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "0xa9059cbb"
    expect(button).to_have_text("Copy")


# A record.


def test_a_record_shows_all_that_is_known(page_of: Open) -> None:
    """Other signatures of its hash, its import, its neighbours, its ABI."""
    page = page_of("/selector/0xa9059cbb/")
    expect(page.get_by_role("heading", level=1)).to_have_text(TRANSFER)
    expect(page.get_by_text("ERC-20", exact=True)).to_be_visible()
    expect(
        page.get_by_text(re.compile("samples.*: [0-9]+ rows in import 2|, [0-9]+ files: [0-9]+ rows in import 2"))
    ).to_be_visible()
    assert rows(page, "Other signatures with this selector") == [COLLIDING]
    assert rows(page, "The same name") == ["transfer(address,uint256,uint256)"]
    assert '"name": "transfer"' in page.locator("pre").inner_text()
    page.get_by_role("link", name="Decode with it").click()
    box = page.get_by_label("Calldata, log")
    expect(box).to_be_focused()
    box.fill(box.input_value() + EXAMPLE)
    expect(page.locator(".decoded")).to_contain_text("0x742d35Cc6634C0532925a3b844Bc454e4438f44e")
    page.goto("/selector/0xa9059cbb/")
    page.get_by_role("link", name=COLLIDING).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(COLLIDING)
    expect(page.get_by_text("rows for <b>pages</b>: 131 rows in import 1")).to_be_visible()


# Submitting.


def submit(page: Page, text: str) -> None:
    page.get_by_label("Signatures, an ABI").fill(text)
    follow(page, page.get_by_role("button", name="Preview"))


def test_a_list_is_previewed_then_stored_then_found(page_of: Open, port: int) -> None:
    """Each line has a result, the preview stores nothing, confirmed signatures are found at once, a reload posts nothing."""
    new = "submittedByHand(uint256)"
    page = page_of("/submit/")
    submit(
        page,
        f"function submittedByHand(uint a)\n{TRANSFER}\nsubmittedByHand(uint)\nf(uint7)\n\nevent Seen(address indexed a)",
    )
    cells = [row.split("\n")[0].split() for row in page.locator("tbody tr").all_inner_texts()]
    assert cells == [["1", "new", new], ["2", "known", TRANSFER], ["3", "repeated", new], ["4", "rejected", "f(uint7)"],
                     ["6", "new", "Seen(address)"]]  # fmt: skip
    expect(page.get_by_text("not a valid width for this type, at column 3")).to_be_visible()
    assert page.locator("mark.problem").inner_text() == "uint7)"
    assert get(port, f"{SIGNATURES_PATH}?text_signature=submittedByHand").json()["count"] == 0
    follow(page, page.get_by_role("button", name="Store 2 new"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Stored")
    assert page.locator(".rows .text").all_inner_texts() == [new, "Seen(address)"]
    assert [row["text_signature"] for row in found(port, "submittedByHand")] == [new]
    methods: list[str] = []
    page.on("request", lambda sent: methods.append(sent.method))
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Stored")
    assert set(methods) == {"GET"}
    page.go_back()  # to correct what was rejected
    expect(page.get_by_label("Signatures, an ABI")).to_have_value(re.compile("f\\(uint7\\)"))
    page.go_forward()
    page.get_by_role("link", name=new).click()
    expect(page.get_by_text("by a user of this server")).to_be_visible()


# Accessibility.


def test_all_works_without_a_script(page_of: Open, port: int) -> None:
    """Search, its pages and a submission; buttons that need a script are hidden."""
    page = page_of("/", java_script_enabled=False)
    page.get_by_role("searchbox").fill("pagedRow")
    follow(page, page.get_by_role("button", name="Search"))
    assert len(results(page)) == 20
    assert page.locator(".scripted:visible").count() == 0
    follow(page, page.get_by_role("link", name="All 130"))
    follow(page, page.get_by_role("link", name="Next"))
    assert len(results(page)) == 50
    page.goto("/submit/")
    submit(page, "withoutAScript(bytes32)")
    follow(page, page.get_by_role("button", name="Store 1 new"))
    assert get(port, f"{SIGNATURES_PATH}?text_signature=withoutAScript").json()["count"] == 1


def test_keys_alone_are_enough(page_of: Open) -> None:
    """The skip link comes first; slash focuses the box, arrows move through results, Enter opens a record."""
    page = page_of("/status/")
    page.keyboard.press("/")
    page.wait_for_url("**/search/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.goto("/status/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.goto("/search/?q=transfer")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#results .rows a").first).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    page.wait_for_url("**/selector/0xa9059cbb/")


@pytest.mark.parametrize("path", SOME_PATHS)
def test_a_page_fits_a_phone(page_of: Open, path: str) -> None:
    """Nothing scrolls sideways, with text of twice the size too, and the links at the top are one line."""
    page = page_of(path, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("nav").first.evaluate("nav => nav.offsetHeight < 45 && nav.scrollWidth <= nav.clientWidth")
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_long_cells_are_as_wide_as_a_phone(page_of: Open) -> None:
    """On a phone checksums and source names have lines of their own instead of a narrow column."""
    page = page_of("/", **PHONE)
    for path, cell in (("/dumps/", "td[data-label=sha256]"), ("/status/", ".stacked td:has(.text)")):
        page.goto(path)
        assert page.locator(cell).first.evaluate("cell => cell.getBoundingClientRect().width") > 300


@pytest.mark.parametrize("options", [{}, PHONE])
def test_a_short_page_ends_at_the_bottom(page_of: Open, options: dict[str, Any]) -> None:
    """The footer of a short page is at the bottom of the window, and nothing scrolls."""
    page = page_of("/search/?q=0x00000000", **options)
    bottom = page.locator("footer").evaluate("footer => footer.getBoundingClientRect().bottom")
    assert bottom == page.evaluate("innerHeight") == page.evaluate("document.documentElement.scrollHeight")
    expect(page.locator("#results .none")).to_have_text("Nothing found. If you know the signature, submit it.")
    assert page.locator("#summary").evaluate("summary => summary.offsetHeight") <= 1


SHIFT = """new Promise(done => { let sum = 0;
    new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) sum += e.value; })
        .observe({type: "layout-shift", buffered: true});
    setTimeout(() => done(sum), 200); })"""


@pytest.mark.parametrize(
    "path", long_except({"/search/?q=transfer"}, ["/", "/search/?q=transfer", "/selector/0xa9059cbb/", "/browse/"])
)
def test_nothing_moves_while_a_page_loads(page_of: Open, path: str) -> None:
    """No layout shift, not even while results arrive."""
    page = page_of(path)
    assert page.evaluate(SHIFT) == 0


@pytest.mark.long
def test_nothing_moves_while_a_page_arrives_in_pieces(browser: Browser, port: int) -> None:
    """A busy browser draws what it has: half a header, two cards of three."""
    whole = request(port, "GET", "/").body
    pieces = re.split(
        b'(?=<nav|<li><a href="/decode|<li><a href="/stat|<div><dt>newest|<section><h2><a href="/docs)', whole
    )
    assert len(pieces) > 5

    class InPieces(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = request(port, "GET", self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["content-type"])
            self.end_headers()
            for piece in pieces if self.path == "/" else [answer.body]:
                self.wfile.write(piece)
                time.sleep(0.2)

        def log_message(self, *_: object) -> None:
            pass

    page = browser.new_page()
    with ThreadingHTTPServer((HOST, 0), InPieces) as slow:
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        page.goto(f"http://{HOST}:{slow.server_port}/")
        assert page.evaluate(SHIFT) == 0
        page.close()
        slow.shutdown()
