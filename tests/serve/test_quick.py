"""What is answered at once: requests that the thread that read them answers, and pages that are kept."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from falcon.testing import TestClient, create_req

from sigdir.serve.http.answers import http_error_of
from sigdir.serve.http.caching import PageCache
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index import view as index_view
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, TakesLong, View, short_only
from sigdir.warehouse.index.visible import change_list
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.suppressed import entries_of
from tests.conftest import SAFETY_SECONDS, import_lines
from tests.serve.support import EVENTS_PATH, SIGNATURES_PATH, application, post_text

RESOLVE_PATH, LOOKUP_PATH = "/api/v1/resolve/", "/signature-database/v1/lookup"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse in which transfer's selector has two texts."""
    texts = ("transfer(address,uint256)", "many_msg_babbage(bytes1)", "deposit()")
    return import_lines(tmp_path_factory.mktemp("short") / "data", *texts)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with application(folder) as app:
        yield app.client


def is_short(
    client: TestClient, path: str, query: str = "", accept: str = "*/*", encodings: str = "", tags: str = ""
) -> bool:
    """Whether the thread that reads a request answers it too."""
    headers = {"Accept": accept, "Accept-Encoding": encodings, "If-None-Match": tags}
    try:
        with short_only():
            client.simulate_get(path, query_string=query, headers=headers)
    except TakesLong:
        return False
    return True


@pytest.mark.parametrize(
    ("path", "query", "quick"),
    [
        (SIGNATURES_PATH, "page=7&ordering=created_at&page_size=100", True),
        (SIGNATURES_PATH, "page_size=101", False),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb", True),
        (SIGNATURES_PATH, "hex_signature=0xa9059c", False),
        (EVENTS_PATH, "hex_signature=0xa9059cbb", False),
        (SIGNATURES_PATH, "hex_signature=0xa9059cbb&text_signature=transfer", False),
        (SIGNATURES_PATH, "created_at__gt=2020-01-01T00:00:00", True),
        (SIGNATURES_PATH + "1/", "", True),
        (SIGNATURES_PATH + "1/evidence/", "", False),
        (RESOLVE_PATH, "hash=0xa9059cbb", True),
        (RESOLVE_PATH, "hash=0xd0e30db0&full=1", False),
        (RESOLVE_PATH, "hash=0xd0e30db0,0xd0e30db0", False),
        (LOOKUP_PATH, "filter=false&function=0xd0e30db0%2C0xD0E30DB1,0xa9059cbb&event=", True),
        ("/api/v1/signatures", "function=0xd0e30db0&all", True),
        ("/signature-database/v1/search", "query=transfer", False),
        ("/dumps/", "", False),
    ],
)
def test_quick_is_what_needs_no_scan(client: TestClient, path: str, query: str, quick: bool) -> None:
    """The reading thread answers lookups and never scans. Packed or not: that takes less time than another thread."""
    if quick:
        client.simulate_get(path, query_string=query)  # what it needs is kept from now on
    assert is_short(client, path, query) is is_short(client, path, query, "application/json", "gzip, zstd") is quick


def test_a_ranked_lookup_scans_nothing(folder: Path) -> None:
    with application(folder, rank_lists=True) as app:
        client = app.client
        assert is_short(client, SIGNATURES_PATH)
        assert is_short(client, SIGNATURES_PATH, "hex_signature=d0e30db0", encodings="gzip")
        assert is_short(client, SIGNATURES_PATH, "hex_signature__in=d0e30db0,00000001&filter=false")
        assert not is_short(client, SIGNATURES_PATH, "hex_signature=a9059cbb")
        client.simulate_get(SIGNATURES_PATH, query_string="hex_signature=a9059cbb")
        assert is_short(client, SIGNATURES_PATH, "hex_signature=a9059cbb", encodings="gzip")
        assert not is_short(client, SIGNATURES_PATH, "hex_signature=d0e30d")


@pytest.mark.parametrize("change", ["import", "suppress list"])
def test_to_load_a_version_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """It maps files, and other threads may wait for it."""
    monkeypatch.setattr(index_view, "_LOOK_SECONDS", -1)
    warehouse = import_lines(tmp_path / "data", "transfer(address,uint256)", "deposit()")
    with closing(Reader(Paths(warehouse))) as reader:
        if change == "import":
            import_lines(warehouse, "withdraw()")
        else:
            change_list(reader.paths, add=entries_of("deposit()"))
        for _ in range(2):
            with short_only(), pytest.raises(TakesLong):
                reader.current()
        assert reader.current().count(SIGNATURES) == (3 if change == "import" else 1)
        with short_only():
            reader.current()


def test_nobody_waits_for_another_thread_that_loads_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = import_lines(tmp_path / "data", "deposit()")
    loads, goes_on = Event(), Event()

    def slowly(*arguments: Any) -> Segment:
        loads.set()
        goes_on.wait(SAFETY_SECONDS)
        return segment_of(*arguments)

    with closing(Reader(Paths(warehouse))) as reader, ThreadPoolExecutor(1) as other:
        import_lines(warehouse, "withdraw()")
        monkeypatch.setattr(index_view, "segment_of", slowly)
        loaded = other.submit(reader.current)
        assert loads.wait(SAFETY_SECONDS)
        try:
            with short_only(), pytest.raises(TakesLong):
                reader.current()
        finally:
            goes_on.set()
        assert loaded.result().count(SIGNATURES) == 2


CALL = "data=0xa9059cbb" + "00" * 64


