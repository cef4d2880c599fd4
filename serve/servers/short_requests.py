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
from sigdir.serve.lists.query import DEFAULT_PAGE_SIZE, Query, parse
from sigdir.serve.lists.selection import needs_scan
from sigdir.signatures.collections import Collection
from sigdir.signatures.decode_input import is_code
from sigdir.warehouse.index.view import Reader, View

IsShort = Callable[[str, str, str, str, str], bool]
"""Takes method, path, query string, Accept and Accept-Encoding, each "" if it is missing."""

_LIST = re.compile("/api/v1/((?:event-)?signatures)/")
_FILES = "/assets/"
_DECODE = "/api/v1/decode/"
_SHORT_CALL = re.compile(
    "data=0x([0-9a-f]{8}(?:[0-9a-f]{64}){0,2})(?:&chain=[1-9][0-9]{0,9}&to=0x[0-9a-f]{40})?"
)  # too short to hold another call
_SHORT_RETURN = re.compile("data=0x(?:[0-9a-f]{64}){0,2}&as=return&selector=0x[0-9a-f]{8}")
_RESOLVE = "/api/v1/resolve/"


@dataclass
class ShortRequests:
    """Tells the requests whose answer takes less time than handing them to another thread.

    A few of them take longer all the same, as where the order of a hash's texts is not known yet: their answer stops with
    ``TakesLong``.

    A page of a list that needs no scan, no packing and no HTML: 30 us, whatever the number of all rows.
    A lookup of whole hashes: 25 us. Its answer is too small to be packed, but for hashes with many texts.
    A few hashes, looked up in OpenChain's dialect, or one to resolve: 25 us.
    A call of two words: 80 us; two words that a call returned.
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
            return _is_short_list(
                parse(query_string, is_ranked=self.rank_lists), Collection.of_name(match[1]), encodings
            )
        if path == _RESOLVE:
            return ONE_HASH.fullmatch(query_string) is not None
        return path in LOOKUP_PATHS or (path == _DECODE and _is_short_input(query_string))

    def _view(self) -> View | None:
        try:
            return self._reader.current()
        except Exception:  # noqa: BLE001 - the thread that answers meets it again, and reports it
            return None


def _is_short_list(query: Query, collection: Collection, encodings: str) -> bool:
    # A page of more rows may be a stream, which waits for its client.
    if query.page_size > DEFAULT_PAGE_SIZE or needs_scan(query.filter, collection):
        return False
    is_lookup = query.filter is not None and query.filter.is_lookup(collection.hash_bytes)
    return is_lookup or not coding_for(encodings)


def _is_short_input(query_string: str) -> bool:
    if call := _SHORT_CALL.fullmatch(query_string):
        return not is_code(bytes.fromhex(call[1]))
    return _SHORT_RETURN.fullmatch(query_string) is not None
