"""Vyper sources: what they declare, as the compiler has it, and what is a reject."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.vyper import MAX_KEPT, Project
from sigdir.pipeline.formats.vyper.source_unit import MAX_BYTES
from sigdir.pipeline.inputs import find
from sigdir.signatures.collections import EVENT_SIGNATURES
from tests.conftest import import_files
from tests.pipeline.support import texts, write_files
from tests.pipeline.test_formats import Read, Reading, read

__all__ = ["read"]  # the fixture

NEW = """
# pragma version ~=0.4.0
# pragma nonreentrancy on
\"\"\"A docstring with
def hidden(a: uint256): # and "quotes\"\"\"
from ethereum.ercs import IERC20
from . import missing

implements: IERC20

N: constant(uint256) = 2 * (3 - 1)
M: constant(uint256) = N ** 2 // 3 + (1 << 2)

struct Point:
    x: uint256
    y: int128  # a comment: with a colon

struct Line:
    ends: Point[2]
    color: bytes4

flag Role:
    ADMIN
    USER

interface Pool:
    def coins(i: uint256) -> address: view
    def swap(i: int128, j: int128 = 0): nonpayable

event Moved:
    by: indexed(address)
    line: Line
    role: indexed(Role)

event Stopped: pass

owner: public(address)
token: public(immutable(IERC20))
LIMIT: public(constant(uint256)) = 10
hidden: uint256
lines: public(HashMap[address, HashMap[bytes32, Line[N]]])
queue: public(DynArray[DynArray[Point, 3], N])
name: public(String[N])
grid: public(reentrant(transient(uint256[M][2])))

@deploy
def __init__(token_: IERC20):
    token = token_

@external
@payable
def __default__():
    pass

@external
def draw(
    line: Line,      # the line
    role: Role,
    to: address = msg.sender,
    memo: Bytes[N + 1] = b"a, (b",
    rate: decimal = 1.5,
) -> (uint256, Point):
    log Moved(by=to, line=line, role=role)
    return 1, line.ends[0]

@internal
def _inside(a: uint256):
    pass

def also_inside(a: uint256):
    pass

@view
@external
def matrix(m: uint256[M][2], points: DynArray[Point, 5], pool: Pool) -> uint256: return 1
"""

NEW_FUNCTIONS = [
    "coins(uint256)", "swap(int128)", "swap(int128,int128)",
    "owner()", "token()", "LIMIT()", "lines(address,bytes32,uint256)", "queue(uint256,uint256)", "name()",
    "grid(uint256,uint256)",
    "draw(((uint256,int128)[2],bytes4),uint256)",
    "draw(((uint256,int128)[2],bytes4),uint256,address)",
    "draw(((uint256,int128)[2],bytes4),uint256,address,bytes)",
    "draw(((uint256,int128)[2],bytes4),uint256,address,bytes,int168)",
    "matrix(uint256[9][2],(uint256,int128)[],address)",
]  # fmt: skip
NEW_EVENTS = ["Moved(address,((uint256,int128)[2],bytes4),uint256)", "Stopped()"]

OLD = """
# @version 0.1.0b17
contract Coin:
    def transfer(to: address, amount: uint256(wei)) -> bool: modifying
Transfer: event({_from: indexed(address), _to: indexed(address),
                 _value: uint256(wei)})
units: {share: "a share"}
coins: public(address[3])
balances: public(map(address, map(bytes32, uint256(wei))))
ends: public(timestamp)
@public
@constant
def get(a: bytes[100], b: string[10], c: wei_value, d: timedelta, e: decimal, f: Coin) -> uint256:
    assert a == b"\\"
    return 1
