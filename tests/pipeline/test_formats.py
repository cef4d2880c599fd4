"""Every input format: a sample as its tool writes it, and the reading that must result.

A ``Reading`` has the format, the accepted texts by collection in source order, and the rejects with
reason, position and line. ``read`` also checks that every candidate is accepted or rejected.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import csv
from sigdir.pipeline.formats.parquet import largest_page
from sigdir.pipeline.formats.registry import by_name, detect
from sigdir.pipeline.inputs import find
from sigdir.pipeline.source import BLOCK_BYTES
from sigdir.signatures.collections import EVENT_SIGNATURES, FUNCTIONS, SIGNATURES
from sigdir.signatures.grammar import REASONS
from tests.conftest import import_files
from tests.pipeline.support import COMPRESSORS, canonicalised, keccak256, parquet_bytes, read_alone, write_files


class Reject(NamedTuple):
    """A refused candidate; ``line`` counts entries where the input has no lines."""

    reason: str
    text: str
    position: int
    line: int


@dataclass(frozen=True)
class Reading:
    """The result of reading one input."""

    format: str
    functions: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)


Read = Callable[..., Reading]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes an input of a name and reads it; what else it is given is for ``read_path``."""

    def write_and_read(name: str, data: str | bytes, *more: Any, **options: Any) -> Reading:
        [path] = write_files(tmp_path, {name: data})
        return read_path(path, *more, **options)

    return write_and_read


def read_path(
    path: Path, format: str | None = None, by: int = FUNCTIONS, columns: Sequence[tuple[str, str]] = ()
) -> Reading:
    """Read and canonicalise one file as an import does."""
    [source] = find([str(path)])
    source.columns = columns
    with source.open(lambda _: None):
        chosen = by_name(format) if format is not None else detect(source)
        assert chosen is not None, f"{path} is of no known format"
        results = list(canonicalised(read_alone(chosen, source), by))
    texts: dict[str, list[str]] = {SIGNATURES: [], EVENT_SIGNATURES: []}
    rejects = []
    for result in results:
        for collection, rows in result.accepted.items():
            texts[collection] += rows.text.to_pylist()
        rejected = result.rejected
        parts = (rejected.text.to_pylist(), rejected.columns.tolist(), rejected.lines.tolist())
        for reason, text, position, line in zip(rejected.reasons.tolist(), *parts, strict=True):
            rejects.append(Reject(REASONS[reason], text, position, line))
    reading = Reading(chosen.name, texts[SIGNATURES], texts[EVENT_SIGNATURES], rejects)
    candidates = sum(result.read for result in results)
    assert candidates == len(reading.functions) + len(reading.events) + len(reading.rejects)
    return reading


def detected(path: Path, found_in: Path | None = None) -> str | None:
    """The name of the format that is detected of a file, if it is given itself or found in a folder."""
    [source] = find([str(found_in or path)])
    with source.open(lambda _: None):
        format = detect(source)
    return format.name if format is not None else None


def selector(text: str) -> str:
    return "0x" + keccak256(text)[:4].hex()


def topic(text: str) -> str:
    return "0x" + keccak256(text).hex()


def json_lines(*rows: Any) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


TRANSFER = "transfer(address,uint256)"
MOVED = "Transfer(address,address,uint256)"
TOPIC = keccak256(MOVED).hex()

# Samples: one input for each format, with an example of everything that the format can hold.

TEXT = """\
// SPDX-License-Identifier: MIT
# signatures of a token
transfer(address,uint256)

function sweep(uint a, address payable b) external returns (bool);
event Transfer(address indexed from, address indexed to, uint value);
error Denied(address who);  // since 0.8.4
/* gone(uint256)
   also(gone) */ kept(bytes)
event Log(bytes) anonymous
narrow(uint7)
   tuple_(tuple(uint a, (bool, byte)[2] b)[] x)\t
totalSupply)
"""
TEXT_READING = Reading(
    "text",
    [TRANSFER, "sweep(uint256,address)", "Denied(address)", "kept(bytes)", "tuple_((uint256,(bool,bytes1)[2])[])"],
    [MOVED, "Log(bytes)"],
    [Reject("bad_width", "narrow(uint7)", 8, 11), Reject("unbalanced", "totalSupply)", 12, 13)],
)

# As go-ethereum writes it: keys in order and without 0x, four spaces; texts that people sent in. Then a map of topics.
FOURBYTE = f"""\
{{
    "10038099": "isPuppySports()",
    "{selector("set((uint256,address)[2])")[2:]}": "set((uint256,address)[2])",
    "a9059cbc": "transfer(address,uint256)",
    "{topic(MOVED)[2:]}": "{MOVED}",
    "{topic("Mint(address)")}": ["Mint(address)"],
    "{topic("Burn()")[2:].upper()}": "Burn()",
    "{topic("Lost()")}": null
}}"""
FOURBYTE_READING = Reading(
    "map",
    ["isPuppySports()", "set((uint256,address)[2])"],
    [MOVED, "Mint(address)", "Burn()"],
    [Reject("hash_mismatch", TRANSFER, 0, 3), Reject("bad_entry", json.dumps({topic("Lost()"): None}), 0, 7)],
)

# The 4-byte lines come first, then the 32-byte lines; commas are not quoted.
OPENCHAIN = f"""\
0x00000000,blockHashAddendsInexpansible(uint256)
0xa9059cbb,transfer(address,uint256)
0xa9059cbb,many_msg_babbage(bytes1)
0xa9059cbb,x()
0xa9059c,short(uint256)
{topic(MOVED)},Transfer(address,address,uint256)
{topic("Put(uint256,(bytes,string)[])")},Put(uint256,(bytes,string)[])
"""
OPENCHAIN_READING = Reading(
    "openchain",
    ["blockHashAddendsInexpansible(uint256)", TRANSFER, "many_msg_babbage(bytes1)"],
    [MOVED, "Put(uint256,(bytes,string)[])"],
    [Reject("hash_mismatch", "x()", 0, 4), Reject("bad_entry", "0xa9059c,short(uint256)", 0, 5)],
)

CSV = f"""\
id,Text_Signature,hex_signature,created_at
1,"transfer(address,uint256)",0xa9059cbb,2016-07-09T03:58:28Z
2,totalSupply(),18160ddd,
3,"multi(uint256,
  bytes)",{selector("multi(uint256,bytes)")},

5,"say(""hello"")",,
6,"{MOVED}",{topic(MOVED)},
8
9,x(),0xa9059cbb,
"""
CSV_READING = Reading(
    "csv",
    [TRANSFER, "totalSupply()", "multi(uint256,bytes)"],
    [MOVED],
    [
        Reject("unknown_type", 'say("hello")', 5, 7),
        Reject("bad_entry", "8", 0, 9),
        Reject("hash_mismatch", "x()", 0, 10),
    ],
)


def row(number: int, text: Any, **more: Any) -> dict[str, Any]:
    """A row as 4byte.directory's API answers it."""
    raw = keccak256(text)[:4] if isinstance(text, str) else bytes(4)
    return {
        "id": number,
        "created_at": "2018-05-11T08:39:29.708250Z",
        "text_signature": text,
        "hex_signature": "0x" + raw.hex(),
        "bytes_signature": raw.decode("latin-1"),
    } | more


ROWS = [
    row(1, TRANSFER),
    row(2, None),
    row(3, "x()", hex_signature="0xa9059cbb"),
    row(4, MOVED, hex_signature=topic(MOVED)),
    {"text_signature": "bare(uint)"},
]
ROWS_READING = Reading(
    "rows",
    [TRANSFER, "bare(uint256)"],
    [MOVED],
    [Reject("bad_entry", json.dumps(ROWS[1]), 0, 2), Reject("hash_mismatch", "x()", 0, 3)],
)
PAGE = {"count": 5, "next": "https://www.4byte.directory/api/v1/signatures/?page=2", "previous": None, "results": ROWS}


def dump(hash: Any, name: Any, type: Any = "function", inputs: Any = (), **more: Any) -> dict[str, Any]:
    """A line of the Panoramix dump, before it is JSON."""
    entry = {"name": name, "type": type, "inputs": inputs, "outputs": [], "stateMutability": "payable"}
    return {"selector": hash, "abi": {key: value for key, value in entry.items() if value is not MISSING} | more}


