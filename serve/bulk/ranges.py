"""Private ranges: all texts whose hashes begin with three hex digits, as a pack, so that nobody tells which one is wanted.

The short address leads to that of the newest version, whose answer never changes. ``padded=1`` gives many ranges one
size, because sizes would tell them apart to whoever sees the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from sigdir.serve.http.conditional import not_modified, strong, token_of
from sigdir.serve.http.errors import detail, not_found
from sigdir.serve.http.page_cache import ANY_VIEW, PageCache
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.pack_texts import DIGITS, PackRow, is_prefix, range_bytes
from sigdir.warehouse.index.ranked import ranked_range
from sigdir.warehouse.index.view import Reader, View

PACK = "application/vnd.sigpack"
MAX_TEXTS = 20_000
"""Of a range, which is reached at 80 million texts. They take 0.4 s to order."""
_NEWEST_SECONDS = 60
_FOREVER = "public, max-age=31536000, immutable"
_LENGTH = (
    f"{DIGITS} hex digits, please: the first of a selector or a topic. With more of them the server would learn "
    "which text is wanted, fewer are too much to send."
)


@dataclass
class RangeResource:
    """A range of the newest version by a redirect, or by the name of its version itself."""

    may_be_short = True

    _reader: Reader
    _cache: PageCache

    def on_get(
        self, req: falcon.Request, resp: falcon.Response, collection: str, prefix: str, edition: str = ""
    ) -> None:
        if collection not in COLLECTIONS:
            raise not_found()
        if not is_prefix(prefix):
            raise detail(400, _LENGTH)
        view = self._reader.current()
        newest, wanted = _edition(view), req.get_param("padded", default="")
        query = "" if wanted in ("", "0", "false") else "padded=1"
        place = f"/range/{collection}/{prefix.lower()}/{newest}"
        if req.path != place:
            resp.status, resp.location = falcon.HTTP_302, f"{place}?{query}".rstrip("?")
            resp.set_header("Cache-Control", f"public, max-age={_NEWEST_SECONDS}")
            return
        body = self._cache.get(req, ANY_VIEW, f"{place}?{query}")
        if body is None:
            body = _range(view, Collection.of_name(collection), prefix, is_padded=bool(query))
            self._cache.put(ANY_VIEW, f"{place}?{query}", body)
        if not not_modified(req, resp, strong(token_of(body)), _FOREVER):
            resp.content_type, resp.data = PACK, body


def _range(view: View, collection: Collection, prefix: str, *, is_padded: bool) -> bytes:
    rows = ranked_range(view, collection, int(prefix, 16), DIGITS, MAX_TEXTS)
    if rows is None:
        raise detail(404, f"This range has more than {MAX_TEXTS:,} texts. Take a dump or a pack.")
    texts = [PackRow(row.text, row.position) for row in rows]
    return range_bytes(collection, max(view.snapshot.version, 0), texts, padded=is_padded)


def _edition(view: View) -> str:
    """What the files of a view are named by: the version, and the list of what is suppressed where there is one."""
    hidden = f".{view.suppressed.id}" if view.suppressed else ""
    return f"{max(view.snapshot.version, 0)}{hidden}"
