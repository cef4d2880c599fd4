"""Decoding: one call over HTTP, a file of calls, bytecode to interfaces, and hostile input.

The directory is the bundled samples and, where they are there, the real lists, so that well-known selectors have several
texts. The oracle is eth-abi, which is told the right text.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from eth_abi.abi import decode, encode

from benchmarks import corpus, servers
from benchmarks.bench_serve import _RANDOM, _get, _wrk, rates
from benchmarks.hostile import hostile
from benchmarks.measure import ROOT, Figure, sigdir
from benchmarks.servers import Server
from sigdir.signatures.contract import interface_of, read_contract
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.readings import Known
from sigdir.signatures.standards import NO_TEXT, canonical
from sigdir.signatures.types import parameter_types

_LISTS = ("4byte.json.gz", "openchain-export.csv.gz")
_PATH = "/api/v1/decode/"
_ROWS = 500_000
_REPEATED = 10  # times that the same rows follow each other: encoding them is slow
_SAMPLES = 2_000
_ADDRESS, _TEXT = "0x" + "ab" * 20, "transfer(address,uint256)"
_ROTATIONS = 10


def figures(rounds: int, corpora: Path | None) -> list[Figure]:
    warehouse = _warehouse(corpora)
    found = [*_http(warehouse, rounds), _hostile(warehouse), _bulk(warehouse, rounds)]
    return found if corpora is None else [*found, _interfaces(corpora, rounds)]


def _warehouse(corpora: Path | None) -> Path:
    """The samples, the texts of the mix and the real lists; made if it is missing."""
    warehouse = corpus.CACHE / ("decoded-real" if corpora else "decoded")
    if not (warehouse / "table").is_dir():
        corpus.CACHE.mkdir(parents=True, exist_ok=True)
        texts = corpus.CACHE / "mix.txt"
        texts.write_text("\n".join([*_MIX, *_INNER]))
        lists = [str(corpora / name) for name in _LISTS] if corpora else []
        sigdir("import", str(ROOT / "samples"), str(texts), *lists, "--warehouse", str(warehouse), "--quiet")
    return warehouse


# Calls.

_MIX = {
    "transfer(address,uint256)": 35, "approve(address,uint256)": 15, "transferFrom(address,address,uint256)": 8,
    "multicall(bytes[])": 8, "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)": 6,
    "swapExactETHForTokens(uint256,address[],address,uint256)": 6, "deposit()": 6, "withdraw(uint256)": 6,
    "setApprovalForAll(address,bool)": 6, "safeTransferFrom(address,address,uint256)": 4,
}  # fmt: skip
"""Ten functions and how many of a hundred transactions call them, roughly as on Ethereum."""

_INNER = (
    "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))", "unwrapWETH9(uint256,address)",
)  # fmt: skip
"""What the multicalls call."""


def _types(text: str) -> list[str]:
    return [type.text for type in parameter_types(text)]


def _call(chance: random.Random, text: str) -> bytes:
    """Calldata with random values."""
    values = [_value(chance, type) for type in _types(text)]
    return keccak256(text.encode())[:4] + (encode(_types(text), values) if values else b"")


def _value(chance: random.Random, type: str) -> Any:
    if type == "bytes[]":
        return [_call(chance, text) for text in _INNER]
    if type.endswith("[]"):
        return [_value(chance, type[:-2]) for _ in range(chance.randint(2, 3))]
    if type.startswith("("):
        return tuple(_value(chance, part) for part in type[1:-1].split(","))
    if type == "address":
        return "0x" + chance.randbytes(20).hex()
    return chance.random() < 0.5 if type == "bool" else chance.randrange(1 << min(int(type[4:]), 80))


def _as_json(value: Any) -> Any:
    """A value that eth-abi decoded, as our rows have it."""
    if isinstance(value, (tuple, list)):
        return [_as_json(one) for one in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# One call over HTTP.


def _http(warehouse: Path, rounds: int) -> list[Figure]:
    """Two words, random ones, beside a ready body of the answer's size."""
    if shutil.which("wrk") is None:
        print("wrk is not installed; single calldata over HTTP is left out", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name:
        row = f'{_ADDRESS},"{_TEXT}"'
        (table := Path(name) / "contracts.csv").write_text(f"address,signature\n{row}\n")
        sigdir("import", str(table), "--warehouse", str(warehouse))
    with tempfile.TemporaryDirectory() as name, servers.ours(warehouse, "waitress") as ours:
        folder, size = Path(name), _check_calls(ours)
        path = f'string.format("{_PATH}?data=0xa9059cbb%024d%040x%064x", 0, math.random(1, 2^52), math.random(1, 2^52))'
        with servers.ceiling(folder, "waitress", (size,)) as ceiling:
            return [
                rates(
                    "decode", partial(_wrk, folder, ours, _RANDOM + _get(path)),
                    partial(_wrk, folder, ceiling, _get(f'"/{size}"')), rounds, ours,
                ),
                _returned(ours, partial(_wrk, folder, ours), rounds),
                _by_address(ours, partial(_wrk, folder, ours), rounds),
            ]  # fmt: skip


def _returned(ours: Server, ask: Callable[[str], float], rounds: int) -> Figure:
    """One word that a call returned, beside calldata of one word; each is decoded by a known text."""
    word = "%024d%040x"
    data, selector = 42, keccak256(b"balanceOf(address)")[:4].hex()
    answer = json.loads(ours.body(f"{_PATH}?data=0x{data:064x}&as=return&selector=0x{selector}"))
    assert answer["candidates"][0]["parameters"][0]["value"] == str(data)
    random_word = "0, math.random(1, 2^52)"
    returned = f'string.format("{_PATH}?data=0x{word}&as=return&selector=0x{selector}", {random_word})'
    call = f'string.format("{_PATH}?data=0x{selector}{word}", {random_word})'
    mine, theirs = partial(ask, _RANDOM + _get(returned)), partial(ask, _RANDOM + _get(call))
    return rates("decode return", mine, theirs, rounds, ours, by_pairs=True)


def _by_address(ours: Server, ask: Callable[[str], float], rounds: int) -> Figure:
    """Two words by the contract at an address, beside the same without."""
    words = "a9059cbb%024d%040x%064x"
    random_words = "0, math.random(1, 2^52), math.random(1, 2^52)"
    place = f"&chain=1&to={_ADDRESS}"
    answer = json.loads(ours.body(f"{_PATH}?data=0xa9059cbb{1:064x}{2:064x}{place}"))
    assert (answer["contract"]["by"], answer["candidates"][0]["in_contract"]) == ("deployment", True)
    by_address = f'string.format("{_PATH}?data=0x{words}{place}", {random_words})'
    without = f'string.format("{_PATH}?data=0x{words}", {random_words})'
    mine, theirs = partial(ask, _RANDOM + _get(by_address)), partial(ask, _RANDOM + _get(without))
    return rates("decode by address", mine, theirs, rounds, ours, by_pairs=True)


def _check_calls(server: Server) -> int:
    """Compare answers with eth-abi; gives the size of one of them."""
    chance, text, size = random.Random(5), "transfer(address,uint256)", 0
    for _ in range(50):
        data = _call(chance, text)
        body = server.body(f"{_PATH}?data=0x{data.hex()}")
        first = json.loads(body)["candidates"][0]
        assert first["text_signature"] == text
        assert [one["value"] for one in first["parameters"]] == _as_json(decode(_types(text), data[4:]))
        size = len(body)
    return size


# A file of calls.


def _bulk(warehouse: Path, rounds: int) -> Figure:
    """Parquet to Parquet, beside a loop of eth-abi that is told the text of each selector."""
    chance = random.Random(7)
    texts = chance.choices(list(_MIX), list(_MIX.values()), k=_ROWS // _REPEATED) * _REPEATED
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as name:
        source, target, theirs = (Path(name) / f"{part}.parquet" for part in ("in", "ours", "theirs"))
        calls = [_call(chance, text) for text in texts[: _ROWS // _REPEATED]] * _REPEATED
        pq.write_table(pa.table({"input": pa.array(calls, pa.binary())}), source)
        types = {keccak256(text.encode())[:4]: _types(text) for text in _MIX}
        command = ["decode", "--file", str(source), "--output", str(target), "--warehouse", str(warehouse), "--quiet"]
        sigdir(*command)
        _eth_abi_loop(source, theirs, types)
        ours = pq.read_table(target, columns=["text_signature", "values"])
        assert ours["text_signature"].to_pylist() == texts
        expected = pq.read_table(theirs)["values"].to_pylist()
        assert [json.loads(one) for one in ours["values"].to_pylist()] == [json.loads(one) for one in expected]
        mine, yardstick = [], []
        for _ in range(rounds):
            yardstick.append(_timed(lambda: _eth_abi_loop(source, theirs, types)))
            mine.append(sigdir(*command).seconds)
    ours, theirs_a_second = ([_ROWS / seconds for seconds in runs] for runs in (mine, yardstick))
    return Figure("decode file", max(ours) / max(theirs_a_second), ours, theirs_a_second)


def _eth_abi_loop(source: Path, target: Path, types: dict[bytes, list[str]]) -> None:
    values = [
        json.dumps(_as_json(decode(types[data[:4]], data[4:]))) for data in pq.read_table(source)["input"].to_pylist()
    ]
    pq.write_table(pa.table({"values": values}), target, compression="zstd")


# Code.


def _interfaces(corpora: Path, rounds: int) -> Figure:
    """Bytecode to interfaces on one core, with the standards' texts as directory."""
    documents = [json.loads(file.read_bytes()) for file in sorted((corpora / "artifacts").glob("*.json"))]
    compiled = [document for document in documents if document["deployedBytecode"] != "0x"]
    known = {hash: [Known(text)] for hash, text in canonical().items() if text != NO_TEXT}

    def run() -> None:
        for _ in range(_ROTATIONS):
            for document in compiled:
                interface_of(read_contract(document["deployedBytecode"]), known)

    for document in compiled:  # the functions that are found are those of the ABI
        found = interface_of(read_contract(document["deployedBytecode"]), known).functions
        assert len(found) == sum(entry["type"] == "function" for entry in document["abi"]), document["contractName"]
    seconds = [_timed(run) for _ in range(rounds)]
    rate = _ROTATIONS * len(compiled) / min(seconds)
    return Figure("interfaces", rate, seconds)


# Hostile input.


def _hostile(warehouse: Path) -> Figure:
    """128 KiB with eight texts by POST: the slowest answer."""
    with servers.ours(warehouse, "waitress") as ours:
        for _ in range(20):
            _check_calls(ours)
        return Figure("decode hostile", max(_answered(ours, *one) for one in hostile().values()))


def _answered(server: Server, arguments: bytes, types: Sequence[str]) -> float:
    """The best of three times, in seconds; each text has to be answered with values or with a reason."""
    data = (b"\1\2\3\4" + arguments)[: 128 << 10]
    texts = [f"f{number}({one})" for number, one in enumerate(types)]
    body = json.dumps({"data": "0x" + data.hex(), "texts": texts}).encode()
    return min(_timed(partial(_post, server.port, body, set(texts))) for _ in range(3))


def _post(port: int, body: bytes, texts: set[str]) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
    candidates = json.loads(connection.getresponse().read())["candidates"]
    connection.close()
    assert {one["text_signature"] for one in candidates} == texts
    assert all(one["decodes"] or one["reason"] for one in candidates)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