MISSING = object()
"""Stands for an absent key."""


def parameter(type: str, name: str = "_param1", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "internalType": type} | more


POINT = parameter("tuple[]", components=[parameter("uint256"), parameter("tuple", components=[parameter("bool")])])

PANORAMIX = json_lines(
    dump("0xa9059cbb", "transfer", inputs=[parameter("address"), parameter("uint256")]),
    dump(selector("draw((uint256,(bool))[],bytes)"), "draw", inputs=[POINT, parameter("bytes")]),
    dump(selector("Seen(address,uint256)"), "Seen", "event",
         [parameter("address", indexed=True), parameter("uint256", indexed=False)]),
    dump(selector("Note(string)"), "Note", "event", [parameter("string")], anonymous=True),
    dump(selector("Denied(address)"), "Denied", "error", [parameter("address")]),
    dump(selector("old()"), "old", MISSING),
    dump("0x00000003", "unknown00000003"),
    dump(selector("unknownCaller(address)"), "unknownCaller", inputs=[parameter("address")]),
    '{"selector": "0x00000004", "abi": {"name": "broken", "type": "func',
    dump("0x00000000", MISSING, "constructor", [parameter("uint256")]),
    dump(selector("libraryCall(uint256)"), "libraryCall", inputs=[parameter("uint256[]")]),
    dump(selector("load(Lib.Data)"), "load", inputs=[parameter("Lib.Data storage")]),
    dump(selector("last()"), "last"),
)  # fmt: skip
PANORAMIX_READING = Reading(
    "panoramix",
    [TRANSFER, "draw((uint256,(bool))[],bytes)", "Denied(address)", "old()", "unknownCaller(address)", "last()"],
    ["Seen(address,uint256)", "Note(string)"],
    [
        Reject("placeholder", "function unknown00000003() payable", 0, 7),
        Reject("bad_entry", '{"selector": "0x00000004", "abi": {"name": "broken", "type": "func', 0, 9),
        Reject("hash_mismatch", "function libraryCall(uint256[] _param1) payable", 0, 11),
        Reject("library_type", "function load(Lib.Data storage _param1) payable", 15, 12),
    ],
)

ABI: list[Any] = [
    {"type": "constructor", "inputs": [parameter("uint256")], "stateMutability": "nonpayable"},
    {"type": "fallback", "stateMutability": "payable"},
    {"type": "receive", "stateMutability": "payable"},
    {"type": "function", "name": "transfer", "inputs": [parameter("address"), parameter("uint256")]},
    {"constant": True, "inputs": [], "name": "totalSupply", "outputs": [parameter("uint256")], "payable": False},
    {"type": "function", "name": "draw", "inputs": [POINT, parameter("function")], "outputs": []},
    {"type": "function", "name": "bare"},
    {"type": "error", "name": "Denied", "inputs": [parameter("address")]},
    {"type": "event", "name": "Transfer", "anonymous": False,
     "inputs": [parameter("address", indexed=True), parameter("address", indexed=True), parameter("uint256")]},
    {"type": "event", "name": "Many", "anonymous": True, "inputs": [parameter("uint256", indexed=True)] * 4},
    {"type": "event", "name": "TooMany", "inputs": [parameter("uint256", indexed=True)] * 4},
    {"type": "function", "name": "f(uint256),g", "inputs": []},
]  # fmt: skip
ABI_READING = Reading(
    "abi",
    [TRANSFER, "totalSupply()", "draw((uint256,(bool))[],function)", "bare()", "Denied(address)"],
    [MOVED, "Many(uint256,uint256,uint256,uint256)"],
    [
        Reject("too_many_indexed", f"event TooMany({','.join(['uint256 indexed _param1'] * 4)})", 7, 11),
        Reject("bad_name", "function f(uint256),g()", 0, 12),
    ],
)

# A text as it was sent to Sourcify, with the hashes of just that text.
_SENT = [TRANSFER, MOVED]
SOURCIFY = parquet_bytes(
    {
        "signature_hash_32": pa.array(
            [*map(keccak256, _SENT), keccak256("a()"), None, keccak256("c()"), b"12"], pa.binary()
        ),
        "signature_hash_4": pa.array(
            [*(keccak256(text)[:4] for text in _SENT), b"1234", keccak256("b()")[:4], None, None], pa.binary()
        ),
        "signature": [*_SENT, "a()", "b()", None, "d()"],
        "created_at": pa.array([1_700_000_000_123_456_789] * 6, pa.timestamp("ns")),
    },
    compression="zstd",
)
SOURCIFY_READING = Reading(
    "parquet",
    [TRANSFER, MOVED, "b()"],
    [],
    [Reject("hash_mismatch", "a()", 0, 3), Reject("bad_entry", "", 0, 5), Reject("bad_entry", "12,d()", 0, 6)],
)

DATA = Path(__file__).parent / "data"
# `Token.sol` compiled with solc 0.8.37 (the npm package `solc`): standard JSON with outputSelection
# {"*": {"*": ["abi", "evm.methodIdentifiers"]}}, as it came.
STANDARD_JSON = (DATA / "Token.json").read_text()
_CLOSED, _PLACE = "Closed((address,uint128,uint8[2]))", "place((address,uint128,uint8[2]),uint8)"
_PLACED, _RAW = "Placed((address,uint128,uint8[2]),uint8)", "Raw(bytes)"
STANDARD_JSON_READING = Reading(
    "json",
    [_CLOSED, TRANSFER, TRANSFER, _CLOSED, "Denied(address)", *([_PLACE, "placed(address,uint8)", TRANSFER] * 2)],
    [MOVED, _PLACED, _RAW, MOVED],
    [Reject("library_type", "insert(Book.Order storage,uint256)", 8, 2)],
)

# The identifiers that solc gave for the same source, put under the headings that `solc --hashes` prints.
SOLC_HASHES = f"""
======= contracts/Token.sol:Book =======
Function signatures:
Error signatures:
3554498b: {_CLOSED}

======= contracts/Token.sol:Empty =======
Function signatures:

======= contracts/Token.sol:Token =======
Function signatures:
5933d8cb: {_PLACE}
a9059cbb: x()

Error signatures:
e7d05e27

Event signatures:
ad6d442fc097cce7b1765ef040984b6a10e3e05763505afd4961295807d6a949: {_PLACED}
ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef: {MOVED}
"""
SOLC_HASHES_READING = Reading(
    "solc-hashes",
    [_CLOSED, _PLACE],
    [_PLACED, MOVED],
    [Reject("hash_mismatch", "x()", 0, 13), Reject("bad_entry", "e7d05e27", 0, 16)],
)


def sqlite_bytes(*statements: str, table: str = "signatures", rows: Iterable[Sequence[Any]] = ()) -> bytes:
    """A database as a file, with these rows in a table."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        for statement in statements:
            database.execute(statement)
        for row in rows:
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
        return database.serialize()


# The table as mythril's support/signatures.py makes it.
MYTHRIL_TABLE = "CREATE TABLE IF NOT EXISTS signatures(byte_sig VARCHAR(10), text_sig VARCHAR(255),PRIMARY KEY (byte_sig, text_sig))"
MYTHRIL = sqlite_bytes(
    "CREATE TABLE other (a, b)", MYTHRIL_TABLE,
    rows=[
        ("0xa9059cbb", TRANSFER), ("0xa9059cbb", "many_msg_babbage(bytes1)"), ("0xa9059cbb", "x()"),
        (None, "bare(uint)"), ("0x0dbe671f", None),
        (keccak256(MOVED), MOVED), (7, "seven()"),
    ],
)  # fmt: skip
MYTHRIL_READING = Reading(
    "sqlite",
    [TRANSFER, "many_msg_babbage(bytes1)", "bare(uint256)"],
    [MOVED],
    [Reject("hash_mismatch", "x()", 0, 3), Reject("bad_entry", "None", 0, 5), Reject("bad_entry", "7,seven()", 0, 7)],
)

# As Foundry prints tables: rows over several lines are joined, rows of Markdown have no rules, constructors are none.
TABLE = f"""\
╭-------------+---------------------------------+------------╮
| Type        | Signature                       | Selector   |
+============================================================+
| event       | Transfer(address,address,uint2  | {topic(MOVED)[:34]} |
|             | 56)                             | {topic(MOVED)[34:]} |
|-------------+---------------------------------+------------|
| function    | transfer(address,uint256) nonpayable returns (bool) | 0xa9059cbb |
|-------------+---------------------------------+------------|
| constructor | constructor() nonpayable        |            |
╰-------------+---------------------------------+------------╯

