"""The cost fuzzer: ``python -m tests.fuzz cost [SECONDS] [SEED] [ONLY]``. Looks for inputs whose cost is not in proportion.

A target is a route with one of its fields in one of the forms of a body, a route with a raw body, a reader of files, an
argument of a tool for agents, a column of a pack, a part of a descriptor, an answer of a node, or what is POSTed and folded.
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
import signal
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes, urlencode

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.registry import FORMATS
from tests.fuzz.application import NODE_ANSWERS, current, discard, folder, node_results
from tests.fuzz.offline import TOOLS, answer_bytes, descriptor_targets, file_targets, fold_posted, pack_targets
from tests.fuzz.route_tables import BESIDE, BODIES, BULK, HASH, HEADERS, PATIENT, QUERIES, path_of
from tests.fuzz.targets import opened, read
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

Run = Callable[[bytes], "tuple[int, int] | None"]
"""Takes the text; returns the bytes of the request and of its answer, nothing for a reader."""

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
_FORMS = ("json", "json list", "form", "multipart")
_ENDINGS = ("", ".txt", ".json", ".jsonl", ".csv", ".abi", ".sol", ".ts", ".vy", ".vyi", ".tsv")
BINARY = ("tree", "sqlite", "parquet")
"""Formats that have fuzzers of their own."""


def targets() -> dict[str, Run]:
    """Every target by its name."""
    found: dict[str, Run] = {}
    for path, names in BODIES.items():
        for name, (number, beside) in product(names, _besides(path)):
            for form in _FORMS:
                found[f"POST {path} {name}{number} {form}"] = partial(_post_field, path, name, beside, form)
        for kind in (JSON, FORM, MULTIPART, "text/plain", "application/x-ndjson"):
            found[f"POST {path} raw {kind.partition(';')[0]}"] = partial(_post, path, kind)
    found["POST /api/v1/signatures/ type"] = partial(_post_type, "/api/v1/signatures/")
    for path, names in QUERIES.items():
        for name, (number, beside) in product(names, _besides(path)):
            found[f"GET {path} {name}{number}"] = partial(_get, path, name, beside)
        found[f"GET {path} raw"] = partial(_get, path, "", {})
        for place in re.findall(r"{(\w+)}", path):
            found[f"GET {path} in {place}"] = partial(_get_path, path, place)
    for format in FORMATS:
        if format.name not in BINARY:
            found[f"read {format.name}"] = partial(_read, format.name, "")
    for name in TOOLS:
        found[f"mcp {name}"] = partial(_ask, name)
    for name in NODE_ANSWERS:
        found[f"node {name}"] = partial(_ask_node, name)
    found["fold"] = fold_posted
    found |= {**pack_targets(), **descriptor_targets(), **file_targets()}
    for ending in _ENDINGS:
        found[f"read by detection {ending}".rstrip()] = partial(_read, "", ending)
    return found


def _besides(path: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What stands beside a field, each with an end of the target's name: nothing first."""
    return [("", {}), *((f" beside {number}", one) for number, one in enumerate(BESIDE.get(path, []), 1))]


def _post(path: str, content_type: str, body: bytes) -> tuple[int, int]:
    headers = {"Content-Type": content_type, **HEADERS.get(path, {})}
    return _answered("POST", path, body=body, headers=headers)


def _post_type(path: str, content_type: bytes) -> tuple[int, int]:
    return _post(path, "multipart/form-data; " + content_type.decode("latin-1"), b"x")


def _post_field(path: str, name: str, beside: Mapping[str, Any], form: str, value: bytes) -> tuple[int, int]:
    text = value.decode("utf-8", "replace")
    beside = {other: said for other, said in beside.items() if other != name}
    if form == "form":
        return _post(path, FORM, f"{urlencode(beside)}&{name}={quote_from_bytes(value)}".encode())
    if form != "multipart":
        given = text if form == "json" else text.split("\0")
        return _post(path, JSON, json.dumps({**beside, name: given}).encode())
    file = b'; filename="x"' if name in ("file", "source_file") else b""
    parts = [_part(other, str(text).encode()) for other, text in beside.items()]
    return _post(path, MULTIPART, b"".join([*parts, _part(name, value, file), b"--b--\r\n"]))


