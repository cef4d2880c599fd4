"""Each page over HTTP: its content, its caching, what it refuses, and that no markup in it runs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode
from urllib.robotparser import RobotFileParser

import pytest
from backports import zstd

from sigdir.serve.http.answers import CODINGS, packed_in
from sigdir.serve.pages.decode import EXAMPLE
from sigdir.serve.pages.page import asset_address, assets
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.serve.support import (
    FORM,
    HOST,
    Answer,
    Application,
    application,
    found,
    get,
    multipart,
    post_text,
    request,
    topic,
)
from tests.web.conftest import COLLIDING, PAGED, TOPIC

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = [
    "/", "/search/", "/search/?q=transfer", "/search/results/?q=transfer", "/browse/", "/browse/events/",
    "/selector/0xa9059cbb/", f"/topic/{TOPIC}/", "/submit/", "/decode/", f"/decode/?data={EXAMPLE}", "/status/",
]  # fmt: skip
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"


OWN = {asset_address(name) for name in assets()}


class Elements(HTMLParser):
    """The elements of a page and their attributes, as a browser parses them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def visible(answer: Answer) -> str:
    """The page as text."""
    return unescape(re.sub(r"<[^>]*>", "", answer.body.decode()))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_a_strict_policy_and_no_script_of_its_own(app: Application, path: str) -> None:
    """Everything comes from our own files: no inline style, script or handler is in a page."""
    answer = get(app, path)
    assert answer.status == 200
    assert answer.header("Content-Type") == "text/html; charset=utf-8"
    policy = answer.header("Content-Security-Policy")
    for part in ("default-src 'none'", "style-src 'self'", "script-src 'self'", "form-action 'self'", "base-uri 'none'",
                 "frame-ancestors 'none'"):  # fmt: skip
        assert part in policy
    assert "unsafe" not in policy
    assert answer.header("X-Content-Type-Options") == "nosniff"
    body = answer.body.decode()
    assert not re.search(r"<style|\sstyle=|<script(?! src=)|\son[a-z]+=|javascript:", body)
    assert "http://" not in body
    assert "https://" not in body


@pytest.mark.parametrize("path", [path for path in PAGES if path != "/submit/"])
def test_a_page_is_cached_until_the_view_changes(app: Application, path: str) -> None:
    """A client with the current ETag gets 304 without a body, until a row is added."""
    answer = get(app, path)
    tag = {"If-None-Match": answer.header("ETag")}
    again = get(app, path, tag)
    assert (again.status, again.body) == (304, b"")
    assert again.header("ETag") == answer.header("ETag")
    assert answer.header("Cache-Control") == "no-cache"
    assert post_text(app, f"cached{abs(hash(path))}(uint256)").status == 201
    assert get(app, path, tag).status == 200


def test_assets_are_cached_for_ever_under_names_that_change(app: Application) -> None:
    """Assets answer at the names that pages use, packed on request unless an image; other names are 404."""
    names = re.findall(r"/assets/[\w.-]+", get(app, "/").body.decode())
    assert {re.sub(r"-\w{12}", "", name) for name in names} == {
        f"/assets/{name}" for name in ("icon.svg", "preview.png", "site.css", "site.js")
    }
    for name in set(names):
        answer = get(app, name)
        assert answer.status == 200
        assert answer.header("Cache-Control") == "public, max-age=31536000, immutable"
        if name.endswith(".png"):
            assert get(app, name, {"Accept-Encoding": "gzip"}).body == answer.body
        elif len(answer.body) >= 1024:
            packed = get(app, name, {"Accept-Encoding": "gzip"})
            assert gzip.decompress(packed.body) == answer.body
            packed = get(app, name, {"Accept-Encoding": "gzip, deflate, br, zstd"})
            assert zstd.decompress(packed.body) == answer.body
        assert get(app, re.sub(r"-\w", "-z", name)).status == 404
    for coding in CODINGS:
        sizes = [len(packed_in(coding, asset.body)) for name, asset in assets().items() if name != "preview.png"]
        assert sum(sizes) < 10_000
    assert len(assets()["preview.png"].body) < 100_000


