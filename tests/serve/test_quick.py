"""What is answered at once: requests that the thread that read them answers, and pages that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sigdir.serve.http.page_cache import PageCache
from sigdir.serve.servers.short_requests import ShortRequests
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.ranked import known_returns, known_texts, ranked_rows
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.serve.support import EVENTS_PATH, SIGNATURES_PATH

RESOLVE_PATH, LOOKUP_PATH = "/api/v1/resolve/", "/signature-database/v1/lookup"


NO_PAGES = PageCache(1 << 20, lambda _: None)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A warehouse in which transfer's selector has two texts and deposit's has one."""
    texts = ("transfer(address,uint256)", "many_msg_babbage(bytes1)", "deposit()")
    with closing(Reader(Paths(import_lines(tmp_path_factory.mktemp("short") / "data", *texts)))) as reader:
        yield reader


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
        (RESOLVE_PATH, "", False),
        (RESOLVE_PATH, "hash=0xd0e30db0", True),
        (RESOLVE_PATH, f"hash=0x{'AB' * 32}", True),
        (RESOLVE_PATH, "hash=0xd0e30db0&full=1", False),
        (RESOLVE_PATH, "hash=0xd0e30db0,0xd0e30db0", False),
        (LOOKUP_PATH, "function=0xd0e30db0", True),
        (LOOKUP_PATH, "filter=false&function=0xd0e30db0,0xD0E30DB1&event=", True),
        (LOOKUP_PATH, "function=0xd0e30db0%2C0xa9059cbb", False),
        (LOOKUP_PATH, "function=0xd0e30db0,0xa9059cbb", False),
        (LOOKUP_PATH, "function=" + ",".join(["0xd0e30db0"] * 20), False),
        ("/api/v1/signatures", "function=0xd0e30db0&all", True),
        ("/signature-database/v1/search", "query=transfer", False),
        (SIGNATURES_PATH, "page_size=101", False),
        (SIGNATURES_PATH + "12/", "", False),
    ],
)
def test_quick_is_what_needs_no_scan(reader: Reader, path: str, query: str, quick: bool) -> None:
    """The reading thread answers lookups, never scans, and ranks no texts."""
    is_short = ShortRequests(reader, NO_PAGES)
    assert is_short("GET", path, query, "", "") is is_short("HEAD", path, query, "*/*", "br, gzip;q=0") is quick


def test_a_hash_with_several_texts_is_quick_once_their_order_is_known(reader: Reader) -> None:
    """The names of all texts may be needed for it. The order that is kept is the one that was found."""
    view, transfer = reader.refreshed(), bytes.fromhex("a9059cbb")
    is_short = ShortRequests(reader, NO_PAGES)
    ordered = ranked_rows(view, SIGNATURES, transfer)
    assert [row.segment.text_at(row.row) for row in ordered] == [
        "transfer(address,uint256)",
        "many_msg_babbage(bytes1)",
    ]
    assert is_short("GET", LOOKUP_PATH, "function=0xd0e30db0,0xa9059cbb", "", "")
    assert is_short("GET", RESOLVE_PATH, "hash=0xa9059cbb", "", "")
    assert ranked_rows(view, SIGNATURES, transfer) == ordered


def test_a_ranked_lookup_is_quick_once_its_order_is_known(reader: Reader) -> None:
    """The names of all texts may be needed for it, as in OpenChain's dialect."""
    view, query = reader.refreshed(), "hex_signature=a9059cbb"
    view.found.clear()
    is_short = ShortRequests(reader, NO_PAGES, rank_lists=True)
    assert is_short("GET", SIGNATURES_PATH, "hex_signature=d0e30db0", "", "gzip")
    assert is_short("GET", SIGNATURES_PATH, "hex_signature__in=d0e30db0,00000001", "", "")
    assert not is_short("GET", SIGNATURES_PATH, query, "", "")
    ranked_rows(view, SIGNATURES, bytes.fromhex("a9059cbb"))
    assert is_short("GET", SIGNATURES_PATH, query, "", "gzip")


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
def test_quick_is_what_is_only_read_and_sent_as_it_is(reader: Reader, method: str, accept: str, encodings: str) -> None:
    """Writing, rendering for people and packing go to threads. A lookup of hashes is too small to be packed."""
    is_short = ShortRequests(reader, NO_PAGES)
    assert not is_short(method, SIGNATURES_PATH, "", accept, encodings)
    assert is_short(method, SIGNATURES_PATH, "hex_signature=0xa9059cbb", accept, encodings) is bool(encodings)
    assert is_short(method, RESOLVE_PATH, "hash=0xd0e30db0", accept, encodings) is bool(encodings)