Token
| Method | Identifier |
|--------|------------|
| {TRANSFER} | a9059cbb |
| x() | a9059cbb |
| odd() | |
"""
TABLE_READING = Reading(
    "table",
    [TRANSFER, TRANSFER],
    [MOVED],
    [Reject("hash_mismatch", "x()", 0, 16), Reject("bad_entry", "odd() | ", 0, 17)],
)

SAMPLES: dict[str, tuple[str | bytes, Reading]] = {
    "text": (TEXT, TEXT_READING),
    "4byte.json": (FOURBYTE, FOURBYTE_READING),
    "openchain": (OPENCHAIN, OPENCHAIN_READING),
    "csv": (CSV, CSV_READING),
    "rows, lines": (json_lines(*ROWS), ROWS_READING),
    "rows, page": (json.dumps(PAGE), replace(ROWS_READING, rejects=[r._replace(line=1) for r in ROWS_READING.rejects])),
    "rows, indented page": (json.dumps(PAGE, indent=2), ROWS_READING),
    "rows, list": (json.dumps(ROWS), ROWS_READING),
    "panoramix": (PANORAMIX, PANORAMIX_READING),
    "abi": (json.dumps(ABI), ABI_READING),
    "sourcify": (SOURCIFY, SOURCIFY_READING),
    "standard json": (STANDARD_JSON, STANDARD_JSON_READING),
    "solc hashes": (SOLC_HASHES, SOLC_HASHES_READING),
    "table": (TABLE, TABLE_READING),
    "mythril": (MYTHRIL, MYTHRIL_READING),
}
OF_LINES = ["text", "openchain", "csv", "rows, lines", "panoramix", "solc hashes", "table"]
AS_TEXT = [name for name, (data, _) in SAMPLES.items() if isinstance(data, str)]


def raw_sample(name: str) -> bytes:
    data = SAMPLES[name][0]
    return data.encode() if isinstance(data, str) else data


# Which format an input is.


def in_members(packer: str, raw: bytes) -> bytes:
    """Concatenated compressed files, one of them empty."""
    pieces = [raw[:7], raw[7:7], raw[7 : len(raw) // 2], raw[len(raw) // 2 :]]
    return b"".join(map(COMPRESSORS[packer], pieces))


PACKED = ["text", "rows, page", "mythril"]
WRITTEN: dict[str, tuple[Iterable[str], Callable[[bytes], bytes]]] = {
    "as it is": (SAMPLES, bytes),
    "with CRLF": (OF_LINES, lambda raw: raw.replace(b"\n", b"\r\n")),
    "with a byte order mark": (AS_TEXT, b"\xef\xbb\xbf".__add__),
    "without the last line end": (OF_LINES, lambda raw: raw.removesuffix(b"\n")),
    "packed": (["openchain", "csv", "panoramix", "sourcify"], gzip.compress),
    **{f"members of {packer}": (PACKED, partial(in_members, packer)) for packer in COMPRESSORS},
}
"""Ways to write a sample, and the samples that have them."""


@pytest.mark.parametrize(("name", "way"), [(name, way) for way, (names, _) in WRITTEN.items() for name in names])
def test_a_sample_is_the_same_however_it_is_written(read: Read, name: str, way: str) -> None:
    """Under a neutral name format and compression are known by content; a format that is named is used whatever the name is.

    The input is read to the last entry.
    """
    data, expected = WRITTEN[way][1](raw_sample(name)), SAMPLES[name][1]
    assert read("input", data) == expected
    assert read("wrong.sol", data, expected.format) == expected


@pytest.mark.parametrize(
    ("endings", "content", "format"),
    [
        ((".txt", ".text", ".sig", ".SIG", ".txt.gz"), "nothing here\nis a signature\n", "text"),
        ((".csv", ".csv.xz"), "id,name\n1,transfer\n", "csv"),
        ((".jsonl", ".ndjson", ".jsonl.zst"), '{"sig": "a()"}\n{"sig": "b()"}\n', "rows"),
        ((".abi", ".abi.bz2"), '[{"name": "f"}]', "abi"),
        ((".parquet", ".parquet.gz"), "not at all", "parquet"),
        ((".csv", ".txt", ".jsonl", ".json", ".parquet", ""), OPENCHAIN, "openchain"),
    ],
    ids=["text", "csv", "rows", "abi", "parquet", "clear content"],
)
def test_format_is_detected_by_name_if_not_by_content(
    tmp_path: Path, endings: Sequence[str], content: str, format: str
) -> None:
    """Content of no known format is read as its ending says, compressed or not; clear content comes before the name."""
    for path in write_files(tmp_path, {f"input{ending}": content for ending in endings}):
        assert detected(path) == format, path.name


OTHER_FILES = {
    "README.md": "transfer(address,uint256)\n",
    "Token.huff": "event Paid(address who);\n",
    "words": "text,hash\nhello,12345678\n",
    "other.json": '{"contracts": {"a": {"b": {"abi": 7}}}}',
    "caches.json": '{"functions": [], "events": []}',
    "package.json": '{"name": "token", "version": "1.0.0"}',
    "tsconfig.json": "{}",
    "data.bin": "\0\1\2\3",
    "empty": "",
    "progress": "progress 10%\rprogress 20%\r\n",
    "quoted carriage return": '"a\rb\n',
    "tool.json": json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]),
    "tool2.json": json.dumps([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]),
    "tasks.json": json.dumps({"inputs": [{"id": "path", "type": "promptString"}]}),
    "entry.json": json.dumps({"type": "event", "inputs": []}),
    "ton.json": json.dumps(
        {"ABI version": 2, "functions": [{"name": "send", "inputs": [], "outputs": [{"type": "bool"}]}]}
    ),
    "ci.json": json.dumps({"pipelines": [{"name": "resize", "inputs": [{"name": "width", "type": "uint"}]}]}),
    "prose.json": json.dumps({"notes": ["function calls are slow", "event loops (see below)"]}),
    "click.json": json.dumps({"event": ["click", "input"]}),
    "gas.json": json.dumps({"gasEstimates": {"set(uint256)": "12345678"}}),
    "gist.json": json.dumps({"files": {"README.md": {"content": "contract C { function f() external {} }"}}}),
    "ast.json": json.dumps({"nodeType": "SourceUnit", "src": "0:1:0", "nodes": [ABI[3]]}),
    "unverified.json": json.dumps({"ABI": "Contract source code not verified"}),
    "urls.json": json.dumps({"sources": {"Store.sol": {"urls": ["ipfs://"], "keccak256": "0x"}}}),
    "layout.md2": "| Name | Type | Slot |\n|------|------|------|\n| f() | uint256 | a9059cbb |\n",
}
"""Sources, documents, settings and the like."""

_CODE = "fn main() { f(); } // a(uint256)\n#define macro MAIN() = takes(0) returns(0) {}\n"
SKIPPED_FILES = {
    "build-info of one line": '{"id": "1", "signature", "input": {"language": "Solidity"}}',
    "source map": '{"version":3,"sources":["a.ts"],"names":["signature","hash"],"mappings":"AAAA"}',
    "JSON that is broken": '{"a":1,"signature","b":2\n{"a":1}\n',
    "prose": "Every message has a nonce,signature,and a sender\nand, as we know, all of them are signed\n",
    "prose with one name": "signature\nis the word for what a wallet makes\nand for what a function has\n",
    "other signatures": "id,signature\n1,0x9242685bf161793cc25603c231bc2f568eb630ea16aa137d2664ac8038825608\n",
    "other.jsonl": '{"name": "alice", "hash": "0x12345678"}\n{"name": "bob", "hash": "0x12345679"}\n',
    "names alone": "id,name,hash\n1,alice,0x12345678\n2,bob,0x12345679\n",
    "commits": "a9059cbb fix the parser (again)\n18160ddd add a test\n",
    "binary": "text_signature,hash\0\n",
    "LICENSE.txt": "a()\n", "README": "f()\n", "notes.txt": "some words\nand more of them\n", "list.csv": "id,signature\n1,0xab\n",
    **dict.fromkeys(["main.go", "main.rs", "main.huff", "main.d.ts"], _CODE),
}  # fmt: skip
"""What only looks like CSV, licences, prose, and code without declarations."""


@pytest.mark.parametrize("name", [*OTHER_FILES, *SKIPPED_FILES])
def test_other_files_are_of_no_known_format(tmp_path: Path, name: str) -> None:
    """What is found in a folder and only looks like signatures is skipped; some of it is of no format by itself either."""
    [path] = write_files(tmp_path, {name: (OTHER_FILES | SKIPPED_FILES)[name]})
    assert detected(path, tmp_path) is None
    if name in OTHER_FILES:
        assert detected(path) is None


def test_sqlite_of_other_things(tmp_path: Path) -> None:
    """A database without signatures is skipped in a folder, and an error that names the missing columns by itself."""
    [path] = write_files(tmp_path, {"places.sqlite": sqlite_bytes("CREATE TABLE places (url, signatures)")})
    assert detected(path, tmp_path) is None
    why = "it is not clear .*; it has url: empty, signatures: empty; say --column text=NAME"
    with pytest.raises(BadInput, match=f"places.sqlite: {why}"):
        read_path(path)


def test_sqlite_is_left_as_it_is(tmp_path: Path) -> None:
    """Reading a database with a write-ahead log changes and creates no file and waits for no lock."""
    path = tmp_path / "signatures.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute(MYTHRIL_TABLE)
        database.execute("INSERT INTO signatures VALUES ('0xa9059cbb', ?)", [TRANSFER])
        database.commit()
        database.execute("PRAGMA wal_checkpoint(truncate)")
        database.execute("BEGIN EXCLUSIVE")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert read_path(path) == Reading("sqlite", [TRANSFER])
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_hostile_sqlite(read: Read) -> None:
    """Odd table names are quoted, virtual tables are not opened, and a broken file is an error of one line."""
    virtual = "CREATE VIRTUAL TABLE find USING fts5(signature)"
    odd = '"a""b; DROP TABLE c"'
    database = sqlite_bytes(
        virtual, f"CREATE TABLE {odd} (selector, TEXT_SIG)", table=odd, rows=[("0xa9059cbb", TRANSFER)]
    )
    assert read("odd.db", database) == Reading("sqlite", [TRANSFER])
    data = sqlite_bytes(MYTHRIL_TABLE, rows=[(None, f"f{n}()") for n in range(10_000)])
    with pytest.raises(BadInput, match=r"odd.db: broken SQLite: database disk image is malformed$"):
        read("odd.db", data[:50_000])


def test_source_and_output_of_solc_agree() -> None:
    """A Solidity source gives the same texts as solc's output for it."""
    source = read_path(DATA / "Token.sol")
    assert source.format == "solidity"
    assert set(source.functions) == set(STANDARD_JSON_READING.functions)
    assert set(source.events) == set(STANDARD_JSON_READING.events)
    assert source.rejects == [Reject("library_type", "function insert(Book.Order storage order,uint256 place)", 0, 14)]


