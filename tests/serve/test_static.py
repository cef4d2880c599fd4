"""The trees of text files, on a real port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import import_files
from tests.serve.support import (
    Server,
    get,
    post_text,
    request,
    serving,
)

TOPIC = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("static")
    texts = folder / "texts.txt"
    # The spam came first.
    texts.write_text("many_msg_babbage(bytes1)\ntransfer(address,uint256)\nevent Transfer(address,address,uint256)\n")
    import_files([texts], folder / "warehouse")
    with serving(folder / "warehouse", workers=1) as running:
        yield running
        assert running.errors() == []


def test_a_file_has_the_texts_the_canonical_one_first(server: Server) -> None:
    """Otterscan takes what stands before the first semicolon, so it must be no spam."""
    answer = get(server.port, "/signatures/a9059cbb")
    assert answer.status == 200
    assert answer.body == b"transfer(address,uint256);many_msg_babbage(bytes1)"
    assert answer.header("Content-Type") == "text/plain; charset=utf-8"
    assert get(server.port, "/signatures/A9059CBB").body == answer.body


def test_a_topic_has_a_file(server: Server) -> None:
    """One text: nobody finds a second one of 32 bytes."""
    assert get(server.port, f"/topic0/{TOPIC}").body == b"Transfer(address,address,uint256)"


@pytest.mark.parametrize(
    "path",
    [
        "/signatures/00000001", "/signatures/0xa9059cbb", "/signatures/a9059cb", "/signatures/a9059cbbb",
        "/signatures/a9059cbg", "/signatures/", "/signatures", f"/signatures/{TOPIC}", "/topic0/a9059cbb",
        f"/topic0/{TOPIC[:-1]}0", f"/topic0/{TOPIC}/", "/topic0/%C3%A9",
    ],
)  # fmt: skip
def test_any_other_file_is_not_there(server: Server, path: str) -> None:
    """404, as of a folder of files."""
    answer = get(server.port, path)
    assert answer.status == 404
    assert "max-age" not in answer.header("Cache-Control")


def test_a_file_may_be_kept(server: Server) -> None:
    """For an hour, and asked for again by its tag, which is the content's own."""
    answer = get(server.port, "/signatures/a9059cbb")
    assert answer.header("Cache-Control") == "public, max-age=3600"
    tag = answer.header("ETag")
    assert post_text(server.port, "another(uint256)").status == 201
    again = get(server.port, "/signatures/a9059cbb", {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    head = request(server.port, "HEAD", "/signatures/a9059cbb")
    assert (head.status, head.header("Content-Length"), head.header("ETag")) == (200, str(len(answer.body)), tag)


def test_a_file_is_there_once_its_text_is(server: Server) -> None:
    """An early miss is not remembered."""
    assert get(server.port, "/signatures/062637ee").status == 404
    assert post_text(server.port, "posted(uint8)").json()["hex_signature"] == "0x062637ee"
    assert get(server.port, "/signatures/062637ee").body == b"posted(uint8)"


def test_pages_of_other_origins_may_ask(server: Server) -> None:
    """An explorer runs in a browser."""
    origin = {"Origin": "http://explorer.test"}
    for path in ("/signatures/a9059cbb", "/signatures/00000001", f"/topic0/{TOPIC}"):
        assert get(server.port, path, origin).header("Access-Control-Allow-Origin") == "*"
        preflight = request(server.port, "OPTIONS", path, headers=origin | {"Access-Control-Request-Method": "GET"})
        assert preflight.header("Access-Control-Allow-Methods") == "GET, POST, OPTIONS"
