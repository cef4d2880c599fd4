"""The cache of rendered pages."""

from __future__ import annotations

from sigdir.serve.http.page_cache import PageCache

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
