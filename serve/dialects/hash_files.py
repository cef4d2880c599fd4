"""The trees of ethereum-lists/4bytes and topic0, as if they were files. Otterscan reads these.

``/signatures/a9059cbb`` and ``/topic0/<64 hex>`` are the texts of a hash, joined by ``;``. Readers take the first
one, so the texts are in the order of their rank.
"""

from __future__ import annotations

import re

import falcon

from sigdir.serve.http.conditional import not_modified, strong, token_of
from sigdir.serve.http.errors import detail
from sigdir.signatures.collections import Collection
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import Reader

_CACHE_SECONDS = 3600


class HashFileResource:
    """The file of one hash."""

    def __init__(self, collection: Collection, reader: Reader) -> None:
        self._collection = collection
        self._reader = reader
        self._hash = re.compile(f"[0-9a-fA-F]{{{2 * collection.hash_bytes}}}")

    def on_get(self, req: falcon.Request, resp: falcon.Response, hash: str) -> None:
        texts = self._texts(req, hash)
        if not texts:
            raise detail(404, "Not found.", {"Cache-Control": "no-cache"})  # a text may be POSTed at any time
        body = ";".join(texts).encode()
        etag = strong(token_of(body))
        if not not_modified(req, resp, etag, f"public, max-age={_CACHE_SECONDS}"):
            resp.content_type = "text/plain; charset=utf-8"
            resp.data = body

    def _texts(self, req: falcon.Request, hash: str) -> list[str]:
        if not self._hash.fullmatch(hash):
            return []
        req.context.looked_up = [bytes.fromhex(hash)]
        view = self._reader.current()
        return [one.text for one in ranked_rows(view, self._collection, bytes.fromhex(hash))]