def test_a_page_is_quick_while_it_is_kept(reader: Reader) -> None:
    """Pages for people are rendered in threads, and kept pages sent at once, packed or not."""
    pages = PageCache(1 << 20, lambda _: None)
    is_short = ShortRequests(reader, pages)
    pages.put(reader.current().token, "/search/?q=transfer", b"page")
    pages.put("another view's", "/browse/?", b"page")
    assert is_short("GET", "/search/", "q=transfer", "text/html", "gzip")
    assert not is_short("GET", "/search/", "q=deposit", "text/html", "gzip")
    assert not is_short("GET", "/browse/", "", "text/html", "")
    assert not is_short("POST", "/search/", "q=transfer", "text/html", "")
    assert is_short("GET", "/assets/site-0123.css", "", "", "gzip")


CALL = "data=0xa9059cbb" + "00" * 64


def test_a_short_call_is_quick_once_its_texts_are_kept(reader: Reader) -> None:
    """The reading thread reads no evidence, no code, and no calls inside of calls."""

    def is_quick(query: str, method: str = "GET") -> bool:
        return ShortRequests(reader, NO_PAGES)(method, "/api/v1/decode/", query, "", "")

    view = reader.refreshed()
    known_texts(view, bytes.fromhex("01ffc9a7"))  # of this view; what others left is forgotten
    assert not is_quick(CALL)
    for selector in ("a9059cbb", "60806040"):
        known_texts(view, bytes.fromhex(selector))
    assert is_quick(CALL)
    assert is_quick("data=0xa9059cbb", "HEAD")
    assert not is_quick(CALL, "POST")
    assert not is_quick(CALL + "00" * 32)
    assert not is_quick(CALL + "0")
    assert not is_quick(CALL + "&x=1")
    assert not is_quick("data=0x60806040")
    assert not is_quick("")


def test_two_words_that_a_call_returned_are_quick_once_their_declarations_are_kept(reader: Reader) -> None:
    """The reading thread reads no evidence."""
    view, query = reader.refreshed(), f"data=0x{'00' * 64}&as=return&selector=0xa9059cbb"
    view.found.clear()
    is_short = ShortRequests(reader, NO_PAGES)
    assert not is_short("GET", "/api/v1/decode/", query, "", "")
    known_returns(view, bytes.fromhex("a9059cbb"))
    assert is_short("GET", "/api/v1/decode/", query, "", "")
    assert not is_short("GET", "/api/v1/decode/", query.replace("0x", "0x" + "00" * 32, 1), "", "")


LIMIT = 1 << 20


def kept(cache: PageCache, addresses: list[str]) -> list[str]:
    return [address for address in addresses if cache.get("view", address) is not None]


def test_addresses_count_too() -> None:
    """Small answers to long addresses do not take more memory than the limit; the newest are kept."""
    cache = PageCache(LIMIT, lambda _: None)
    addresses = [f"{number:010}" + "a" * 10_000 for number in range(500)]
    for address in addresses:
        cache.put("view", address, b"{}")
        cache.put("view", address, b"{} ")
    found = kept(cache, addresses)
    assert LIMIT // 2 < sum(map(len, found)) <= LIMIT
    assert found == addresses[-len(found) :]


def test_a_page_of_another_view_or_over_a_sixteenth_is_not_there() -> None:
    cache = PageCache(LIMIT, lambda _: None)
    cache.put("view", "/", b"page")
    cache.put("view", "/long", bytes(LIMIT // 16))
    assert cache.get("view", "/") == b"page"
    assert cache.get("later view", "/") is None
    assert cache.get("view", "/long") is None
