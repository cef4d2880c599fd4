"""The cost fuzzer: ``python -m tests.fuzz cost [SECONDS] [SEED]``. Looks for inputs whose cost is not in proportion.

A target is a route with one of its fields in one of the forms of a body, a route with a raw body, a reader of files, an
argument of a tool for agents, or a column of a pack.
A shape is a prefix, a unit repeated, a second unit repeated as often, and a suffix. A shape is a finding if a target

- takes at 64 kB more than ``GROWTH`` times the processor time that it takes at 8 kB, the best of five, and over
  ``NOISE_SECONDS``. Linear is 8, quadratic 64.
- does the same with memory, over ``NOISE_BYTES``.
- answers at any size with more than ``MOST_BYTES_A_BYTE`` for each byte of the request, and ``FRAME_BYTES`` of page.

Each finding is printed as a row of ``FOUND`` in ``test_cost.py``.
"""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, urlencode

import falcon.testing
from mcp.server.mcpserver import MCPServer

from sigdir.pipeline.directory import opened
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.registry import FORMATS, by_name, detect
from sigdir.pipeline.inputs import find, open_each
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.unread import UnreadInputs
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.mcp_server import mcp_server
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, import_files
from tests.fuzz.offline import TOOLS, answer_bytes, pack_targets
from tests.fuzz.targets import read
from tests.pipeline.test_formats import SAMPLES
from tests.pipeline.test_samples import SAMPLES as DOCUMENTED

SMALL, LARGE = 8_000, 64_000
GROWTH = 24
NOISE_SECONDS = 0.05
"""64 kB in less are no harm: a quadratic loop of one instruction a step takes more."""
NOISE_BYTES = 8 << 20
MOST_BYTES_A_BYTE = 64
FRAME_BYTES = 64 << 10
"""A page of 100 rows, or a chart."""
_MOST_SECONDS = 10.0
"""A run that takes more processor time is ended, where Python can be."""