@private
def hidden(): pass
"""


OLD_FUNCTIONS = [
    "transfer(address,uint256)", "coins(int128)", "balances(address,bytes32)", "ends()",
    "get(bytes,string,uint256,uint256,fixed168x10,address)",
]  # fmt: skip


def test_sources_of_today_and_of_2019(read: Read) -> None:
    """Each kind of declaration has its texts: defaults are one text each, flags uint256, getters their keys.

    The old source has units, `map` and lower-case bytes, and the getter of an array takes an int128.
    """
    assert read("a.vy", NEW) == Reading("vyper", NEW_FUNCTIONS, NEW_EVENTS)
    assert read("a.vy", OLD) == Reading("vyper", OLD_FUNCTIONS, ["Transfer(address,address,uint256)"])


REJECTED = [
    ("@external\ndef f(a: Unknown): pass", "function f(Unknown a)"),
    ("N: constant(uint256) = M\nM: constant(uint256) = N\n@external\ndef f(a: bool[N]): pass", "function f(bool[N] a)"),
    ("@external\ndef f(a: bool[2 - 2]): pass", "function f(bool[2-2] a)"),
    ("@external\ndef f(a: bool[2 ** 2 ** 99]): pass", "function f(bool[2**2**99] a)"),
    ("@external\ndef f(a: bool[1 // 0]): pass", "function f(bool[1//0] a)"),
    ("struct S:\n    s: S\n@external\ndef f(a: S): pass", "function f(S a)"),
    ("from . import m\n@external\ndef f(a: m.S): pass", "function f(m.S a)"),
    ("@external\ndef f(a: HashMap[address, bool]): pass", "function f(HashMap[address,bool] a)"),
    ("@external\ndef f(a): pass", "function f(? a)"),
    ("@external\ndef f(a: bool, *b: bool): pass", "def f ( a : bool , * b : bool ) : pass"),
    ("@external\ndef f(a: bool:\n    pass", "def f ( a : bool : pass"),
    ("event E:\n    a b", "event E(?)"),
    ("lock the door", "lock the door"),
    ("interface I:\n    x: y", "x : y"),
    ("from . import m\nexports: (m.f, m.__interface__)", "exports m.f"),
    ("@external\ndef f(a: " + "(" * 40 + "bool" + ")" * 40 + "): pass", "(a statement that is too long or nested too deeply)"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), REJECTED, ids=[text for _, text in REJECTED])
def test_what_is_not_understood_is_a_reject(read: Read, code: str, text: str) -> None:
    """It shows the text as written, and the declarations around it are read."""
    reading = read("a.vy", f"x: public(bool)\n{code}\n\ny: public(bool)\n")
    assert text in {reject.text for reject in reading.rejects}
    assert reading.functions[0] == "x()"
    assert reading.functions[-1] == "y()"


def test_names_of_other_sources(tmp_path: Path, warehouse: Path) -> None:
    """Beside the importing file, or in one folder above it; never in two. A source beside its packed form is another."""
    files: dict[str, str | bytes] = {
        "p/lib/types.vy": "struct S:\n    a: uint256[K]\nK: constant(uint256) = 3\nflag F:\n    A\n",
        "p/lib/deep.vy": "from . import types\n@external\ndef d(s: types.S): pass\n",
        "p/src/a.vy": "from lib import types as t\nfrom lib import deep\nexports: deep.d\n"
        "@external\ndef a(s: t.S, f: t.F, n: bool[t.K], d: deep.types.S, i: t.__interface__): pass\n",
        "p/src/b.vy": "import twice as t\n@external\ndef b(s: t.S): pass\n",
        "p/src/b.vy.gz": gzip.compress(b"@external\ndef packed(): pass\n"),
        "p/twice.vy": "struct S:\n    a: bool\n",
        "twice.vyi": "struct S:\n    a: address\n@external\ndef v(): ...\n",
    }
    write_files(tmp_path / "in", files)
    report = import_files([tmp_path / "in"], warehouse)
    assert set(texts(warehouse)) == {
        "a((uint256[3]),uint256,bool[3],(uint256[3]),address)", "d((uint256[3]))", "v()", "packed()",
    }  # fmt: skip
    rejects = sigdir.open(warehouse).sql("SELECT text, reason FROM rejects").rows()
    assert rejects == [("function b(t.S s)", "library_type")]
    assert {file.format for file in report.files} == {"vyper"}
    assert texts(warehouse, EVENT_SIGNATURES) == []


HOSTILE = {
    "structs of structs": "struct S0:\n    a: bool\n"
    + "".join(f"struct S{n}:\n    a: S{n - 1}\n    b: S{n - 1}\n" for n in range(1, 60))
    + "@external\ndef f(s: S59): pass\n",
    "brackets": "(" * 100_000,
    "minus": "a: bool[" + "-" * 50_000 + "1]",
    "sum": "@external\ndef f(a: bool[" + "+".join("1" * 2_000) + "]): pass\n",
    "dots": "@external\ndef f(a: " + ".".join("a" * 2_000) + "): pass\nfrom . import a\n",
    "quotes": '"' * 300_001,
    "escapes": '"\\' * 200_000,
    "triple": ('"""' + "\\") * 100_000,
    "lines": "a\n" * 10_000,
    "constants": "".join(f"N{n}: constant(uint256) = N{n + 1} + N{n + 1}\n" for n in range(99)) + "x: public(bool[N0])",
    "wide": "@external\ndef f(" + ",".join(f"a{n}: bool = True" for n in range(600)) + "): pass\n",
}


