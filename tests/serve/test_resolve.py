"""Many hashes in one request, beside a plain dictionary; and lists filtered by many."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from sigdir.serve.bulk.resolve import MAX_HASHES, as_list, hashes_of, resolved
from sigdir.serve.http.errors import HttpError
from sigdir.serve.http.negotiate import JSON, NDJSON
from sigdir.serve.lists.paging import page_of
from sigdir.serve.lists.query import parse
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.snapshot import Snapshot
from tests.serve.conftest import MAX_IMPORT_BODY
from tests.serve.support import (
    EVENT,
    EVENTS_PATH,
    SIGNATURES_PATH,
    SPAM,
    TOPIC,
    TRANSFER,
    Application,
    Row,
    get,
    post_text,
    request,
    segment_of,
    selector,
)

RESOLVE_PATH = "/api/v1/resolve/"
NEITHER = "neither 8 nor 64 hex digits"

Line = dict[str, Any]


def rows_of(width: int, seed: int) -> list[Row]:
    """Rows with few hashes, and even fewer first four bytes."""
    draw = random.Random(seed)
    hashes = [draw.randbytes(2) + b"\0\xff" + bytes([draw.randrange(3)]) * (width - 4) for _ in range(40)]
    hashes += [b"\0" * width, b"\xff" * width]
    texts = ["f(uint256)", 'odd"\\\n\x01(ä)', "long" * 200, ""]
    return [Row(id, id, f"{id}{draw.choice(texts)}", draw.choice(hashes)) for id in range(1, 200)]


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return {SIGNATURES: rows_of(4, 1), EVENT_SIGNATURES: rows_of(32, 2)}


@pytest.fixture(scope="module")
def view(rows: dict[str, list[Row]]) -> View:
    """Two files and staged rows in each collection."""
    segments = {}
    for collection, width in ((SIGNATURES, 4), (EVENT_SIGNATURES, 32)):
        mine = rows[collection]
        segments[collection] = (
            segment_of(mine[:90], width=width, by_hash=True),
            segment_of(mine[90:100], width=width, by_hash=True),
            segment_of(mine[100:], width=width, slack=5),
        )
    return View(Snapshot(), segments, "token", b"")


def answer(view: View, body: bytes, content_type: str = "") -> list[Line]:
    return [json.loads(line) for line in b"".join(resolved(view, hashes_of(body, content_type))[0]).splitlines()]


def expected(rows: dict[str, list[Row]], sent: str) -> Line:
    """The line of a plain dictionary of the rows."""
    digits = sent.strip().lower().removeprefix("0x")
    collection = {8: SIGNATURES, 64: EVENT_SIGNATURES}[len(digits)]
    texts = [row.text for row in rows[collection] if row.hash == bytes.fromhex(digits)]
    return {"hash": f"0x{digits}", "texts": texts}


def test_the_text_of_the_standard_is_the_first() -> None:
    """In every line and piece, whichever segment it is in; the others are oldest first."""
    hash = bytes.fromhex(selector(TRANSFER)[2:])
    older = [Row(1, 1, SPAM, hash), Row(2, 2, "approve(address,uint256)", b"none")]
    younger = [Row(3, 3, "join_tg_invmru_haha_fd06787(address,bool)", hash), Row(4, 4, TRANSFER, hash)]
    files = (segment_of(older, by_hash=True), segment_of(younger, by_hash=True))
    view = View(Snapshot(), {SIGNATURES: files, EVENT_SIGNATURES: ()}, "token", b"")
    texts = [TRANSFER, SPAM, younger[0].text]
    for count in (1, 20_000):
        lines = answer(view, "\n".join(["0xa9059cbb", "00000000"] * count).encode())
        assert lines == [{"hash": "0xa9059cbb", "texts": texts}, {"hash": "0x00000000", "texts": []}] * count


def questions(rows: dict[str, list[Row]], count: int) -> list[str]:
    """Known and unknown hashes, topics that share their beginning with known ones, in all spellings."""
    draw = random.Random(3)
    found = []
    for _ in range(count):
        hash = draw.choice([*rows[SIGNATURES], *rows[EVENT_SIGNATURES]]).hash
        kind = draw.randrange(4)
        if kind == 0:
            hash = draw.randbytes(len(hash))
        elif kind == 1:
            hash = hash[:-1] + bytes([hash[-1] ^ 1])
        spelled = hash.hex() if draw.random() < 0.5 else hash.hex().upper()
        found.append(draw.choice(["", "0x", "0X"]) + spelled)
    return found


@pytest.mark.parametrize("count", [1, 50, 10_000])
def test_every_hash_is_answered_as_a_dictionary_would(view: View, rows: dict[str, list[Row]], count: int) -> None:
    """In order, repeated ones too, in as many pieces as it takes."""
    sent = questions(rows, count)
    lines = answer(view, "\n".join(sent).encode())
    known = {one: expected(rows, one) for one in set(sent)}
    assert lines == [known[one] for one in sent]


@pytest.mark.parametrize("count", [0, 1, 50, 10_000])
def test_a_list_has_the_results_of_the_lines(view: View, rows: dict[str, list[Row]], count: int) -> None:
    body = "\n".join([*questions(rows, count), "zz"][: count or 0]).encode()
    assert json.loads(b"".join(as_list(resolved(view, hashes_of(body, ""))[0]))) == answer(view, body)


@pytest.mark.parametrize(
    ("query", "accept", "is_list"),
    [
        ("", "", False), ("", "*/*", False), ("", "application/json", True), ("", "application/x-ndjson", False),
        ("", "application/json, */*;q=0.5", True), ("", "application/json;q=0.5, application/x-ndjson", False),
        ("?format=json", "*/*", True), ("?format=ndjson", "application/json", False),
    ],
)  # fmt: skip
def test_a_client_may_ask_for_a_list(app: Application, query: str, accept: str, is_list: bool) -> None:
    """By ``format``, or by an Accept that prefers JSON; otherwise it gets lines."""
    headers = {"Accept": accept, "Content-Type": "application/json"}
    got = request(app, "POST", RESOLVE_PATH + query, json.dumps([selector("under_score()"), "zz"]).encode(), headers)
    results = [{"hash": selector("under_score()"), "texts": ["under_score()"]}, {"hash": "zz", "error": NEITHER}]
    assert (got.status, got.header("Vary")) == (200, "Accept, Origin")
    assert got.header("Content-Type") == ("application/json" if is_list else "application/x-ndjson")
    assert (got.json() if is_list else [json.loads(line) for line in got.body.splitlines()]) == results


@pytest.mark.parametrize("hash", [TOPIC, *map(selector, (TRANSFER, "under_score()", "nowhere()"))])
def test_one_hash_is_answered_as_among_others(app: Application, hash: str) -> None:
    """Few hashes are looked up one by one. The line is the same, and so is the list."""
    accept = {"Accept": "application/json"}
    alone, among = (request(app, "GET", f"{RESOLVE_PATH}?hash={hashes}") for hashes in (hash, f"{hash},zz"))
    listed, both = (
        request(app, "GET", f"{RESOLVE_PATH}?hash={hashes}", headers=accept) for hashes in (hash, f"{hash},zz")
    )
    assert (alone.status, alone.body) == (200, among.body.splitlines(keepends=True)[0])
    assert listed.body == both.body.partition(b",\n")[0] + b"]\n"
    for name in ("Content-Type", "Vary", "Cache-Control"):
        assert (alone.header(name), listed.header(name)) == (among.header(name), both.header(name))


def test_an_unknown_format_is_not_found(app: Application) -> None:
    assert request(app, "POST", RESOLVE_PATH + "?format=xml", b"zz").status == 404


def test_a_hash_that_many_texts_have_is_answered_whole_and_in_bounded_pieces(view: View) -> None:
    """Ten thousand times a hash of some texts: no piece holds them all."""
    row = Row(1, 1, "f()", b"\0\0\0\1")
    crowded = segment_of([Row(id, id, f"f{id}()", row.hash) for id in range(1, 101)], by_hash=True)
    view = View(Snapshot(), {SIGNATURES: (crowded,), EVENT_SIGNATURES: ()}, "", b"")
    pieces, _ = resolved(view, hashes_of(b"00000001\n" * 10_000, ""))
    assert max(map(len, pieces)) < 1.1 * (1 << 20)
    lines = b"".join(pieces).splitlines()
    assert len(lines) == 10_000
    assert {json.loads(line)["texts"][99] for line in lines} == {"f100()"}


def test_the_length_of_an_answer_is_bounded() -> None:
    """A text of 64 KiB, asked for again and again, is refused before it is written; a few times it comes in pieces."""
    row = Row(1, 1, "a" * 65_000 + "()", b"\0\0\0\1")
    view = View(Snapshot(), {SIGNATURES: (segment_of([row], by_hash=True),), EVENT_SIGNATURES: ()}, "", b"")
    with pytest.raises(HttpError) as refused:
        resolved(view, hashes_of(b"00000001\n" * 16_000, ""))
    assert refused.value.status == 413
    pieces, _ = resolved(view, hashes_of(b"00000001\n" * 500, ""))
    assert max(map(len, pieces)) < 1.1 * (1 << 20)
    assert b"".join(pieces).count(b"aa()") == 500


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", b'["0xAABBCCDD", "zz"]'),
        ("application/x-www-form-urlencoded", b' \n["0xAABBCCDD", "zz"]'),
        ("application/json; charset=utf-8", b'["0xAABBCCDD", "zz"]'),
        ("", b'"0xAABBCCDD"\n\n"zz"\n'),
        ("", b'{"hash": "aabbccdd"}\r\n{"hash": "zz", "more": 1}'),
        ("application/x-ndjson", b'"aabbccdd"\nzz'),
        ("", b"0xaabbccdd\r\n \t\r\n  zz  \n\n"),
        ("text/plain", b"aabbccdd\nzz"),
    ],
)
def test_a_body_is_a_list_lines_of_json_or_plain_lines(view: View, content_type: str, body: bytes) -> None:
    assert answer(view, body, content_type) == [{"hash": "0xaabbccdd", "texts": []}, {"hash": "zz", "error": NEITHER}]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (5, "5"),
        (None, "null"),
        ("", ""),
        ("0x", "0x"),
        ("0xaabbccd", "0xaabbccd"),
        ("0xaabbccdg", "0xaabbccdg"),
        ("aabb\nccdd", "aabb\nccdd"),
        ({"hash": "aabbccdd"}, '{"hash":"aabbccdd"}'),
        ('"\\\x01ä', '"\\\x01??'),
        ("a" * 200, "a" * 80),
        (json.loads("[" * 300 + "]" * 300), "nested too deeply"),
    ],
)
def test_what_is_no_hash_gets_a_line_that_says_so(view: View, item: Any, shown: str) -> None:
    body = json.dumps(["aabbccdd", item, "aabbccdd"]).encode()
    plain = {"hash": "0xaabbccdd", "texts": []}
    assert answer(view, body) == [plain, {"hash": shown, "error": NEITHER}, plain]


@pytest.mark.parametrize("body", [b"", b"\n\n", b"[]", b" "])
def test_nothing_asked_is_nothing_answered(view: View, body: bytes) -> None:
    assert answer(view, body) == []


@pytest.mark.parametrize("body", [b"[", b'["aabbccdd",]', b"\xff", b'{"a": 1}', b'"aabbccdd"', b"5"])
def test_json_that_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        hashes_of(body, "application/json")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("begin", "one", "between", "end"),
    [(b"", b"aabbccdd", b"\n", b""), (b"[", b'"aabbccdd"', b",", b"]"), (b"", b'"aabbccdd"', b"\n", b"\n")],
)
def test_more_than_the_limit_is_refused(begin: bytes, one: bytes, between: bytes, end: bytes) -> None:
    assert len(hashes_of(begin + between.join([one] * MAX_HASHES) + end, "")) == MAX_HASHES
    with pytest.raises(HttpError) as refused:
        hashes_of(begin + between.join([one] * (MAX_HASHES + 1)) + end, "")
    assert refused.value.status == 413


@pytest.mark.parametrize("item", [b"[" * 1000 + b"]" * 1000, b'{"a":' * 500 + b"0" + b"}" * 500])
def test_items_of_many_brackets_are_refused(item: bytes) -> None:
    """14 MB of them took 3 s of a worker and 600 MiB."""
    for body, kind in ((b"[" + b",".join([item] * 1000) + b"]", JSON), (b"\n".join([item] * 1000), NDJSON)):
        with pytest.raises(HttpError) as refused:
            hashes_of(body, kind)
        assert refused.value.status == 413


def test_a_list_is_filtered_by_many_hashes(view: View, rows: dict[str, list[Row]]) -> None:
    wanted = [row.hash for row in rows[SIGNATURES][::40]]
    sent = ",".join(["zz", "0x" + "ab" * 32, *(f"0x{hash.hex().upper()}" for hash in wanted)])

    def ids(more: str = "", hashes: str = sent) -> list[int]:
        query = parse(f"page_size=1000&hex_signature__in={hashes}{more}")
        return [row["id"] for row in json.loads(page_of(view, SIGNATURES, query, "").body())["results"]]

    found = [row for row in reversed(rows[SIGNATURES]) if row.hash in wanted]
    assert ids() == [row.id for row in found]
    assert ids("&text_signature=long") == [row.id for row in found if "long" in row.text]
    assert ids(f"&hex_signature={wanted[0].hex()}") == [row.id for row in found if row.hash == wanted[0]]
    for nothing in ("zz", ",", "ab" * 32, "aabb"):
        assert ids(hashes=nothing) == []


# Over HTTP.


def test_rows_in_files_and_rows_just_posted_are_found(app: Application) -> None:
    posted = [
        post_text(app, f"{kind}(uint8)", path).json() for kind, path in (("a", SIGNATURES_PATH), ("A", EVENTS_PATH))
    ]
    stored = selector("under_score()")
    sent = [stored, "?", posted[1]["hex_signature"], f"0x{TOPIC}", posted[0]["hex_signature"]]
    got = request(app, "POST", RESOLVE_PATH, json.dumps(sent).encode())
    assert (got.status, got.header("Content-Type")) == (200, "application/x-ndjson")
    assert [json.loads(line) for line in got.body.splitlines()] == [
        {"hash": sent[0], "texts": ["under_score()"]},
        {"hash": "?", "error": NEITHER},
        {"hash": sent[2], "texts": ["A(uint8)"]},
        {"hash": sent[3], "texts": [EVENT]},
        {"hash": sent[4], "texts": ["a(uint8)"]},
    ]
    page = get(app, f"{SIGNATURES_PATH}?hex_signature__in={stored},{posted[0]['hex_signature']}").json()
    assert [row["text_signature"] for row in page["results"]] == ["a(uint8)", "under_score()"]


def test_bodies_and_methods_are_bounded(app: Application) -> None:
    line = b"aabbccdd\n"
    most = MAX_IMPORT_BODY // len(line)
    assert request(app, "POST", RESOLVE_PATH, line * most).status == 200
    assert request(app, "POST", RESOLVE_PATH, line * (most + 1)).status == 413
    assert request(app, "PUT", RESOLVE_PATH, line).status == 405
