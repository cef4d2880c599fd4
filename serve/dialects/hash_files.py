"""The trees of ethereum-lists/4bytes and topic0, as if they were files: Otterscan reads these.

``/signatures/a9059cbb`` and ``/topic0/<64 hex>`` are the texts joined by ``;``. Readers take the first one,
so what is not filtered comes first, then what is oldest.
"""

from __future__ import annotations

import hashlib
import re

import falcon

from sigdir.serve.http.errors import HttpError, not_found
from sigdir.serve.lists import texts_with
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.view import Reader

_CACHED_SECONDS = 3600


def routes(settings: Settings, reader: Reader, writer: Writer) -> list[tuple[str, object]]:
    return [
        ("/signatures/{hash}", FileResource(SIGNATURES, reader)),
        ("/topic0/{hash}", FileResource(EVENT_SIGNATURES, reader)),
    ]


class FileResource:
    """The file of one hash."""

    def __init__(self, collection: Collection, reader: Reader) -> None:
        self._collection = collection
        self._reader = reader
        self._hash = re.compile(f"[0-9a-fA-F]{{{2 * collection.hash_bytes}}}")

    def on_get(self, req: falcon.Request, resp: falcon.Response, hash: str) -> None:
        texts = self._texts(hash)
        if not texts:
            raise HttpError(404, not_found().body, {"Cache-Control": "no-cache"})  # it may come any moment
        body = ";".join(texts).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        resp.set_header("ETag", tag)
        resp.set_header("Cache-Control", f"public, max-age={_CACHED_SECONDS}")
        if tag in (req.get_header("If-None-Match") or ""):
            resp.status = falcon.HTTP_304
            return
        resp.content_type = "text/plain; charset=utf-8"
        resp.data = body

    on_head = on_get

    def _texts(self, hash: str) -> list[str]:
        if not self._hash.fullmatch(hash):
            return []
        digest = bytes.fromhex(hash)
        texts = texts_with(self._reader.current(), self._collection, digest)
        return sorted(texts, key=lambda text: is_filtered(digest, text))
