"""An answer of the API as a page: its JSON for a browser, or the error of a page."""

from __future__ import annotations

from typing import Any

import falcon
import orjson

from sigdir.serve.pages.page import rendered, send

_HEADINGS = {
    301: "Moved", 401: "Write token needed", 403: "Refused", 404: "Not found", 405: "Method not allowed", 413: "Too large",
    414: "Address too long", 503: "Unavailable",
}  # fmt: skip


def send_answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a page that shows the JSON ``body``, or with an error page where a page failed."""
    value = orjson.loads(body)
    status = falcon.http_status_to_code(resp.status)
    is_page_error = status >= 300 and not req.path.startswith("/api/")
    send(req, resp, _error_page(req, status, value) if is_page_error else _json_page(req, str(resp.status), value))


def _error_page(req: falcon.Request, status: int, error: dict[str, Any]) -> bytes:
    return rendered(
        "error.html", status=status, heading=_HEADINGS.get(status, "Something went wrong"),
        detail=str(error.get("detail", "")), submit=error.get("submit"), solve=error.get("solve"),
    )  # fmt: skip


def _json_page(req: falcon.Request, status: str, value: Any) -> bytes:
    is_list = isinstance(value, dict) and value.keys() == {"count", "next", "previous", "results"}
    listing = value if is_list else {}
    separator = "&" if req.query_string else ""
    return rendered(
        "answer.html",
        title=req.path.removeprefix("/api/v1/").strip("/") or "signature directory",
        method="GET" if req.method == "HEAD" else req.method, status=status, path=req.path,
        address=req.path + ("?" + req.query_string if req.query_string else ""),
        json_address=f"{req.path}?{req.query_string}{separator}format=json",
        results=listing.get("results"), count=listing.get("count"), next=listing.get("next"),
        previous=listing.get("previous"), pretty=orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(),
    )  # fmt: skip
