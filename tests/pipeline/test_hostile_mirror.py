"""Directories that try to keep a mirror busy for ever, to fill its memory or to hide rows from it.

Each is a real server on loopback. Each mirror ends by itself, with one line that says why.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.pipeline.errors import PipelineError
from sigdir.pipeline.fetch import Fetcher, FetchError
from sigdir.pipeline.mirror import CHANGES_BYTES, CHANGES_ROWS, PAGE_BYTES, MirrorReport, Options, Way, run_mirror
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import SIGNATURES
from tests.conftest import SAFETY_SECONDS
from tests.examples import long_except
from tests.pipeline.directories import EAGER, NOT_THERE, Reply, Script, pages_of, reply, row, scripted, sending
from tests.pipeline.support import CommandResult, run_watched, texts
from tests.serve.support import SIGNATURES_PATH

MOST_MIB = 512
HIGHEST_ID = 2**63 - 1


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def mirror(url: str, warehouse: Path, way: Way, **options: Any) -> MirrorReport:
    return run_mirror(Options(url, warehouse, (SIGNATURES,), way, EAGER, **options), Reporter())


def rows_of(ids: Iterator[int] | range | list[int]) -> list[dict[str, Any]]:
    return [row(id, f"f{id}()") for id in ids]


def page(ids: range | list[int], count: int, more: bool = True) -> Reply:
    return reply({"count": count, "next": "http://elsewhere/" if more else None, "results": rows_of(ids)})


# Pages.


def always(answer: Reply) -> Script:
    return lambda *_: answer


def by_number(make: Callable[[int], Reply]) -> Script:
    """A directory whose page of a number is made by a function."""
    return lambda _, query: make(int(query["page"]))


BAD_PAGES: dict[str, tuple[Reply, str]] = {
    "no such page": (NOT_THERE, "404 Not Found"),
    "HTML": ((200, {}, b"<html>"), "the answer is not JSON"),
    "deep JSON": ((200, {}, b"[" * 1_900), "the answer is not JSON"),
    "a list": (reply([]), "not a page of rows"),
    "no next": (reply({"results": []}), "not a page of rows"),
    "results of another type": (reply({"next": None, "results": {}}), "not a page of rows"),
    "empty": (reply({"next": "x", "results": []}), "an empty page that is not the last"),
    "a number": (reply({"next": None, "results": [7]}), "a row that is not an object"),
    "an id that is text": (reply({"next": None, "results": [{"id": "7"}]}), "a row without an id"),
    "an id that is true": (reply({"next": None, "results": [{"id": True}]}), "a row without an id"),
    "an id that is too large": (reply({"next": None, "results": [{"id": 2**70}]}), "a row without an id"),
    "no count": (reply({"next": None, "results": []}), "a page that does not say how many rows there are"),
    "forbidden": (reply({"detail": "no"}, 403), "403 Forbidden"),
    "another host": (reply({}, 302, {"Location": "http://127.0.0.1:1/"}), "redirects to http://127.0.0.1:1/"),
    "a file": (reply({}, 301, {"Location": "file:///etc/passwd"}), "redirects to file:///etc/passwd"),
    "no place": (reply({}, 307, {"Location": "//[x/"}), "redirects to"),
    "a circle of redirects": (reply({}, 308, {"Location": "?again"}), "over 5 redirects"),
    "large": ((200, {}, b" " * (PAGE_BYTES + 1)), "an answer of over"),
    "of a wrong length": ((200, {"Content-Length": "x"}, b" " * (PAGE_BYTES + 1)), "an answer of over"),
}
WALKS: dict[str, tuple[Script, str]] = {
    "ignores page": (always(page([5, 6], 6)), "id 6 after id 6: the ids of a walk must rise"),
    "ignores ordering": (always(page([6, 5], 6)), "id 5 after id 6: the ids of a page must rise"),
    "always says next": (by_number(lambda n: page([2 * n - 1, 2 * n], 50)), "of a directory that says it has 50"),
    "falls": (by_number(lambda n: page([9 - n], 50)), "id 7 after id 8: the ids of a walk must rise"),
    "more than anybody has": (
        always(page([1, 2], 2**61)), "a directory of 2,305,843,009,213,693,952 rows, over the limit of 100,000,000",
    ),
    "highest id in the middle": (
        always(page([6, 7, HIGHEST_ID, 8], 4, more=False)), f"id 8 after id {HIGHEST_ID}: the ids of a page must rise",
    ),
    "more rows than a page has": (lambda *_: page(range(1, 5_001), 5_000, more=False), "a page of over 1,000 rows"),
}  # fmt: skip


def test_walks_that_are_never_short_end(warehouse: Path) -> None:
    """With each page there are three pages of new rows. The next run reads on."""
    newest = 0

    def script(_: str, query: dict[str, str]) -> Reply:
        nonlocal newest
        newest += 6
        return pages_of(rows_of(range(1, newest + 1)), SIGNATURES_PATH, query)

    with scripted(script) as server:
        mirror(server.url, warehouse, "pages")
        assert len(server.asked) < 50
        had = len(texts(warehouse))
        mirror(server.url, warehouse, "pages")
    assert texts(warehouse)[: had + 1] == [f"f{id}()" for id in range(1, had + 2)]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_rows_that_are_removed_hide_no_other(warehouse: Path, meanwhile: bool) -> None:
    """They move others to pages that were read, between two runs and while a page is asked for."""
    rows = rows_of(range(1, 12))

    def script(path: str, query: dict[str, str]) -> Reply:
        if meanwhile and query.get("page") == "3":
            del rows[:3]
        return pages_of(rows, path, query)

    with scripted(script) as server:
        mirror(server.url, warehouse, "pages")
        if not meanwhile:
            del rows[:6]
            rows += rows_of([20])
            mirror(server.url, warehouse, "pages")
    assert texts(warehouse) == [f"f{id}()" for id in [*range(1, 12), *([] if meanwhile else [20])]]


@pytest.mark.parametrize("more", [False, True])
def test_a_row_with_the_highest_id_hides_no_later_row(warehouse: Path, more: bool) -> None:
    """It is above every later id, and stands behind them."""
    rows = rows_of([*range(1, 9 if more else 2), HIGHEST_ID])
    with scripted(lambda path, query: pages_of(rows, path, query)) as server:
        mirror(server.url, warehouse, "pages")
        for number in (20, 21):
            rows.insert(-1, row(number, f"f{number}()"))
        mirror(server.url, warehouse, "pages")
        assert {"f20()", "f21()"} < set(texts(warehouse))
        server.asked.clear()
        mirror(server.url, warehouse, "pages")
        assert len(server.asked) == 1


# The feed.


def feed(ids: range | list[int], cursor: str = "s7", more: bool = True, total: int = 100) -> Script:
    """Each request gets the same answer; the list says that there are ``total`` rows."""
    lines = [json.dumps(line).encode() for line in [*rows_of(ids), {"next": cursor, "more": more, "left": total}]]
    return lambda path, _: (200, {}, b"\n".join(lines)) if path != SIGNATURES_PATH else page([1], total)


def by_cursor(make: Callable[[int], Script]) -> Script:
    """A directory whose feed behind a cursor is made by a function."""
    return lambda path, query: make(int(query.get("after", "s0")[1:]))(path, query)


NO_CURSOR = "no rows that end with a cursor and the number of those left"
BAD_FEEDS: dict[str, tuple[bytes, str]] = {
    "no line": (b"", NO_CURSOR),
    "no cursor": (b'{"id":1,"text_signature":"f()"}\n', NO_CURSOR),
    "a cursor that is a number": (b'{"next":7,"more":false,"left":0}\n', NO_CURSOR),
    "no word of more": (b'{"next":"s1","left":0}\n', NO_CURSOR),
    "no number of rows": (b'{"next":"s1","more":false}\n', NO_CURSOR),
    "below zero rows": (b'{"next":"s1","more":false,"left":-1}\n', NO_CURSOR),
    "no rows": (b'{"next":"s1","more":true,"left":9}\n', "no rows, and more to come"),
    "a cursor that stays": (b'{"id":1}\n{"next":"","more":true,"left":9}\n', "the cursor does not move"),
    "cut JSON in a feed": (b'{"id":1}\n{"next":', "the answer is not JSON"),
}

FEEDS: dict[str, tuple[Script, str]] = {
    "endless": (
        by_cursor(lambda after: feed(range(after + 1, after + 60), f"s{after + 59}")),
        "row 118 of a directory that says it has 100",
    ),
    "cursors in a circle": (
        by_cursor(lambda after: feed(range(after + 1, after + 3), f"s{(after + 2) % 6}")),
        "id 1 after id 6: the ids of a feed must rise",
    ),
    "ignores after": (
        by_cursor(lambda after: feed([1, 2], f"s{after + 1}")), "id 1 after id 2: the ids of a feed must rise",
    ),
    "falling": (feed([2, 1]), "id 1 after id 2: the ids of a feed must rise"),
    "over limit": (
        by_cursor(lambda _: feed(range(1, CHANGES_ROWS + 2))), "over 20,000 rows, which is more than were requested",
    ),
    "too many": (feed([1], total=10**9), "a directory of 1,000,000,000 rows, over the limit of 100,000,000"),
    "no list": (lambda path, _: NOT_THERE if path == SIGNATURES_PATH else feed([1])(path, {}), "404 Not Found"),
}  # fmt: skip


HOSTILE: dict[str, tuple[Way, Script, str]] = {
    **{name: ("pages", always(answer), reason) for name, (answer, reason) in BAD_PAGES.items()},
    **{name: ("pages", script, reason) for name, (script, reason) in WALKS.items()},
    **{name: ("changes", always((200, {}, body)), reason) for name, (body, reason) in BAD_FEEDS.items()},
    **{name: ("changes", script, reason) for name, (script, reason) in FEEDS.items()},
}
"""What directories answer, in the way that a mirror asks, and the sentence that ends it."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_directory_that_misbehaves_is_left(warehouse: Path, name: str) -> None:
    """In one line, within fifty requests; nothing is published."""
    way, script, reason = HOSTILE[name]
    with scripted(script) as server:
        with pytest.raises(PipelineError) as error:
            mirror(server.url, warehouse, way)
        assert len(server.asked) < 50
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert sigdir.open(warehouse).version == -1


