"""Which requests are answered by the thread that read them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sigdir.serve.lists.short_requests import is_short_request
from sigdir.warehouse.index.known import known_texts
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths
from tests.conftest import import_files
from tests.serve.support import EVENTS_PATH, SIGNATURES_PATH


@pytest.mark.parametrize(
    ("path", "query", "quick"),
    [
        (SIGNATURES_PATH, "", True),
        (SIGNATURES_PATH, "page=7&ordering=created_at&page_size=100", True),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb", True),
        (SIGNATURES_PATH, "hex_signature=0xa9059c", False),
        (EVENTS_PATH, "hex_signature=0xa9059cbb", False),
        (EVENTS_PATH, f"hex_signature=0x{'ab' * 32}", True),
        (SIGNATURES_PATH, "text_signature=transfer", False),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb&text_signature=transfer", False),
        (SIGNATURES_PATH, "created_at__gt=2020-01-01T00:00:00", True),
        (SIGNATURES_PATH, "page=1&" * 40, False),
        ("/api/v1/resolve/", "", False),
        (SIGNATURES_PATH, "page_size=101", False),
        (SIGNATURES_PATH + "12/", "", False),
    ],
)
def test_quick_is_what_needs_no_scan(path: str, query: str, quick: bool) -> None:
    """The reading thread answers lookups, never scans."""
    assert (
        is_short_request("GET", path, query, "", "")
        is is_short_request("HEAD", path, query, "*/*", "br, gzip;q=0")
        is quick
    )


@pytest.mark.parametrize(
    ("method", "accept", "encodings"),
    [
        ("POST", "", ""),
        ("OPTIONS", "", ""),
        ("GET", "text/html,*/*;q=0.8", ""),
        ("GET", "", "br, gzip"),
        ("GET", "", "zstd"),
    ],
)
def test_quick_is_what_is_only_read_and_sent_as_it_is(method: str, accept: str, encodings: str) -> None:
    """Writing, pages for people and packing go to threads."""
    assert not is_short_request(method, SIGNATURES_PATH, "", accept, encodings)


CALL = "data=0xa9059cbb" + "00" * 64


def test_a_short_call_is_quick_once_its_texts_are_kept(tmp_path: Path) -> None:
    """The reading thread reads no evidence, no code, and no calls inside of calls."""

    def is_quick(query: str, method: str = "GET") -> bool:
        return is_short_request(method, "/api/v1/decode/", query, "", "")

    (tmp_path / "texts.txt").write_text("transfer(address,uint256)")
    import_files([tmp_path / "texts.txt"], tmp_path / "data")
    with closing(Reader(Paths(tmp_path / "data"))) as reader:
        known_texts(reader.current(), bytes.fromhex("01ffc9a7"), Names())  # of this view; what others left is forgotten
        assert not is_quick(CALL)
        for selector in ("a9059cbb", "60806040"):
            known_texts(reader.current(), bytes.fromhex(selector), Names())
        assert is_quick(CALL)
        assert is_quick("data=0xa9059cbb", "HEAD")
        assert not is_quick(CALL, "POST")
        assert not is_quick(CALL + "00" * 32)
        assert not is_quick(CALL + "0")
        assert not is_quick(CALL + "&x=1")
        assert not is_quick("data=0x60806040")
        assert not is_quick("")
