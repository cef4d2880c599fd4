"""SQL over HTTP: rows as JSON, CSV, Parquet or Arrow; without a query what can be asked."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any

import falcon

from sigdir.pipeline.target import WRITERS, json_of, rows_of
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.sql_runner import MAX_BYTES, MAX_ROWS, Rows, SqlRequest, SqlRunner, request_of, too_large
from sigdir.serve.http.answers import JSON, NDJSON, json_bytes, packed, send_json
from sigdir.serve.http.caching import not_modified, weak
from sigdir.warehouse.sql.guard import STRANGERS_VIEWS

_TYPES = {"json": JSON, "csv": "text/csv; charset=utf-8", "ndjson": NDJSON, "parquet": "application/vnd.apache.parquet",
          "arrow": "application/vnd.apache.arrow.stream"}  # fmt: skip


@dataclass
class SqlResource:
    """A query of the address or of a body."""

    cost = Cost.PATIENCE

    _runner: SqlRunner

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        request = request_of(req, self._runner.named, self._runner.seconds)
        if not not_modified(req, resp, weak(self._runner.token(request))):
            self._answer(req, resp, request)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        request = request_of(req, self._runner.named, self._runner.seconds)
        resp.set_header("Cache-Control", "no-store")
        self._answer(req, resp, request)

    def _answer(self, req: falcon.Request, resp: falcon.Response, request: SqlRequest) -> None:
        if not request.sql:
            send_json(req, resp, json_bytes(self._possible(), indent=True))
            return
        truncated, body = self._runner.run(request, lambda rows: (rows.truncated, _body(rows, request.format)))
        resp.content_type = _TYPES[request.format]
        if request.format != "json":
            resp.downloadable_as = f"{request.name or 'query'}.{request.format}"
            resp.set_header("Truncated", str(truncated).lower())
        resp.data = packed(req, resp, body)

    def _possible(self) -> dict[str, Any]:
        limits = {"seconds": self._runner.seconds, "rows": MAX_ROWS, "bytes": MAX_BYTES}
        return {"views": STRANGERS_VIEWS, "queries": [asdict(one) for one in self._runner.named.values()], **limits}


def _body(rows: Rows, format: str) -> bytes:
    """The rows in a format; raises HttpError where that is too long."""
    if format == "json":
        names = rows.table.schema.names
        body = json_of({
            "version": rows.version,
            "columns": [{"name": name, "type": type} for name, type in zip(names, rows.types, strict=True)],
            "rows": list(rows_of(rows.table.to_batches())), "truncated": rows.truncated,
        })  # fmt: skip
    else:
        out = io.BytesIO()
        WRITERS[format](rows.table.to_reader(), out)
        body = out.getvalue()
    if len(body) > MAX_BYTES:
        raise too_large()
    return body
