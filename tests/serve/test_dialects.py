"""Other dialects: OpenChain's and the older one, and the hash-named files; search and export also in memory."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.serve import dialects
from sigdir.serve.core.settings import MIB
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from tests.conftest import import_files, import_lines
from tests.serve.conftest import MANY
from tests.serve.support import (
    EVENT,
    JSON,
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
    topic,
    view_of,
    whole,
)

BASE = "/signature-database/v1"
LOOKUP, SEARCH, IMPORT, EXPORT = f"{BASE}/lookup", f"{BASE}/search", f"{BASE}/import", f"{BASE}/export"
OLDER_LOOKUP, OLDER_IMPORT = "/api/v1/signatures", "/api/v1/import"


def result(app: Application, path: str, **parameters: str) -> Any:
    answer = get(app, f"{path}?{urlencode(parameters)}" if parameters else path)
    assert answer.status == 200, answer.body
    value = answer.json()
    assert value["ok"] is True
    assert answer.header("Content-Type") == "application/json"
    return value["result"]


def error(answer: Any, status: int) -> str:
    """The message of an error, in the dialect's envelope."""
    assert answer.status == status, answer.body
    value = answer.json()
    assert value.keys() == {"ok", "error"}
    assert value["ok"] is False
    text: str = value["error"]
    assert text
    return text


def name(text: str, filtered: bool = False) -> dict[str, Any]:
    return {"name": text, "filtered": filtered, "hasVerifiedContract": False}


def imported(app: Application, value: Any, path: str = IMPORT) -> Any:
    answer = post(app, path, value)
    assert answer.status == 200, answer.body
    return answer.json()["result"]


# Lookup.


def test_a_lookup_answers_each_hash_as_it_was_sent(app: Application) -> None:
    """Clients read both kinds, so both are there; a hash that is unknown or of the other kind has no texts.

    Other texts of a well-known selector are dropped; filter=false puts them after the standard's text.
    """
    unfiltered = result(app, LOOKUP, function=selector(TRANSFER), filter="false")["function"]
    assert unfiltered == {selector(TRANSFER): [name(TRANSFER), name(SPAM, filtered=True)]}
    for value in ("", "true", "True", "1"):
        assert result(app, LOOKUP, function=selector(TRANSFER), filter=value)["function"] != unfiltered
    upper = "0x" + selector("under_score()")[2:].upper()
    broken, zero = selector("Broken(uint256)"), "0x" + "0" * 64
    assert result(app, LOOKUP) == {"function": {}, "event": {}}
    assert result(app, LOOKUP, event=topic(EVENT)) == {"function": {}, "event": {topic(EVENT): [name(EVENT)]}}
    assert result(app, LOOKUP, function=f"{upper}, 0x00000001,{broken},", event=zero) == {
        "function": {upper: [name("under_score()")], "0x00000001": [], broken: [name("Broken(uint256)")]},
        "event": {zero: []},
    }
    found = result(app, LOOKUP, function=topic(EVENT), event=selector(TRANSFER))
    assert found == {"function": {topic(EVENT): []}, "event": {selector(TRANSFER): []}}
    repeated = get(app, f"{LOOKUP}?function={selector(MANY[0])}&function={selector(MANY[1])}")
    assert list(repeated.json()["result"]["function"]) == [selector(MANY[0]), selector(MANY[1])]


def test_thousands_of_hashes_fit_a_request(app: Application) -> None:
    """The original services accept about 1,400 hashes. A URI that is too long is 414 in the envelope."""
    hashes = [f"0x{number:08x}" for number in range(5000)]
    hashes[4321] = selector(MANY[7])
    found = get(app, f"{LOOKUP}?function={','.join(hashes)}").json()["result"]["function"]
    assert list(found) == hashes
    assert {hash: texts for hash, texts in found.items() if texts} == {selector(MANY[7]): [name(MANY[7])]}
    error(get(app, f"{LOOKUP}?function={','.join(hashes + hashes[:600])}"), 414)


@pytest.mark.parametrize(
    "hash", ["a9059cbb", "0xa9059cb", "0xa9059cbbb", "0xa9059cbg", "0XA9059CBB", "0x" + "0" * 63, "é"]
)
def test_a_bad_hash_is_refused(app: Application, hash: str) -> None:
    """One bad hash refuses the request with 400, and the message names it."""
    assert hash in error(get(app, f"{LOOKUP}?event={quote('0x00000001,' + hash)}"), 400)