# Line ends, byte order marks, packing.


@pytest.mark.parametrize("name", ["text", "openchain", "rows, lines", "panoramix"])
def test_blank_lines_are_skipped(read: Read, name: str) -> None:
    """Blank lines are no candidates but count in line numbers; an empty file of a named format has no candidates."""
    data = b"\n \t\n" + raw_sample(name).replace(b"\n", b"\n\n  \r\n") + b"\n\n"
    expected = SAMPLES[name][1]
    moved = [reject._replace(line=3 * reject.line) for reject in expected.rejects]
    assert read("input", data) == replace(expected, rejects=moved)
    assert read("empty", "", expected.format) == Reading(expected.format)


# Small inputs of each format, and the reading of each.

_SAME_KEYS = '"a9059cbb": "transfer(address,uint256)", "a9059cbb": "many_msg_babbage(bytes1)", "a9059cbb": "x()"'
_SAME_TEXTS = '{"abi": [], "methodIdentifiers": {"a()": "0dbe671f", "a()": "0dbe671f", "a()": "0dbe6720"}}'
_PAGES = [{"count": 2, "next": None, "results": [row(1, text)]} for text in ("a()", "b()")]
_LONG_PAGES = [{"results": [{"text_signature": f"f{page}_{n}(uint256)"} for n in range(2_000)]} for page in range(2)]
_PAIR = parameter("tuple", components=[parameter("uint256"), parameter("bool")], indexed=True)
_PAIRS = [_PAIR, _PAIR, parameter("tuple[2]", components=_PAIR["components"])]
_CONTRACT = {"_format": "hh-sol-artifact-1", "contractName": "Context", "abi": [], "bytecode": "0x"}
_TOPICS_TOO = (
    f"signature;bytes4;hash;type\n{TRANSFER};0xa9059cbb;{topic(TRANSFER)};\n{TRANSFER};0xa9059cbc;{topic(TRANSFER)};\n"
    f"{MOVED};;0x{TOPIC};event\nb();0x4df7e3d0;0x12;\n"
)
_MANY_DIGITS = [f'{{"text_signature": {sign}{"9" * 10_000}}}' for sign in ("", "1e")]
_SURROGATE = '{"text_signature": "a\\ud800()"}'
BAD_HASHES: list[Any] = ["0xa9059c", "a9059cbb00", "0xa9059cbz", "transfer", 7, [], {}, True]
_SPELLED = ("0xa9059cbb", "a9059cbb", "0XA9059CBB", "A9059CBB")


def nested(depth: int) -> dict[str, Any]:
    """A parameter of tuples in tuples."""
    inner = parameter("bytes")
    for _ in range(depth):
        inner = parameter("tuple[1]", components=[inner])
    return inner


