"""The fuzz targets: each takes any bytes and raises if a property does not hold.

``python -m tests.fuzz TARGET`` runs them with Atheris, guided by coverage; ``test_targets.py`` runs them with
Hypothesis and with every input that once broke one.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import falcon.testing
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.registry import FORMATS, Format, by_name, detect
from sigdir.pipeline.inputs import find, open_each
from sigdir.pipeline.report import ImportReport, UnreadInputs
from sigdir.pipeline.source import Source
from sigdir.pipeline.usage_counts import usage_of
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.signatures.candidates import Candidates
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import COLLECTIONS, EVENTS, FUNCTIONS, SIGNATURES, UNKNOWN
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.grammar_rows import normalise_rows
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import TEXTS, BadPack, pack_bytes
from sigdir.signatures.pack_texts import PackRow, encoded
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.entry import read_entries
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import Snapshot, advance, read_snapshot, read_state
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.pipeline.support import COMPRESSORS, read_alone
from tests.pipeline.test_containers import tarred
from tests.pipeline.test_formats import SAMPLES
from tests.pipeline.test_samples import SAMPLES as DOCUMENTED
from tests.warehouse.support import publish, remove_digests


def grammar(data: bytes) -> None:
    """A text is refused, or its canonical form is a fixed point; both executions of the grammar agree."""
    declared_kind = (UNKNOWN, FUNCTIONS, EVENTS)[data[0] % 3] if data else UNKNOWN
    text = data[1:]
    try:
        signature = normalise(text, declared_kind)
    except GrammarError as error:
        outcome: tuple[Any, ...] = (error.reason,)
    else:
        outcome = (signature.text, signature.collection)
        again = normalise(signature.text, signature.collection)
        assert (again.text, again.collection) == outcome
    if outcome == ("encoding",):
        return
    rows = normalise_rows(
        np.frombuffer(text, np.uint8), np.array([0], np.int32), np.array([len(text)], np.int32),
        np.array([declared_kind], np.uint8),
    )  # fmt: skip
    if len(outcome) == 1:
        assert rows.reasons[0] != 0
    else:
        assert rows.reasons[0] == 0
        assert rows.data[: rows.offsets[1]].tobytes().decode() == outcome[0]
        assert rows.collections[0] == outcome[1]


@cache
def _folder() -> Path:
    # In memory if possible: a fuzzer writes thousands of files a second.
    memory = "/dev/shm"  # noqa: S108 - mkdtemp makes a folder of its own below
    place = memory if os.access(memory, os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="sigdir-fuzz-", dir=place)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_ENDINGS = (
    "", ".txt", ".json", ".jsonl", ".csv", ".tsv", ".abi", ".sol", ".parquet", ".bz2", ".ts", ".vy", ".rs", ".huff", ".go",
)  # fmt: skip


def readers(data: bytes) -> None:
    """A file is read with every candidate counted, or refused in one line that names it.

    The first byte chooses the format (from 128: detection) and the ending of the file name.
    """
    choice = data[0] if data else 0
    format = FORMATS[choice % len(FORMATS)].name if choice < 128 else None
    _read_or_refuse(_folder() / f"input{_ENDINGS[choice % len(_ENDINGS)]}", data[1:], format)


def usage(data: bytes) -> None:
    """Counts of selectors and topics are added up, or refused in one line that names the file. The first byte chooses the ending."""
    path = _folder() / ("uses.csv", "uses.jsonl", "uses.parquet")[(data[0] if data else 0) % 3]
    path.write_bytes(data[1:])
    source = Source(str(path), explicit=True)
    try:
        with source.open(lambda _: None):
            found = usage_of(source)
    except BadInput as error:
        _check_refusal(path, error)
        return
    for keys, counts in found.tables.values():
        assert len(keys) == len(counts) <= found.rows
        assert (counts >= 0).all()


def tar(data: bytes) -> None:
    """An archive is read member by member, or refused in one line that names it. Its headers get right checksums."""
    _read_or_refuse(_folder() / "archive.tar", with_checksums(data), None)


def parquet(data: bytes) -> None:
    """Whatever a column chunk has, headers of pages and pages, it is read or refused.

    The input takes the place of a chunk; one bit of the first byte chooses the encoding of its column.
    """
    file, at, size = _parquet(is_dictionary=bool(data) and data[0] % 2 == 1)
    chunk = data[1 : size + 1]
    _read_or_refuse(_folder() / "rows.parquet", file[:at] + chunk + file[at + len(chunk) :], "parquet")


def _read_or_refuse(path: Path, content: bytes, format: str | None) -> None:
    path.write_bytes(content)
    try:
        read(path, format)
    except BadInput as error:
        _check_refusal(path, error)


def _check_refusal(path: Path, error: BadInput) -> None:
    """It is one line that begins with the file's name."""
    assert str(error).startswith(f"{path}:")
    assert len(str(error).splitlines()) == 1