def test_a_lookup_can_be_kept_until_it_changes(app: Application) -> None:
    """A POST of another hash leaves the ETag as it is. An answer with an unknown hash is asked for again."""
    known, new = selector(MANY[0]), "keptUntilItChanges()"
    address = f"{LOOKUP}?function={known}"
    tag, unknown = get(app, address).header("ETag"), get(app, f"{address},{selector(new)}")
    assert unknown.header("Cache-Control") == "no-cache"
    assert post(app, IMPORT, {"function": [new]}).status == 200
    again = get(app, address, {"If-None-Match": tag})
    assert (again.status, again.header("Cache-Control")) == (304, "public, max-age=60")
    changed = get(app, f"{address},{selector(new)}", {"If-None-Match": unknown.header("ETag")})
    assert (changed.status, changed.header("Cache-Control")) == (200, "public, max-age=60")


# Search.


def test_search_answers_by_hash_and_kind(app: Application) -> None:
    """A pattern fits the whole text, as it is spelt; spam is left out; without wildcards any length will do.

    There are the hundred oldest of each kind at most.
    """
    found = result(app, SEARCH, query="under_score()")
    assert found == {"function": {selector("under_score()"): [name("under_score()")]}, "event": {}}
    assert set(result(app, SEARCH, query="under?score()")["function"]) == {
        selector("under_score()"), selector("underXscore()"),
    }  # fmt: skip
    assert result(app, SEARCH, query="under*score")["function"] == {}
    assert result(app, SEARCH, query="Under*") == {"function": {}, "event": {}}
    assert result(app, SEARCH, query="*ransfer(address,*")["event"] == {topic(EVENT): [name(EVENT)]}
    assert result(app, SEARCH, query=SPAM)["function"] == {}
    found = result(app, SEARCH, query="many_msg*", filter="false")["function"]
    assert found == {selector(SPAM): [name(SPAM, filtered=True)]}
    assert result(app, SEARCH, query="a" * 5000 + "()") == {"function": {}, "event": {}}
    found = result(app, SEARCH, query="?any*(uint256)")
    assert [texts[0]["name"] for texts in found["function"].values()] == MANY[:100]
    assert len(found["event"]) == 100


@pytest.mark.parametrize("query", ["", "two words", "a-b", "é", "a" * 257 + "*"])
def test_a_bad_query_is_refused(app: Application, query: str) -> None:
    """A query with characters that no text has, an empty one and a long one are 400."""
    error(get(app, f"{SEARCH}?{urlencode({'query': query})}"), 400)


@given(
    st.lists(st.sampled_from(["*", "?", "?" * 9, "a", "b", "ab" * 30, "a" * 64]), max_size=12).map("".join), st.data()
)
def test_patterns_of_any_length_are_regular_expressions(pattern: str, data: st.DataObject) -> None:
    """Texts that fit them or almost."""
    runs = {"*": st.sampled_from(["", "a", "ba" * 40]), "?": st.sampled_from("ab")}
    fitting = data.draw(st.tuples(*(runs.get(character, st.just(character)) for character in pattern)).map("".join))
    found = [fitting, fitting[1:], fitting + "b", "a" + fitting, fitting.replace("b", "a", 1)]
    segment = segment_of([Row(number, number, text, b"\0\0\0\0") for number, text in enumerate(found, 1)])
    assert segment.like(pattern, 9).tolist() == [row for row, text in enumerate(found) if fnmatchcase(text, pattern)]


def test_the_work_of_a_pattern_is_bounded() -> None:
    """700 KB of one letter, and patterns of 250 characters that almost fit at each place."""
    segment = segment_of([Row(number, number, "a" * 65_000, b"abcd") for number in range(1, 12)])
    segment.like("*w?rm*", 1)
    began = time.process_time()
    for pattern in (
        "*" + "a?" * 123 + "e*",
        "*" + "a" * 100 + "?" * 100 + "e*",
        "*a*?" * 30 + "*Z",
        "*" + "?a" * 124 + "b",
    ):
        assert segment.like(pattern, 1).tolist() == []
    assert time.process_time() - began < 3


# Import.


