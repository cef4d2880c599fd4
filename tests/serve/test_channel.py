"""How a worker's connections are read, beside what waitress does."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from waitress.parser import ParsingError

from sigdir.serve.lists.short_requests import is_short_request
from sigdir.serve.servers.channel import _split_any, split_uri
from tests.serve.support import EVENTS_PATH, SIGNATURES_PATH

_BYTES = b"/?#%:@[]a1\t\x01\x7f\xff;&=.\\ "


@given(st.lists(st.sampled_from([_BYTES[k : k + 1] for k in range(len(_BYTES))]), min_size=1).map(b"".join))
@example(b"/api/v1/signatures/?page=2#end")
@example(b"//host/path?query")
@example(b"http://host:1/path?query#fragment")
@example(b"/a%20b?c%20d")
@example(b"*")
def test_an_address_is_cut_as_waitress_cuts_it(uri: bytes) -> None:
    """Every address gives the same five parts, or the same refusal."""

    def cut(split: object) -> object:
        try:
            return split(uri)  # type: ignore[operator]
        except (ParsingError, ValueError) as error:
            return type(error)

    assert cut(split_uri) == cut(_split_any)


@pytest.mark.parametrize(
    ("path", "query", "quick"),
    [
        (SIGNATURES_PATH, "", True),
        (SIGNATURES_PATH, "page=7&ordering=created_at&page_size=1000", True),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb", True),
        (SIGNATURES_PATH, "hex_signature=0xa9059c", False),
        (EVENTS_PATH, "hex_signature=0xa9059cbb", False),
        (EVENTS_PATH, f"hex_signature=0x{'ab' * 32}", True),
        (SIGNATURES_PATH, "text_signature=transfer", False),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb&text_signature=transfer", False),
        (SIGNATURES_PATH, "created_at__gt=2020-01-01T00:00:00", True),
        (SIGNATURES_PATH, "page=1&" * 40, False),
        ("/api/v1/resolve/", "", False),
        (SIGNATURES_PATH + "12/", "", False),
    ],
)
def test_quick_is_what_needs_no_scan(path: str, query: str, quick: bool) -> None:
    """What the reading thread answers itself is looked up, never searched for."""
    assert (
        is_short_request("GET", path, query, "", "")
        is is_short_request("HEAD", path, query, "*/*", "identity")
        is quick
    )


@pytest.mark.parametrize(
    ("method", "accept", "encodings"),
    [("POST", "", ""), ("OPTIONS", "", ""), ("GET", "text/html,*/*;q=0.8", ""), ("GET", "", "br, gzip")],
)
def test_quick_is_what_is_only_read_and_sent_as_it_is(method: str, accept: str, encodings: str) -> None:
    """Writing, a page for people, packing: for threads."""
    assert not is_short_request(method, SIGNATURES_PATH, "", accept, encodings)
