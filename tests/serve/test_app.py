"""The contract, by the application in this process: requests as clients send them, and what each is answered."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import pytest
from backports import zstd
from falcon.testing import TestClient

from sigdir.serve import metrics
from sigdir.serve.app import create_app, routes
from sigdir.serve.core.process import write_line
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.metrics import Counts
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from tests.serve.support import (
    ABI_PATH,
    EVENT,
    EVENTS_PATH,
    FORM,
    HOST,
    JSON,
    LISTS,
    SIGNATURES_PATH,
    SOLIDITY_PATH,
    SPAM,
    TRANSFER,
    Answer,
    Application,
    digest,
    found,
    get,
    multipart,
    opened,
    post,
    post_text,
    request,
    selector,
)

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}

PAGED = [f"pagedRow{number}(uint256)" for number in range(25)]
SEED: list[tuple[Collection, str]] = [
    (SIGNATURES, TRANSFER),
    (SIGNATURES, SPAM),
    *((SIGNATURES, text) for text in PAGED),
    (SIGNATURES, "balanceOf(address)"),
    (EVENT_SIGNATURES, EVENT),
    (EVENT_SIGNATURES, "Approval(address,address,uint256)"),
]

LIST_ALLOW = {"GET", "POST", "HEAD", "OPTIONS"}
DETAIL_ALLOW = {"GET", "HEAD", "OPTIONS"}
IMPORT_ALLOW = {"POST", "OPTIONS"}
ALLOW: Mapping[str, set[str]] = {
    SIGNATURES_PATH: LIST_ALLOW,
    EVENTS_PATH: LIST_ALLOW,
    f"{SIGNATURES_PATH}1/": DETAIL_ALLOW,
    f"{EVENTS_PATH}1/": DETAIL_ALLOW,
    ABI_PATH: IMPORT_ALLOW,
    SOLIDITY_PATH: IMPORT_ALLOW,
}
METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "FOO"]
MakeApp = Callable[..., TestClient]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Reader, Writer]]:
    """A warehouse of these tests, with its settings."""
    folder = tmp_path_factory.mktemp("app") / "warehouse"
    with opened(folder) as (reader, writer):
        yield Settings(folder), reader, writer


@pytest.fixture(scope="module")
def make_app(storage: tuple[Settings, Reader, Writer]) -> MakeApp:
    """The application over ``storage`` with other settings."""
    plain, reader, writer = storage
    return lambda counts=None, **more: TestClient(create_app(replace(plain, **more), reader, writer, counts))


@pytest.fixture(scope="module")
def app(storage: tuple[Settings, Reader, Writer], make_app: MakeApp) -> Application:
    """The application over ``storage``, which has the seed."""
    app = Application(storage[0].warehouse, make_app())
    for collection, text in SEED:
        assert post_text(app, text, LISTS[collection]).status == 201
    return app


def names_allowed(answer: Answer) -> set[str]:
    return set(answer.header("Allow").replace(",", " ").split())


def names_varied(answer: Answer) -> set[str]:
    return set(", ".join(answer.headers.get_all("Vary", [])).lower().replace(",", " ").split())


def assert_record(record: dict[str, Any], text: str, collection: Collection = SIGNATURES) -> None:
    """A row in the contract's form, its hash by another implementation."""
    hash = digest(text)[: collection.hash_bytes]
    assert list(record) == ["id", "created_at", "text_signature", "hex_signature", "bytes_signature"]
    assert record["text_signature"] == text
    assert record["hex_signature"] == "0x" + hash.hex()
    assert record["bytes_signature"] == hash.decode("latin-1")
    assert type(record["id"]) is int
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record["created_at"])
    datetime.fromisoformat(record["created_at"])


# Lists and rows.


def test_pages_are_linked_with_scheme_and_host_of_the_request(app: Application) -> None:
    """A client that follows ``next`` from page 1 sees all pages, at the address that it used. Each has four members."""
    link: str | None = f"http://{HOST}{SIGNATURES_PATH}?text_signature=pagedRow&page_size=10"
    texts: list[str] = []
    links = []
    while link is not None:
        answer = get(app, link.removeprefix(f"http://{HOST}"))
        page = answer.json()
        assert (list(page), page["count"]) == (["count", "next", "previous", "results"], 25)
        assert answer.header("Content-Type") == "application/json"
        texts += [record["text_signature"] for record in page["results"]]
        links.append((page["previous"], page["next"]))
        link = page["next"]
    assert texts == PAGED[::-1]
    base = f"http://{HOST}{SIGNATURES_PATH}?page="
    rest = "&page_size=10&text_signature=pagedRow"
    assert links == [
        (None, f"{base}2{rest}"), (f"{base}1{rest}", f"{base}3{rest}"), (f"{base}2{rest}", None),
    ]  # fmt: skip


def test_a_part_of_a_text_may_be_long(app: Application) -> None:
    """230 of a million texts have over 256 characters; the kernels compare no more."""
    text = f"long({','.join(['address'] * 50)})"
    assert post_text(app, text).status == 201
    for part, count in ((text.upper(), 1), (text[1:-9], 1), (text + "x", 0), (text[:-1] + "\u212a", 0)):
        assert get(app, f"{SIGNATURES_PATH}?text_signature={quote(part)}").json()["count"] == count


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("?page=0", "Invalid page."), ("?page=%00", "Invalid page."), ("?page=2&text_signature=pagedRow", "Invalid page."),
        ("?cursor=nonsense", "Invalid cursor."), ("?format=xml", "Not found."),
        *((f"{id}/", "Not found.") for id in ("0", "999999999", "9" * 20, "9" * 5000, "-1", "abc", "%00", "%E2%82%AC", "%FF", "+1")),
    ],
)  # fmt: skip
def test_what_is_not_there(app: Application, path: str, detail: str) -> None:
    """A page, a cursor, a format or a row: 404 with the contract's message. A condition does not turn it into a 304."""
    path = SIGNATURES_PATH + path
    answer = get(app, path)
    assert (answer.status, answer.json()) == (404, {"detail": detail})
    assert names_allowed(answer) == (LIST_ALLOW if "?" in path else DETAIL_ALLOW)
    for known in (get(app, SIGNATURES_PATH).header("ETag"), "*"):
        assert get(app, path, {"If-None-Match": known}).status == 404
    assert get(app, "/selector/0x00000000/", {"If-None-Match": get(app, "/").header("ETag")}).status == 404