def _part(name: str, value: bytes, file: bytes = b"") -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="' + name.encode() + b'"' + file + b"\r\n\r\n"
    return head + value + b"\r\n"


def _get(path: str, name: str, beside: Mapping[str, Any], value: bytes) -> tuple[int, int]:
    query = f"{urlencode(beside)}&{name}={quote_from_bytes(value)}" if name else quote_from_bytes(value, safe="/=&%+;,")
    return _answered("GET", path, query)


def _get_path(route: str, place: str, value: bytes) -> tuple[int, int]:
    return _answered("GET", route, path=path_of(route, **{place: quote_from_bytes(value, safe="")}))


def _answered(method: str, route: str, query: str = "", path: str = "", **given: Any) -> tuple[int, int]:
    client = current().patient if route in PATIENT else current().client
    path = path or path_of(route)
    answer = client.simulate_request(method, path, query_string=query, **given)
    while answer.status_code == 503 and "is starting" in answer.text:  # after a query that had to be ended
        answer = client.simulate_request(method, path, query_string=query, **given)
    assert answer.status_code < 500, answer.status
    return len(path) + len(query) + len(given.get("body", b"")), 0 if route in BULK else len(answer.content)


def _ask_node(name: str, data: bytes) -> tuple[int, int]:
    """The page of a transaction of a node that answers with the text; the bytes that the node sends count as the request's."""
    node = current().node
    node.results, node.raw = node_results(name, data), (200, data) if name == "raw" else None
    answer = current().client.simulate_get("/decode/", query_string=f"tx={HASH}")
    assert answer.status_code in (200, 404, 502), answer.status
    return len(json.dumps(node.results)) if node.raw is None else len(data), len(answer.content)


def _ask(name: str, value: bytes) -> tuple[int, int]:
    return len(value), answer_bytes(current().tools, name, value.decode("utf-8", "replace"))


def _read(format: str, ending: str, data: bytes) -> None:
    path = folder() / f"input{ending}"
    path.write_bytes(data)
    with suppress(BadInput):
        read(path, format or None)
        for source, chosen in opened(path, format or None):
            if chosen and chosen.is_by_line:
                chosen.is_by_line(source)


# Cost.


def cost(run: Run, data: bytes) -> tuple[float, int, int]:
    """What one run takes: seconds of processor, bytes of the request and of the answer."""
    start = time.process_time()
    request, answer = run(data) or (0, 0)
    return time.process_time() - start, request, answer


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
                seconds = min([seconds, *(cost(run, data)[0] for _ in range(4))])
                before = min(cost(run, shape.of_size(SMALL))[0] for _ in range(5))
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


_TRIES_A_COPY = 500
_FINDINGS_A_TARGET = 3
"""Then it is left alone: its other findings are mostly the same."""


def main(seconds: float, seed: int, only: str) -> None:
    """Try shapes until the time is over. Prints each finding as it is found; the exit status says whether there are any."""
    draw, tried, found = random.Random(seed), Counter[str](), Counter[str]()
    runs = {name: run for name, run in targets().items() if only in name}
    if not runs:
        sys.exit(f"no target has {only!r} in its name")
    end = time.monotonic() + seconds
    try:
        for run in runs.values():
            problem(run, Shape(b"", b"a"), with_memory=False)  # compile and open what the first run needs
        while time.monotonic() < end and (left := [name for name in runs if found[name] < _FINDINGS_A_TARGET]):
            name, one = draw.choice(left), shape(draw)
            tried[name] += 1
            if tried.total() % _TRIES_A_COPY == 0:
                current().renew()
            if wrong := _wrong(runs[name], one):
                found[name] += 1
                print(f"    ({name!r}, {tuple(one)!r}),  # {wrong}", flush=True)
    finally:
        discard()
    print(f"seed {seed}: {tried.total()} shapes on {len(tried)} of {len(runs)} targets, {found.total()} findings")
    sys.exit(found.total() > 0)


def _wrong(run: Run, shape: Shape) -> str:
    try:
        return problem(run, shape)
    except Exception as error:  # noqa: BLE001 - every error of a route or reader is a finding
        return f"{type(error).__name__}: {error}"[:200]