class Shape(NamedTuple):
    """A text that can be made of any size."""

    prefix: bytes
    unit: bytes
    suffix: bytes = b""
    then: bytes = b""
    """Repeated behind all units, as often."""

    def of_size(self, size: int) -> bytes:
        times = max(1, (size - len(self.prefix) - len(self.suffix)) // len(self.unit + self.then))
        return self.prefix + _repeated(self.unit, times) + _repeated(self.then, times) + self.suffix


NUMBER = b"@N"
"""Stands in a unit for the number of its repetition, so that names differ."""


def _repeated(unit: bytes, times: int) -> bytes:
    if NUMBER not in unit:
        return unit * times
    return b"".join(unit.replace(NUMBER, b"%d" % number) for number in range(times))


class TookTooLongError(BaseException):  # a route answers 500 to an Exception
    """A run took more processor time than its limit."""


# Targets.

Run = Callable[[bytes], "tuple[int, int]"]
"""Takes the text; returns the bytes of the request and of its answer, zeros for a reader."""

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
_AS_LIST = "list"
_ENDINGS = ("", ".txt", ".json", ".jsonl", ".csv", ".abi", ".sol", ".ts", ".vy", ".vyi", ".tsv")
_HASHES = ("0xa9059cbb", "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")

BODIES: dict[str, Sequence[str]] = {
    "/api/v1/signatures/": ["text_signature"],
    "/api/v1/event-signatures/": ["text_signature"],
    "/api/v1/import-abi/": ["contract_abi"],
    "/api/v1/import-solidity/": ["source_code", "source_file"],
    "/api/v1/decode/": ["data", "code", "topics", "as", "texts", "inputs", "abi", "selector", "to", "chain"],
    "/api/v1/contract/": ["code"],
    "/api/v1/resolve/": [],
    "/signature-database/v1/import": ["function", "event", "error"],
    "/api/v1/import": ["type", "data"],
    "/submit/": ["text", "as", "kind", "file"],
    "/submit/store/": ["texts"],
    "/decode/": ["data", "call", "contract", "download"],
}
"""The fields of each route that takes a body."""

_CALL = {"data": _HASHES[0] + "00" * 64}
_RETURNED = {"data": "0x" + "00" * 32, "as": "return"}
BESIDE: dict[tuple[str, str], dict[str, str]] = {
    ("/api/v1/decode/", "code"): _CALL,
    ("/api/v1/decode/", "abi"): _CALL,
    ("/api/v1/decode/", "selector"): _RETURNED,
    ("/api/v1/decode/", "text"): _RETURNED,
    ("/decode/", "call"): {"data": _RETURNED["data"]},
    ("/decode/", "selector"): {"data": _RETURNED["data"]},
    ("/decode/", "contract"): _CALL,
}
"""What stands beside a field that says nothing alone."""

_FILTERS = [
    "text_signature", "hex_signature", "hex_signature__in", "ordering", "page", "page_size", "cursor", "format",
    "created_at__gte", "created_at__lt",
]  # fmt: skip
QUERIES: dict[str, Sequence[str]] = {
    "/api/v1/signatures/": _FILTERS,
    "/api/v1/event-signatures/": _FILTERS,
    "/api/v1/signatures/{id}/": ["format"],
    "/api/v1/signatures/{id}/evidence/": ["page", "page_size", "format"],
    "/api/v1/decode/": ["data", "as", "selector", "text"],
    "/api/v1/resolve/": ["hash", "full", "format"],
    "/api/v1/changes/": ["after", "limit", "collection", "evidence"],
    "/signature-database/v1/lookup": ["function", "event", "filter"],
    "/signature-database/v1/search": ["query", "filter"],
    "/signature-database/v1/export": ["format"],
    "/api/v1/signatures": ["function", "event", "all"],
    "/signatures/{hash}": [],
    "/topic0/{hash}": [],
    "/": ["q", "query"],
    "/signatures/": ["q", "query", "bytes4_signature"],
    "/event-signatures/": ["q", "bytes_signature"],
    "/llms.txt": [],
    "/robots.txt": [],
    "/range/{collection}/{prefix}": ["padded"],
    "/range/{collection}/{prefix}/{edition}": ["padded"],
    "/search/": ["q", "in", "page"],
    "/search/results/": ["q", "in", "page"],
    "/browse/{collection}/": ["before", "after"],
    "/selector/{hash}/": ["id"],
    "/topic/{hash}/": ["id"],
    "/submit/": ["text", "as"],
    "/submit/stored/": ["functions", "events", "others"],
    "/decode/": ["data", "selector"],
}
"""The parameters of each route that takes a query or a hash. Parts of a path get the text too."""


_BULK = ("/api/v1/changes/", "/api/v1/event-signatures/", "/api/v1/signatures/", "/signature-database/v1/export")
"""Their answers are rows of the warehouse, as many as it has or as a page may have: 1,000."""


def targets() -> dict[str, Run]:
    """Every target by its name."""
    found: dict[str, Run] = {}
    for path, names in BODIES.items():
        for name in names:
            found[f"POST {path} {name} json"] = partial(_post_field, path, name, JSON)
            found[f"POST {path} {name} json list"] = partial(_post_field, path, name, _AS_LIST)
            found[f"POST {path} {name} form"] = partial(_post_field, path, name, FORM)
            found[f"POST {path} {name} multipart"] = partial(_post_field, path, name, MULTIPART)
        for kind in (JSON, FORM, MULTIPART, "text/plain", "application/x-ndjson"):
            found[f"POST {path} raw {kind.partition(';')[0]}"] = partial(_post, path, kind)
    found["POST /api/v1/signatures/ type"] = partial(_post_type, "/api/v1/signatures/")
    for path, names in QUERIES.items():
        for name in names:
            found[f"GET {path} {name}"] = partial(_get, path, name)
        found[f"GET {path} raw"] = partial(_get, path, "")
        if "{" in path:
            found[f"GET {path}"] = partial(_get_path, path)
    for format in FORMATS:
        if format.name not in ("tree", "sqlite", "parquet"):  # binary: their own fuzzers
            found[f"read {format.name}"] = partial(_read, format.name, "")
    for name in TOOLS:
        found[f"mcp {name}"] = partial(_ask, name)
    found |= pack_targets()
    for ending in _ENDINGS:
        found[f"read by detection {ending}".rstrip()] = partial(_read, "", ending)
    return found


def _post(path: str, content_type: str, body: bytes) -> tuple[int, int]:
    answer = _client().simulate_post(path, body=body, headers={"Content-Type": content_type})
    assert answer.status_code < 500, answer.status
    return len(body), len(answer.content)


def _post_type(path: str, content_type: bytes) -> tuple[int, int]:
    return _post(path, "multipart/form-data; " + content_type.decode("latin-1"), b"x")


def _post_field(path: str, name: str, form: str, value: bytes) -> tuple[int, int]:
    text, beside = value.decode("utf-8", "replace"), BESIDE.get((path, name), {})
    if form == JSON:
        return _post(path, JSON, json.dumps({**beside, name: text}).encode())
    if form == _AS_LIST:
        return _post(path, JSON, json.dumps({**beside, name: text.split("\0")}).encode())
    if form == FORM:
        return _post(path, FORM, f"{urlencode(beside)}&{name}={quote_from_bytes(value)}".encode())
    file = b'; filename="x"' if name in ("file", "source_file") else b""
    parts = [_part(other, text.encode()) for other, text in beside.items()]
    return _post(path, MULTIPART, b"".join([*parts, _part(name, value, file), b"--b--\r\n"]))


def _part(name: str, value: bytes, file: bytes = b"") -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="' + name.encode() + b'"' + file + b"\r\n\r\n"
    return head + value + b"\r\n"


def _get(path: str, name: str, value: bytes) -> tuple[int, int]:
    beside = urlencode(BESIDE.get((path, name), {}))
    collection = "signatures" if "range" in path else "functions"
    path = path.format(id="1", hash=_HASHES["topic" in path], collection=collection, prefix="a90", edition="1")
    query = f"{beside}&{name}={quote_from_bytes(value)}" if name else quote_from_bytes(value, safe="/=&%+;,")
    return _answered("GET", path, query)


def _get_path(path: str, value: bytes) -> tuple[int, int]:
    part = quote_from_bytes(value, safe="")
    return _answered("GET", path.format(id=part, hash=part, collection=part, prefix=part, edition=part), "")


def _answered(method: str, path: str, query: str) -> tuple[int, int]:
    answer = _client().simulate_request(method, path, query_string=query)
    assert answer.status_code < 500, answer.status
    return len(path) + len(query), 0 if path in _BULK else len(answer.content)


def _ask(name: str, value: bytes) -> tuple[int, int]:
    _client()
    assert _App.tools is not None
    return len(value), answer_bytes(_App.tools, name, value.decode("utf-8", "replace"))


def _read(format: str, ending: str, data: bytes) -> tuple[int, int]:
    path = _folder() / f"input{ending}"
    path.write_bytes(data)
    try:
        read(path, format or None)
        for source in open_each(find([str(path)]), lambda _: None, format or None, _unread()):
            chosen = by_name(format) if format else detect(source)
            if chosen and chosen.is_by_line:
                chosen.is_by_line(source)
    except BadInput:
        pass
    return 0, 0


def _unread() -> UnreadInputs:
    return UnreadInputs(ImportReport(), strict=True)


DEEP = "deep(" + "(" * 31 + "uint256" + ")" * 31 + ")"
LONG = "long(" + ",".join(["uint256"] * 1_200) + ")"


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sigdir-cost-"))


@cache
def _warehouse() -> Path:
    """A warehouse of the samples, some thousand texts, one long and one deep."""
    texts = _folder() / "texts.txt"
    names = [f"name{number}(uint256,address)" for number in range(3_000)]
    texts.write_text("\n".join([*names, *(f"event Event{name[4:]}" for name in names), DEEP, LONG, f"event {LONG}"]))
    import_files([*sorted((ROOT / "samples").glob("*.txt")), texts], _folder() / "warehouse")
    return _folder() / "warehouse"


_TRIES_A_COPY = 500
"""After so many tries POSTed rows are thrown away, which would make every later view dearer."""


class _App:
    """The application and the tools for agents over a copy of the warehouse; in every second one lookups are ranked."""

    copies = 0
    client: falcon.testing.TestClient | None = None
    tools: MCPServer[Any] | None = None
    opened = ExitStack()

    @classmethod
    def renew(cls) -> None:
        cls.copies += 1
        paths = Paths(_folder() / f"copy-{cls.copies}")
        shutil.rmtree(_folder() / f"copy-{cls.copies - 1}", ignore_errors=True)
        shutil.copytree(_warehouse(), paths.root)
        cls.opened.close()
        keep = cls.opened.enter_context
        reader = keep(closing(Reader(paths)))
        writer = keep(closing(Writer(paths, reader)))
        settings = Settings(paths.root, rank_lists=cls.copies % 2 == 1)
        cls.client = falcon.testing.TestClient(create_app(settings, reader, writer))
        cls.tools = mcp_server(keep(opened(paths)))


def _client() -> falcon.testing.TestClient:
    if _App.client is None:
        _App.renew()
    assert _App.client is not None
    return _App.client


def discard() -> None:
    """Remove the folder of warehouses and inputs."""
    shutil.rmtree(_folder(), ignore_errors=True)


# Cost.


class Cost(NamedTuple):
    seconds: float
    request: int
    answer: int


def cost(run: Run, data: bytes) -> Cost:
    """What one run takes."""
    start = _processor_seconds()
    request, answer = run(data)
    return Cost(_processor_seconds() - start, request, answer)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TookTooLongError after so much processor time of this process, in patterns too."""

    def end(*_: Any) -> None:
        raise TookTooLongError

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _processor_seconds() -> float:
    """Of this process and its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def peak_bytes(run: Run, data: bytes) -> int:
    """The most memory that Python and numpy hold during a run."""
    tracemalloc.start()
    try:
        run(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def problem(run: Run, shape: Shape, *, with_memory: bool = True) -> str:
    """What is wrong with the cost of a shape, in words; empty if nothing is."""
    seconds = 0.0
    for size in (1, SMALL // 8, SMALL, LARGE):  # small ones first: an exponential cost at 8 kB has no end
        data, before = shape.of_size(size), seconds
        try:
            with time_limit(_MOST_SECONDS):
                seconds, request, answer = cost(run, data)
            if size == LARGE and seconds > max(NOISE_SECONDS, LARGE // SMALL * before):
                seconds = min([seconds, *(cost(run, data).seconds for _ in range(4))])
                before = min(cost(run, shape.of_size(SMALL)).seconds for _ in range(5))
        except TookTooLongError:
            return f"{len(data)} bytes take over {_MOST_SECONDS:.0f} s"
        if size == LARGE and seconds > max(NOISE_SECONDS, GROWTH * before):
            return f"{len(data)} bytes take {seconds:.3f} s, an eighth of them {before:.4f} s"
        if answer > MOST_BYTES_A_BYTE * request + FRAME_BYTES:
            return f"{request} bytes are answered with {answer}"
    if with_memory:
        peak = peak_bytes(run, data)
        if peak > NOISE_BYTES and peak > GROWTH * (less := peak_bytes(run, shape.of_size(SMALL))):
            return f"{len(data)} bytes take {peak >> 20} MiB, an eighth of them {less >> 10} KiB"
    return ""


# Shapes.

_MARKS = [
    *"()[]{}<>,;:.=\"'`/\\*#@|+-_$&%?! \t\n\0", "\r\n", "\r", "//", "/*", "*/", "#", "--", '"""', "\\\n", "\\u0041",
    "${", "é", "\u2502", "\u00a0", "()", "[]", "{}", "[0]", "[1]", "[a.a]", "[2**9]", '"a"', "'a'", '""', "0x", "0X",
]  # fmt: skip
_WORDS = [
    "a", "A", "f", "0", "1", "f()", "f(", "g(uint256)", "uint256", "uint", "uint256,", "uint256[]", "bytes", "bytes32 ", "string",
    "address", "address payable", "tuple", "bool ", "int8", "fixed128x18", "function", "function ", "function f() external;",
    "function f(uint a) public view returns (uint) {", "event ", "event E(uint indexed a)", "error ", "error E();", "anonymous",
    " anonymous;", "indexed ", "returns (", "returns", "memory ", "calldata ", "external ", "public ", "view ", "contract ",
    "contract C {", "contract C is A", "interface ", "interface I:", "library L {", "struct S { S s; }", "struct ", "enum E {a}",
    "mapping(uint => ", "mapping(", "import ", "import 'a';", 'import "', "from ", "using ", "pragma solidity ", "pragma ",
    "abstract ", "modifier ", "constructor", "immutable ", "override", "transient", "constant ", "assembly {", "a.", "a.a", ".a",
    "unchecked {", "def f(", "@external\n", "@view\n", "@deploy\n", "    ", "event T:\n", "    a: uint256\n", "struct S:\n",
    "x: public(", "HashMap[", "DynArray[", "constant(", "implements: ", "# pragma version 0.4", "#", "flag F:\n", "exports: (",
    "const abi = [", "export ", "parseAbi([", "parseAbi(", "as const", "inputs:", '"inputs": [', '"type":"function",',
    '{"type":"function","name":"f","inputs":[]},', '{"name":"', '"components":[', '{"components":[', '{"type":"tuple","components":[',
    '{"abi":', '{"output":{"contracts":', "[[", "[{", '{"', '":', '{"a":', '"abi":[', "null,", "1,", "1e", "-", "1e999,", "true,",
    "\\", '\\"', "\\\\", '"{\\"', "0xa9059cbb", "0xa9059cbb,", "a9059cbb", "a9059cbb: f()\n", "0xa9059cbb,f()\n", "00", "ff", "60",
    "5b", "63a9059cbb14", "73", "7f", "39", "6020", "fe", "__", "__$a$__", "=======", "======= a:b =======\n", "Function signatures:\n",
    "Event signatures:\n", "| a | b |\n", "|---|---|\n", "text_signature,hex_signature\n", "signature,selector\n", "hash,text\n", "a,b\n",
    '"a","b"\n', "id\ttext\n", "@1234", " @ 21000", "--b\r\n", "\r\n--b", "\r\n--", "\r\n--b\r\n", "--b", "boundary=", '";', 'boundary="',
    'Content-Disposition: form-data; name="a"\r\n\r\n', 'name="', "a=b&", "&", "a=", "%41", "%", "+", "?", "*", "a*", "0x%", "_a", "aB", "a1",
    "a@N", "a@N,", "f@N()", "struct S@N { S s; }", "topics ", "data:", "0" * 64, "1" + "0" * 63, "0" * 62 + "20", "0x" + "0" * 64 + " ", "0xddf252ad", "storage ", "storage",
]  # fmt: skip
TOKENS = [token.encode() for token in dict.fromkeys(_MARKS + _WORDS)]
_PIECE = re.compile(rb"\w+|\s+|[^\w\s]")


@cache
def _samples() -> list[bytes]:
    """The samples of the formats, and a value of each field."""
    from_tests = [
        data.encode() if isinstance(data, str) else data
        for data, reading in SAMPLES.values()
        if reading.format != "sqlite"
    ]
    log = {"topics": ["0x" + "0" * 64], "data": "0x", "texts": ["event E(uint256[] indexed a, (uint8,string)[] b)"]}
    fields = [
        json.dumps(log).encode(), json.dumps([log, {"data": "0xa9059cbb"}]).encode(), b"f(uint256); 0xa9059cbb" + b"00" * 64,
        b'{"function":["f()"],"event":["E()"]}', b'{"type":"raw","data":{"function":["f()"]}}', b'{"type":"abi","data":[[{"type":"function","name":"f","inputs":[]}]]}',
        b'--b\r\nContent-Disposition: form-data; name="data"\r\n\r\n0x\r\n--b--\r\n', b"data=0x&download=abi.json", b'["0xa9059cbb"]',
        b"// SPDX\npragma solidity ^0.8.0; import {A as B} from 'a'; contract C is D { struct S { uint a; S[2**3] b; } function f(S memory s) public {} mapping(uint => S) public m; }",
        b"transfer(address,uint256)", b"event Transfer(address indexed from, address to)", b"boundary=b; charset=utf-8",
    ]  # fmt: skip
    return [*from_tests, *(sample.data.encode() for sample in DOCUMENTED), *fields]


def shape(draw: random.Random) -> Shape:
    """A shape of the grammar: a unit alone, two after each other, one inside the other, or a piece of a sample."""
    kind = draw.randrange(6)
    if kind == 0:
        return Shape(b"", draw.choice(TOKENS), draw.choice([b"", draw.choice(TOKENS)]))
    if kind <= 3:
        unit = _unit(draw)
        prefix = b"".join(draw.choices(TOKENS, k=draw.randrange(4)))
        return Shape(prefix, unit, draw.choice([b"", draw.choice(TOKENS)]), draw.choice([b"", _unit(draw)]))
    pieces = _PIECE.findall(draw.choice(_samples()))
    first = draw.randrange(len(pieces))
    last = min(len(pieces), first + draw.choice([1, 2, 3, 8, 40]))
    unit = b"".join(pieces[first:last]) + draw.choice([b"", b"", draw.choice(TOKENS)])
    rest = draw.choice([b"".join(pieces[last:]), b""])
    return Shape(b"".join(pieces[:first]), unit, rest, draw.choice([b"", b"", draw.choice(TOKENS)]))


def _unit(draw: random.Random) -> bytes:
    """One to three tokens, one of them perhaps repeated."""
    tokens = draw.choices(TOKENS, k=draw.choice([1, 1, 2, 2, 3]))
    place = draw.randrange(len(tokens))
    tokens[place] *= draw.choice([1, 1, 1, 2, 30, 200])
    return b"".join(tokens)


def fuzz(seconds: float, seed: int, only: str = "") -> int:
    """Try shapes until the time is over; returns the number of findings. Prints each as it is found."""
    draw, tried = random.Random(seed), Counter[str]()
    runs = {name: run for name, run in targets().items() if only in name}
    found: Counter[str] = Counter()
    end = time.monotonic() + seconds
    warm = {name: problem(run, Shape(b"", b"a"), with_memory=False) for name, run in runs.items()}
    del warm
    while time.monotonic() < end:
        name = draw.choice(list(runs))
        if found[name] >= _FINDINGS_A_TARGET:
            continue
        one = shape(draw)
        tried[name] += 1
        if tried.total() % _TRIES_A_COPY == 0:
            _App.renew()
        try:
            wrong = problem(runs[name], one)
        except Exception as error:  # noqa: BLE001 - every error of a route or reader is a finding
            wrong = f"{type(error).__name__}: {error}"[:200]
        if wrong:
            found[name] += 1
            print(f"    ({name!r}, {tuple(one)!r}),  # {wrong}", flush=True)
    print(f"seed {seed}: {tried.total()} shapes on {len(tried)} of {len(runs)} targets, {found.total()} findings")
    return found.total()


_FINDINGS_A_TARGET = 3
"""Then it is left alone: its other findings are mostly the same."""


def main(seconds: str = "60", seed: str = "0", only: str = "") -> None:
    try:
        number = fuzz(float(seconds), int(seed), only)
    finally:
        discard()
    sys.exit(number > 0)
