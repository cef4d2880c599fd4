"""Many hashes in one request, beside a plain dictionary; what is said of their texts: place, reasons, declaration, and who says so."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode

import pytest
from falcon.testing import TestClient

from sigdir.serve.bulk import resolve
from sigdir.serve.bulk.resolve import MAX_FULL_HASHES, MAX_HASHES, as_list, hashes_of, resolved
from sigdir.serve.http.answers import JSON, NDJSON, HttpError
from sigdir.serve.lists.paging import page_of, parse
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.index.template import render_texts
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files, import_lines
from tests.serve.conftest import MAX_IMPORT_BODY
from tests.serve.support import (
    EVENT,
    FORM,
    SIGNATURES_PATH,
    SPAM,
    TOPIC,
    TRANSFER,
    Application,
    Row,
    application,
    get,
    post,
    post_text,
    request,
    segment_of,
    selector,
)
from tests.signatures.assembly import dispatcher

RESOLVE_PATH = "/api/v1/resolve/"
NEITHER = "neither 8 nor 64 hex digits"
A9 = selector(TRANSFER)
DECLARED = "function transfer(address to, uint256 amount) returns (bool)"

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
    for count in (1, 2500):
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


@pytest.mark.parametrize("count", [0, 1, 50, 10_000])
def test_every_hash_is_answered_as_a_dictionary_would(view: View, rows: dict[str, list[Row]], count: int) -> None:
    """In order, repeated ones too, in as many pieces as it takes; a list has the results of the lines."""
    sent = questions(rows, count)
    body = "\n".join(sent).encode()
    lines = answer(view, body)
    known = {one: expected(rows, one) for one in set(sent)}
    assert lines == [known[one] for one in sent]
    assert json.loads(b"".join(as_list(resolved(view, hashes_of(body, ""))[0]))) == lines


@pytest.mark.parametrize(
    ("query", "accept", "is_list"),
    [
        ("", "", False), ("", "*/*", False), ("", "application/json", True), ("", "application/x-ndjson", False),
        ("", "application/json, */*;q=0.5", True), ("", "application/json;q=0.5, application/x-ndjson", False),
        ("?format=json", "*/*", True), ("?format=ndjson", "application/json", False),
    ],
)  # fmt: skip
def test_a_client_may_ask_for_a_list(app: Application, query: str, accept: str, is_list: bool) -> None:
    """By ``format``, or by an Accept that prefers JSON; otherwise it gets lines. Rows are in files or just POSTed."""
    headers = {"Accept": accept, "Content-Type": "application/json"}
    sent = [selector("under_score()"), "zz", A9, f"0x{TOPIC}"]
    got = request(app, "POST", RESOLVE_PATH + query, json.dumps(sent).encode(), headers)
    results = [
        {"hash": sent[0], "texts": ["under_score()"]}, {"hash": "zz", "error": NEITHER},
        {"hash": A9, "texts": [TRANSFER, SPAM]}, {"hash": sent[3], "texts": [EVENT]},
    ]  # fmt: skip
    assert (got.status, got.header("Vary")) == (200, "Accept, Origin")
    assert got.header("Content-Type") == ("application/json" if is_list else "application/x-ndjson")
    assert (got.json() if is_list else [json.loads(line) for line in got.body.splitlines()]) == results
    asked = request(app, "GET", f"{RESOLVE_PATH}{query or '?'}&hash={','.join(sent)}", headers={"Accept": accept})
    assert (asked.body, asked.header("Cache-Control")) == (got.body, "no-cache")


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


def test_texts_that_are_too_long_together_are_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of all segments count: the one that goes beyond the limit is refused by its lengths."""
    rows = [Row(id, id, f"{id:0998}()", id.to_bytes(4)) for id in range(1, 41)]
    segments = tuple(segment_of(some, by_hash=True) for some in (rows[:20], rows[20:]))
    view = View(Snapshot(), {SIGNATURES: segments, EVENT_SIGNATURES: ()}, "", b"")
    monkeypatch.setattr(resolve, "render_texts", rendering := Mock(wraps=render_texts))
    monkeypatch.setattr(resolve, "MAX_ANSWER", 39_999)
    with pytest.raises(HttpError) as refused:
        resolved(view, [row.hash.hex().encode() for row in rows])
    assert (refused.value.status, rendering.call_count) == (413, 1)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", b'["0xAABBCCDD", "zz"]'),
        ("application/x-www-form-urlencoded", b' \n["0xAABBCCDD", "zz"]'),
        ("application/json; charset=utf-8", b'["0xAABBCCDD", "zz"]'),
        ("", b'["0xAABBCCDD", {"hash": "zz"}]'),
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
        (5, "5"), (None, "null"), ("", ""), ("0x", "0x"), ("0xaabbccd", "0xaabbccd"), ("0xaabbccdg", "0xaabbccdg"),
        ("aabb\nccdd", "aabb\nccdd"), ({"hex": "aabbccdd"}, '{"hex":"aabbccdd"}'), ('"\\\x01ä', '"\\\x01ä'),
        ("a" * 200, "a" * 80), ("€" * 200, "€" * 80), (json.loads("[" * 300 + "]" * 300), "nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_no_hash_gets_a_line_that_says_so(view: View, item: Any, shown: str) -> None:
    body = json.dumps(["aabbccdd", item, "aabbccdd"]).encode()
    plain = {"hash": "0xaabbccdd", "texts": []}
    assert answer(view, body) == [plain, {"hash": shown, "error": NEITHER}, plain]
    assert [answer(view, nothing) for nothing in (b"", b"\n\n", b"[]", b" ")] == [[]] * 4


@pytest.mark.parametrize("body", [b"[", b'["aabbccdd",]', b"\xff", b'{"a": 1}', b'"aabbccdd"', b"5"])
def test_json_that_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        hashes_of(body, "application/json")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("begin", "one", "between", "end"),
    [(b"", b"aabbccdd", b"\n", b""), (b"[", b'"aabbccdd"', b",", b"]")],
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


def test_bodies_methods_and_formats_are_bounded(app: Application) -> None:
    line = b"aabbccdd\n"
    most = MAX_IMPORT_BODY // len(line)
    assert request(app, "POST", RESOLVE_PATH, line * most).status == 200
    assert request(app, "POST", RESOLVE_PATH, line * (most + 1)).status == 413
    assert request(app, "PUT", RESOLVE_PATH, line).status == 405
    assert request(app, "POST", RESOLVE_PATH, line, {"Content-Type": "multipart/form-data; boundary=a"}).status == 415
    packed = request(app, "POST", RESOLVE_PATH, line, {"Content-Encoding": "gzip"})
    assert (packed.status, packed.header("Accept-Encoding")) == (415, "identity")
    assert request(app, "POST", RESOLVE_PATH, line, {"Content-Encoding": "Identity"}).status == 200
    assert request(app, "POST", f"{RESOLVE_PATH}?format=xml", line).status == 404


def entry(*names: str) -> dict[str, Any]:
    """ERC-20's transfer as an ABI has it, with these parameter names."""
    inputs = [{"name": name, "type": kind} for name, kind in zip(names, ("address", "uint256"), strict=True)]
    return {"type": "function", "name": "transfer", "inputs": inputs, "outputs": [{"name": "", "type": "bool"}]}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list has the spam first; then three contracts declare transfer, two of them with the same names."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "list.txt").write_text(f"{SPAM}\n{TRANSFER}\nplain(uint256)\n")
    (folder / "build").mkdir()
    for number, names in enumerate((("to", "amount"), ("to", "amount"), ("recipient", "value"))):
        artifact = {"contractName": f"Token{number}", "abi": [entry(*names)]}
        (folder / "build" / f"Token{number}.json").write_text(json.dumps(artifact))
    for path in ("list.txt", "build"):
        import_files([folder / path], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def client(warehouse: Path) -> Iterator[TestClient]:
    with application(warehouse) as app:
        yield app.client


def lines(client: TestClient, path: str) -> list[dict[str, Any]]:
    answer = client.simulate_get(path)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def full(client: TestClient, *hashes: str) -> list[dict[str, Any]]:
    return lines(client, f"{RESOLVE_PATH}?hash={','.join(hashes)}&full=1")


def test_texts_come_with_their_place_reasons_and_declaration(client: TestClient) -> None:
    """The standard's text is before the older spam, which looks mined."""
    [found] = full(client, A9)
    first, second = found["texts"]
    assert (first["text_signature"], first["position"], first["declaration"]) == (TRANSFER, 1, DECLARED)
    assert (first["kinds"], first["witness"], first["sources"], first["contracts"]) == (["function"], "declared", 4, 3)
    assert first["reasons"][:3] == ["text of ERC-20", "declared in 3 contracts", "named by 4 sources"]
    assert (second["text_signature"], second["position"], second["looks_mined"]) == (SPAM, 2, True)
    assert (second["declaration"], second["witness"], second["kinds"]) == (None, "listed", [])


def test_hashes_may_be_mixed_unknown_and_wrong(client: TestClient) -> None:
    """Each has its line, in the order of the request; by POST too. No hash, and too many of them, are refused."""
    plain = selector("plain(uint256)")
    found = full(client, "zz", "00000000", plain)
    assert found[0] == {"hash": "zz", "error": "neither 8 nor 64 hex digits"}
    assert found[1] == {"hash": "0x00000000", "texts": []}
    assert [one["reasons"][0] for one in found[2]["texts"]] == ["named by 1 source"]
    posted = client.simulate_post(f"{RESOLVE_PATH}?full=1&format=json", body=f"zz\n00000000\n{plain}")
    assert posted.json == found
    assert client.simulate_get(RESOLVE_PATH).json.keys() == {"hash"}
    for no in ("", "0", "false", "False"):
        [line] = lines(client, f"{RESOLVE_PATH}?hash={plain}&full={no}")
        assert line["texts"] == ["plain(uint256)"]
    many = "\n".join(f"{number:08x}" for number in range(MAX_FULL_HASHES + 1))
    answer = client.simulate_post(f"{RESOLVE_PATH}?full=1", body=many)
    assert (answer.status_code, str(MAX_FULL_HASHES) in answer.json["detail"]) == (413, True)


@pytest.mark.parametrize(("most", "status"), [(2, 413), (3, 200)])
def test_a_full_answer_has_a_number_of_texts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, most: int, status: int
) -> None:
    """Of all its hashes together: the selector of transfer has two."""
    monkeypatch.setattr(resolve, "MAX_FULL_TEXTS", most)
    answer = client.simulate_get(f"{RESOLVE_PATH}?hash={A9},{selector('plain(uint256)')}&full=1")
    assert (answer.status_code, f"more than {most} texts" in answer.text) == (status, status == 413)


def test_everything_about_one_text(client: TestClient) -> None:
    """Its summary, its declarations with their counts, and each sighting, in pages."""
    id = full(client, A9)[0]["texts"][0]["id"]
    path = f"{SIGNATURES_PATH}{id}/evidence/"
    found = client.simulate_get(f"{path}?page_size=3").json
    assert {name: found[name] for name in ("text_signature", "hex_signature", "texts", "count", "declarations_count")} == {
        "text_signature": TRANSFER, "hex_signature": A9, "texts": 2, "count": 4, "declarations_count": 2,
    }  # fmt: skip
    other = DECLARED.replace("to,", "recipient,").replace("amount", "value")
    assert found["declarations"] == [{"declaration": DECLARED, "count": 2}, {"declaration": other, "count": 1}]
    listed, first, _ = found["results"]
    assert (listed["source"], listed["witness"], listed["declaration"]) == ("list.txt", "listed", None)
    assert (first["source"], first["witness"], first["kind"]) == ("build/Token0.json", "declared", "function")
    assert (first["contract"], first["declaration"]) == ("Token0", DECLARED)
    assert (found["previous"], "page=2&page_size=3" in found["next"]) == (None, True)
    rest = client.simulate_get(f"{path}?page_size=3&page=2").json
    assert [one["source"] for one in rest["results"]] == ["build/Token2.json"]
    for wrong in (f"{path}?page=3", f"{SIGNATURES_PATH}99/evidence/", f"{SIGNATURES_PATH}x/evidence/"):
        assert client.simulate_get(wrong).status_code == 404


def test_a_post_is_a_sighting_with_its_declaration(tmp_path: Path) -> None:
    """Of a new text and of a known one, which is answered as a duplicate; all POSTs of a text are one source.

    The names that a source declares stand before those of a POST.
    """
    (tmp_path / "abi.json").write_text(json.dumps([entry("to", "amount")]))
    import_files([tmp_path / "abi.json"], tmp_path / "warehouse")
    import_lines(tmp_path / "warehouse", "listed(uint256)", "plain(uint256)")
    mine = "function transfer(address yourWallet, uint256 youReceive)"
    posts = {
        mine: (400, TRANSFER, mine, "function"),
        "function listed(uint n)": (400, "listed(uint256)", "function listed(uint256 n)", "function"),
        "function fresh(uint n) payable": (201, "fresh(uint256)", "function fresh(uint256 n) payable", "function"),
        "error Denied(address who)": (201, "Denied(address)", "error Denied(address who)", "error"),
        "plain(uint256)": (400, "plain(uint256)", None, "unknown"),
    }
    for is_known in (False, True):
        with application(tmp_path / "warehouse") as app:  # at its end everything is staged
            for posted, (status, *_) in posts.items():
                assert post(app, SIGNATURES_PATH, {"text_signature": posted}).status == (400 if is_known else status)
        fold(Paths(tmp_path / "warehouse"))
    with application(tmp_path / "warehouse") as app:
        for _, text, declaration, kind in posts.values():
            [found] = full(app.client, selector(text))
            sightings = get(app, f"{SIGNATURES_PATH}{found['texts'][0]['id']}/evidence/").json()["results"]
            [said] = [one for one in sightings if one["source"] == "POST"]
            assert (said["witness"], said["kind"], said["declaration"]) == ("listed", kind, declaration)
            assert found["texts"][0]["declaration"] == (DECLARED if text == TRANSFER else declaration)


def test_the_page_of_a_text_says_who_says_so_and_why(client: TestClient) -> None:
    """The first by rank is shown, with its declaration, its place and its sources; the other one says that it looks mined."""
    page = client.simulate_get(f"/selector/{A9}/").text
    words = page.replace("<wbr>", "")
    assert f'<h1 class="signature text">{TRANSFER}</h1>' in words
    assert f'<p class="declared text">{DECLARED} ' in words
    assert "<dt>Kind</dt><dd>Function</dd>" in page
    assert "1 of 2 with this selector: text of ERC-20; declared in 3 contracts; named by 4 sources" in page
    assert "build/Token1.json" in page
    assert "an ABI or a source declares it" in page
    assert "&#34;name&#34;: &#34;amount&#34;" in page
    id = full(client, A9)[0]["texts"][1]["id"]
    other = client.simulate_get(f"/selector/{A9}/?id={id}").text
    assert "looks mined to collide with another signature" in other
    assert "2 of 2 with this selector: looks mined: many_msg_babbage in its name looks made up" in other
    assert "Function or error: no source says which" in other


def test_search_results_show_the_commonest_declaration(client: TestClient) -> None:
    """Of a hash in the order of rank, and of a fragment."""
    for query in (A9, "transfer"):
        page = client.simulate_get(f"/search/?q={query}").text.replace("<wbr>", "")
        assert f'<span class="declared text">{DECLARED}</span>' in page
        if query == A9:
            assert page.index(f">{TRANSFER}</a>") < page.index(f">{SPAM}</a>")
            assert '<span class="tag">looks mined to collide</span>' in page


def test_a_post_is_told_of_a_well_known_text_of_its_selector(tmp_path: Path) -> None:
    """In a header, so the body stays 4byte.directory's; the preview says it in a sentence.

    A text of a standard and one that bytecode has are such rivals; one that a list names is not.
    """
    abi: list[Line] = [{"type": "function", "name": name, "inputs": []} for name in ("f8491", "g")]
    code = dispatcher(bytes.fromhex(selector(text)[2:]) for text in ("f8491()", "g()"))
    artifact = {"contractName": "Token", "abi": abi, "deployedBytecode": "0x" + code.hex()}
    (tmp_path / "Token.json").write_text(json.dumps(artifact))
    (tmp_path / "list.txt").write_text("f24151()\n")
    import_files([tmp_path / "Token.json", tmp_path / "list.txt"], tmp_path / "data")
    rivals = {
        "collate_propagate_storage(bytes16)": "burn(uint256)", "burn(uint256)": None, "harmless(bytes16)": None,
        "f130736()": "f8491()", "f193033()": None,
    }  # fmt: skip
    with application(tmp_path / "data") as app:
        for text, rival in rivals.items():
            page = request(app, "POST", "/submit/", urlencode({"text": text}).encode(), FORM)
            assert (b"a call cannot tell the two apart" in page.body) == (rival is not None)
            answer = post_text(app, text)
            assert (answer.status, answer.json()["text_signature"]) == (201, text)
            assert answer.headers.get("Clashes-With") == rival