def test_an_import_reports_every_text(app: Application) -> None:
    """Texts are listed as they were sent, with the hash of the stored text; errors are functions.

    JSON can spell half of a surrogate pair, and UTF-8 cannot.
    """
    sent = [
        "x(uint)", "function y(uint a) returns (bool)", TRANSFER, "bad(", "event z()", "", "x(uint)", "x(uint256)", "\ud800",
    ]  # fmt: skip
    value = imported(app, {"function": sent, "event": ["Y(uint indexed a)", EVENT]})
    assert value == {
        "function": {
            "imported": {
                "x(uint)": selector("x(uint256)"),
                "function y(uint a) returns (bool)": selector("y(uint256)"),
            },
            "duplicated": {TRANSFER: selector(TRANSFER), "x(uint256)": selector("x(uint256)")},
            "invalid": ["bad(", "event z()", "", "\ud800"],
            "reasons": {
                "bad(": {"reason": "unbalanced", "position": 5},
                "event z()": {"reason": "other_collection", "position": 1},
                "": {"reason": "empty", "position": 1},
                "\ud800": {"reason": "bad_name", "position": 1},
            },
        },
        "event": {"imported": {"Y(uint indexed a)": topic("Y(uint256)")}, "duplicated": {EVENT: topic(EVENT)}, "invalid": [], "reasons": {}},
    }  # fmt: skip
    found = result(app, LOOKUP, function=selector("x(uint256)"), event=topic("Y(uint256)"))
    assert found == {
        "function": {selector("x(uint256)"): [name("x(uint256)")]},
        "event": {topic("Y(uint256)"): [name("Y(uint256)")]},
    }
    value = imported(app, {"error": ["Refused(address)"], "function": ["error Denied()"]})["function"]
    errors = {"Refused(address)": selector("Refused(address)"), "error Denied()": selector("Denied()")}
    assert value["imported"] == errors


@pytest.mark.parametrize(
    ("path", "value", "status"),
    [
        (IMPORT, {"function": [], "event": []}, 400), (IMPORT, {"function": "f()"}, 400),
        (IMPORT, {"event": [1]}, 400), (IMPORT, [], 400), (IMPORT, {"function": ["f()"] * 200_000}, 413),
        (OLDER_IMPORT, {"type": "code", "data": {}}, 400), (OLDER_IMPORT, {"type": "raw", "data": []}, 400),
        (OLDER_IMPORT, {"type": "abi", "data": [{}]}, 400),
    ],
)  # fmt: skip
def test_a_body_of_another_shape_is_refused(app: Application, path: str, value: Any, status: int) -> None:
    """A body without a list of texts, of another type, or over the size limit is an error in the envelope."""
    error(post(app, path, value), status)


def test_a_body_that_is_no_json_is_refused(app: Application) -> None:
    error(request(app, "POST", IMPORT, b"{", JSON), 400)
    error(request(app, "POST", IMPORT, b"f()", {"Content-Type": "text/plain"}), 415)


# Stats and export.


def test_an_export_is_every_row_and_can_be_imported(app: Application, tmp_path: Path) -> None:
    """Functions, then events, each oldest first, as many as the stats say; a fresh warehouse gets the same rows of it."""
    counts = {kind: len(whole(app, collection)) for kind, collection in dialects.KINDS.items()}
    assert result(app, f"{BASE}/stats") == {"count": counts}
    answer = get(app, EXPORT)
    assert answer.status == 200
    assert answer.header("Content-Type") == "text/plain; charset=utf-8"
    expected = [
        f"{row['hex_signature']},{row['text_signature']}\n"
        for collection in (SIGNATURES, EVENT_SIGNATURES)
        for row in whole(app, collection)
    ]
    assert answer.body.decode() == "".join(expected)
    head = request(app, "HEAD", EXPORT)
    assert (head.status, head.header("Content-Length"), head.body) == (200, str(len(answer.body)), b"")
    assert get(app, EXPORT, {"If-None-Match": answer.header("ETag")}).status == 304
    (tmp_path / "export.csv").write_bytes(answer.body)
    report = import_files([tmp_path / "export.csv"], tmp_path / "again")
    assert (report.total("imported"), report.total("rejected")) == (len(expected), 0)


def test_another_warehouse_has_other_tags(tmp_path: Path) -> None:
    """Where a directory was built anew at its address, with as many rows: a client with the old answer gets the new one."""
    tags = set()
    for text in ("a()", "b()"):
        with application(import_lines(tmp_path / text, text)) as app:
            tags |= {get(app, path).header("ETag") for path in (EXPORT, SIGNATURES_PATH, "/")}
    assert len(tags) == 6


def test_an_exports_chunks_are_small() -> None:
    """A chunk is below 2 MiB for short and long texts, so the server's memory is bounded; together they are all lines."""
    for name, count in (("f", 35_000), ("g" * 60_000, 60)):
        rows = [Row(number, number, f"{name}{number}()", number.to_bytes(4)) for number in range(1, count)]
        segments = [segment_of(rows[:50]), segment_of([]), segment_of(rows[50:], slack=1)]
        chunks = list(dialects._chunks(view_of(segments)))
        assert len(chunks) > 3
        assert max(map(len, chunks)) < 2 * MIB
        assert b"".join(chunks).decode() == "".join(f"0x{row.id:08x},{row.text}\n" for row in rows)


