"""``/llms.txt``: what an agent can ask this server for, in a form that agents look for."""

from __future__ import annotations

import falcon

_TEXT = """\
# Signature directory

> Texts of Ethereum function selectors, error selectors and event topics, in the order of their evidence, with reasons.

A selector has 4 bytes, so several texts may have it. The first one is meant most probably; `reasons` say why. A selector
without a text is unknown: do not guess its name.

## Ask

- [Texts of hashes](/api/v1/resolve/?hash=0xa9059cbb&full=1): selectors and topics, separated by commas
- [Decode](/api/v1/decode/?data=0x): calldata, logs, reverts, returned values and code; POST `{"data": "0x..."}` as JSON
- [Search](/api/v1/signatures/?text_signature=transfer): a fragment of a text
- [OpenAPI](/api/v1/openapi.json): every route
- [Documents for people](/docs/)

`sigdir mcp` offers the same as tools of the Model Context Protocol.
"""
_MCP = "This server does too, by streamable HTTP: POST /mcp\n"
_CACHE_CONTROL = "public, max-age=3600"


class LlmsResource:
    """The text; it depends on the settings alone."""

    def __init__(self, *, has_mcp: bool) -> None:
        self._text = _TEXT + _MCP * has_mcp

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = "text/plain; charset=utf-8"
        resp.set_header("Cache-Control", _CACHE_CONTROL)
        resp.text = self._text

    on_head = on_get
