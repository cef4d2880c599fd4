"""Packs of the real corpora: their size, the time to open one, and a lookup, in Python and in Node; ranges over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import sigdir
from benchmarks import servers
from benchmarks.bench_serve import _get, _wrk
from benchmarks.measure import ROOT, Figure
from sigdir.pipeline.export import Options, PackOptions, run_export
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options as ImportOptions
from sigdir.pipeline.run import run_import
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.pack_texts import COUNT

_TRANSFER = "0xa9059cbb"
_LOOKUPS = 200_000
_RANGE_BYTES = 3_000
_OPENED = """
import sys, time
import sigdir
began = time.perf_counter()
sigdir.Pack(sys.argv[1])
print(time.perf_counter() - began)
"""
_WITHOUT_KERNELS = f'import sys\nsys.modules["numba"] = None{_OPENED}'
_IN_NODE = f"""
import {{ readFileSync }} from "node:fs";
import {{ Pack }} from "{ROOT}/clients/js/index.js";
const bytes = readFileSync(process.argv[1]), began = performance.now();
const pack = await Pack.open(bytes), opened = performance.now();
for (let count = 0; count < {_LOOKUPS}; count++) pack.lookup("{_TRANSFER}");
console.log(JSON.stringify([(opened - began) / 1e3, (performance.now() - opened) / {_LOOKUPS} * 1e3]));
"""


def figures(rounds: int, corpora: Path | None, folder: Path) -> list[Figure]:
    """Empty without the real corpora; ``folder`` gets a warehouse of them."""
    if corpora is None:
        return []
    warehouse = folder / "packed"
    if not warehouse.exists():
        run_import(ImportOptions([str(path) for path in _inputs(corpora)], warehouse), Reporter())
    whole, top = _pack(warehouse), _pack(warehouse, texts=10_000)
    count = len(sigdir.Pack(whole))
    indexed = folder / "indexed.pack"
    indexed.write_bytes(sigdir.Pack(whole).indexed())
    mapped = sigdir.Pack(indexed)
    plain = float(_output(sys.executable, "-c", _WITHOUT_KERNELS, str(whole)))
    first = min(float(_output(sys.executable, "-c", _OPENED, str(whole))) for _ in range(rounds))
    found = [
        Figure("pack size", whole.stat().st_size / count),
        Figure("top pack size", top.stat().st_size / 1000),
        Figure("pack opened", _best(lambda: sigdir.Pack(whole), rounds)),
        Figure("pack opened first", first),
        Figure("pack opened without kernels", plain),
        Figure("pack lookup", _best(lambda: _lookups(mapped), rounds) / _LOOKUPS * 1e6),
        Figure("mcp", _best(lambda: _ask_agent_server(top), rounds)),
    ]
    if shutil.which("node"):
        opened, _ = json.loads(_output("node", "--input-type=module", "-e", _IN_NODE, str(whole)))
        _, lookup = json.loads(_output("node", "--input-type=module", "-e", _IN_NODE, str(indexed)))
        found += [Figure("pack opened by node", opened), Figure("pack lookup by node", lookup)]
    if shutil.which("wrk"):
        found.append(_range(warehouse, folder, rounds))
    return found


def _range(warehouse: Path, folder: Path, rounds: int) -> Figure:
    """Random ranges, made before, beside a ready body of their size."""
    with servers.ours(warehouse, "waitress") as mine, servers.ceiling(folder, "waitress", (_RANGE_BYTES,)) as ceiling:
        with urllib.request.urlopen(f"http://127.0.0.1:{mine.port}/range/signatures/a90") as answer:
            edition = answer.url.rpartition("/")[2]
        path = f'string.format("/range/signatures/%03x/{edition}", math.random(0, 4095))'
        connection = HTTPConnection("127.0.0.1", mine.port)
        for number in range(COUNT):  # each is made once, in 1 to 3 ms
            connection.request("GET", f"/range/signatures/{number:03x}/{edition}")
            connection.getresponse().read()
        rates = [
            (_wrk(folder, mine, _get(path)), _wrk(folder, ceiling, _get(f'"/{_RANGE_BYTES}"')))
            for _ in range(4 * rounds)
        ]
    ours, theirs = map(list, zip(*rates, strict=True))
    return Figure("range", max(ours) / max(theirs), ours, theirs)


def _inputs(corpora: Path) -> list[Path]:
    return [corpora / name for name in ("4byte.json.gz", "openchain-export.csv.gz", "abi_dump.jsonl.xz", "artifacts")]


def _pack(warehouse: Path, texts: int | None = None) -> Path:
    target = warehouse.with_name(f"{texts or 'all'}.pack")
    options = Options("pack", str(target), warehouse, collections=(SIGNATURES,), pack=PackOptions(texts))
    run_export(options, Reporter())
    return target


def _ask_agent_server(pack: Path) -> None:
    """Start `sigdir mcp`, and read its answer to a first question."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
    call = {"name": "resolve", "arguments": {"hashes": [_TRANSFER]}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    command = [sys.executable, "-m", "sigdir", "mcp", "--pack", str(pack)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
        server.stdin.flush()
        server.stdout.readline()
        assert "transfer(address,uint256)" in server.stdout.readline()


def _lookups(pack: sigdir.Pack) -> None:
    for _ in range(_LOOKUPS):
        pack.lookup(_TRANSFER)


def _best(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
