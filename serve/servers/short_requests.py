"""Which requests a server answers at once, without handing them to another thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sigdir.serve.bulk.resolve import ONE_HASH
from sigdir.serve.core.budget import FREE_BYTES
from sigdir.serve.dialects.openchain import LOOKUP_PATHS
from sigdir.serve.http.negotiate import coding_for
from sigdir.serve.http.page_cache import ANY_VIEW, PageCache
from sigdir.serve.lists.query import DEFAULT_PAGE_SIZE, parse
from sigdir.serve.lists.selection import needs_scan
from sigdir.signatures.abi_decoder import SELECTOR_BYTES
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.decode_input import is_code
from sigdir.warehouse.index.ranked import are_returns_known, is_contract_known, is_order_known
from sigdir.warehouse.index.view import Reader, View

IsShort = Callable[[str, str, str, str, str], bool]
"""Takes method, path, query string, Accept and Accept-Encoding, each "" if it is missing."""

_LIST = re.compile("/api/v1/((?:event-)?signatures)/")
_FILES = "/assets/"
_DECODE = "/api/v1/decode/"
_SHORT_CALL = re.compile(
    "data=0x([0-9a-f]{8}(?:[0-9a-f]{64}){0,2})(?:&chain=([1-9][0-9]{0,9})&to=0x([0-9a-f]{40}))?"
)  # too short to hold another call
_SHORT_RETURN = re.compile("data=0x(?:[0-9a-f]{64}){0,2}&as=return&selector=0x([0-9a-f]{8})")
_RESOLVE = "/api/v1/resolve/"
_HASH = re.compile("0x([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")
_ESCAPES = re.compile("[%+]")


@dataclass
class ShortRequests:
    """Tells the requests whose answer takes less time than handing them to another thread.

    A page of a list that needs no scan, no packing and no HTML: 30 us, whatever the number of all rows.
    A lookup of whole hashes: 25 us. Its answer is too small to be packed, but for hashes with many texts. Where it is
    ranked, the order of these must be known.
    A few hashes, looked up in OpenChain's dialect, or one to resolve: 25 us. Where a hash has several texts, the order of
    these must be known; to find it out takes up to a second.
    A call of two words, where the order of its selector's texts is known: 80 us; two words that a call returned, where the
    declarations of its selector are known.
    A page for people that is kept, or a file of it: 10 us, and 20 to pack it. To render one takes 200 us and more. A range
    that is kept: 30 us; to make one takes 1 to 3 ms.
    """

    _reader: Reader
    _pages: PageCache
    rank_lists: bool = False

    def __call__(self, method: str, path: str, query_string: str, accept: str, encodings: str) -> bool:
        if method not in ("GET", "HEAD") or len(query_string) > FREE_BYTES:
            return False
        if path.startswith(_FILES):
            return True
        view = self._view()
        if view is None:
            return False
        address = f"{path}?{query_string}"
        if self._pages.holds(view.token, address) or self._pages.holds(ANY_VIEW, address):
            return True
        if "html" in accept:
            return False
        if match := _LIST.fullmatch(path):
            return self._is_short_list(view, query_string, Collection.of_name(match[1]), encodings)
        if path in LOOKUP_PATHS:
            return not _ESCAPES.search(query_string) and _are_ordered(view, query_string)
        if path == _RESOLVE:
            return ONE_HASH.fullmatch(query_string) is not None and _are_ordered(view, query_string)
        return path == _DECODE and _is_short_call(view, query_string)

    def _is_short_list(self, view: View, query_string: str, collection: Collection, encodings: str) -> bool:
        query = parse(query_string, is_ranked=self.rank_lists)
        # A page of more rows may be a stream, which waits for its client.
        if query.page_size > DEFAULT_PAGE_SIZE or needs_scan(query.filter, collection):
            return False
        if query.filter is None or not query.filter.is_lookup(collection.hash_bytes):
            return not coding_for(encodings)
        hashes = query.filter.looked_up(collection.hash_bytes) if self.rank_lists else ()
        return all(is_order_known(view, collection, hash) for hash in hashes)

    def _view(self) -> View | None:
        try:
            return self._reader.current()
        except Exception:  # noqa: BLE001 - the thread that answers meets it again, and reports it
            return None


def _are_ordered(view: View, query_string: str) -> bool:
    """Whether the order of the texts is known for each hash in a query."""
    hashes = map(bytes.fromhex, _HASH.findall(query_string))
    return all(is_order_known(view, Collection.of_hash(hash), hash) for hash in hashes)


def _is_short_call(view: View, query_string: str) -> bool:
    match = _SHORT_CALL.fullmatch(query_string)
    if not match:
        returned = _SHORT_RETURN.fullmatch(query_string)
        return returned is not None and are_returns_known(view, bytes.fromhex(returned[1]))
    data = bytes.fromhex(match[1])
    if match[2] is not None and not is_contract_known(view, int(match[2]), bytes.fromhex(match[3])):
        return False
    return is_order_known(view, SIGNATURES, data[:SELECTOR_BYTES]) and not is_code(data)