def test_a_feed_that_grows_with_each_request_ends(warehouse: Path) -> None:
    """After a few counts; the next run fetches the rest."""
    total = 0

    def script(path: str, query: dict[str, str]) -> Reply:
        nonlocal total
        after = int(query.get("after", "s0")[1:])
        total += path == SIGNATURES_PATH
        return feed([after + 1], f"s{after + 1}", total=total)(path, query)

    with scripted(script) as server:
        mirror(server.url, warehouse, "changes")
        had = len(texts(warehouse))
        assert had < 20
    assert texts(warehouse) == [f"f{id}()" for id in range(1, had + 1)]


# HTTP.


def for_ever(piece: bytes, begin: bytes = b"", pause: float = 0.0) -> Callable[[socket.socket], None]:
    def send(client: socket.socket) -> None:
        client.sendall(begin)
        while True:
            client.sendall(piece)
            time.sleep(pause)

    return send


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BEFORE_BODY = "over 1,048,576 bytes before the body of an answer"
SLOW = r"no end of the answer in 0\.3 s"

ANSWERS: dict[str, tuple[Callable[[socket.socket], None], str]] = {
    "100 Continue": (for_ever(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000), BEFORE_BODY),
    "headers, dripped": (for_ever(b"a", OK, 0.01), SLOW),
    "body, dripped": (for_ever(b" ", OK + b"Content-Length: 100000\r\n\r\n", 0.01), SLOW),
    "body without an end": (for_ever(b" " * 500, OK + b"\r\n"), "an answer of over 5,000 bytes"),
    "trailers": (for_ever(b"a: b\r\n" * 1_000, CHUNKED + b"0\r\n"), "an answer of over 5,000 bytes"),
    # a hundred headers would be refused before it is slow
    "redirects, dripped": (for_ever(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n", pause=0.1), SLOW),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_a_deadline_and_a_size(name: str) -> None:
    """Whatever part of it is sent for ever. Not tried again: a server that sends is not busy."""
    send, reason = ANSWERS[name]
    fetcher = Fetcher(replace(EAGER, deadline=0.3 if reason == SLOW else SAFETY_SECONDS))
    with sending(send) as url, pytest.raises(FetchError, match=reason):
        fetcher.get(url, 5_000)
    assert fetcher.requests == 1


def test_a_run_has_a_number_of_requests(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request more ends it."""
    monkeypatch.setattr("sigdir.pipeline.fetch.MAX_REQUESTS", 3)
    with scripted(lambda path, query: pages_of(rows_of(range(1, 20)), path, query)) as server:
        with pytest.raises(FetchError, match="over 3 requests in one run"):
            mirror(server.url, warehouse, "pages")
        assert len(server.asked) == 3


# Memory, of the real command.


def filled(piece: bytes, size: int, begin: bytes = b"", end: bytes = b"") -> bytes:
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


LARGE: list[tuple[Way, Script, str]] = [
    (
        "pages",
        lambda *_: (200, {}, filled(b"{},", PAGE_BYTES, b'{"count":9,"next":null,"results":[', b"{}]}")),
        "over 32,000 JSON values where rows belong",
    ),
    (
        "changes",
        lambda *_: (200, {}, filled(b"[],", CHANGES_BYTES, b'{"id":1,"x":[', b"1]}\n")),
        "over 32 JSON values where rows belong",
    ),
    ("changes", lambda *_: (200, {}, filled(b"{}\n", CHANGES_BYTES, b'{"id":1}\n')), "a row without an id"),
]


@pytest.mark.parametrize(("way", "script", "reason"), long_except(LARGE[:2], LARGE), ids=["page", "row", "feed"])
def test_memory_has_a_bound(warehouse: Path, way: Way, script: Script, reason: str) -> None:
    """Of an answer that is as large as one may be and has very many values."""
    with scripted(script) as server:
        done = run_command(warehouse, server.url, way)
    assert (done.status, done.stderr.count("\n"), reason in done.stderr) == (2, 1, True), done.stderr


@pytest.mark.long
def test_memory_has_a_bound_for_answers_of_long_rows(warehouse: Path) -> None:
    """Three answers, each as many rows of 1.5 kB as a feed may have."""
    answers = [
        b"\n".join(
            [
                *(b'{"id":%d,"text_signature":"%s%d()"}' % (id, b"a" * 1_450, id) for id in range(first, first + CHANGES_ROWS)),
                b'{"next":"s%d","more":%s,"left":0}' % (number + 1, b"true" if number < 2 else b"false"),
            ]
        )
        for number, first in enumerate(range(1, 3 * CHANGES_ROWS, CHANGES_ROWS))
    ]  # fmt: skip
    assert all(CHANGES_BYTES * 0.88 < len(answer) < CHANGES_BYTES for answer in answers)

    def script(path: str, query: dict[str, str]) -> Reply:
        if path == SIGNATURES_PATH:
            return page([1], 3 * CHANGES_ROWS)
        return 200, {}, answers[int(query.get("after", "s0")[1:])]

    with scripted(script) as server:
        done = run_command(warehouse, server.url, "changes")
    assert (done.status, done.stderr) == (0, "")
    assert len(texts(warehouse)) == 3 * CHANGES_ROWS


def run_command(warehouse: Path, url: str, way: Way) -> CommandResult:
    """Mirror the functions of a directory in bounded memory."""
    options = ["--way", way, "--rate", "1000", "--collection", SIGNATURES, "--quiet"]
    result, peak = run_watched(warehouse, "mirror", url, *options, most=MOST_MIB)
    assert peak <= MOST_MIB, f"{peak} MiB"
    return result
