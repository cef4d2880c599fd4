"""A page of another origin reads a dump in place by ranges, by hyparquet and by DuckDB-WASM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.clients.support import MODULES
from tests.conftest import import_files
from tests.serve.support import HOST, get, serving

pytestmark = pytest.mark.skipif(
    not (MODULES / "@duckdb" / "duckdb-wasm").exists(), reason="DuckDB-WASM is not installed: make -C tests/clients"
)

PAGE = """<!doctype html><title>elsewhere</title><script type="importmap">{"imports": {
  "hyparquet": "/hyparquet/src/index.js", "hyparquet-compressors": "/hyparquet-compressors/src/index.js",
  "fzstd": "/fzstd/esm/index.mjs", "hysnappy": "/hysnappy/js/index.js", "tslib": "/tslib/tslib.es6.mjs",
  "@duckdb/duckdb-wasm": "/@duckdb/duckdb-wasm/dist/duckdb-browser.mjs", "apache-arrow": "/apache-arrow/Arrow.dom.mjs",
  "flatbuffers": "/flatbuffers/mjs/flatbuffers.js"}}</script>"""
READ = """async (url) => {
  const { asyncBufferFromUrl, parquetReadObjects } = await import("hyparquet");
  const { compressors } = await import("hyparquet-compressors");
  const ranged = await fetch(url, { headers: { Range: "bytes=0-3", "X-Requested-With": "x" } }).catch(() => null);
  const part = await fetch(url, { headers: { Range: "bytes=0-3, 8-9" } }).then((answer) => answer.status);
  const file = await asyncBufferFromUrl({ url });
  const rows = await parquetReadObjects({ file, compressors, columns: ["text_signature"], rowStart: 2, rowEnd: 4 });
  return { refused: ranged === null, part, size: file.byteLength, texts: rows.map((row) => row.text_signature) };
}"""
QUERY = """async (url) => {
  const { AsyncDuckDB, VoidLogger } = await import("@duckdb/duckdb-wasm");
  const place = `${location.origin}/@duckdb/duckdb-wasm/dist/`;
  const database = new AsyncDuckDB(new VoidLogger(), new Worker(`${place}duckdb-browser-eh.worker.js`));
  await database.instantiate(`${place}duckdb-eh.wasm`);
  const connection = await database.connect();
  const rows = await connection.query(`SELECT text_signature FROM '${url}' ORDER BY id LIMIT 2`);
  return rows.toArray().map((row) => row.text_signature);
}"""


class _Modules(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def do_GET(self) -> None:
        if self.path != "/page":
            if not Path(self.translate_path(self.path)).is_file():
                self.path += ".js"  # flatbuffers leaves it out
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another origin, whose page has the reader."""
    with ThreadingHTTPServer((HOST, 0), partial(_Modules, directory=str(MODULES))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{HOST}:{server.server_port}/page"
        server.shutdown()


def test_a_page_of_another_origin_reads_a_dump(browser: Browser, elsewhere: str, tmp_path: Path) -> None:
    """Two rows of a file, by ranges; DuckDB asks for a part of it. A Range that browsers ask about first is allowed too; other headers are not."""
    (tmp_path / "list.txt").write_text("".join(f"f{number}()\n" for number in range(9)))
    import_files([tmp_path / "list.txt"], tmp_path / "warehouse")
    with serving(tmp_path / "warehouse", workers=1) as server:
        (file,) = get(server.port, "/dumps/1/").json()["files"]
        context = browser.new_context()
        page = context.new_page()
        page.goto(elsewhere)
        url = f"http://{HOST}:{server.port}{file['url']}"
        found = page.evaluate(READ, url)
        asked: list[str] = []
        context.on("request", lambda one: asked.append(one.headers.get("range", "")) if one.url == url else None)
        queried = page.evaluate(QUERY, url)
        context.close()
    assert found == {"refused": True, "part": 200, "size": file["bytes"], "texts": ["f2()", "f3()"]}
    assert queried == ["f0()", "f1()"]
    assert any(asked)
