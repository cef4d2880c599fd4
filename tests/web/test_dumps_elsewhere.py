"""A page of another origin reads a dump in place, by hyparquet and its ranges."""

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
    not (MODULES / "hyparquet-compressors").exists(), reason="hyparquet is not installed: make -C tests/clients"
)

PAGE = """<!doctype html><title>elsewhere</title><script type="importmap">{"imports": {
  "hyparquet": "/hyparquet/src/index.js", "hyparquet-compressors": "/hyparquet-compressors/src/index.js",
  "fzstd": "/fzstd/esm/index.mjs", "hysnappy": "/hysnappy/js/index.js"}}</script>"""
READ = """async (url) => {
  const { asyncBufferFromUrl, parquetReadObjects } = await import("hyparquet");
  const { compressors } = await import("hyparquet-compressors");
  const ranged = await fetch(url, { headers: { Range: "bytes=0-3", "X-Requested-With": "x" } }).catch(() => null);
  const part = await fetch(url, { headers: { Range: "bytes=0-3, 8-9" } }).then((answer) => answer.status);
  const file = await asyncBufferFromUrl({ url });
  const rows = await parquetReadObjects({ file, compressors, columns: ["text_signature"], rowStart: 2, rowEnd: 4 });
  return { refused: ranged === null, part, size: file.byteLength, texts: rows.map((row) => row.text_signature) };
}"""


class _Modules(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def do_GET(self) -> None:
        if self.path != "/page":
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
    """Two rows of a file, by ranges. A Range that browsers ask about first is allowed too; other headers are not."""
    (tmp_path / "list.txt").write_text("".join(f"f{number}()\n" for number in range(9)))
    import_files([tmp_path / "list.txt"], tmp_path / "warehouse")
    with serving(tmp_path / "warehouse", workers=1) as server:
        (file,) = get(server.port, "/dumps/1/").json()["files"]
        context = browser.new_context()
        page = context.new_page()
        page.goto(elsewhere)
        found = page.evaluate(READ, f"http://{HOST}:{server.port}{file['url']}")
        context.close()
    assert found == {"refused": True, "part": 200, "size": file["bytes"], "texts": ["f2()", "f3()"]}