# Headers, methods, paths.


@pytest.mark.parametrize("path", ALLOW)
def test_every_answer_names_the_methods_and_varies_by_accept(app: Application, path: str) -> None:
    """Allow and Vary: Accept come with every answer; a method that is not allowed is 405."""
    for method in METHODS:
        answer = request(app, method, path, b"" if method in ("POST", "PUT", "PATCH") else None)
        assert names_allowed(answer) == ALLOW[path], method
        assert "accept" in names_varied(answer), method
        assert answer.status in ((200, 201, 400) if method in ALLOW[path] else (405,)), method


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "FOO"])
def test_a_path_without_its_slash_is_moved(app: Application, storage: tuple[Any, Any, Any], method: str) -> None:
    """301 to the path with a slash and the same query, whatever the method: all of the table but the root."""
    paths = [re.sub("{[^}]*}", "1", path) for path in routes(*storage) if path[1:].endswith("/")]
    assert len(paths) > 15
    query = "?page=2&a=%C3%A9&b=x%20y&a=1"
    for path in paths:
        answer = request(app, method, path.rstrip("/") + query, b"" if method == "POST" else None)
        assert (answer.status, answer.header("Location")) == (301, path + query)


@pytest.mark.parametrize("id", ["%0d%0aX-Evil:%201", "%FF", "%00", "a%3Fb", "a%23b", "%2525", "a%20b", "é"])
def test_a_moved_path_stays_the_same_path(app: Application, id: str) -> None:
    """Location repeats the path with all its escapes: nothing gets into the headers or the query."""
    path = SIGNATURES_PATH + quote(id, safe="%")
    answer = get(app, path)
    assert answer.status == 301
    assert "X-Evil" not in answer.headers
    assert unquote_to_bytes(answer.header("Location").encode("latin-1")) == unquote_to_bytes(path) + b"/"
    assert get(app, answer.header("Location")).status == 404


@pytest.mark.parametrize(
    "path",
    ["/api/", "/api/v1/", "/api/v1/signatures/1/2/", "/api/v1/Signatures/", "/humans.txt", "/%00", "/%FF/", "/.."],
)
def test_an_unknown_path_is_not_found(app: Application, path: str) -> None:
    """Any other path is 404 for any method."""
    for method in ("GET", "POST", "HEAD", "FOO"):
        assert request(app, method, path, b"" if method == "POST" else None).status == 404, method


ROW_FIELDS = {
    "id": {"type": "integer", "required": False, "read_only": True, "label": "ID"},
    "created_at": {"type": "datetime", "required": False, "read_only": True, "label": "Created at"},
    "text_signature": {"type": "string", "required": True, "read_only": False, "label": "Text signature"},
    "hex_signature": {"type": "string", "required": False, "read_only": True, "label": "Hex signature"},
    "bytes_signature": {"type": "string", "required": False, "read_only": True, "label": "Bytes signature"},
}
COUNTER_FIELDS = {
    f"num_{name}": {"type": "integer", "required": False, "read_only": True, "label": f"Num {name}"}
    for name in ("processed", "imported", "duplicates", "ignored")
}
ABI_FIELDS = {"contract_abi": {"type": "string", "required": True, "read_only": False, "label": "Contract abi"}}
SOLIDITY_FIELDS = {
    "source_file": {"type": "file upload", "required": False, "read_only": False, "label": "Source file"},
    "source_code": {"type": "string", "required": False, "read_only": False, "label": "Source code"},
}


@pytest.mark.parametrize(
    ("path", "name", "fields"),
    [
        (SIGNATURES_PATH, "Signature List", ROW_FIELDS),
        (EVENTS_PATH, "Event Signature List", ROW_FIELDS),
        (f"{SIGNATURES_PATH}1/", "Signature Instance", None),
        (f"{EVENTS_PATH}nonsense/", "Event Signature Instance", None),
        (ABI_PATH, "Contract Abi Import Api", ABI_FIELDS | COUNTER_FIELDS),
        (SOLIDITY_PATH, "Solidity Import Api", SOLIDITY_FIELDS | COUNTER_FIELDS),
    ],
)
def test_options_describe_the_resource(app: Application, path: str, name: str, fields: dict[str, Any] | None) -> None:
    """OPTIONS has the name, types and fields, also for a row that does not exist."""
    expected: dict[str, Any] = {
        "name": name, "description": "", "renders": ["application/json", "text/html"],
        "parses": ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"],
    }  # fmt: skip
    if fields is not None:
        expected["actions"] = {"POST": fields}
    answer = request(app, "OPTIONS", path)
    assert (answer.status, answer.json()) == (200, expected)
    if fields is not None:
        assert list(answer.json()["actions"]["POST"]) == list(fields)


