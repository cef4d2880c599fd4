"""The trees of ethereum-lists/4bytes and topic0, as if they were files. Otterscan reads these.

``/signatures/a9059cbb`` and ``/topic0/<64 hex>`` are the texts of a hash, joined by ``;``. Readers take the first
one, so the texts are in the order of their rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import falcon

from sigdir.serve.http.conditional import not_modified, strong, token_of
from sigdir.serve.http.errors import detail
from sigdir.signatures.collections import Collection, parse_hash
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import Reader

_CACHE_SECONDS = 3600


@dataclass
class HashFileResource:
    """The file of one hash."""

    _collection: Collection
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, hash: str) -> None:
        digest = parse_hash(hash) if len(hash) == 2 * self._collection.hash_bytes else None
        req.context.looked_up = [digest] if digest else []
        texts = ranked_rows(self._reader.current(), self._collection, digest) if digest else []
        if not texts:
            raise detail(404, "Not found.", {"Cache-Control": "no-cache"})  # a text may be POSTed at any time
        body = ";".join(one.text for one in texts).encode()
        etag = strong(token_of(body))
        if not not_modified(req, resp, etag, f"public, max-age={_CACHE_SECONDS}"):
            resp.content_type = "text/plain; charset=utf-8"
            resp.data = body