def test_the_icon_is_where_browsers_look_for_one(app: Application) -> None:
    """For JSON answers too, cached for a day; it is the same icon that pages name."""
    answer = get(app, "/favicon.ico", BROWSER)
    assert (answer.status, answer.header("Content-Type")) == (200, "image/svg+xml")
    assert answer.header("Cache-Control") == "public, max-age=86400"
    (icon,) = set(re.findall(r"/assets/icon[\w.-]+", get(app, "/").body.decode()))
    assert answer.body == get(app, icon).body


def test_a_shared_link_has_a_title_a_sentence_and_a_picture(app: Application) -> None:
    """Each is of its page and escaped; the picture is a file of ours, whole where the server has an address."""
    elements = Elements()
    elements.feed(get(app, "/selector/0xa9059cbb/").body.decode())
    named = {
        pairs["property"]: pairs["content"] or ""
        for tag, pairs in elements.found
        if tag == "meta" and "property" in pairs
    }
    assert named["og:title"] == "0xa9059cbb transfer(address,uint256)"
    assert named["og:description"].startswith("0xa9059cbb is the selector of transfer(address,uint256). 2 known")
    picture = get(app, named["og:image"])
    assert (picture.status, picture.header("Content-Type"), picture.body[:4]) == (200, "image/png", b"\x89PNG")
    evil = get(app, f"/search/?q={quote(EVIL)}").body.decode()
    assert f'property="og:title" content="{escape(EVIL)}' in evil.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")


def test_crawlers_are_told_what_costs_much(app: Application) -> None:
    """Decoding, solving and the search are left out; pages of selectors and topics are not."""
    answer = get(app, "/robots.txt")
    assert answer.header("Content-Type") == "text/plain; charset=utf-8"
    rules = RobotFileParser()
    rules.parse(answer.body.decode().splitlines())
    for path in ("/", "/selector/0xa9059cbb/", f"/topic/{TOPIC}/", "/browse/"):
        assert rules.can_fetch("anyone", path)
    for path in ("/search/?q=a", "/decode/?data=0x", "/solve/?hash=0x00000000", "/api/v1/signatures/"):
        assert not rules.can_fetch("anyone", path)


def test_the_match_is_marked(app: Application) -> None:
    """The matching part of a text or hash is in <mark>, in any case; a large page is packed."""
    answer = get(app, "/search/?q=TRANSFERfrom", {"Accept-Encoding": "gzip"})
    marks = re.findall("<mark>(.*?)</mark>", gzip.decompress(answer.body).decode())
    assert {mark.lower() for mark in marks} == {"transferfrom"}
    assert b"<mark>a9059</mark>" in get(app, "/search/?q=0xa9059").body


@pytest.mark.parametrize("path", ["/", "/status/"])
def test_counts_are_live(app: Application, path: str) -> None:
    """A row that was just stored is counted."""
    before = int(get(app, "/api/v1/signatures/?page_size=1").json()["count"])
    assert f"{before:,}" in visible(get(app, path))
    assert post_text(app, f"counted{len(path)}()").status == 201
    assert f"{before + 1:,}" in visible(get(app, path))


# Errors.


@pytest.mark.parametrize(
    "path", ["/nope", "/browse/nope/", "/browse/functions/?before=x", "/browse/functions/?after=-1", "/selector/0x12/",
             "/selector/0x00000000/", "/selector/%3Cb%3E/", f"/topic/0x{'0' * 64}/", "/topic/0xa9059cbb/",
             "/selector/0xa9059cbb/?id=999", "/search/?q=transfer&in=functions&page=999", "/search/?q=a&page=0",
             "/search/?q=a&in=functions&page=x", "/assets/../page.py", "/assets/nope.css"]
)  # fmt: skip
def test_a_missing_page_is_an_html_page(app: Application, path: str) -> None:
    """A 404 is an HTML page with a search box, except for assets; other clients get JSON."""
    answer = get(app, path, BROWSER)
    assert answer.status == 404
    assert get(app, "/nope").json() == {"detail": "Not found."}
    if "/assets/" not in path:
        assert answer.header("Content-Type").startswith("text/html")
        assert b'role="search"' in answer.body
        assert "<b>" not in answer.body.decode()
        assert answer.header("ETag") == ""