# The older dialect.


def test_the_older_lookup_is_recognised_by_its_parameters(app: Application) -> None:
    """It shares the path of the list without the slash; requests without its parameters are redirected to the list."""
    wanted = selector(TRANSFER)
    assert result(app, OLDER_LOOKUP, function=wanted) == {"function": {wanted: [name(TRANSFER)]}, "event": {}}
    found = get(app, f"{OLDER_LOOKUP}?function={wanted}&all").json()["result"]["function"]
    assert found == {wanted: [name(TRANSFER), name(SPAM, filtered=True)]}
    for no in ("false", "False"):  # Python writes False
        assert len(result(app, OLDER_LOOKUP, function=wanted, all=no)["function"][wanted]) == 1
    error(get(app, f"{OLDER_LOOKUP}?event=0x1"), 400)
    moved = get(app, f"{OLDER_LOOKUP}?hex_signature={wanted}")
    assert (moved.status, moved.header("Location")) == (301, f"/api/v1/signatures/?hex_signature={wanted}")
    for method in ("POST", "HEAD", "OPTIONS", "DELETE"):
        assert request(app, method, OLDER_LOOKUP).header("Location") == "/api/v1/signatures/"
    assert error(request(app, "DELETE", f"{OLDER_LOOKUP}?function={wanted}"), 405)
    assert request(app, "HEAD", f"{OLDER_LOOKUP}?function={wanted}").status == 200


def test_the_older_import_takes_texts_and_abis(app: Application) -> None:
    """The older import accepts what Foundry and Blockscout sent."""
    raw = {"type": "raw", "data": {"function": ["older(uint)"], "event": [], "error": ["OlderError()"]}}
    assert imported(app, raw, OLDER_IMPORT)["function"]["imported"] == {
        "older(uint)": selector("older(uint256)"), "OlderError()": selector("OlderError()"),
    }  # fmt: skip
    abi = [
        {"type": "function", "name": "abi", "inputs": [{"type": "tuple", "components": [{"type": "uint8"}]}]},
        {"type": "event", "name": "Abi", "inputs": [{"type": "address", "indexed": True}], "anonymous": False},
        {"type": "error", "name": "AbiError", "inputs": []},
        {"type": "constructor", "inputs": []},
        {"type": "function", "name": "bad name", "inputs": []},
    ]
    assert imported(app, {"type": "abi", "data": [abi]}, OLDER_IMPORT) == {
        "function": {
            "imported": {"abi((uint8))": selector("abi((uint8))"), "AbiError()": selector("AbiError()")},
            "duplicated": {}, "invalid": ["function bad name()"],
            "reasons": {"function bad name()": {"reason": "bad_name", "position": 14}},
        },
        "event": {"imported": {"Abi(address)": topic("Abi(address)")}, "duplicated": {}, "invalid": [], "reasons": {}},
    }  # fmt: skip


def test_a_file_has_its_texts_and_may_be_cached(app: Application) -> None:
    """Otterscan takes the text before the first semicolon, so spam is last. A row elsewhere keeps the ETag."""
    assert get(app, f"/topic0/{TOPIC}").body == EVENT.encode()
    answer = get(app, "/signatures/a9059cbb")
    assert answer.status == 200
    assert answer.body == f"{TRANSFER};{SPAM}".encode()
    assert answer.header("Content-Type") == "text/plain; charset=utf-8"
    assert answer.header("Cache-Control") == "public, max-age=3600"
    assert get(app, "/signatures/A9059CBB").body == answer.body
    tag = answer.header("ETag")
    assert post_text(app, "another(uint256)").status == 201
    again = get(app, "/signatures/a9059cbb", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    head = request(app, "HEAD", "/signatures/a9059cbb")
    assert (head.status, head.header("Content-Length"), head.header("ETag")) == (200, str(len(answer.body)), tag)


@pytest.mark.parametrize(
    "path",
    [
        "/signatures/00000001", "/signatures/0xa9059cbb", "/signatures/a9059cb", "/signatures/a9059cbg",
        f"/signatures/{TOPIC}", "/topic0/a9059cbb", f"/topic0/{TOPIC[:-1]}0", f"/topic0/{TOPIC}/",
    ],
)  # fmt: skip
def test_any_other_file_is_not_there(app: Application, path: str) -> None:
    """Unknown and malformed hashes are 404, and the answer is not cached."""
    answer = get(app, path)
    assert answer.status == 404
    assert "max-age" not in answer.header("Cache-Control")