def test_pages_for_people_are_rendered_by_threads(client: TestClient) -> None:
    """And so are errors; a page that is kept is sent at once, packed or not."""
    html = "text/html,*/*;q=0.8"
    assert not is_short(client, SIGNATURES_PATH, "", html)
    assert not is_short(client, SIGNATURES_PATH, "hex_signature=0xd0e30db0", html)
    assert not is_short(client, "/nothing/", "", html)
    assert not is_short(client, "/search/", "q=transfer", html)
    client.simulate_get("/search/", query_string="q=transfer")
    assert is_short(client, "/search/", "q=transfer", html, "gzip")
    assert not is_short(client, "/search/", "q=deposit", html, "gzip")
    assert not is_short(client, "/docs/", "", html)
    assert is_short(client, "/assets/site-0123.css", encodings="gzip")


def test_an_error_is_logged_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the thread that answers with it, on one line, whatever the path has."""

    def fails(_: Reader) -> View:
        raise UnreadableWarehouse("damaged")

    monkeypatch.setattr(Reader, "current", fails)
    html = "text/html,*/*;q=0.8"
    assert not is_short(client, "/search/", "q=transfer", html)
    assert client.simulate_get("/search/", query_string="q=transfer", headers={"Accept": html}).status_code == 503
    assert capsys.readouterr().err == "error: GET /search/: UnreadableWarehouse: damaged\n"
    assert client.simulate_get("/browse/%0Aerror:%1B/").status_code == 503
    assert capsys.readouterr().err == "error: GET /browse/ error:\\u001b/: UnreadableWarehouse: damaged\n"
    assert [http_error_of(OSError(number, "")).status for number in (errno.ENOMEM, errno.EIO)] == [413, 503]


def test_what_takes_long_to_pack_is_not_short(tmp_path: Path) -> None:
    """Of a page the length of its texts decides."""
    with application(tmp_path / "data") as app:
        for number in range(3):
            assert post_text(app, f"f{number}({'uint256,' * 5000}uint256)").status == 201
        query = "page_size=3&created_at__gt=2020-01-01T00:00:00"
        assert is_short(app.client, SIGNATURES_PATH, query)
        assert not is_short(app.client, SIGNATURES_PATH, query, encodings="gzip")


def test_to_render_many_long_texts_takes_long(warehouse: Path) -> None:
    """Of one hash, of several, or of a page that is not kept yet. One text has 64 KB at most."""
    texts = [f"f{number}({'uint256,' * 8000}uint256)" for number in range(5)]
    hashes = ["0x" + keccak256(text.encode())[:4].hex() for text in texts]
    with application(import_lines(warehouse, *texts), rank_lists=True) as app:
        client = app.client
        assert is_short(client, SIGNATURES_PATH, f"hex_signature={hashes[0]}")
        assert not is_short(client, SIGNATURES_PATH, f"hex_signature__in={','.join(hashes)}")
        assert not is_short(client, SIGNATURES_PATH)
        assert is_short(client, LOOKUP_PATH, f"function={hashes[0]}")
        assert not is_short(client, LOOKUP_PATH, f"function={','.join(hashes)}")


@pytest.mark.parametrize("query", ["", "hex_signature=0xd0e30db0"])
def test_many_etags_take_long_to_compare(client: TestClient, query: str) -> None:
    assert is_short(client, SIGNATURES_PATH, query, tags="," * 10)
    assert not is_short(client, SIGNATURES_PATH, query, tags="," * 2000)


@pytest.mark.parametrize(
    ("query", "quick"),
    [
        (CALL, True),
        (f"{CALL}&chain=1&to=0x{'ab' * 20}", True),
        (CALL + "00" * 32, False),
        (CALL + "&x=1", False),
        ("data=0x60806040", False),
        (f"data=0x{'00' * 64}&as=return&selector=0xa9059cbb", True),
        (f"data=0x{'00' * 96}&as=return&selector=0xa9059cbb", False),
    ],
)
def test_two_words_are_quick(client: TestClient, query: str, quick: bool) -> None:
    """The reading thread reads no code, and no calls inside of calls."""
    if quick:
        client.simulate_get("/api/v1/decode/", query_string=query)
    assert is_short(client, "/api/v1/decode/", query) is quick


def test_a_decoding_is_not_short_until_its_texts_are_kept(folder: Path) -> None:
    """The texts of a selector may need the names of all texts, and row groups of evidence."""
    with application(folder) as app:
        for query in (CALL, f"{CALL}&chain=1&to=0x{'ab' * 20}"):
            assert not is_short(app.client, "/api/v1/decode/", query)
            app.client.simulate_get("/api/v1/decode/", query_string=query)
            assert is_short(app.client, "/api/v1/decode/", query)


REQUEST = create_req()
LIMIT = 1 << 20


def kept(cache: PageCache, addresses: list[str]) -> list[str]:
    return [address for address in addresses if cache.get(REQUEST, "view", address) is not None]


def test_addresses_count_too() -> None:
    """Small answers to long addresses do not take more memory than the limit; the newest are kept."""
    cache = PageCache(LIMIT)
    addresses = [f"{number:010}" + "a" * 10_000 for number in range(500)]
    for address in addresses:
        cache.put("view", address, b"{}")
        cache.put("view", address, b"{} ")
    found = kept(cache, addresses)
    assert LIMIT // 2 < sum(map(len, found)) <= LIMIT
    assert found == addresses[-len(found) :]


def test_a_page_of_another_view_or_over_a_sixteenth_is_not_there() -> None:
    cache = PageCache(LIMIT)
    cache.put("view", "/", b"page")
    cache.put("view", "/long", bytes(LIMIT // 16))
    assert cache.get(REQUEST, "view", "/") == b"page"
    assert cache.get(REQUEST, "later view", "/") is None
    assert cache.get(REQUEST, "view", "/long") is None