def opened(path: Path, format: str | None) -> Iterator[tuple[Source, Format | None]]:
    """A file, or each member of an archive, with its format; None if none is known."""
    for source in open_each(find([str(path)]), lambda _: None, format, UnreadInputs(ImportReport(), strict=True)):
        yield source, by_name(format) if format else detect(source)


def read(path: Path, format: str | None) -> None:
    """Read and canonicalise one file, or each member of an archive, as an import does; nothing of an unknown format."""
    for source, chosen in opened(path, format):
        for task in read_alone(chosen, source) if chosen else ():
            batches: Iterable[Candidates] = [task] if isinstance(task, Candidates) else task()
            for batch in batches:
                result = canonicalise(batch)
                kept = sum(len(rows.text) for rows in result.accepted.values())
                assert len(batch) == result.read == kept + len(result.rejected.text)
        source.finish()


_CHECKSUM = slice(148, 156)
_MAGIC = slice(257, 262)


def with_checksums(data: bytes) -> bytes:
    """The blocks of a tar, each header with the checksum that its bytes have: no fuzzer guesses it."""
    blocks = [bytearray(data[at : at + tarfile.BLOCKSIZE]) for at in range(0, len(data), tarfile.BLOCKSIZE)]
    for block in blocks:
        if block[_MAGIC] == b"ustar":
            block[_CHECKSUM] = b" " * 8
            block[_CHECKSUM] = b"%06o\0 " % sum(block)
    return b"".join(blocks)


@cache
def _parquet(*, is_dictionary: bool) -> tuple[bytes, int, int]:
    """A file of signatures, and where in it the chunk of its only column begins and how long that is."""
    texts = ["f()", "g(uint256)", "transfer(address,uint256)", None] * 40
    target = BytesIO()
    table = pa.table({"text_signature": texts})
    pq.write_table(
        table, target, compression="NONE", use_dictionary=is_dictionary, data_page_size=512, write_batch_size=16
    )
    column = pq.ParquetFile(target).metadata.row_group(0).column(0)
    at = column.dictionary_page_offset or column.data_page_offset
    return target.getvalue(), at, column.total_compressed_size


_PATHS = ("/api/v1/signatures/", "/api/v1/event-signatures/", "/api/v1/import-abi/", "/api/v1/import-solidity/")
_TYPES = (
    "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "multipart/form-data",
)  # fmt: skip


@cache
def _client() -> falcon.testing.TestClient:
    paths = Paths(_folder() / "warehouse")
    reader = Reader(paths)
    return falcon.testing.TestClient(create_app(Settings(paths.root), reader, Writer(paths, reader)))


_BESIDE: tuple[dict[str, Any], ...] = (
    {"as": "return", "selector": "0xa9059cbb"}, {"as": "return", "texts": ["f() returns (uint8[], (string, bytes))"]},
    {"chain": 1, "to": "0x" + "ab" * 20}, {"abi": [{"type": "function", "name": "f", "inputs": [{"type": "bytes[]"}]}]},
)  # fmt: skip


def decoding(data: bytes) -> None:
    """What a call returned, and a call of a contract, is decoded or refused: 200 or 400, in bytes that those of the request bound.

    The first byte chooses what stands beside the bytes.
    """
    body = json.dumps(_BESIDE[(data[0] if data else 0) % len(_BESIDE)] | {"data": f"0x{data[1:].hex()}"}).encode()
    answer = _client().simulate_post("/api/v1/decode/", body=body, headers={"Content-Type": _TYPES[0]})
    assert answer.status_code in (200, 400), answer.status
    assert len(answer.content) <= 64 * len(body) + (64 << 10)