@pytest.mark.parametrize(
    "path",
    [
        SIGNATURES_PATH, f"{SIGNATURES_PATH}?text_signature=transfer", f"{SIGNATURES_PATH}1/", f"{SIGNATURES_PATH}?page=0",
        "/api/v1/signatures", "/nope/", "/healthz", "/", "/api/v1/signatures%0a",
    ],
)  # fmt: skip
@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "gzip"}, BROWSER, {"Accept": "image/png"}], ids=str)
def test_head_is_get_without_the_body(app: Application, path: str, headers: Mapping[str, str]) -> None:
    """HEAD has the status and headers of GET, Content-Length too, and no body. Browsers keep to the type of every answer."""
    full, head = get(app, path, headers), request(app, "HEAD", path, headers=headers)
    assert head.body == b""
    assert head.status == full.status
    shown = [{name: value for name, value in each.headers.items() if name != "Date"} for each in (head, full)]
    assert shown[0] == shown[1]
    assert full.header("Content-Length") == str(len(full.body))
    assert (full.status < 500, full.header("X-Content-Type-Options")) == (True, "nosniff")


# Negotiation.


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [(SIGNATURES_PATH, "?format=api", 200), (f"{SIGNATURES_PATH}1/", "", 200), (EVENTS_PATH, "", 200), (SIGNATURES_PATH, "?page=0", 404)],
)  # fmt: skip
def test_a_browser_gets_a_page(app: Application, path: str, query: str, status: int) -> None:
    """A client that prefers HTML gets HTML of the same rows, with and without format=api; an error has the status of JSON."""
    answer = get(app, path + query, BROWSER)
    assert answer.status == status
    assert answer.header("Content-Type").startswith("text/html")
    assert answer.body.lstrip().lower().startswith(b"<!doctype html>")
    row = get(app, path).json()
    text = (row["results"][0] if "results" in row else row)["text_signature"]
    assert (text.encode() in answer.body) == (status == 200)
    assert "accept" in names_varied(answer)


def test_a_posted_row_can_be_a_page(app: Application) -> None:
    answer = request(app, "POST", SIGNATURES_PATH, b"text_signature=postedByABrowser()", FORM | BROWSER)
    assert (answer.status, answer.header("Content-Type").partition(";")[0]) == (201, "text/html")
    assert b"postedByABrowser()" in answer.body


def test_a_page_shows_the_query_and_runs_none_of_it(app: Application) -> None:
    """Markup in a query is text on the page."""
    evil = '"><script>alert(1)</script>'
    answer = get(app, f"{SIGNATURES_PATH}?{urlencode({'page_size': '1', 'x': evil})}&y=%3Cscript%3E", BROWSER)
    assert answer.status == 200
    assert b"<script" not in answer.body
    assert "script-src" in answer.header("Content-Security-Policy")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", f"{SIGNATURES_PATH}1/"), ("POST", SIGNATURES_PATH), ("POST", ABI_PATH), ("OPTIONS", EVENTS_PATH)],
)
def test_an_accept_of_neither_is_refused(app: Application, method: str, path: str) -> None:
    """An Accept of neither is 406 as JSON; a refused POST stores nothing."""
    body = urlencode({"text_signature": "refusedByAccept()", "contract_abi": "[]"}).encode()
    sent = body if method == "POST" else None
    answer = request(app, method, path, sent, FORM | {"Accept": "application/xml"})
    assert answer.status == 406
    assert answer.json() == {"detail": "Could not satisfy the request Accept header."}
    assert names_allowed(answer) == ALLOW[path.partition("?")[0]]
    assert found(app, "refusedByAccept") == []


# Validators, compression, other origins.


@pytest.mark.parametrize("path", [SIGNATURES_PATH, f"{SIGNATURES_PATH}1/", f"{EVENTS_PATH}?page_size=1"])
@pytest.mark.parametrize("headers", [{}, BROWSER], ids=["json", "html"])
def test_a_client_that_has_it_gets_304(app: Application, path: str, headers: Mapping[str, str]) -> None:
    """If-None-Match with the ETag answers 304, without a body and with the same validators; JSON and HTML have different tags."""
    full = get(app, path, headers)
    tag = full.header("ETag")
    assert full.header("Cache-Control")
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        for method in ("GET", "HEAD"):
            answer = request(app, method, path, headers={**headers, "If-None-Match": known})
            assert (answer.status, answer.body) == (304, b""), known
            assert answer.header("ETag") == tag
            assert names_allowed(answer) == ALLOW[path.partition("?")[0]]
            assert {"accept", "accept-encoding"} <= names_varied(answer)
    other = get(app, path, {} if headers else BROWSER).header("ETag")
    for unknown in ('"other"', other):
        assert get(app, path, {**headers, "If-None-Match": unknown}).status == 200


def test_another_host_has_another_tag(app: Application) -> None:
    """Links have the host: after --public-url or --trust-proxy was set, a client with the old links gets the new ones."""
    for path in (f"{SIGNATURES_PATH}?page_size=1", "/api/v1/search/?q=transfer"):
        tag = get(app, path).header("ETag")
        assert get(app, path, {"Host": "other.test", "If-None-Match": tag}).status == 200


@pytest.mark.parametrize("path", LISTS.values())
def test_a_new_row_makes_a_new_tag(app: Application, path: str) -> None:
    """After a POST the old tag gets the new list."""
    tag = get(app, path).header("ETag")
    assert post_text(app, "madeANewTag()", path).status == 201
    answer = get(app, path, {"If-None-Match": tag})
    assert answer.status == 200
    assert answer.json()["results"][0]["text_signature"] == "madeANewTag()"


