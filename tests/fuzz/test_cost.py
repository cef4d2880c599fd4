"""The cost fuzzer: what it found, and that it finds what it should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sigdir.pipeline.formats.registry import FORMATS
from sigdir.serve.app import routes
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.routing import methods_of
from tests.conftest import empty_warehouse
from tests.examples import long_except
from tests.fuzz import cost
from tests.fuzz.application import current, discard
from tests.fuzz.cost import BINARY, Shape, problem, shape, targets
from tests.fuzz.offline import TOOLS, awaited
from tests.fuzz.route_tables import BODIES, QUERIES, WITHOUT
from tests.serve.support import opened

FOUND: list[tuple[str, tuple[bytes, ...]]] = [
    ("POST /submit/ text form", (b"", b"contract ")),
    ("POST /api/v1/decode/ data json", (b"f() anonymous", b" ", b"x")),
    ("POST /api/v1/decode/ data json", (b"f(", b"\n 0x")),
    ("POST /decode/ data form", (b"f(", b"\n", b"x")),
    ("GET /decode/ data", (b"f()", b" ", b"x")),
    ("POST /api/v1/import-solidity/ source_file multipart", (b"", b"contract C { function f(")),
    ("POST /api/v1/import-solidity/ source_code json", (b"function f() {event [", b"|---|\n", b"", b"constant(")),
    ("POST /api/v1/import-solidity/ source_file multipart", (b'[0]boundary="error E();', b"HashMap[.", b"{")),
    ("read solidity", (b"contract C { function f(uint[", b"a.", b"a] x) public {} }")),
    ("read solidity", (b"function f(uint a) public view returns (uint) {event [", b"|---|---|\n\xe2\x94\x82", b"", b"constant(")),
    ("read solidity", (b"", b"import ")),
    ("POST /api/v1/decode/ raw multipart/form-data", (b"--b\r\n", b"\r\n--", b"x")),
    ("POST /api/v1/import-abi/ raw multipart/form-data", (b"--b\r\n\r\n\r\n", b"\r\n--a")),
    ("POST /api/v1/signatures/ type", (b'boundary=b; x="', b";")),
    ("read csv", (b"signature", b",hash", b"", b"\nf()")),
    ("read csv", (b"signature,x", b",hash", b"\nf(),0x\n")),
    ("POST /api/v1/import-solidity/ source_code json", (b"'constant uint256[]", b"73", b"", b"import 'a';/*")),
    ("pack event-signatures indexed 2", (b"${", b'}}boundary="', b"\0", b"\r\n--b\r\n--b")),
    ("pack signatures texts 3", (b"[0]\r[[", b"external  ", b"", b"| a | b |\n" * 30)),
    ("descriptor formats contracts", (b"/*", b"5b======= a:b =======\n" + b"A" * 30, b"", b"--b\r\n--b\r\naddress payableunchecked {")),
    ("descriptor sentence", (b"", b"{legs.[].token}")),
    ("decode file .json", (b"[{", b'"a@N":1,', b'"b":1}]')),
    ("read solc-hashes", (b"Function signatures:\n======= ", b":", b"x")),
    ("read abi", (b'["function f()', b" ", b'view"]')),
    ("read javascript", (b'"', b'\\"')),
    ("read javascript", (b"'", b"\\'")),
    ("read javascript", (b"[", b"readonly ")),
    ("read javascript", (b"{", b"readonly ")),
    ("read javascript", (b"", b"[/")),
    ("read javascript", (b"", b"=\\/")),
]  # fmt: skip
"""Targets and shapes whose cost was out of proportion once. `make test` tries every third."""


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, cost.Run]]:
    yield targets()
    discard()


LONG = [
    ("descriptor formats contracts", (b"", b"\n")),
    ("decode file .csv t", (b"a", b"0x,")),
    ("fold", (b"", b"f@N(uint a)\n")),
]
"""They take longer than all others together."""


@pytest.mark.parametrize(
    ("name", "found"),
    long_except(FOUND[::3], FOUND + LONG),
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_cost_is_in_proportion(runs: dict[str, cost.Run], name: str, found: tuple[Any, ...]) -> None:
    """Of what once took too long, too much memory, or gave too long an answer."""
    runs[name](b"a" * cost.SMALL)  # compile and open what the first run needs
    assert problem(runs[name], Shape(*found)) == ""


@pytest.mark.long
def test_every_target_takes_every_shape(runs: dict[str, cost.Run]) -> None:
    """Some shapes for each kind of target; ``python -m tests.fuzz cost`` tries more."""
    draw = random.Random(28)
    for name in draw.sample(sorted(runs), 12):
        assert problem(runs[name], shape(draw), with_memory=False) == ""


def test_what_is_out_of_proportion_is_found() -> None:
    """Time, memory, and the size of an answer, each by a target that breaks its bound."""
    assert "s, an eighth" in problem(lambda data: (sum(range(len(data) ** 2 >> 9)), 0), Shape(b"", b"a"))
    assert "MiB" in problem(lambda data: (len(bytearray(len(data) ** 2 >> 7)), 0), Shape(b"", b"a"))
    assert "answered with" in problem(lambda data: (len(data), 100_000), Shape(b"", b"a"))
    assert problem(lambda data: (len(data), len(data.replace(b"a", b"b"))), Shape(b"", b"a")) == ""


def test_every_route_has_a_target_or_a_reason(tmp_path: Path) -> None:
    """Each route of a server that has them all."""
    settings = Settings(tmp_path, mcp=True, sql=True, solve=True, count_misses=True, rpc="http://127.0.0.1:1")
    with opened(empty_warehouse(tmp_path)) as storage:
        table = routes(settings, *storage)
    assert {path for path, resource in table.items() if "POST" in methods_of(resource)} == BODIES.keys()
    assert {
        path for path, resource in table.items() if "GET" in methods_of(resource)
    } == QUERIES.keys() | WITHOUT.keys()


def test_every_reader_and_tool_has_a_target(runs: dict[str, cost.Run]) -> None:
    """The formats of imports but those that are binary, and each argument that is a text of each tool for agents."""
    assert {f"read {format.name}" for format in FORMATS if format.name not in BINARY} <= runs.keys()
    tools = awaited(current().tools.list_tools())
    arguments = {(tool.name, name): kind for tool in tools for name, kind in tool.input_schema["properties"].items()}
    numbers = {key for key, kind in arguments.items() if kind.get("type") in ("number", "integer", "boolean")}
    assert {f"{tool} {name}" for tool, name in arguments.keys() - numbers} == TOOLS.keys()
