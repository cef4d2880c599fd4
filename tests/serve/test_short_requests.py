"""Which requests are answered by the thread that read them."""

from __future__ import annotations

import pytest

from sigdir.serve.lists.short_requests import is_short_request
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