def test_a_lookup_keeps_its_tag_until_its_answer_changes(app: Application) -> None:
    """A new row elsewhere leaves it as it is. What is found may be cached for a minute, a hash without texts may not."""
    first = post_text(app, "keepsItsTag()").json()
    paths = [
        f"?hex_signature={first['hex_signature']}",
        f"?hex_signature__in={first['hex_signature']}",
        f"{first['id']}/",
    ]
    tags = [get(app, SIGNATURES_PATH + path).header("ETag") for path in paths]
    assert post_text(app, "takesNoOtherTag()").status == 201
    for path, tag in zip(paths, tags, strict=True):
        answer = get(app, SIGNATURES_PATH + path, {"If-None-Match": tag})
        assert (answer.status, answer.header("Cache-Control")) == (304, "public, max-age=60"), path
    unknown = f"{SIGNATURES_PATH}?hex_signature={selector('keepsNoTag()')}"
    missing = get(app, unknown)
    assert (missing.json()["count"], missing.header("Cache-Control")) == (0, "no-cache")
    assert post_text(app, "keepsNoTag()").status == 201
    assert get(app, unknown, {"If-None-Match": missing.header("ETag")}).json()["count"] == 1


UNPACK: Mapping[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "zstd": zstd.decompress, "": bytes}


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("deflate, gzip", "gzip"), ("zstd;q=0.5, gzip", "gzip"), ("gzip, deflate, br, zstd", "zstd"), ("", ""), ("br", ""),
        ("zstd;q=0", ""), ("gzip; q=0.0, identity", ""),
    ],
)  # fmt: skip
def test_a_long_answer_is_compressed_for_clients_that_accept_it(app: Application, accepted: str, coding: str) -> None:
    """By zstd before gzip; it unpacks to the plain answer, and caches know what it depends on."""
    path = f"{SIGNATURES_PATH}?text_signature=pagedRow"
    plain, answer = get(app, path), get(app, path, {"Accept-Encoding": accepted})
    assert answer.header("Content-Encoding") == coding
    assert UNPACK[coding](answer.body) == plain.body
    assert (len(answer.body) < len(plain.body)) == bool(coding)
    assert {"accept", "accept-encoding"} <= names_varied(answer)
    assert answer.header("Content-Length") == str(len(answer.body))


def test_other_origins_may_ask_and_read_every_route_of_the_api(app: Application, storage: tuple[Any, Any, Any]) -> None:
    """A preflight allows the methods and the headers that a POST of JSON with a token needs, and lasts a day; without an Origin
    there is no CORS header, and a cache must not give that answer to a page of another origin."""
    asking = {"Origin": "https://a.test", "Access-Control-Request-Method": "POST"}
    table = routes(*storage)
    found = [path for path in table if path.startswith(("/api/", "/signature-database/", "/signatures/{"))]
    assert len(found) > 20
    for path in (re.sub("{[^}]*}", "1", path) for path in found if not callable(table[path])):
        preflight = request(app, "OPTIONS", path, headers=asking)
        assert (preflight.status, preflight.header("Access-Control-Allow-Origin")) == (200, "*"), path
        assert {"GET", "POST", "OPTIONS"} <= set(preflight.header("Access-Control-Allow-Methods").split(", ")), path
        assert {"Authorization", "Content-Type"} <= set(preflight.header("Access-Control-Allow-Headers").split(", "))
        assert preflight.header("Access-Control-Max-Age") == "86400"
        answer, plain = get(app, path, {"Origin": "https://a.test"}), get(app, path)
        assert answer.header("Access-Control-Allow-Origin") == "*", path
        exposed = answer.header("Access-Control-Expose-Headers").split(", ")
        assert {"ETag", "Reject-Reason", "Retry-After"} <= set(exposed)
        assert plain.header("Access-Control-Allow-Origin") == ""
        assert "origin" in names_varied(plain), path
        assert "*" in preflight.header("Access-Control-Allow-Headers").split(", ")
    for path, status in (
        (f"{SIGNATURES_PATH}0/", 404),
        ("/nope", 404),
        ("/api/v1/nope/", 404),
        ("/api/v1/signatures", 301),
    ):
        answer = get(app, path, {"Origin": "https://a.test"})
        assert (answer.status, answer.header("Access-Control-Allow-Origin")) == (status, "*")


# POST.