WITHOUT_A_PRAGMA = "coins: public(address[2])\n"
VERSIONS = {
    # Numbers have underscores, in any base, and a value that is not understood loses nothing but itself.
    "# pragma version ~=0.4.0\n_ID: public(constant(bytes4)) = 0x15_0B_7A_02\n_SIZE: constant(uint256) = 1_0\n"
    "_BITS: public(constant(uint256)) = 0b10_01\n_ODD: public(constant(uint256)) = 0x1__2\nlist: public(uint256[_SIZE])\n":
        ["_ID()", "_BITS()", "_ODD()", "list(uint256)"],
    "m: public(map(address, timestamp))\n" + WITHOUT_A_PRAGMA: ["m(address)", "coins(int128)"],
    "@public\ndef f(when: timestamp):\n    pass\n" + WITHOUT_A_PRAGMA: ["f(uint256)", "coins(int128)"],
    "Paid: event({when: timestamp})\n" + WITHOUT_A_PRAGMA: ["coins(int128)"],
    WITHOUT_A_PRAGMA + "when: public(timestamp)\n": ["coins(uint256)", "when()"],
    # int168 since 0.4
    "# @version ^0.3.10\n@external\ndef f(a: decimal): pass\n": ["f(fixed168x10)"],
}  # fmt: skip


@pytest.mark.parametrize("code", VERSIONS)
def test_versions(read: Read, code: str) -> None:
    """What only Vyper 0.1 has shows the version of a source without a pragma: its types, and int128 as an index."""
    assert read("A.vy", code) == Reading("vyper", VERSIONS[code], ["Paid(uint256)"] if "event" in code else [])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_are_bounded(read: Read, name: str) -> None:
    """Each is read in seconds, with every candidate counted."""
    read("a.vy", HOSTILE[name])


def test_a_source_has_a_size(read: Read) -> None:
    with pytest.raises(BadInput, match="a Vyper source of over 1 MiB"):
        read("a.vy", "#" * (MAX_BYTES + 1))


def test_one_source_takes_little_of_the_memory_of_a_project(tmp_path: Path) -> None:
    """The last one is read where there is any left."""
    dense = "".join(f"a{number}: constant(b) = {'-1' * 12}\n" for number in range(500))
    [source] = find(map(str, write_files(tmp_path, {"a.vy": dense})))
    project = Project([str(tmp_path)])
    tracemalloc.start()
    try:
        with source.open(lambda _: None):
            project.add(source)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken / len(dense) * MAX_BYTES < MAX_KEPT / 8
