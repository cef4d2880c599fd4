"""The hash-named files, on a real port."""

from __future__ import annotations

import pytest

from tests.serve.support import EVENT, SPAM, TOPIC, TRANSFER, Application, get, post_text, request


def test_a_file_has_the_texts_the_canonical_one_first(app: Application) -> None:
    """Otterscan takes the text before the first semicolon, so spam comes after it although it is older."""
    answer = get(app, "/signatures/a9059cbb")
    assert answer.status == 200
    assert answer.body == f"{TRANSFER};{SPAM}".encode()
    assert answer.header("Content-Type") == "text/plain; charset=utf-8"
    assert get(app, "/signatures/A9059CBB").body == answer.body


def test_a_topic_has_a_file(app: Application) -> None:
    """The file of a topic has one text, because 32 bytes do not collide."""
    assert get(app, f"/topic0/{TOPIC}").body == EVENT.encode()


@pytest.mark.parametrize(
    "path",
    [
        "/signatures/00000001", "/signatures/0xa9059cbb", "/signatures/a9059cb", "/signatures/a9059cbbb",
        "/signatures/a9059cbg", f"/signatures/{TOPIC}", "/topic0/a9059cbb",
        f"/topic0/{TOPIC[:-1]}0", f"/topic0/{TOPIC}/", "/topic0/%C3%A9",
    ],
)  # fmt: skip
def test_any_other_file_is_not_there(app: Application, path: str) -> None:
    """Unknown and malformed hashes are 404, and the answer is not cached."""
    answer = get(app, path)
    assert answer.status == 404
    assert "max-age" not in answer.header("Cache-Control")


def test_a_file_may_be_cached(app: Application) -> None:
    """A file is fresh for an hour. Its ETag depends on its content only: a new row elsewhere leaves it as it is."""
    answer = get(app, "/signatures/a9059cbb")
    assert answer.header("Cache-Control") == "public, max-age=3600"
    tag = answer.header("ETag")
    assert post_text(app, "another(uint256)").status == 201
    again = get(app, "/signatures/a9059cbb", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    head = request(app, "HEAD", "/signatures/a9059cbb")
    assert (head.status, head.header("Content-Length"), head.header("ETag")) == (200, str(len(answer.body)), tag)


def test_a_file_is_there_once_its_text_is(app: Application) -> None:
    """A 404 before the POST is not cached by the server."""
    assert get(app, "/signatures/062637ee").status == 404
    assert post_text(app, "posted(uint8)").json()["hex_signature"] == "0x062637ee"
    assert get(app, "/signatures/062637ee").body == b"posted(uint8)"