NOT_TEXT = "Unknown signature format"
NO_FILE = "The submitted data was not a file. Check the encoding type on the form."
BAD_TEXTS: list[tuple[str, bytes, dict[str, str], int, Any]] = [
    ("xml", b"<a/>", {"Content-Type": "application/xml; charset=utf-8"}, 415,
     {"detail": 'Unsupported media type "application/xml; charset=utf-8" in request.'}),
    ("no type", b"{}", {}, 415, {"detail": 'Unsupported media type "" in request.'}),
    ("gzip", b"\x1f\x8b", JSON | {"Content-Encoding": "gzip"}, 415,
     {"detail": 'Unsupported content coding "gzip" in request; send the body as it is.'}),
    ("broken", b"{", JSON, 400, r"JSON parse error - "),
    ("not UTF-8", b'{"text_signature": "\xff()"}', JSON, 400, r"JSON parse error - "),
    ("UTF-16", '{"text_signature": "a()"}'.encode("utf-16"), JSON, 400, r"JSON parse error - "),
    ("deep", b"[" * 100_000, JSON, 400, r"JSON parse error - "),
    ("not a number", b'{"text_signature": NaN}', JSON, 400, None),
    ("a long number", b'{"text_signature": ' + b"9" * 10_000 + b"}", JSON, 400, None),
    ("a large number", b'{"text_signature": 1e' + b"9" * 10_000 + b"}", JSON, 400, None),
    ("many fields", b"a=b&" * 5_000, FORM, 400, None),
    ("many parts", *multipart({f"x{number}": "y" for number in range(5_000)}), 400, None),
    ("no boundary", b"x", {"Content-Type": "multipart/form-data"}, 400, r"Multipart form parse error - "),
    ("cut multipart", multipart({"text_signature": "cut()"})[0][:-20], multipart({})[1], 400,
     r"Multipart form parse error - "),
    ("list", b"[]", JSON, 400, {"non_field_errors": ["Invalid data. Expected a dictionary, but got list."]}),
    ("null body", b"null", JSON, 400, None),
    ("empty", b"", JSON, 400, {"text_signature": ["This field is required."]}),
    ("empty form", b"", FORM, 400, {"text_signature": ["This field is required."]}),
    ("other field", b'{"text": "a()"}', JSON, 400, {"text_signature": ["This field is required."]}),
    ("null", b'{"text_signature": null}', JSON, 400, {"text_signature": ["This field may not be null."]}),
    ("last is null", b'{"text_signature": "a()", "text_signature": null}', JSON, 400,
     {"text_signature": ["This field may not be null."]}),
    ("blank", b'{"text_signature": " \\t\\n "}', JSON, 400, {"text_signature": ["This field may not be blank."]}),
    ("two", '{"text_signature": "éé"}'.encode(), JSON, 400,
     {"text_signature": ["Ensure this value has at least 3 characters (it has 2)."]}),
    ("five", b'{"text_signature": 5}', JSON, 400,
     {"text_signature": ["Ensure this value has at least 3 characters (it has 1)."]}),
    ("object text", b'{"text_signature": {"a": 1}}', JSON, 400, {"text_signature": [NOT_TEXT]}),
    ("half a pair", b'{"text_signature": "\\ud800()"}', JSON, 400, {"text_signature": [NOT_TEXT]}),
    ("NUL in a form", b"text_signature=a%00()", FORM, 400, {"text_signature": [NOT_TEXT]}),
    ("bad UTF-8 escapes", b"text_signature=a%ff()", FORM, 400, {"text_signature": [NOT_TEXT]}),
]  # fmt: skip
BAD_EVENTS = ["function foo(uint256)", "event A(uint indexed a, uint indexed b, uint indexed c, uint indexed d)"]
BAD_ABIS: list[tuple[dict[str, Any], str]] = [
    ({}, "This field is required."), ({"contract_abi": None}, "This field may not be null."),
    ({"contract_abi": " \n"}, "This field may not be blank."), ({"contract_abi": "not JSON"}, "Invalid JSON"),
    ({"contract_abi": "[" * 100_000}, "Invalid JSON"), ({"contract_abi": "[" + "9" * 5000 + "]"}, "Invalid JSON"),
    *(({"contract_abi": json.dumps(abi)}, "Could not validate ABI") for abi in list[Any]((
        {}, "abc", 5, None, [[]], [{"type": "unknown"}], [{"type": "function", "inputs": []}], [{"type": {}}],
        [{"type": "function", "name": "", "inputs": []}], [{"type": "function", "name": 5, "inputs": []}], [{"type": None}],
        [{"type": ["function"], "name": "f", "inputs": []}], [{"type": "function", "name": "f", "inputs": 5}],
        [{"type": "function", "name": "f", "inputs": [5]}], [{"type": "function", "name": "f", "inputs": [{}]}],
        [{"type": "function", "name": "f", "inputs": [{"type": 5}]}], [{"type": "constructor"}, 5],
    ))),
]  # fmt: skip
BAD_SOURCES: list[tuple[bytes, dict[str, str], dict[str, str]]] = [
    (b'{"source_code": " \\n"}', JSON, {"source_code": "This field may not be blank."}),
    (b'{"source_code": null}', JSON, {"source_code": "This field may not be null."}),
    (*multipart({}, {"source_file": b""}), {"source_file": "The submitted file is empty."}),
    (b'{"source_file": "x"}', JSON, {"source_file": NO_FILE}), (b"source_file=x", FORM, {"source_file": NO_FILE}),
    (*multipart({"source_file": "x"}), {"source_file": NO_FILE}),
]  # fmt: skip
MANY = b"[" + b"[]," * (1 << 19) + b"[]]"
"""16 MiB of empty lists would be half a gigabyte of Python."""
REFUSED = [
    *((SIGNATURES_PATH, *case[1:]) for case in BAD_TEXTS),
    *((EVENTS_PATH, json.dumps({"text_signature": text}).encode(), JSON, 400,
       {"text_signature": ["Unknown event signature format"]}) for text in BAD_EVENTS),
    *((ABI_PATH, json.dumps(fields).encode(), JSON, 400, {"contract_abi": [message]}) for fields, message in BAD_ABIS),
    *((SOLIDITY_PATH, body, headers, 400, {name: [message]}) for body, headers, told in BAD_SOURCES for name, message in told.items()),
    *((path, b"x", {"Content-Type": "text/plain"}, 415, {"detail": 'Unsupported media type "text/plain" in request.'})
      for path in (ABI_PATH, SOLIDITY_PATH)),
    (ABI_PATH, *multipart({"contract_abi": MANY}), 400, {"contract_abi": ["Invalid JSON"]}),
    (ABI_PATH, b'{"contract_abi": ' + MANY + b"}", JSON, 400, "JSON parse error - over 1048576 values"),
    (SOLIDITY_PATH, *multipart({}, {"source_file": b"{" * (1 << 21)}), 400,
     {"source_file": ["Ensure this source has at most 1048576 words and marks."]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "headers", "status", "expected"), REFUSED, ids=lambda case: ascii(case)[:30])
def test_what_is_posted_and_refused(
    app: Application, path: str, body: bytes, headers: dict[str, str], status: int, expected: Any
) -> None:
    """Each kind of bad body, text, ABI and source has its status and the contract's message."""
    answer = request(app, "POST", path, body, headers)
    assert answer.status == status
    if isinstance(expected, str):
        assert answer.json()["detail"].startswith(expected)
    elif expected is not None:
        assert answer.json() == expected
    assert names_allowed(answer) == ALLOW[path]


def test_the_first_check_that_fails_is_the_answer(app: Application) -> None:
    """Accept is checked first, then the type, the body, lengths and the format."""
    broken, plain = b"{", {"Content-Type": "text/plain"}
    assert request(app, "POST", SIGNATURES_PATH, broken, plain | {"Accept": "image/png"}).status == 406
    assert request(app, "POST", SIGNATURES_PATH, broken, plain).status == 415
    long = "f(" + "," * 4095
    error = post(app, EVENTS_PATH, {"text_signature": long}).json()
    assert error == {"text_signature": ["Ensure this value has at most 4096 characters (it has 4097)."]}
    error = post(app, EVENTS_PATH, {"text_signature": f" {long[:-1]} "}).json()
    assert error == {"text_signature": ["Unknown event signature format"]}


SPELLINGS: list[tuple[Collection, str, str]] = [
    (SIGNATURES, "  function spellNamed ( address to , uint value )\n", "spellNamed(address,uint256)"),
    (SIGNATURES, "error SpellError(uint a)", "SpellError(uint256)"),
    (EVENT_SIGNATURES, "event SpellEvent(address indexed a, uint b) anonymous;", "SpellEvent(address,uint256)"),
    (EVENT_SIGNATURES, "spellPlain(uint256)", "spellPlain(uint256)"),
    (SIGNATURES, "SpellPlain(uint256)", "SpellPlain(uint256)"),
]  # fmt: skip


@pytest.mark.parametrize(("collection", "written", "text"), SPELLINGS, ids=[case[2] for case in SPELLINGS])
def test_a_new_text_is_stored_in_its_canonical_form(
    app: Application, collection: Collection, written: str, text: str
) -> None:
    """201 with the row; the same row in the list and at its id; then the text is there, however it is written.

    The collections are independent, and letters of another case make another text.
    """
    path = LISTS[collection]
    answer = post(app, path, {"text_signature": written, "id": 5, "created_at": "x", "hex_signature": "0x"})
    assert answer.status == 201
    row = answer.json()
    assert_record(row, text, collection)
    assert get(app, f"{path}?page_size=1").json()["results"] == [row]
    assert get(app, f"{path}{row['id']}/").json() == row
    assert names_allowed(answer) == LIST_ALLOW
    kind = "EventSignature" if collection == EVENT_SIGNATURES else "Signature"
    for again in (written, text, f" {text}\t"):
        refused = post(app, path, {"text_signature": again})
        assert refused.status == 400
        assert refused.json() == {"text_signature": [f"{kind} with this text signature already exists."]}
    assert [each["text_signature"] for each in found(app, text, collection)].count(text) == 1


BODIES: dict[str, Callable[[str], tuple[bytes, dict[str, str]]]] = {
    "json-mark": lambda text: (
        b"\xef\xbb\xbf" + json.dumps({"text_signature": text}).encode(), {"Content-Type": "Application/JSON; charset=utf-8"}
    ),
    "json-last": lambda text: (b'{"text_signature": "x", "text_signature": ' + json.dumps(text).encode() + b"}", JSON),
    "form-raw": lambda text: (f"text_signature={text}".encode(), FORM),
    "form-last": lambda text: (urlencode([("text_signature", "x"), ("text_signature", text), ("a", "")]).encode(), FORM),
    "multipart-more": lambda text: multipart({"other": b"\xff\x00", "text_signature": text}),
    "multipart-file": lambda text: multipart({}, {"text_signature": text.encode()}),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
def test_a_text_comes_in_any_of_the_bodies(app: Application, kind: str) -> None:
    """JSON and both kinds of form store a row; of repeated fields the last counts."""
    text = f"body_{re.sub('[^a-z]', '_', kind)}(uint256)"
    body, headers = BODIES[kind](text)
    answer = request(app, "POST", SIGNATURES_PATH, body, headers)
    assert answer.status == 201
    assert_record(answer.json(), text)


# Imports.


def counters(answer: Answer) -> tuple[int, int, int, int]:
    assert answer.status == 201, answer.body
    counters = answer.json()
    assert list(counters) == ["num_processed", "num_imported", "num_duplicates", "num_ignored"]
    assert counters["num_processed"] == counters["num_imported"] + counters["num_duplicates"] + counters["num_ignored"]
    return counters["num_processed"], counters["num_imported"], counters["num_duplicates"], counters["num_ignored"]


def import_abi(app: Application, abi: Any) -> Answer:
    return post(app, ABI_PATH, {"contract_abi": abi if isinstance(abi, str) else json.dumps(abi)})


def function(name: Any, *types: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "inputs": [{"name": "", "type": type} for type in types], **more}


MODERN_ABI = [
    {"type": "constructor", "inputs": [{"name": "a", "type": "uint256"}], "stateMutability": "payable"},
    {"type": "event", "name": "AbiEvent", "anonymous": False,
     "inputs": [{"name": "a", "type": "address", "indexed": True}, {"name": "b", "type": "uint256", "indexed": False}]},
    function("abiFunction", "address", "uint256[]", outputs=[{"name": "", "type": "bool"}], stateMutability="view"),
    {"type": "function", "name": "abiTuple", "stateMutability": "pure", "inputs": [
        {"name": "a", "type": "tuple[2]", "internalType": "struct S[2]", "components": [
            {"name": "x", "type": "uint256"}, {"name": "y", "type": "tuple", "components": [
                {"name": "z", "type": "bool"}]}]}, {"name": "b", "type": "bytes32"}]},
    {"type": "error", "name": "AbiError", "inputs": [{"name": "a", "type": "uint256"}]},
    {"type": "receive", "stateMutability": "payable"},
    {"type": "fallback", "stateMutability": "payable"},
    {"name": "abiOld", "inputs": [], "outputs": []},
    function("abiFunction", "address", "uint256[]"),
    function("abiStruct", "struct S"),
    function("abiHalf", "\ud800"),
    function("transfer", "address", "uint256"),
]  # fmt: skip


def test_an_abi_of_today_is_imported(app: Application) -> None:
    """Functions, events and errors are stored with their tuples written out; the rest is not counted."""
    assert counters(import_abi(app, MODERN_ABI)) == (9, 5, 2, 2)
    oldest_first = [row["text_signature"] for row in found(app, "abi")[::-1]]
    assert [text for text in oldest_first if text.lower().startswith("abi")] == [
        "abiFunction(address,uint256[])", "abiTuple((uint256,(bool))[2],bytes32)", "AbiError(uint256)", "abiOld()",
    ]  # fmt: skip
    assert [row["text_signature"] for row in found(app, "abi", EVENT_SIGNATURES)] == ["AbiEvent(address,uint256)"]
    for row in found(app, "abi"):
        assert_record(row, row["text_signature"])
    assert counters(import_abi(app, MODERN_ABI)) == (9, 0, 7, 2)
    assert counters(post(app, ABI_PATH, {"contract_abi": MODERN_ABI})) == (9, 0, 7, 2)
    assert counters(import_abi(app, {"abi": MODERN_ABI, "bytecode": "0x"})) == (9, 0, 7, 2)


@pytest.mark.parametrize(
    ("opened", "inner", "closed"), [('{"type":"tuple","components":[', '{"type":"bool"}', "]}"), ("[", "", "]")]
)
def test_an_abi_of_any_depth_is_answered(app: Application, opened: str, inner: str, closed: str) -> None:
    """However deep its components are nested, an ABI is imported, ignored or refused, also at the depth
    that Python just reads but cannot write again."""
    for depth in (50, *range(470, 500), *range(940, 1000), 10_000):
        components = opened * depth + inner + closed * depth
        text = f'[{{"type":"function","name":"deep","inputs":[{{"type":"tuple","components":[{components}]}}]}}]'
        assert import_abi(app, text).status in (201, 400), depth


SOURCE = """
// function inAComment(uint a)
pragma solidity ^0.8.0;
struct Point { uint x; uint y; }
enum Colour { Red, Green }
interface Sol {
    event SolEvent(address indexed from, Point point);
    error SolError(uint code);
    function solFirst(Point calldata p, Colour c) external returns (uint);
    function solSecond(address payable to, bytes memory data) external;
    function solFirst(Point calldata p, Colour c) external returns (uint);
    function balanceOf(address) external view returns (uint);
}
"""


def test_a_solidity_file_is_imported(app: Application) -> None:
    """Functions, events and errors of a source are stored, structs and enums written out, in its order."""
    counted = counters(post(app, SOLIDITY_PATH, {"source_code": SOURCE}))
    assert counted[1] == 4
    assert counted[0] == counted[1] + counted[2]
    assert sorted(row["text_signature"] for row in found(app, "sol")) == [
        "SolError(uint256)", "solFirst((uint256,uint256),uint8)", "solSecond(address,bytes)",
    ]  # fmt: skip
    ids = [found(app, f"sol{name}(")[0]["id"] for name in ("First", "Second")]
    assert ids == sorted(ids)
    assert [row["text_signature"] for row in found(app, "solevent", EVENT_SIGNATURES)] == [
        "SolEvent(address,(uint256,uint256))"
    ]
    assert found(app, "inAComment") == []
    again = counters(post(app, SOLIDITY_PATH, {"source_code": SOURCE}))
    assert again[1:] == (0, counted[0], 0)


def test_code_and_file_of_one_request_are_both_read(app: Application) -> None:
    """source_code and source_file together are one import; a duplicate between them counts as one."""
    code = "contract A { function solBoth(uint a) external {} function solCode() external {} }"
    file = b"contract B { function solBoth(uint a) external {} function solFile() external {} }"
    body, headers = multipart({"source_code": code}, {"source_file": file})
    assert counters(request(app, "POST", SOLIDITY_PATH, body, headers)) == (4, 3, 1, 0)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", JSON), multipart({"a": "b"}), (b'{"source_code": "\\u0000"}', JSON), (b'{"source_code": [1, {"a": null}]}', JSON),
        (b'{"source_code": "contract A { \\ud800 }"}', JSON), multipart({}, {"source_file": b"\xff\xfe\x00 function"}),
        (json.dumps({"source_code": "contract A { function f(" + "(" * 20_000}).encode(), JSON),
        (json.dumps({"source_code": "{" * 50_000}).encode(), JSON),
        (json.dumps({"source_code": "contract A { struct S { S s; } function f(S s) external {} }"}).encode(), JSON),
    ],
    ids=lambda case: ascii(case)[:40],
)  # fmt: skip
def test_a_source_that_declares_nothing_is_fine(app: Application, body: bytes, headers: dict[str, str]) -> None:
    """No source, or none that declares anything, gives zeros, however broken it is."""
    processed, imported, duplicates, ignored = counters(request(app, "POST", SOLIDITY_PATH, body, headers))
    assert (imported, duplicates) == (0, 0)
    assert processed == ignored


