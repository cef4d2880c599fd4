"""The JavaScript reader of packs in Chromium."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import sigdir
from sigdir.signatures.types import parse_declaration
from tests.clients.test_pack import INDEX
from tests.conftest import ROOT, import_files
from tests.pipeline.support import invoke
from tests.pipeline.test_export_pack import export

READ = """async ({ key, hashes }) => {
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


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a folder with the module and a signed pack of the samples."""
    import_files([ROOT / "samples"], tmp_path / "warehouse")
    invoke(tmp_path, "keygen", tmp_path / "key")
    export(tmp_path / "warehouse", declarations=True, key=tmp_path / "key")
    (tmp_path / "index.js").write_bytes(INDEX.read_bytes())
    (tmp_path / "index.html").write_text("<!doctype html><title>packs</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_chromium_reads_and_keeps_a_pack(browser: Browser, served: str, tmp_path: Path) -> None:
    """It finds every text of the warehouse, checks the signature, and IndexedDB keeps the index."""
    pack = sigdir.Pack(tmp_path / "a.pack")
    rows = sigdir.open(tmp_path / "warehouse").sql("SELECT DISTINCT hash FROM ranked").rows()
    hashes = [f"0x{hash.hex()}" for (hash,) in rows]
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served}/index.html")
    found = page.evaluate(READ, {"key": (tmp_path / "key.pub").read_text(), "hashes": hashes})
    context.close()
    assert found["size"] == len(pack)
    assert found["texts"] == [pack.lookup(hash) for hash in hashes]
    assert found["abi"] == [[parse_declaration(one).abi_entry() for one in pack.declarations(hash)] for hash in hashes]
    assert found["refused"] == "BadPack: its signature is wrong"