READINGS: dict[str, tuple[str, str | bytes, Reading]] = {
    "letters that mark a bzip2 file": ("input", "BZhealth(uint256)\n", Reading("text", ["BZhealth(uint256)"])),
    "text that is no UTF-8": (
        "input", b"a()\nb(\xff\xfe)\nc()\n\xc3\xa9()\n",
        Reading("text", ["a()", "c()"], [], [Reject("encoding", r"b(\xff\xfe)", 3, 2), Reject("bad_name", "é()", 1, 4)]),
    ),
    "CSV that is no UTF-8": (
        "input", b'signature\na()\n"b(\xff)"\nc()\n',
        Reading("csv", ["a()", "c()"], [], [Reject("encoding", r"b(\xff)", 3, 3)]),
    ),
    "a row longer than a block is one line": (
        "input.csv", "text_signature,rest\na(),\nf(),g" + ",g" * 2_500_000 + "\nb(),\nc(uint7),\n",
        Reading("csv", ["a()", "f()", "b()"], [], [Reject("bad_width", "c(uint7)", 3, 5)]),
    ),
    "a comment over blocks has its lines": (
        "input", "a()\n/*\ngone(uint7)" + "\n" * BLOCK_BYTES + "gone(uint7) */ b()\nc(uint7)\n",
        Reading("text", ["a()", "b()"], [], [Reject("bad_width", "c(uint7)", 3, BLOCK_BYTES + 4)]),
    ),
    "a key several times": (
        "map", f"{{{_SAME_KEYS}}}",
        Reading("map", [TRANSFER, "many_msg_babbage(bytes1)"], [], [Reject("hash_mismatch", "x()", 0, 3)]),
    ),
    "an identifier several times": (
        "input", _SAME_TEXTS, Reading("json", ["a()", "a()"], [], [Reject("hash_mismatch", "a()", 0, 3)]),
    ),
    "pages in a list": ("input", json.dumps(_PAGES), Reading("rows", ["a()", "b()"])),
    "pages as lines": ("input", json_lines(*_PAGES), Reading("rows", ["a()", "b()"])),
    "an empty page": ("input", json.dumps(_PAGES[0] | {"results": []}), Reading("rows")),
    "lines of long pages": (
        "pages.jsonl", json_lines(*_LONG_PAGES),
        Reading("rows", [entry["text_signature"] for page in _LONG_PAGES for entry in page["results"]]),
    ),
    "lines that are no rows": (
        "input", '{"text_signature": "a()"}\n{"text_signature": "b()"\n7\n[]\n"c()"\n{"text_signature": "d()"}\n',
        Reading("rows", ["a()", "d()"], [], [
            Reject("bad_entry", text, 0, line)
            for line, text in enumerate(['{"text_signature": "b()"', "7", "[]", '"c()"'], 2)
        ]),
    ),
    "tuples as deep as JSON": (
        "input", json.dumps([{"type": "function", "name": "f", "inputs": [nested(300)]}]),
        Reading("abi", ["f" + "(" * 301 + "bytes" + ")[1]" * 300 + ")"]),
    ),
    "a tuple is indexed as a whole": (
        "input", json.dumps([{"type": "event", "name": "E", "inputs": _PAIRS}]),
        Reading("abi", [], ["E((uint256,bool),(uint256,bool),(uint256,bool)[2])"]),
    ),
    "flags as texts, and a type that begins like a tuple": (
        "input", json.dumps([
            {"type": "event", "name": "E", "inputs": [
                parameter("uint256", indexed=flag) for flag in ("true", "false", True, 0, "true")]},
            {"type": "function", "name": "f", "inputs": [parameter("tuples", components=[parameter("bool")])]},
        ]),
        Reading("abi", [], ["E(uint256,uint256,uint256,uint256,uint256)"],
                [Reject("unknown_type", "function f(tuples _param1)", 12, 2)]),
    ),
    "a list of signatures": (
        "input", json.dumps(["f(uint)", "event E(uint indexed a)", "error X()", *["g()"] * 4, "not one", 7, "h(uint7)"]),
        Reading("json", ["f(uint256)", "X()", *["g()"] * 4], ["E(uint256)"], [
            Reject("bad_name", "not one", 5, 8), Reject("bad_entry", "7", 0, 9), Reject("bad_width", "h(uint7)", 3, 10),
        ]),
    ),
    "a lone surrogate": (
        "map", '{"12345678": "a\\ud800()", "0dbe671f": "a()"}',
        Reading("map", ["a()"], [], [Reject("encoding", r"a\xed\xa0\x80()", 2, 1)]),
    ),
    "numbers of very many digits": (
        "input", json_lines('{"text_signature": "a()"}', *_MANY_DIGITS),
        Reading("rows", ["a()"], [], [Reject("bad_entry", text, 0, line) for line, text in enumerate(_MANY_DIGITS, 2)]),
    ),
    "a lone surrogate in rows": (
        "input", json_lines('{"text_signature": "a()"}', _SURROGATE),
        Reading("rows", ["a()"], [], [Reject("bad_entry", _SURROGATE, 0, 2)]),
    ),
    "NUL in CSV": (
        "nul.csv", 'text_signature\na()\n"b(\0)"\n\0\n',
        Reading("csv", ["a()"], [], [Reject("unknown_type", "b(\0)", 3, 3), Reject("bad_name", "\0", 1, 4)]),
    ),
    "a contract without entries": ("Context.json", json.dumps(_CONTRACT, indent=2), Reading("json")),
    "an ABI without entries": ("Context.abi", "[]", Reading("abi")),
    "a header of unknown names above wrong hashes": (
        "input", "code:fn\n0x12345678:x()\n0x12345678:y()\n",
        Reading("csv", [], [], [Reject("hash_mismatch", "x()", 0, 2), Reject("hash_mismatch", "y()", 0, 3)]),
    ),
    **{f"a header with {name}": (
        "list.csv", f'code,"{name}"\n0xa9059cbb,"{TRANSFER}"\n', Reading("csv", [TRANSFER]),
    ) for name in ("what, it is", 'a ""quoted"" one', "100%?", "[text]")},
    **{f"lines of hashes and texts in quotes, the first of {lines[0]}": (
        "input", "".join(f"{line}\n" for line in [*lines, f'{topic(MOVED)},"{MOVED}"', '0xa9059cbb,"x(uint,bool)"']),
        Reading("openchain", ["b()", TRANSFER][::step], [MOVED], [Reject("hash_mismatch", "x(uint,bool)", 0, 4)]),
    ) for step in (1, -1) for lines in [["0x4df7e3d0,b()", f'0xa9059cbb,"{TRANSFER}"'][::step]]},
    "a selector beside the whole hash": (
        "input", _TOPICS_TOO,
        Reading("csv", [TRANSFER], [MOVED], [Reject("hash_mismatch", TRANSFER, 0, 3), Reject("bad_entry", "0x12,b()", 0, 5)]),
    ),
    "what Foundry looked up in vain": (  # Foundry keeps an empty text
        "input", json.dumps({
            "functions": {"0x00000001": "", "0xa9059cbb": TRANSFER, "0xa9": "a()"},
            "errors": {"0x4e487b71": "Panic(uint)", "0x4e487b72": None},
            "events": {topic("Lost()"): "", topic(MOVED): MOVED, "0xa9059cbb": TRANSFER},
        }),
        Reading("foundry-cache", [TRANSFER, "Panic(uint256)"], [MOVED], [
            Reject("bad_entry", '{"0xa9": "a()"}', 0, 3),
            Reject("bad_entry", '{"0x4e487b72": null}', 0, 5),
            Reject("bad_entry", json.dumps({"0xa9059cbb": TRANSFER}), 0, 8),
        ]),
    ),
    "kinds beside whole hashes": (  # Etherface's table `signature` joined with the kind
        "input", "text,hash,kind\n" + "".join(f'"{text}",{topic(text)[2:]},{kind}\n' for text, kind in (
            (TRANSFER, "function"), (MOVED, "event"), ("bare()", ""))) + "odd(),,error\n",
        Reading("csv", [TRANSFER, "bare()", "odd()"], [MOVED]),
    ),
    "spellings of a hash in a map": ("input", json_lines(dict.fromkeys(_SPELLED, TRANSFER)), Reading("map", [TRANSFER] * 4)),
    **{f"nothing in {name}": (name, "", Reading(format)) for name, format in (
        ("empty.txt", "text"), ("empty.jsonl", "rows"), ("empty.ndjson", "rows"))},
    **{f"the hash {hash!r}": (
        "input", json_lines({"text_signature": "a()", "hex_signature": hash}, {"text_signature": "b()"}),
        Reading("rows", ["b()"], [], [Reject("bad_entry", f"{hash if isinstance(hash, str | int) else '?'},a()", 0, 1)]),
    ) for hash in BAD_HASHES},
}  # fmt: skip
"""By what is shown: a file's name, its content, and its reading."""


@pytest.mark.parametrize("shown", READINGS)
def test_reading(read: Read, shown: str) -> None:
    """What is wrong in an input costs its own candidate, and the others are read with their lines."""
    name, data, expected = READINGS[shown]
    assert read(name, data) == expected


def test_collection_of_text_without_keyword(read: Read) -> None:
    """The collection follows from the keyword, else from `indexed` or `anonymous`, else from the option."""
    data = "a(uint)\nfunction b()\nerror c()\nevent d()\ne(uint indexed)\nf() anonymous\n"
    assert read("input", data) == Reading("text", ["a(uint256)", "b()", "c()"], ["d()", "e(uint256)", "f()"])
    as_events = read("input", data, by=2)
    assert as_events == Reading("text", ["b()", "c()"], ["a(uint256)", "d()", "e(uint256)", "f()"])


# Plain text.