def bodies(data: bytes) -> None:
    """A POST is answered with a JSON object and 201, 400, 413 or 415, never with a server error.

    The first byte chooses the path and the content type.
    """
    choice = data[0] if data else 0
    answer = _client().simulate_post(
        _PATHS[choice % 4], body=data[1:], headers={"Content-Type": _TYPES[choice // 4 % 4]}
    )
    assert answer.status_code in (201, 400, 413, 415), answer.status
    assert isinstance(answer.json, dict)


@cache
def _old_log() -> tuple[Paths, Snapshot, tuple[bytes, ...]]:
    """A warehouse whose entries are another program's, which no digest guards, its state, and its entries' bytes."""
    paths = Paths(_folder() / "log")
    publish(paths, ["f()", "g(uint256)"], ["E()"])
    remove_digests(paths)
    return paths, read_state(paths), tuple(entry.read_bytes() for entry in sorted(paths.log.glob("*.json")))


def log(data: bytes) -> None:
    """Whatever an entry or the pointer to a checkpoint has: versions are read, or refused in one line that names the log.

    The first byte chooses the file: the newest entry, which may have come from another program, an older one, or the pointer.
    """
    paths, state, entries = _old_log()
    choice = data[0] % 3 if data else 0
    file = (paths.log_entry(2), paths.log_entry(1), paths.last_checkpoint)[choice]
    file.write_bytes(data[1:])
    try:
        for read in (
            lambda: advance(paths, state), lambda: read_snapshot(paths), lambda: history(paths), lambda: list(read_entries(paths, 1)),
        ):  # fmt: skip
            message = _error_of(read)
            assert not message or str(paths.root) in message
            assert len(message.splitlines()) <= 1
    finally:
        file.unlink()
        paths.log_entry(1).write_bytes(entries[1])


def _error_of(read: Callable[[], object]) -> str:
    try:
        read()
    except UnreadableWarehouse as error:
        return str(error)
    return ""


def pack(data: bytes) -> None:
    """A pack is refused, or each of its texts is found by its hash. An odd first byte puts the right digest below the bytes."""
    content = data[1:]
    if data and data[0] % 2:
        body = content[:-_TRAILER]
        content = body + hashlib.sha256(body).digest() + bytes(_TRAILER - 32)
    try:
        read = Pack(content)
        read.check()
        for collection in COLLECTIONS:
            for text in read.texts(collection):
                assert text in read.lookup(keccak256(text.encode())[: collection.hash_bytes])
    except BadPack:
        return


_TRAILER = 128  # digest, key, signature
_PACKED = [
    PackRow("transfer(address,uint256)", 1, "function transfer(address to, uint256 value)"),
    PackRow("burn((bool,bytes)[2])", 2),
]


_FORMAT_NUMBERS = {format.name: number for number, format in enumerate(FORMATS)}
_DETECTED = 128


def seeds(name: str) -> Iterator[bytes]:
    """Inputs to start from: every sample of the readers' tests, plain and compressed, and a few texts."""
    if name == "grammar":
        for text in ("f()", "function f(uint a, (int,bool)[2] b) external returns (bool);", "event E(uint indexed a)"):
            yield b"\0" + text.encode()
    elif name == "log":
        for entry in _old_log()[2]:
            yield b"\0" + entry
            yield b"\1" + entry
        yield b'\2{"version":1,"size":3}'
    elif name == "usage":
        yield b"\0selector,count\n0xa9059cbb,7\n0xa9059cbb,8\n"
        yield b'\1{"selector":"0xa9059cbb","count":[7],"day":{"a":1}}\n'
        yield b'\1{"topic0":"0x' + b"dd" * 32 + b'","calls":"7","day":"2026-01-01"}\n'
    elif name == "decoding":
        for number in range(len(_BESIDE)):
            yield bytes([number]) + bytes(31) + b"\1"
            yield bytes([number]) + bytes.fromhex("a9059cbb") + bytes(31) + b"\x20" + bytes(31) + b"\1" + bytes(64)
    elif name == "pack":
        made = pack_bytes(TEXTS, 7, [encoded(SIGNATURES, _PACKED)])
        yield from (bytes([choice]) + form for choice in (0, 1) for form in (made, Pack(made).indexed()))
    elif name == "tar":
        for format in (tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
            for member in ("a.txt", "b/" + "long/" * 40 + "a.txt"):
                yield tarred({member: "g(uint256)\nh(", "c.csv": "g(uint256)\nh("}, format)[: 16 * tarfile.BLOCKSIZE]
        sparse = tarfile.TarInfo("s.txt")
        sparse.size, sparse.pax_headers = 12, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "size": "12"}
        yield sparse.tobuf(tarfile.PAX_FORMAT) + b"g(uint256)\nh(".ljust(3 * tarfile.BLOCKSIZE, b"\0")
    elif name == "parquet":
        for number in range(2):
            file, at, size = _parquet(is_dictionary=bool(number))
            yield bytes([number]) + file[at : at + size]
    elif name == "readers":
        for data, reading in SAMPLES.values():
            raw = data.encode() if isinstance(data, str) else data
            yield bytes([_DETECTED]) + raw
            yield bytes([_FORMAT_NUMBERS[reading.format]]) + raw
            yield from (bytes([_DETECTED]) + pack(raw[:500]) for pack in COMPRESSORS.values())
        for sample in DOCUMENTED:
            yield bytes([_DETECTED]) + sample.data.encode()
            yield bytes([_FORMAT_NUMBERS[sample.format]]) + sample.data.encode()
    else:
        for number, field in enumerate(("text_signature", "text_signature", "contract_abi", "source_code")):
            yield bytes([number]) + json.dumps({field: "[]"}).encode()
            yield bytes([number + 4]) + f"{field}=f(uint)".encode()
            part = f'--b\r\nContent-Disposition: form-data; name="{field}"\r\n\r\nf()\r\n--b--\r\n'
            yield bytes([number + 8]) + part.encode()
        abi = [{"type": "function", "name": "f", "inputs": [{"type": "tuple[]", "components": [{"type": "bool"}]}]}]
        yield b"\2" + json.dumps({"contract_abi": json.dumps(abi)}).encode()
        yield (
            b"\3"
            + json.dumps({"source_code": "contract C { struct S { uint a; } function f(S s) public {} }"}).encode()
        )


TARGETS: dict[str, Callable[[bytes], None]] = {
    "grammar": grammar, "readers": readers, "usage": usage, "tar": tar, "parquet": parquet, "bodies": bodies,
    "decoding": decoding, "log": log, "pack": pack,
}  # fmt: skip