# Limits.


@pytest.mark.parametrize(
    "query",
    [
        "page=" + "0" * 16_000, "hex_signature=%00&text_signature=%00&created_at__gte=%00&%00=%00", "format=" + "x" * 10_000,
        "text_signature=%FF%FE", "a=1&" * 4_000 + "page_size=1", "text_signature=%ED%A0%80&page_size=1", "?",
    ],
    ids=lambda query: query[:24],
)  # fmt: skip
@pytest.mark.parametrize("headers", [{}, BROWSER], ids=["json", "html"])
def test_no_query_is_a_server_error(app: Application, query: str, headers: dict[str, str]) -> None:
    """Any query is answered or refused, and what is answered in JSON is JSON."""
    answer = get(app, f"{SIGNATURES_PATH}?{query}", headers)
    assert answer.status in (200, 400, 404)
    assert b"Traceback" not in answer.body
    if not headers:
        answer.json()


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("directory.test:81", "directory.test:81"), ('a"\\b', None), ("a\xff", None), ("", None), ("a b", None), ("x" * 5000, None),
    ],
    ids=ascii,
)  # fmt: skip
def test_links_have_the_host_of_the_request(app: Application, host: str, shown: str | None) -> None:
    """With its port; whatever stands in it, the answer is JSON. X-Forwarded headers change nothing by default."""
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.test", "Forwarded": "host=evil.test"}
    link = get(app, f"{SIGNATURES_PATH}?page_size=1", {"Host": host, **forwarded}).json()["next"]
    assert link.endswith(f"{SIGNATURES_PATH}?page=2&page_size=1")
    assert "evil" not in link
    assert shown is None or link.startswith(f"http://{shown}/")