@pytest.mark.parametrize(
    ("data", "functions"),
    [
        ("a()\n/* b()\nb()\n\n*/\nc()\n", ["a()", "c()"]),
        ("/**\n * b()\n **/ a() /* c() */\n", ["a()"]),
        ("a(uint /* amount */ x, /* to */ address)\n", ["a(uint256,address)"]),
        ("/*/ b()\nb() /*/ a()\n", ["a()"]),
        ("a() // b()\n//c()\n # d()\n#e()\n", ["a()"]),
        ("/* // */ a()\n", ["a()"]),
        ("// see contracts/*.sol\na()\nb() // and lib/*\nc()\n", ["a()", "b()", "c()"]),
        ("# see contracts/*.sol\na()\n", ["a()"]),
    ],
)
def test_comments_are_skipped(read: Read, data: str, functions: list[str]) -> None:
    """Comments of every kind are skipped, and nothing outside of them is."""
    assert read("input", data, "text") == Reading("text", functions)


# Many blocks.

LINE_FORMS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "text": ("", lambda name, kind: f"{name}({kind})"),
    "openchain": ("", lambda name, kind: f"{selector(f'{name}({kind})')},{name}({kind})"),
    "csv": ("text_signature\n", lambda name, kind: f'"{name}({kind})"'),
    "rows": ("", lambda name, kind: json.dumps({"text_signature": f"{name}({kind})"})),
    "panoramix": (
        "",
        lambda name, kind: json.dumps(dump(selector(f"{name}()"), name, inputs=[parameter(kind)][: len(kind)])),
    ),
}
"""The header of a format of lines, and its line for a function of one parameter, or of none."""


def test_long_line_of_wide_characters_is_too_long(read: Read) -> None:
    """A long line cut inside a character is rejected for its length, not its encoding."""
    for lead in range(3):
        reading = read("input", "a()\n" + "b" * lead + "\u20ac" * 1_500_000 + "\nc()\n", "text")
        assert reading.functions == ["a()", "c()"]
        assert [(reject.reason, reject.line) for reject in reading.rejects] == [("too_long", 2)]


@pytest.mark.parametrize("format", LINE_FORMS)
def test_line_numbers_hold_over_many_blocks(read: Read, format: str) -> None:
    """Each reject has the line that an independent count gives it, also behind lines longer than a text or a block."""
    header, line = LINE_FORMS[format]
    dice = random.Random(7)
    lines = header.splitlines()
    functions, rejected = [], {}
    for number in range(4_000):
        name = f"n{number}_{'pad' * dice.randrange(400)}"
        size = {1_000: 70_000, 3_000: 5_000_000}.get(number)
        if size is not None:
            lines.append(line("f" * size, ""))
            # A JSON line that does not fit a block is cut, and then it is no JSON.
            rejected[len(lines)] = "bad_entry" if size > BLOCK_BYTES and format in ("rows", "panoramix") else "too_long"
        elif dice.random() < 0.01:
            lines.append(line(name, "uint7"))
            rejected[len(lines)] = "bad_width"
        else:
            lines.append(line(name, ""))
            functions.append(f"{name}()")
        if dice.random() < 0.01:
            lines.append("")
    reading = read("input", "\n".join(lines), format)
    assert {reject.line: reject.reason for reject in reading.rejects} == rejected
    assert reading.functions == functions


# JSON documents.


BAD_ENTRIES: list[Any] = [
    None, 7, "f()", [], {}, {"type": "widget", "name": "turn", "inputs": []}, {"type": "function", "inputs": []},
    {"type": "function"},
    *({"type": "function", "name": name, "inputs": []} for name in (None, "", ["f"])),
    {"type": 7, "name": "f", "inputs": []},
    {"type": ["function"], "name": "f", "inputs": []},
    {"type": {}, "name": "f", "inputs": []},
    *({"type": "function", "name": "f", "inputs": inputs} for inputs in (
        {"type": "uint256"}, "uint256", ["uint256"], [None], [{"name": "a"}],
        [{"name": "a", "type": "tuple", "components": 7}], [{"name": "a", "type": "tuple", "components": [{}]}],
        *([{"name": "a", "type": type}] for type in (None, ["uint256"], "", "uint256)", "(uint256", "uint256,bool")),
    )),
]  # fmt: skip


@pytest.mark.parametrize("entry", BAD_ENTRIES, ids=json.dumps)
def test_entry_of_a_wrong_shape_is_one_reject(read: Read, entry: Any) -> None:
    """An ABI entry that violates the specification is one reject, shown as JSON; the others are accepted."""
    good = {"type": "function", "name": "g", "inputs": []}
    expected = Reject("bad_entry", json.dumps(entry), 0, 9)
    assert read("abi", json.dumps([*[good] * 8, entry, good])) == Reading("abi", ["g()"] * 9, [], [expected])


@pytest.mark.parametrize("depth", [300, 900, 960, 980, 1_000, 1_020, 100_000])
def test_deep_json_is_read_or_refused(read: Read, depth: int) -> None:
    """A line of JSON at any depth is one reject, and a deep document is read or, if too deep, an error of one line."""
    deep = "[" * depth + "]" * depth
    reading = read("rows", f'{{"text_signature": "a()"}}\n{{"text_signature": {deep}}}\n{{"text_signature": "b()"}}\n')
    assert reading.functions == ["a()", "b()"]
    assert [(reject.reason, reject.line) for reject in reading.rejects] == [("bad_entry", 2)]
    try:
        reading = read("abi", f'[{{"type": "function", "name": "g"}}, {deep}]', "abi")
    except BadInput as error:
        outcome = str(error).rpartition(": ")[2]
    else:
        outcome = f"{reading.functions}, {len(reading.rejects)} refused"
    assert outcome in {"JSON nested too deeply", "['g()'], 1 refused"}


_NOTHING = "no ABI, no identifiers and no sources inside"
_UNCLEAR = (
    "line 1: it is not clear which column has the signatures; it has id: empty, name: empty; say --column text=NAME"
)


@pytest.mark.parametrize(
    ("format", "data", "reason"),
    [
        ("map", "[]", "not a JSON object from hash to text"),
        ("abi", "{}", "not a JSON list of ABI entries"),
        ("json", "[]", _NOTHING),
        ("json", '{"abi": {}}', _NOTHING),
        ("csv", "id,name\n", f"{_UNCLEAR} to `sigdir import`, or call it text_signature"),
        ("csv", "", "line 1: it has no columns"),
        *(
            ("csv", f'{cells}"f(uint,bool)"\n{cells}"g()"\n', "line 1: it has signatures and no header")
            for cells in ("", "7,", '"x";')
        ),
        ("csv", "note\tsignature\nx\ta()\ny\rz\tb()\n", "line 3: broken CSV: new-line character"),
        ("parquet", "PAR1", "broken Parquet"),
        ("rows", "[1,\n2,,\n3]", "line 2 column 3: broken JSON"),
        ("panoramix", '{"a": 1}\n{"a": 2}\n', 'no JSON lines with selector and abi; the first object is {"a": 1}'),
        ("map", b'{"a9059cbb": "\xff"}', "byte 15: not UTF-8"),
        ("abi", "[" + "9" * 5_000 + "]", "broken JSON"),
    ],
)
def test_input_that_is_not_of_the_format(read: Read, format: str, data: str | bytes, reason: str) -> None:
    """An input that is not of the named format is an error with file, place and reason."""
    with pytest.raises(BadInput) as caught:
        read("input", data, format)
    assert "/input: " in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


# CSV.


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", ":", " ", ": "])
@pytest.mark.parametrize("prefix", ["", "0x"])
@pytest.mark.parametrize("before", [True, False], ids=["hash first", "text first"])
def test_lines_without_a_header(read: Read, separator: str, prefix: str, before: bool) -> None:
    """Without a header the first or last cell is the hash and the rest of the line is the text."""
    texts_of = {"a9059cbb": TRANSFER, TOPIC: MOVED, "18160ddd": "f(uint a, (bool, string) b)"}
    pairs = [(prefix + digits, text) for digits, text in texts_of.items()]
    reading = read("input", "".join(separator.join(pair if before else pair[::-1]) + "\n" for pair in pairs))
    assert reading.format == ("openchain" if (separator, prefix, before) == (",", "0x", True) else "csv")
    assert (reading.functions, reading.events) == ([TRANSFER], [MOVED])
    assert [(reject.reason, reject.line) for reject in reading.rejects] == [("hash_mismatch", 3)]