@pytest.mark.parametrize(
    ("path", "to", "status"),
    [
        ("/selector/A9059CBB/", "/selector/0xa9059cbb/", 301), ("/selector/a9059cbb", "/selector/a9059cbb/", 301),
        ("/topic/" + TOPIC.upper().replace("X", "x") + "/", f"/topic/{TOPIC}/", 301), ("/search?q=a", "/search/?q=a", 301),
        ("/browse/events", "/browse/events/", 301), ("/status", "/status/", 301),
        ("/signatures?query=0xa9059cbb", "/signatures/?query=0xa9059cbb", 301),
        ("/?q=0xa9059cbb", "/selector/0xa9059cbb/", 302), ("/?q=A9059CBB", "/selector/0xa9059cbb/", 302),
        (f"/?q={TOPIC}", f"/topic/{TOPIC}/", 302), ("/signatures/?query=0xa9059cbb", "/selector/0xa9059cbb/", 302),
        ("/signatures/?bytes4_signature=0xa9059cbb", "/selector/0xa9059cbb/", 302),
        (f"/event-signatures/?bytes_signature={TOPIC}", f"/topic/{TOPIC}/", 302),
        ("/?q=0x00000001", "/search/?q=0x00000001", 302), ("/signatures/", "/browse/functions/", 302),
        ("/signatures/?query=balance%20%0d%0aOf", "/search/?q=balance+%0D%0AOf", 302),
        ("/event-signatures/?sort=-created_at", "/browse/events/", 302),
        ("/signatures/?query=%00%ff", "/search/?q=%00%EF%BF%BD", 302),
    ],
)  # fmt: skip
def test_other_addresses_lead_to_the_page(app: Application, path: str, to: str, status: int) -> None:
    """Other spellings, and links to other directories: to the record of a known hash, else to the search or the newest."""
    for method in ("GET", "HEAD"):
        answer = request(app, method, path)
        assert (answer.status, answer.header("Location")) == (status, to)


@pytest.mark.parametrize("path", ["/search/", "/search/results/"])
def test_a_query_has_a_maximum_length(app: Application, path: str) -> None:
    """A part of a signature has 256 characters; a whole one may be longer: it is looked up by its hash."""
    assert get(app, f"{path}?q={'a' * 16_384}").status == 414
    assert get(app, f"{path}?q=0x{'a' * 16_000}").status == 200
    told = "a piece of a text has at most 256 characters here, and this has"
    for text, is_told in (("a" * 256, False), ("a" * 257, True), ("a" * 257 + "()", False)):
        assert (told in get(app, f"{path}?q={text}").body.decode()) == is_told


# Hostile input.


@pytest.mark.parametrize("path", ["/search/", "/search/results/", "/submit/"])
@pytest.mark.parametrize("name", ["q", "text", "in", "as", "page"])
def test_parameters_are_shown_as_text(app: Application, path: str, name: str) -> None:
    """Markup and template syntax in a parameter is shown literally and does nothing."""
    answer = get(app, f"{path}?{urlencode({name: EVIL})}", BROWSER)
    elements = Elements()
    elements.feed(answer.body.decode())
    assert {src for tag, named in elements.found if tag in ("script", "img") for src in [named.get("src")]} <= OWN
    assert not [name for _, named in elements.found for name in named if name.startswith("on")]
    if answer.status == 200 and (name, path) in (("q", "/search/"), ("text", "/submit/")):
        assert EVIL in unescape(answer.body.decode())


def test_source_names_are_shown_as_text(app: Application) -> None:
    """Whoever imports a source chooses its name."""
    body = get(app, "/status/").body.decode()
    assert "rows for &lt;b&gt;pages&lt;/b&gt;" in body
    assert "<b>pages" not in body