# Settings and the log.


@pytest.mark.parametrize(
    ("settings", "headers", "origin"),
    [
        ({"public_url": "https://own.test:8443"}, {"Host": "evil.test"}, "https://own.test:8443"),
        *(({"trust_proxy": True}, headers, origin) for headers, origin in (
            ({"Forwarded": "proto=javascript;host=evil.test"}, "http://falconframework.org"),
            ({"X-Forwarded-Proto": "javascript", "X-Forwarded-Host": "own.test"}, "http://own.test"),
            ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.test/?"}, "https://falconframework.org"),
            ({"X-Forwarded-Host": "one.test, two.test"}, "http://falconframework.org"),
            ({"X-Forwarded-Host": "[2001:db8::1]:8443"}, "http://[2001:db8::1]:8443"),
            ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "directory.test"}, "https://directory.test"),
        )),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("app")
def test_links_begin_with_the_address_of_the_server(
    make_app: MakeApp, settings: dict[str, Any], headers: dict[str, str], origin: str
) -> None:
    """The public one whatever Host the client names; of a trusted proxy only a scheme and a host are read. A client's own
    Forwarded passes through most proxies, and could name a javascript: address."""
    client = make_app(**settings)
    page = client.simulate_get(SIGNATURES_PATH, query_string="page_size=1", headers=headers).json
    make_app()  # takes a public address back, which is one for the process
    assert page["next"] == f"{origin}{SIGNATURES_PATH}?page=2&page_size=1"


