"""Pages of other origins, in Chromium: they read a dump in place by ranges, and packs by the JavaScript reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

import sigdir
from sigdir.signatures.types import parse_declaration
from tests.clients.support import MODULES
from tests.clients.test_pack import INDEX
from tests.conftest import ROOT, import_files, import_lines
from tests.pipeline.support import invoke
from tests.pipeline.test_export_pack import export
from tests.serve.support import HOST, application, get, listening

PAGE = """<!doctype html><title>elsewhere</title><script type="importmap">{"imports": {
  "hyparquet": "/hyparquet/src/index.js", "hyparquet-compressors": "/hyparquet-compressors/src/index.js",
  "fzstd": "/fzstd/esm/index.mjs", "hysnappy": "/hysnappy/js/index.js", "tslib": "/tslib/tslib.es6.mjs",
  "@duckdb/duckdb-wasm": "/@duckdb/duckdb-wasm/dist/duckdb-browser.mjs", "apache-arrow": "/apache-arrow/Arrow.dom.mjs",
  "flatbuffers": "/flatbuffers/mjs/flatbuffers.js"}}</script>"""
READ_DUMP = """async (url) => {
  const { asyncBufferFromUrl, parquetReadObjects } = await import("hyparquet");
  const { compressors } = await import("hyparquet-compressors");
  const ranged = await fetch(url, { headers: { Range: "bytes=0-3", "X-Requested-With": "x" } }).then((one) => one.status);
  const part = await fetch(url, { headers: { Range: "bytes=0-3, 8-9" } }).then((answer) => answer.status);
  const file = await asyncBufferFromUrl({ url });
  const rows = await parquetReadObjects({ file, compressors, columns: ["text_signature"], rowStart: 2, rowEnd: 4 });
  return { ranged, part, size: file.byteLength, texts: rows.map((row) => row.text_signature) };
}"""
QUERY_DUMP = """async (url) => {
  const { AsyncDuckDB, VoidLogger } = await import("@duckdb/duckdb-wasm");
  const place = `${location.origin}/@duckdb/duckdb-wasm/dist/`;
  const database = new AsyncDuckDB(new VoidLogger(), new Worker(`${place}duckdb-browser-eh.worker.js`));
  await database.instantiate(`${place}duckdb-eh.wasm`);
  const connection = await database.connect();
  const rows = await connection.query(`SELECT text_signature FROM '${url}' ORDER BY id LIMIT 2`);
  return rows.toArray().map((row) => row.text_signature);
}"""
READ_PACK = """async ({ key, hashes }) => {
  const { Pack } = await import("/index.js");
  const bytes = new Uint8Array(await (await fetch("/a.pack")).arrayBuffer());
  const opened = await Pack.open(bytes, { key });
  const database = await new Promise((done) => {
    const asked = indexedDB.open("packs", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("packs");
    asked.onsuccess = () => done(asked.result);
  });
  const store = () => database.transaction("packs", "readwrite").objectStore("packs");
  await new Promise((done) => (store().put({ ...opened }, "a").onsuccess = done));
  const kept = await new Promise((done) => (store().get("a").onsuccess = (event) => done(event.target.result)));
  const pack = new Pack(kept);
  bytes[bytes.length - 1] ^= 1;
  const refused = await Pack.open(bytes, { key }).catch((error) => `${error.name}: ${error.message}`);
  return { size: pack.size, texts: hashes.map((hash) => pack.lookup(hash)), abi: hashes.map((hash) => pack.abi(hash)), refused };
}"""


class _Files(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def do_GET(self) -> None:
        if self.path != "/page" and not Path(self.translate_path(self.path)).is_file():
            self.path += ".js"  # flatbuffers leaves it out
        if self.path != "/page":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *arguments: Any) -> None:
        return


@contextmanager
def elsewhere(browser: Browser, folder: Path) -> Iterator[Page]:
    """A page of an origin that has these files."""
    with ThreadingHTTPServer((HOST, 0), partial(_Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://{HOST}:{server.server_port}/page")
        yield page
        context.close()
        server.shutdown()


@pytest.mark.skipif(
    not (MODULES / "@duckdb" / "duckdb-wasm").exists(), reason="DuckDB-WASM is not installed: make -C tests/clients"
)
def test_a_page_of_another_origin_reads_a_dump(browser: Browser, tmp_path: Path) -> None:
    """hyparquet reads two rows, DuckDB-WASM asks for a part; a Range is allowed, and a header of the page's own."""
    import_lines(tmp_path / "warehouse", *(f"f{number}()" for number in range(9)))
    with application(tmp_path / "warehouse") as app, listening(app) as port, elsewhere(browser, MODULES) as page:
        (file,) = get(app, "/dumps/1/").json()["files"]
        url = f"http://{HOST}:{port}{file['url']}"
        found = page.evaluate(READ_DUMP, url)
        asked: list[str] = []
        page.context.on("request", lambda one: asked.append(one.headers.get("range", "")) if one.url == url else None)
        assert page.evaluate(QUERY_DUMP, url) == ["f0()", "f1()"]
    assert found == {"ranged": 206, "part": 200, "size": file["bytes"], "texts": ["f2()", "f3()"]}
    assert any(asked)


def test_chromium_reads_and_keeps_a_pack(browser: Browser, tmp_path: Path) -> None:
    """It finds every text of the warehouse, checks the signature, and IndexedDB keeps the index."""
    import_files([ROOT / "samples"], tmp_path / "warehouse")
    invoke(tmp_path, "keygen", tmp_path / "key")
    export(tmp_path / "warehouse", declarations=True, key=tmp_path / "key")
    (tmp_path / "index.js").write_bytes(INDEX.read_bytes())
    pack = sigdir.Pack(tmp_path / "a.pack")
    rows = sigdir.open(tmp_path / "warehouse").sql("SELECT DISTINCT hash FROM ranked").rows()
    hashes = [f"0x{hash.hex()}" for (hash,) in rows]
    with elsewhere(browser, tmp_path) as page:
        found = page.evaluate(READ_PACK, {"key": (tmp_path / "key.pub").read_text(), "hashes": hashes})
    assert found == {
        "size": len(pack),
        "texts": [pack.lookup(hash) for hash in hashes],
        "abi": [[parse_declaration(one).abi_entry() for one in pack.declarations(hash)] for hash in hashes],
        "refused": "BadPack: its signature is wrong",
    }