@pytest.mark.parametrize("query", ["\0", "é", "%", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "((((", ")" * 500, "0x", "0xz", "a" * 900, "\n\n",
                                   "function", "event ", "<", "&lt;", "*", "1e400", "f(" + "(" * 2000])  # fmt: skip
def test_any_query_has_an_answer(app: Application, query: str) -> None:
    assert get(app, "/search/?q=" + quote(query)).status == 200


@pytest.mark.parametrize(
    ("query", "shown"), [("0xa9059cbb", ["functions"]), ("0xa9059cbb" + "00" * 64, ["functions"]), (TOPIC, ["events"]),
                         ("0xddf252ad", ["functions", "events"]), ("transfer", ["functions", "events"])]
)  # fmt: skip
def test_a_whole_hash_is_searched_in_its_own_collection(app: Application, query: str, shown: list[str]) -> None:
    """A collection without such hashes has no heading; events whose topic begins with a selector are shown."""
    body = get(app, f"/search/?q={query}").body.decode()
    assert re.findall(r'<section aria-labelledby="(\w+)"', body) == shown


@pytest.mark.parametrize("query", ["0x00000000", "0x00000000" + "00" * 64, "0x" + "00" * 32, "noSuchName"])
def test_nothing_found_is_one_line_with_a_link(app: Application, query: str) -> None:
    """The line links to Submit, and so does the page of an unknown hash. A topic may be a transaction's hash."""
    body = get(app, f"/search/?q={query}").body.decode()
    assert '<p class="none">Nothing found. If you know the signature, <a href="/submit/">submit it</a>.' in body
    for path in ("/search/?q=", "/decode/?data=") if query[:2] == "0x" else ():
        page = get(app, path + query).body.decode()
        assert ("If this is a transaction" in page) == (len(query) == 66)
    assert "<section" not in body
    for path in ("/selector/0x00000000/", f"/topic/0x{'0' * 64}/"):
        assert 'If you know the signature, <a href="/submit/">submit it</a>.' in get(app, path, BROWSER).body.decode()
    assert "submit it" not in visible(get(app, "/selector/0x12/", BROWSER))


@pytest.mark.parametrize(
    ("path", "source"), [("/selector/0xa9059cbb/", "ERC-20"), (f"/topic/{TOPIC}/", "ERC-20"),
                         (f"/topic/{topic('TransferBatch(address,address,address,uint256[],uint256[])')}/", "ERC-1155")]
)  # fmt: skip
def test_a_well_known_signature_has_a_badge(app: Application, path: str, source: str) -> None:
    """Functions and events alike name the standard that defines them."""
    assert f'<span class="tag good">{source}</span>' in get(app, path).body.decode()


@pytest.mark.parametrize(
    ("query", "sentence"),
    [("?? nonsense !!", "cannot be read: a second name at column 4. A signature is a name and its parameter types, such as transfer("),
     ("nope(uint7)", "Not a valid signature: not a valid width for this type, at column 6.\nNothing found.\n"),
     ("0x" + "ab" * 20, "addresses have no signature. The search is for its first four bytes.\nNothing found.\n")]
)  # fmt: skip
def test_what_cannot_be_a_signature_is_not_offered_for_submission(app: Application, query: str, sentence: str) -> None:
    page = visible(get(app, f"/search/?q={quote(query)}"))
    assert sentence in page
    assert "submit it" not in page


@pytest.mark.parametrize(
    ("query", "meant"),
    [("transfre", "transfer"), ("Transfre", "Transfer"), ("balnceOf(address)", "balanceOf(address)"),
     ("balnceOf(bool)", "balanceOf"), ("setAprovalForAl", "setApprovalForAll"), ("event Aproval(address", "Approval(address")]
)  # fmt: skip
def test_a_typing_error_gets_a_suggestion(app: Application, query: str, meant: str) -> None:
    """The name as it is stored, with the typed parameters if a row has them; the link finds it."""
    page = get(app, f"/search/?q={quote(query)}").body.decode()
    links = re.findall(r'<p class="suggestions">Did you mean (.*?)\?</p>', page)
    assert len(links) == 1
    address, text = re.findall(r'<a class="text" href="([^"]*)">(.*?)</a>', links[0])[0]
    assert (address, text) == (f"/search/?q={quote(meant)}", meant)
    assert "Did you mean" not in get(app, address).body.decode()