def test_the_limits_are_settings(make_app: MakeApp) -> None:
    """max_body bounds a POST and max_import_body an import."""
    client = make_app(max_body=30, max_import_body=40)
    assert client.simulate_post(SIGNATURES_PATH, body="x" * 30, headers=JSON).status_code == 400
    assert client.simulate_post(SIGNATURES_PATH, body="x" * 31, headers=JSON).status_code == 413
    assert client.simulate_post(ABI_PATH, body="x" * 40, headers=JSON).status_code == 400
    assert client.simulate_post(ABI_PATH, body="x" * 41, headers=JSON).status_code == 413


def test_each_request_is_a_line_of_the_log(make_app: MakeApp, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Method, path, status, bytes and milliseconds as JSON; no query, no body."""
    client = make_app(counts=Counts())
    got = client.simulate_get(SIGNATURES_PATH, query_string="text_signature=secretQuery")
    client.simulate_post(SIGNATURES_PATH, json={"text_signature": "secretBody"})
    client.simulate_head("/nope\u20ac/")
    feed = client.simulate_get("/api/v1/changes/")
    written = capfdbinary.readouterr().out
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["method"], line["status"]) for line in lines] == [
        ("GET", 200), ("POST", 400), ("HEAD", 404), ("GET", 200),
    ]  # fmt: skip
    assert lines[0]["path"] == SIGNATURES_PATH
    assert lines[0]["bytes"] == len(got.content)
    assert lines[3]["bytes"] == len(feed.content) > 0, "a streamed body counts"
    assert all(line["ms"] >= 0 and line["time"].endswith("Z") for line in lines)
    assert b"secret" not in written


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_a_log_that_nobody_reads_halts_no_request(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped pager, a halted terminal: the pipe is full, and a line waits a moment and is lost."""
    monkeypatch.setattr(metrics, "_LOG_MILLISECONDS", 1)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, bytes(4096)):
            pass
    os.set_blocking(writing, True)
    with open(reading, "rb"), open(writing, "w") as full, monkeypatch.context() as patched:
        client = make_app(counts=Counts())
        patched.setattr(sys, "stdout", full)
        assert client.simulate_get("/healthz").status_code == 200
    assert "sigdir_log_lines_lost_total 1.0" in client.simulate_get("/metrics").text


def test_a_line_on_standard_error_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end too: between two writes another thread's line would come."""
    written: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=written.append, flush=lambda: None))
    write_line("error: a line")
    assert [piece for piece in written if piece] == ["error: a line\n"]


def test_a_log_that_cannot_be_written_changes_no_answer(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk, or where its reader has gone: the line is lost and counted. An error's line is lost too."""
    client = make_app(counts=Counts())
    for number, descriptor in enumerate((os.open("/dev/full", os.O_WRONLY), closed_pipe())):
        lost = open(descriptor, "w")  # noqa: SIM115 - its end fails too: see below
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", lost)
            patched.setattr(sys, "stderr", lost)
            assert client.simulate_get("/healthz").status_code == 200
            text = {"text_signature": f"unlogged{number}()"}
            assert client.simulate_post(SIGNATURES_PATH, json=text).status_code == 201
            assert client.simulate_get("/api/v1/changes/").status_code == 200
            write_line("error: this line is lost")
        with suppress(OSError):  # what its buffer keeps fails again
            lost.close()
    assert "sigdir_log_lines_lost_total 6.0" in client.simulate_get("/metrics").text