def test_column_of_hex_that_is_not_understood(tmp_path: Path) -> None:
    """A column of 0x values that is not read is named in a warning."""
    lines = "signature,tx_hash,address,n\n" + f"a(),0x{'ab' * 32},0x{'cd' * 20},1\n" * 2
    [source] = find(map(str, write_files(tmp_path, {"input.csv": lines})))
    with source.open(lambda _: None):
        assert len(list(csv.entries(source))) == 2
    why = "has 0x values that are not hashes of the texts; it was not read"
    assert source.warnings == [f"column 'tx_hash' {why}", f"column 'address' {why}"]


# Tables of any kind: which column is what.

SUPPLY = "totalSupply()"
COLUMN_NAMES = [
    ("selector", "sig"), ("Selector", "Signature"), ("METHOD_ID", "Method"), ("methodId", "method"), ("selector", "name"),
    ("hash", "signature"), ("topic0", "event"), ("Event Topic", "Event"), ("code", "fn"), ("signature", "declaration"),
    ("hex", "text"), ("bytes4", "Function Signature"), ("id", "function_signature"), ("topic", "sig"), ("sig", "text"),
]  # fmt: skip
SEPARATED = {"csv": (",", '"'), "csv, bare": (",", ""), "tabs": ("\t", ""), "semicolons": (";", '"'), "bars": ("|", "")}
"""What stands between the cells of a table and around them."""


def table_bytes(format: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """A table as a file of a format."""
    if format in SEPARATED:
        separator, quote = SEPARATED[format]
        written = [[f"{quote}{'' if cell is None else cell}{quote}" for cell in row] for row in (names, *rows)]
        return "".join(separator.join(row) + "\n" for row in written).encode()
    if format == "rows":
        return json_lines(*(dict(zip(names, row, strict=True)) for row in rows)).encode()
    if format == "sqlite":
        columns = ", ".join(f'"{name}"' for name in names)
        return sqlite_bytes(f"CREATE TABLE people ({columns})", table="people", rows=rows)
    return parquet_bytes(dict(zip(names, zip(*rows, strict=True), strict=True)))


TABLES = pytest.mark.parametrize("format", ["csv", "rows", "sqlite", "parquet"])


@pytest.mark.parametrize(
    ("format", "hash", "text"),
    [
        *(("csv", *names) for names in COLUMN_NAMES),
        *((format, *names) for format in [*SEPARATED, "rows", "sqlite", "parquet"] for names in COLUMN_NAMES[5:9]),
    ],
)
def test_columns_that_people_have(read: Read, format: str, hash: str, text: str) -> None:
    """Texts and hashes are found under any of the usual names, or by the values where they belong together.

    The cells of CSV may stand between commas, tabs, semicolons and bars, with quotes or without. An empty cell is no hash.
    """
    for is_topic in (False, True):
        digits = [topic(one) if is_topic else topic(one)[:10] for one in (TRANSFER, SUPPLY)]
        rows = [[7, digits[0], TRANSFER], [8, digits[1], SUPPLY], [9, digits[1], "x()"], [10, "", "bare()"]]
        reading = read("input", table_bytes(format, ["n", hash, text], rows))
        found = [*(reading.events if is_topic else ()), *reading.functions]
        assert (reading.format, found) == ("csv" if format in SEPARATED else format, [TRANSFER, SUPPLY, "bare()"])
        assert [reject[:2] for reject in reading.rejects] == [("hash_mismatch", "x()")]


@TABLES
def test_values_decide_between_columns(read: Read, format: str) -> None:
    """A transaction's hash is none of a text, and of two columns with signatures the one with the hashes is the text."""
    names = ["hash", "methodId", "name", "functionName", "kind"]
    rows = [
        ["0x" + "ab" * 32, "0xa9059cbb", "other()", TRANSFER, "function"],
        ["0x" + "cd" * 32, "0x18160ddd", "o()", SUPPLY, "error"],
    ]
    assert read("input", table_bytes(format, names, rows)) == Reading(format, [TRANSFER, SUPPLY])


@TABLES
def test_columns_that_the_user_names(read: Read, format: str) -> None:
    """`--column` settles what neither names nor values tell, and is an error where no column has the name.

    A table with one column of signatures under an unknown name is refused with the option that reads it.
    """
    rows = [[MOVED, "a()", "event", 1.5], ["b()", "c()", "function", 2.5]]
    data = table_bytes(format, ["fn", "other", "what", "n"], rows)
    has = "it has fn: signatures, other: signatures, what: text, n: numbers"
    with pytest.raises(BadInput, match=rf"{has}.*; say --column text=NAME"):
        read("input", data, format)
    assert read("input", data, columns=[("text", "FN"), ("kind", "what")]) == Reading(format, ["b()"], [MOVED])
    with pytest.raises(BadInput, match=r"no column is named none; it has fn: signatures"):
        read("input", data, format, columns=[("text", "none")])
    data = table_bytes(format, ["my label", "owner"], [[MOVED, "a"], ["b()", "c"]])
    option = "say --column 'text=my label' to `sigdir import`, or call it text_signature$"
    with pytest.raises(BadInput, match=rf"my label: signatures, owner: text.*; {option}"):
        read("input", data, format)
    assert read("input", data, columns=[("text", "my label")]) == Reading(format, [MOVED, "b()"])


def test_columns_that_a_readable_csv_does_not_have(read: Read) -> None:
    """A header is compared with the user's columns even if the lines below it have hashes and texts."""
    lines = "Fn Sig;four_bytes\nb();0x4df7e3d0\n"
    assert read("input.csv", lines) == Reading("csv", ["b()"])
    with pytest.raises(BadInput, match=r"line 1: no column is named fn; it has Fn Sig: signatures, four_bytes: 4-byte"):
        read("input.csv", lines, columns=[("text", "fn")])
    assert read("input.csv", lines.partition("\n")[2], columns=[("text", "fn")]) == Reading("csv", ["b()"])


def test_refusal_of_rows_shows_the_first_object(read: Read) -> None:
    """JSON lines of other things are one error with the first object and the columns; structs are not called empty."""
    lines = [{"count": n, "address": "0x" + "ab" * 20, "label": "Uniswap", "data": {"a": n}} for n in range(1_000)]
    with pytest.raises(BadInput) as caught:
        read("input.jsonl", json_lines(*lines))
    assert str(caught.value).endswith(
        "it is not clear which column has the signatures; it has count: integers, address: hex digits, label: text, "
        f"data: objects; the first row is {json.dumps(lines[0])}; say --column text=NAME to `sigdir import`, or call it text_signature"
    )
    with pytest.raises(BadInput, match=r"it has record: other values; say --column text=NAME"):
        read("input.parquet", parquet_bytes({"record": [{"text": "b()"}]}))


# Code of other languages.

RUST = """//! sol! { function no(uint256) external; }
use alloy::sol; // sol! { function never() external; }
fn name<'a>(x: &'a str) -> char { let s = "sol! {"; let r = r#"sol! { "quoted" "#; '{' }

sol! {
    #[allow(missing_docs)]
    // solc Counter.sol
    #[sol(rpc, bytecode = "60 } ) 80")]
    contract Counter {
        #[derive(Debug)]
        struct Step { uint64 by; bytes32[] path; }
        uint256 public number;
        event Moved(Step step, address indexed who);
        function walk(Step calldata step) external returns (bool) { if (true) { number += 1; } }
    }
    function loose(address[] calldata path, uint256 to) external;
    function body() external { }
    mapping(address => (uint256 amount, bytes data)[]) public orders;
    /* error No(
       address); */ error Denied(address who);
}

sol!(#[sol(rpc)] Token, "abi/Token.json");
mod inner {
    sol_interface! { interface IToken { function balanceOf(address owner) view returns (uint256); } }
    macro_rules! twice { ($($x:tt)*) => { sol! { $($x)* } } }
}
"""
HUFF = """#include "./Token.huff"
/* #define function no(uint256) nonpayable returns () */
#define function transfer(address to,uint256) nonpayable returns (bool) // a comment
  #define function  balanceOf ( address ) view returns(uint256)
#define function store(
    (bytes32, uint8)[2],
    bytes
) nonpayable returns ()
#define event Moved(address indexed from, uint256 value)
#define error Denied(address)
#define macro MAIN() = takes(0) returns(0) { 0x00 calldataload }
#define function bad(uint7) view returns ()
"""
TYPECHAIN = """export interface TokenInterface extends utils.Interface {
  functions: { "place((address,uint256)[])": FunctionFragment };
  encodeFunctionData(functionFragment: "transfer", values: [string, BigNumberish]): string;
}
export interface Token extends BaseContract {
  getFunction(
    nameOrSignature: "mint(address)"
  ): TypedContractMethod<[to: AddressLike], [void], "nonpayable">;
  getFunction(nameOrSignature: "burn"): TypedContractMethod<[n: BigNumberish], [void], "nonpayable">;
  filters: {
    "Moved(address,uint256)": TypedContractEvent<MovedEvent.InputTuple, MovedEvent.OutputTuple, MovedEvent.OutputObject>;
    Moved: TypedContractEvent<MovedEvent.InputTuple, MovedEvent.OutputTuple, MovedEvent.OutputObject>;
  };
}
"""
_GO_ABI = json.dumps([ABI[3], ABI[8]])
GO = f"""// Code generated - DO NOT EDIT.
package token

// TokenMetaData contains all meta data concerning the Token contract.
var TokenMetaData = &bind.MetaData{{
	ABI: {json.dumps(_GO_ABI)},
	Sigs: map[string]string{{
		"18160ddd": "totalSupply()",
	}},
	Bin: "0x6080",
}}

// Solidity: function never(address) view returns(uint256)
func (t *Token) Half(n int) int {{ return n / 2 }}
const quote, tick = '"', '`'
"""
CODE = {
    "rust": ("lib.rs", RUST, Reading("rust", ["number()", "walk((uint64,bytes32[]))", "loose(address[],uint256)", "body()", "orders(address,uint256)", "Denied(address)", "balanceOf(address)"], ["Moved((uint64,bytes32[]),address)"])),
    "huff": ("Token.huff", HUFF, Reading("huff", [TRANSFER, "balanceOf(address)", "store((bytes32,uint8)[2],bytes)", "Denied(address)"], ["Moved(address,uint256)"], [Reject("bad_width", "function bad(uint7) view returns ()", 14, 12)])),
    "ethers 5 and 6": ("Token.ts", TYPECHAIN, Reading("typechain", ["place((address,uint256)[])", "mint(address)"], ["Moved(address,uint256)"])),
    "go": ("token.go", GO, Reading("javascript", [TRANSFER, "totalSupply()"], [MOVED])),
    "go, raw": ("token.go", f"package token\n\nconst TokenABI = `{_GO_ABI}`\n", Reading("javascript", [TRANSFER], [MOVED])),
}  # fmt: skip


@pytest.mark.parametrize("name", CODE)
def test_code_with_declarations(read: Read, name: str) -> None:
    """Declarations in code are read from their places, and nothing else of it is."""
    file, code, expected = CODE[name]
    assert read(file, code) == expected


# Parquet.


def test_types_of_the_text_column(read: Read) -> None:
    """It may have any of Arrow's types for text; values of another type and texts of invalid UTF-8 are rejects."""
    dictionary = pa.dictionary(pa.int32(), pa.string())
    for type in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), dictionary):
        column = pa.array(["a()", None, "b(uint)"]).cast(type)
        reading = read("input", parquet_bytes({"signature": column}))
        assert reading == Reading("parquet", ["a()", "b(uint256)"], [], [Reject("bad_entry", "", 0, 2)])
    neither = [Reject("bad_entry", "", 0, line) for line in (1, 2)]
    for column in (
        pa.array([1, 2]), pa.array([True, None]), pa.array([None, None]), pa.array([["a()"], []]),
        pa.array([{"a": "b()"}, None]), pa.array([2**62, -(2**62)], pa.timestamp("us")),
        pa.array([2**31 - 1, -(2**31)], pa.date32()),
    ):  # fmt: skip
        assert read("input", parquet_bytes({"text_signature": column})) == Reading("parquet", rejects=neither)
    reading = read("input", parquet_bytes({"text_signature": pa.array([b"12", b"ab"], pa.binary(2))}))
    assert [(reject.reason, reject.text) for reject in reading.rejects] == [("bad_name", "12"), ("bad_entry", "ab")]
    raw = pa.array([b"a()", b"b(\xff)", b"c()"], pa.binary())
    column = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    reading = read("input", parquet_bytes({"text_signature": column}))
    assert reading == Reading("parquet", ["a()", "c()"], [], [Reject("encoding", r"b(\xff)", 3, 2)])