# Submitting.


def send_form(
    app: Application, fields: Mapping[str, str], headers: Mapping[str, str] | None = None, path: str = "/submit/"
) -> Answer:
    return request(app, "POST", path, urlencode(fields).encode(), {**FORM, **(headers or {})})


def store(app: Application, texts: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Confirm a preview with these texts: the page that the answer redirects to."""
    answer = send_form(app, {"texts": texts}, headers, "/submit/store/")
    assert (answer.status, answer.body) == (303, b"")
    return get(app, answer.header("Location"))


@pytest.mark.parametrize("path", ["/submit/", "/submit/store/"])
@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
                {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://[::1"}, {"Origin": "://"}, {"Origin": f"http://{HOST}:1"},
                {"Sec-Fetch-Site": "cross-site", "Origin": "the server's own"}]
)  # fmt: skip
def test_a_form_of_another_site_does_nothing(app: Application, path: str, headers: dict[str, str]) -> None:
    """It is neither previewed nor stored."""
    own = f"http://{HOST}"
    headers = {name: own if value == "the server's own" else value for name, value in headers.items()}
    text = "forged(uint256)"
    answer = send_form(app, {"texts": text, "text": text}, headers, path)
    assert answer.status == 403
    assert found(app, text) == []


@pytest.mark.parametrize("header", ["Origin", "Sec-Fetch-Site"])
def test_our_own_form_is_accepted(app: Application, header: str) -> None:
    value = "same-origin" if header == "Sec-Fetch-Site" else f"http://{HOST}"
    text = f"ours{len(header)}(uint256)"
    assert store(app, text, {header: value}).status == 200
    assert len(found(app, text)) == 1


def test_a_preview_carries_the_new_texts(app: Application) -> None:
    """Only the new texts, each as declared, so that storing them needs nothing else."""
    text = "carried(uint)\nevent Carried(address indexed a)\ntransfer(address,uint256)\nno good\ncarried(uint256)\nerror Bad(uint)"
    body = send_form(app, {"text": text, "as": "functions"}).body.decode()
    carried = re.search(r'<textarea name="texts" hidden>(.*?)</textarea>', body, re.DOTALL)
    assert carried is not None
    assert carried[1].split("\n") == ["carried(uint256)", "event Carried(address indexed a)", "error Bad(uint256)", ""]
    assert found(app, "carried") == []


DECLARED = {
    "function named(uint256 a) view returns (bool b)": "function named(uint a) view returns (bool b)",
    "error Named(uint256 a)": '[{"type": "error", "name": "Named", "inputs": [{"name": "a", "type": "uint256"}]}]',
    "event Named(address indexed a)": "contract C { event Named(address indexed a); }",
}


def test_a_submission_keeps_the_kind_and_the_names(tmp_path: Path) -> None:
    """Evidence has the declarations, as of a POST."""
    with application(tmp_path) as app:
        for declared, text in DECLARED.items():
            body = send_form(app, {"text": text, "kind": "auto"}).body.decode()
            [carried] = re.findall(r'<textarea name="texts" hidden>(.*?)\n</textarea>', body, re.DOTALL)
            assert carried == declared
            store(app, carried)
        fold(Paths(tmp_path))
        groups = get(app, "/api/v1/search/?q=named").json()
        rows = groups["signatures"]["results"] + groups["event-signatures"]["results"]
        assert {row["declaration"] for row in rows} == set(DECLARED)


@pytest.mark.parametrize("text", ["", "# only a comment", "[{]", '{"no": "abi"}'])
def test_unreadable_input_is_an_error_on_the_page(app: Application, text: str) -> None:
    """The form keeps the input."""
    answer = send_form(app, {"text": text})
    body = answer.body.decode()
    assert (answer.status, 'role="alert"' in body, f">{text}</textarea>" in unescape(body)) == (400, True, True)


def test_a_bad_entry_of_an_abi_is_rejected_alone(app: Application) -> None:
    """With its number; the others are stored."""
    page = visible(send_form(app, {"text": '[{"name": "entryOfAbi"}, {"name": "g", "inputs": 5}, 7]'}))
    assert "1 new, 2 rejected" in page
    assert re.search(r"2\s*rejected\s*\{.*\}\s*not a valid ABI entry", page)


def test_lines_without_a_keyword_go_where_the_form_says(app: Application) -> None:
    page = visible(send_form(app, {"text": "Plain(uint256)", "as": "events"}))
    assert re.search(r"topic 0x[0-9a-f]{64}", page)


def test_texts_are_checked_again_before_they_are_stored(app: Application) -> None:
    """A text without a preview, or stored by another request since, is handled like any other."""
    answer = store(app, "stored(bad)\nfunction storedAgain()\nfunction storedAgain()")
    assert (
        "1 signature is now stored on disk and served. 2 lines are in the directory already or were rejected."
        in visible(answer)
    )
    assert len(found(app, "storedAgain")) == 1
    assert "Nothing new" in visible(store(app, "function storedAgain()"))


def test_a_large_submission_is_redirected_to_all_of_its_rows(app: Application) -> None:
    """2,000 rows of both collections have a short address."""
    lines = [f"{'event' if number % 2 else 'function'} redirected{number}(uint8)" for number in range(2000)]
    answer = send_form(app, {"texts": "\n".join(lines)}, path="/submit/store/")
    assert len(answer.header("Location")) < 200
    page = get(app, answer.header("Location")).body.decode()
    assert "2,000 signatures are now stored" in page
    assert len(set(re.findall(r">(redirected\d+)\(uint8\)<", page))) == 2000


@pytest.mark.parametrize(
    "query", ["functions=x", "functions=1", "functions=1-", "events=" + "9" * 30 + "-1", "others=-1", "others=" + "9" * 30,
              "functions=" + ",".join(["1-1"] * 101)]
)  # fmt: skip
def test_stored_rows_that_cannot_be_are_not_found(app: Application, query: str) -> None:
    assert get(app, f"/submit/stored/?{query}").status == 404


def test_a_submission_has_a_maximum_size(app: Application) -> None:
    """2,000 signatures get a preview, one more is refused; a body over 4 MiB is not read."""
    lines = [f"bounded{number}()" for number in range(2001)]
    assert "2,000 new" in visible(send_form(app, {"text": "\n".join(lines[:2000])}))
    refused = send_form(app, {"text": "\n".join(lines)})
    assert refused.status == 413
    assert "More than 2,000" in visible(refused)
    assert found(app, "bounded") == []
    large = request(app, "POST", "/submit/", b"text=" + b"a" * (4 << 20), FORM)
    assert large.status == 413
    assert large.header("Content-Type").startswith("text/html")


def test_a_format_is_detected_by_the_content(app: Application) -> None:
    """Of a file under any name; structs become tuples, and the numbers are the file's."""
    content = "contract Desk {\n  struct S { uint a; bool b; }\n  function fromAFile(S[] calldata s) external {}\n}"
    body, headers = multipart({"kind": "auto"}, {"file": content.encode()})
    answer = request(app, "POST", "/submit/", body.replace(b"a.sol", b"a.txt"), headers)
    [cells] = re.findall("<tbody>(.*?)</tr>", answer.body.decode(), re.DOTALL)
    row = re.sub("<[^>]*>", " ", cells.replace("<wbr>", "")).split()
    assert row[:3] == ["3", "new", "fromAFile((uint256,bool)[])"]


def test_invalid_utf8_is_rejected_with_its_column(app: Application) -> None:
    body, headers = multipart({"kind": "list"}, {"file": b"f\xff()"})
    page = visible(request(app, "POST", "/submit/", body, headers))
    assert "not UTF-8, at column 2" in page


@pytest.mark.parametrize(
    ("line", "message"), [("transfer", "expected ( after the name, as in name(types), at column 9"),
                       ("hello world", "expected ( after the name, as in name(types), at column 7"),
                       ("f(uint256)x", "unexpected text after the signature"),
                       ("contract {", "cannot place this statement"),
                       ("f(Unknown.Type)", "a contract declares this type: submit the file that declares it too, at column 3"),
                       ("f(Set.Data storage)", "a type that only library functions accept; it has no canonical text")]
)  # fmt: skip
def test_a_rejected_line_says_what_to_correct(app: Application, line: str, message: str) -> None:
    """The message fits a user who pasted a list: it names no ABIs, and mentions other files."""
    page = visible(send_form(app, {"text": line, "kind": "auto" if line == "contract {" else "list"}))
    assert message in page
    assert "of an ABI" not in re.sub(r"Signatures, an ABI.*", "", page, flags=re.DOTALL)


# Links.


@pytest.mark.parametrize(
    ("entered", "kinds"), [("asked(uint a)", ["functions", "events"]), ("error asked(uint a)", ["functions"]), ("event asked(uint a)", ["events"])]
)  # fmt: skip
def test_an_unknown_signature_can_be_submitted_as_what_it_is(app: Application, entered: str, kinds: list[str]) -> None:
    """With its keyword and its names, and as nothing else."""
    body = unescape(get(app, f"/search/?{urlencode({'q': entered})}").body.decode())
    assert re.findall(r'href="/submit/\?text=(.*?)&as=(.*?)"', body) == [(quote_plus(entered), kind) for kind in kinds]


def test_every_link_answers(app: Application) -> None:
    """Every link of every page gets 200 or a redirect."""
    seen: set[str] = set()
    waiting = list(PAGES)
    while waiting:
        path = waiting.pop()
        if path in seen or len(seen) > 300:
            continue
        seen.add(path)
        answer = get(app, path, BROWSER)
        assert answer.status in (200, 302), path
        if path in PAGES:
            waiting += [unescape(link) for link in re.findall(r'(?:href|src)="(/[^"]*)"', answer.body.decode())]
    assert len(seen) > 50


def walked(app: Application, path: str, relation: str) -> Iterator[tuple[str, list[str]]]:
    """The path and the texts of each page that links of this relation lead to."""
    link: str | None = path
    while link is not None:
        page = get(app, path := link).body.decode()
        yield path, [re.sub("</?mark>", "", text) for text in re.findall(r'class="text" href="[^"]*">(.*?)</a>', page)]
        following = re.search(rf'rel="{relation}" href="([^"]*)"', page)
        link = unescape(following[1]) if following else None


def test_browse_shows_every_row_once_while_rows_are_added(app: Application) -> None:
    """A page continues after the last row seen, so rows added meanwhile neither repeat nor hide another; links lead back."""
    pages = []
    for number, page in enumerate(walked(app, "/browse/functions/", "next")):
        pages.append(page)
        assert post_text(app, f"meanwhile{number}(bool)").status == 201
    seen = [text for _, texts in pages for text in texts]
    assert len(seen) == len(set(seen))
    assert set(PAGED) <= set(seen)
    assert seen[-1] == COLLIDING
    back = [text for _, texts in walked(app, pages[-1][0], "prev") for text in texts]
    assert set(seen) <= set(back)


def test_results_have_pages(app: Application) -> None:
    """Every row of a long result is on exactly one page."""
    results = get(app, "/search/?q=pagedRow").body.decode()
    assert "All 130 functions and errors" in results
    link = re.findall(r'href="(/search/[^"]*in=functions[^"]*)"', results)[0]
    pages = list(walked(app, unescape(link), "next"))
    assert (len(pages), sorted(text for _, texts in pages for text in texts)) == (3, sorted(PAGED))
