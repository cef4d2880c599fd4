"""Rows with texts of 64 KiB, the longest there are: what a request costs is bounded in bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import StartResponseMock, create_environ

from tests.conftest import import_lines
from tests.serve.support import SIGNATURES_PATH, Application, application, get, request, selector

TEXTS = [f"{'a' * 65_000}{number}()" for number in range(320)]
LIST = f"{SIGNATURES_PATH}?page_size=320"
RESOLVE_PATH = "/api/v1/resolve/"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of 320 texts, of 20 MB together, in two files."""
    folder = tmp_path_factory.mktemp("long")
    for part in (TEXTS[:100], TEXTS[100:]):
        import_lines(folder / "warehouse", *part)
    return folder / "warehouse"


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[Application]:
    with application(folder, threads=10) as app:
        yield app


def test_a_long_page_is_streamed_whole(app: Application) -> None:
    """Its rows are those of short pages, in order; it has an ETag, and none of it is lost."""
    answer = get(app, LIST)
    page = answer.json()
    assert (answer.status, page["count"], page["next"]) == (200, 320, None)
    short = [get(app, f"{SIGNATURES_PATH}?page_size=80&page={number}") for number in range(1, 5)]
    assert page["results"] == [row for each in short for row in each.json()["results"]]
    assert [row["text_signature"] for row in page["results"]] == TEXTS[::-1]
    assert get(app, LIST, {"If-None-Match": answer.header("ETag")}).status == 304
    head_answer = request(app, "HEAD", LIST)
    assert (head_answer.status, head_answer.body) == (200, b"")
    hashes = ",".join(map(selector, TEXTS))
    found = get(app, f"{LIST}&hex_signature__in={hashes}").json()
    assert found["results"] == page["results"]


def test_a_long_page_is_not_shown_as_html(app: Application) -> None:
    """A browser gets 413 and what to do; pages of a hundred rows are shown."""
    answer = get(app, LIST, {"Accept": "text/html"})
    assert (answer.status, b"fewer rows" in answer.body) == (413, True)
    assert get(app, f"{SIGNATURES_PATH}?page_size=20", {"Accept": "text/html"}).status == 200


def test_an_answer_of_the_feed_is_bounded_in_bytes(app: Application) -> None:
    """It has fewer rows than asked for, says that there are more, and its cursor goes on behind the last one."""
    texts, cursor, more, answers = [], "", True, 0
    while more:
        answer = get(app, f"/api/v1/changes/?limit=50000&after={cursor}")
        assert len(answer.body) < 9_000_000
        *rows, last = map(json.loads, answer.body.splitlines())
        texts += [row["text_signature"] for row in rows]
        cursor, more, answers = last["next"], last["more"], answers + 1
    assert (texts, answers) == (TEXTS, 3)


def test_many_hashes_of_long_texts_are_refused(app: Application) -> None:
    """By both look-ups of many hashes; fewer of them are answered."""
    hashes = list(map(selector, TEXTS))
    body = "\n".join(hashes * 100).encode()
    assert request(app, "POST", RESOLVE_PATH, body).status == 413
    assert request(app, "POST", f"{RESOLVE_PATH}?full=1", "\n".join(hashes[:1] * 200).encode()).status == 413
    assert request(app, "POST", f"{RESOLVE_PATH}?full=1", "\n".join(hashes[:9]).encode()).status == 200
    lookup = "/signature-database/v1/lookup?function="
    answer = get(app, lookup + ",".join(hashes))
    assert (answer.status, answer.json()["ok"]) == (413, False)
    assert get(app, lookup + ",".join(hashes[:9])).status == 200


def test_streams_that_nobody_reads_use_up_one_number_of_permits(app: Application) -> None:
    """Pages, resolved hashes, dumps and exports share it; all else is answered. A permit is free when its client hangs up."""
    body = "\n".join(map(selector, TEXTS)).encode()
    page, query = LIST.split("?")
    unread: list[Any] = []
    for path, asked, sent in (
        (page, query, b""), (RESOLVE_PATH, "", body), ("/dumps/2/signatures.ndjson", "", b""),
        ("/signature-database/v1/export", "", b""),
    ):  # fmt: skip
        environ = create_environ(path, asked, method="POST" if sent else "GET", body=sent)
        unread.append(app.client.app(environ, StartResponseMock()))
    for path in (LIST, "/dumps/1/signatures.csv"):
        refused = get(app, path)
        assert (refused.status, "Retry-After" in refused.headers) == (503, True)
    assert get(app, f"{SIGNATURES_PATH}?page_size=1").status == 200
    for answer in unread:
        answer.close()
    assert get(app, LIST).status == 200