@pytest.mark.parametrize("name", ["hex_signature", "hash", "selector", "byte_sig"])
def test_types_of_the_hash_column(read: Read, name: str) -> None:
    """A hash that cannot be one is a reject, which shows it, as in JSON and CSV; a row without one is accepted."""
    numbers = pa.array([7, None], pa.uint32())
    for column, shown in (
        (numbers, 7), (numbers.dictionary_encode(), 7), (pa.array(["x", None]), "x"), (pa.array([b"\t", None]), "\t"),
        (pa.array([True, None]), "?"), (pa.array([["0x0dbe671f"], None]), "?"),
    ):  # fmt: skip
        reading = read("input", parquet_bytes({"text_signature": ["a()", "b()"], name: column}))
        assert reading == Reading("parquet", ["b()"], [], [Reject("bad_entry", f"{shown},a()", 0, 1)])


def test_parquet_of_many_row_groups(read: Read) -> None:
    """Line numbers continue across row groups and batches."""
    texts = [f"f{number}()" if number % 1_000 else f"f{number}(uint7)" for number in range(1, 70_001)]
    out = io.BytesIO()
    pq.write_table(pa.table({"signature": texts}), out, row_group_size=9_999)
    reading = read("input", out.getvalue())
    assert [reject.line for reject in reading.rejects] == list(range(1_000, 70_001, 1_000))
    assert reading.functions == [text for text in texts if text.endswith("()")]


@pytest.mark.parametrize("texts", [["a()", "b()"], []])
@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet_with_an_empty_row_group(read: Read, texts: list[str], dictionary: bool) -> None:
    """It is read as any other group, in front of others or alone, as pandas writes a frame without rows."""
    out = io.BytesIO()
    schema = pa.schema({"text_signature": pa.string()})
    with pq.ParquetWriter(out, schema, use_dictionary=dictionary) as writer:
        for group in ([], texts):
            writer.write_table(pa.table({"text_signature": group}, schema), row_group_size=1)
    assert read("input", out.getvalue()) == Reading("parquet", texts)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_largest_page(tmp_path: Path, version: str, dictionary: bool) -> None:
    """The walk over the page headers ends at the chunk's end, and finds the page with the longest value."""
    values = pa.array([f"f{number}()" for number in range(20_000)] + ["g" * 3_000_000])
    path = tmp_path / "in.parquet"
    pq.write_table(
        pa.table({"n": range(20_001), "text_signature": values}), path, data_page_version=version, compression="zstd",
        use_dictionary=dictionary, write_batch_size=100, data_page_size=1_000, row_group_size=9_000,
        dictionary_pagesize_limit=1_000_000, write_statistics=True,
    )  # fmt: skip
    metadata = pq.read_metadata(path)
    with path.open("rb") as file:
        sizes = [largest_page(file, metadata.row_group(group).column(1)) for group in range(3)]
        first = metadata.row_group(0).column(1)
        assert sum(sizes[:2]) < 4 * first.total_uncompressed_size
        assert 3_000_000 < sizes[2] < 3_200_000
        assert all(0 < size < 300_000 for size in sizes[:2])


def test_own_data_files_are_read(tmp_path: Path, warehouse: Path) -> None:
    """The collection of a warehouse's own data files follows from the length of their hashes."""
    (tmp_path / "input").write_text(TEXT)
    import_files([tmp_path / "input"], warehouse)
    [functions], [events] = (
        list((warehouse / "table" / f"collection={collection}").glob("*.parquet"))
        for collection in (SIGNATURES, EVENT_SIGNATURES)
    )
    assert read_path(functions, by=2) == Reading("parquet", TEXT_READING.functions)
    assert read_path(events) == Reading("parquet", [], TEXT_READING.events)
