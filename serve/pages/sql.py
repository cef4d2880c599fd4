"""SQL in the browser: an editor, the rows as a table, and the same rows in other formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import falcon

from sigdir.pipeline.target import json_of, plain, rows_of
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.sql_runner import FORMATS, MAX_ROWS, Rows, SqlRequest, SqlRunner, request_of
from sigdir.serve.http.answers import HTML, HttpError, sentence
from sigdir.serve.http.caching import not_modified, weak
from sigdir.serve.pages.page import build, rendered, send
from sigdir.signatures.errors import visible
from sigdir.warehouse.sql.guard import STRANGERS_VIEWS, missing_values

_MAX_SHOWN = 200
"""Characters of a value."""

_EXAMPLES = (
    ("the newest texts", "SELECT id, text_signature, hex_signature, created_at\nFROM signatures\nORDER BY id DESC\nLIMIT 20"),
    ("a selector", "FROM ranked\nWHERE hex_signature = selector($declaration)\nORDER BY position"),
    ("names that begin with swap", "FROM names\nWHERE name LIKE 'swap%'\nORDER BY texts DESC\nLIMIT 20"),
    ("selectors with several texts", "SELECT hex_signature, texts, text_signatures\nFROM collisions\nORDER BY texts DESC\nLIMIT 20"),
    ("a search", "FROM search('permit')\nLIMIT 50"),
)  # fmt: skip


@dataclass
class SqlPage:
    """The editor, and below it the answer. Its address can be shared."""

    kind = HTML
    cost = Cost.PATIENCE

    _runner: SqlRunner

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        values: dict[str, Any] = {"request": None, "problem": ""}
        try:
            request = request_of(req, self._runner.named, self._runner.seconds)
            if not_modified(req, resp, weak(f"{self._runner.token(request)}-{build()}")):
                return
            values["request"] = request
            if request.sql:
                self._ask(request, values)
        except HttpError as error:
            if error.status >= 500:
                raise
            resp.delete_header("ETag")
            resp.status = falcon.code_to_http_status(error.status)
            values["problem"] = _sentence(error.body)
        send(req, resp, self._page(req, values))

    def _ask(self, request: SqlRequest, values: dict[str, Any]) -> None:
        """Add what the template shows: the fields of the parameters, and the rows if all have values; raises HttpError."""
        wanted = self._runner.parameters(request.sql, request.as_of)
        given = dict(request.values) if isinstance(request.values, Mapping) else {}
        values["parameters"] = [(name, given.get(name, "")) for name in sorted(wanted)]
        if not missing_values(wanted, given):
            values |= self._runner.run(request, _shown)

    def _page(self, req: falcon.Request, values: dict[str, Any]) -> bytes:
        fields = {"sql": req.get_param("sql") or "", "as_of": req.get_param("as_of") or ""}
        request = values["request"]
        downloads = [(form, f"/api/v1/sql/?{req.query_string}&{urlencode({'format': form})}") for form in FORMATS]
        return rendered("sql.html", **{
            "here": "/sql/", "sql": request.sql if request else fields["sql"], "as_of": fields["as_of"], "parameters": [],
            "columns": None, "rows": [], "truncated": False, "version": None, "downloads": downloads, "most": MAX_ROWS,
            "examples": _EXAMPLES, "named": self._runner.named.values(), "views": STRANGERS_VIEWS,
            "seconds": self._runner.seconds,
        } | values)  # fmt: skip


def _shown(rows: Rows) -> dict[str, Any]:
    shown = [[_cell(value) for value in row] for row in rows_of(rows.table.to_batches())]
    return {"columns": rows.table.schema.names, "rows": shown, "truncated": rows.truncated, "version": rows.version}


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        text = value
    elif isinstance(value, dict | list | bool | int | float):
        text = json_of(value).decode()
    else:
        text = str(plain(value))
    return None if text is None else visible(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…")


def _sentence(error: dict[str, Any]) -> str:
    """An error's body as a sentence, which names the field at fault."""
    (name, *_) = error
    return sentence(error) if name in ("detail", "sql") else f"{name}: {sentence(error)}"
