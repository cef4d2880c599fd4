"""The OpenAPI document over HTTP."""

from __future__ import annotations

import falcon

from sigdir.serve.core import openapi
from sigdir.serve.http.conditional import not_modified, weak
from sigdir.serve.http.json_answer import send_json

_CACHE_CONTROL = "public, max-age=3600"


class DocumentResource:
    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        body, token = openapi.rendered()
        if not not_modified(req, resp, weak(f"{token}-json"), _CACHE_CONTROL):
            send_json(req, resp, body)

    on_head = on_get
