"""Inputs made to break an import: each is read with every candidate counted, or refused in one line.

``bounded`` runs the real command as a process with a memory limit. ``imported`` runs it in this process,
which is faster and enough for inputs that are odd but not large.
"""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import json
import lzma
import os
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import solidity, vyper
from sigdir.pipeline.formats.solidity import declarations, has_too_many_tokens
from sigdir.pipeline.inputs import find
from sigdir.pipeline.source import Source
from sigdir.signatures.grammar import OK
from tests.examples import long_except
from tests.pipeline.support import CommandResult, invoke, parquet_bytes, run_watched, write_files

MIB = 1 << 20
MOST_MIB = 800
"""Limit of the resident memory of an import; one of a few rows peaks at 200 to 300."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an import ended: exit status, report if any, standard error."""

    status: int
    report: dict[str, Any]
    error: str

    @classmethod
    def of(cls, result: CommandResult) -> Outcome:
        return cls(result.status, json.loads(result.stdout or "{}"), result.stderr)

    @property
    def totals(self) -> tuple[int, int, int, int]:
        totals = self.report["totals"]
        return totals["read"], totals["imported"], totals["duplicate"], totals["rejected"]

    def assert_refused(self, *parts: str) -> None:
        """Status 2 and one line on standard error that contains ``parts``."""
        assert self.status == 2, self.error
        assert len(self.error.splitlines()) == 1
        assert self.error.startswith("Error: ")
        for part in parts:
            assert part in self.error

    def assert_counted(self) -> None:
        """The import succeeded and its counts add up to the candidates read. Status 1 says that a file was all rejected."""
        assert self.status == bool(self.report["all_rejected"]), self.error
        read, *rest = self.totals
        assert read == sum(rest)
        assert self.error == ""


Import = Callable[..., Outcome]


@pytest.fixture
def imported(warehouse: Path) -> Import:
    return lambda *paths: Outcome.of(invoke(warehouse, "import", "--quiet", "--json", *paths))


@pytest.fixture
def bounded(warehouse: Path) -> Import:
    def run(*paths: Path, most: int = MOST_MIB) -> Outcome:
        result, peak = run_watched(warehouse, "import", "--quiet", "--json", *paths, most=most)
        assert peak <= most, f"{peak} MiB"
        assert "Traceback" not in result.stderr
        return Outcome.of(result)

    return run


# Bombs.

GIGABYTE = 1_000_000_000


FAST_COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": partial(gzip.compress, compresslevel=1),
    "xz": partial(lzma.compress, preset=0),
    "zst": lambda data: zstd.compress(data, 1),
    "bz2": bz2.compress,
}


def bomb(packer: str, unit: bytes, size: int, before: bytes = b"") -> bytes:
    """``size`` bytes of one repeated unit, compressed as members of 16 MiB because that is fast."""
    pack = FAST_COMPRESSORS[packer]
    return pack(before) + pack(unit * (16 * MIB // len(unit))) * (size // (16 * MIB))


def repeated(value: bytes, count: int) -> pa.Array:
    """So many rows that refer to one value."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def parquet_of(texts: Any, **options: Any) -> bytes:
    return parquet_bytes({"text_signature": texts}, compression="zstd", **options)


def in_halves() -> bytes:
    """Two values of 250 MB in one row group."""
    half = pa.array([b"f" * (GIGABYTE // 4)])
    texts = pa.chunked_array([half, half])
    return parquet_of(texts, use_dictionary=False, write_statistics=False, row_group_size=2)


def large_rows() -> bytes:
    """A row group of 1,000 rows of 1 MiB each."""
    rows = pa.array([b"%07d" % number + b"f" * MIB for number in range(50)])
    texts = pa.chunked_array([rows] * 20)
    return parquet_of(texts, use_dictionary=False, row_group_size=1_000, write_batch_size=1)


Counts = tuple[int, int, int, int]
NO_TEXT_COLUMN = "it is not clear which column has the signatures"
BOMBS: dict[str, tuple[Callable[[], bytes], Counts | str]] = {
    **{f"zeros.txt.{each}": (partial(bomb, each, b"\0", GIGABYTE // 2), (1, 0, 0, 1)) for each in FAST_COMPRESSORS},
    "one frame.txt.zst": (lambda: FAST_COMPRESSORS["zst"](bytes(GIGABYTE)), (1, 0, 0, 1)),
    "newlines.txt.zst": (partial(bomb, "zst", b"\n", GIGABYTE), (0, 0, 0, 0)),
    "large document.json.gz": (partial(bomb, "gz", b"a", 272 * MIB, b'["'), "a JSON document of over 256 MiB"),
    "many values.json.gz": (partial(bomb, "gz", b"[], ", 64 * MIB, b"["), "a JSON document of over 8,388,608 values"),
    "many columns.csv.gz": (partial(bomb, "gz", b",", GIGABYTE // 2), f"line 1: {NO_TEXT_COLUMN}"),
    "endless row.csv.zst": (
        partial(bomb, "zst", b'b\n","', GIGABYTE // 2, b'text_signature,x\na(),"'),
        "a row of over 8,388,608 characters",
    ),
    "a value of 3,000 rows.parquet": (lambda: parquet_of(repeated(b"f" * MIB, 3_000)), (3_000, 0, 0, 3_000)),
    "a value of 500 MB.parquet": (in_halves, " MiB in column text_signature; write smaller pages"),
    "a value too often.parquet": (
        lambda: parquet_of(repeated(b"f" * 60_000, 2_000_000)), "its texts have over 1,000 times its size",
    ),
    "large rows.parquet": (large_rows, (1_000, 0, 0, 1_000)),
}  # fmt: skip
"""Small files that would fill the memory, and the counts or the sentence that an import has for each."""


@pytest.mark.parametrize("name", long_except({"endless row.csv.zst"}, BOMBS))
def test_a_bomb_is_never_in_memory_as_a_whole(tmp_path: Path, bounded: Import, name: str) -> None:
    """Each line or value that is too long is a reject, and what cannot be read by parts is refused before it is."""
    make, expected = BOMBS[name]
    path = tmp_path / name
    path.write_bytes(make())
    outcome = bounded(path, most=1000 if name.startswith("large document") else MOST_MIB)
    if isinstance(expected, str):
        outcome.assert_refused(f"{path}: ", expected)
        return
    outcome.assert_counted()
    assert outcome.totals == expected
    assert outcome.report["reasons"] == ({"too_long": expected[3]} if expected[3] else {})


def greedy_xz() -> bytes:
    """A stream whose header declares a dictionary of 1.5 GiB, in a byte of its own, with a checksum of the whole."""
    header = lzma.LZMACompressor(filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    packed = bytearray(header.compress(b"a()\n") + header.flush())
    packed[packed.index(b"\x21\x01", 12) + 2] = 37
    end = 12 + 4 * (packed[12] + 1)
    packed[end - 4 : end] = zlib.crc32(packed[12 : end - 4]).to_bytes(4, "little")
    return bytes(packed)


def broken_second(packer: str) -> bytes:
    """Two streams; the header of the second is damaged."""
    second = bytearray(FAST_COMPRESSORS[packer](b"b()\n"))
    second[4] ^= 1
    return FAST_COMPRESSORS[packer](b"a()\n") + second


def overlapping_chunks() -> bytes:
    """A footer of 500 kB that names one chunk of a megabyte 4,096 times."""
    data = parquet_bytes({"text_signature": [f"f{number}()" for number in range(100_000)]})
    footer, out = pq.read_metadata(io.BytesIO(data)), io.BytesIO()
    for _ in range(12):
        footer.append_row_groups(footer)
    footer.write_metadata_file(out)
    return data + out.getvalue()[4:]


def columns_of_one_name() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a()"]), pa.array(["b()"])], names=["text_signature"] * 2), out)
    return out.getvalue()


REFUSED: list[tuple[str, Callable[[], bytes], str]] = [
    # Above a bound, here 64 MiB, an input may decompress to 1,000 times its size at most: 46 kB of bzip2 would be 16 GB.
    ("bomb.txt.bz2", partial(bomb, "bz2", b"\0", 16_000 * MIB), "it unpacks to over 1,000 times its size"),
    ("huge dictionary.txt.xz", greedy_xz, "Memory usage limit"),
    ("damaged second stream.txt.xz", partial(broken_second, "xz"), "bytes unpacked"),
    ("damaged second stream.txt.bz2", partial(broken_second, "bz2"), "bytes unpacked"),
    ("chunks that are read again.parquet", overlapping_chunks, "row group 2: its column chunks overlap"),
    ("columns of one name.parquet", columns_of_one_name, "several columns are named text_signature"),
    ("line breaks.parquet", lambda: parquet_bytes({"a\nb\x1b[31m": [1]}), NO_TEXT_COLUMN + r"; it has a\nb\x1b[31m"),
]


def test_what_cannot_be_read_is_refused(tmp_path: Path, imported: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, which escapes line breaks and control characters; of two streams the intact one is not imported."""
    monkeypatch.setattr("sigdir.pipeline.source._UNCHECKED_BYTES", 64 * MIB)
    for name, make, reason in REFUSED:
        path = tmp_path / name
        path.write_bytes(make())
        imported(path).assert_refused(f"{path}: ", reason)


def test_padding_after_a_stream_is_accepted(tmp_path: Path, imported: Import) -> None:
    """xz streams may be followed by zeros, between streams and at the end."""
    padded = tmp_path / "padded.txt.xz"
    padded.write_bytes(lzma.compress(b"a()\n") + bytes(8) + lzma.compress(b"b()\n") + bytes(4))
    assert imported(padded).totals == (2, 2, 0, 0)


# Lines and rows.


@pytest.mark.long
def test_a_header_of_a_million_columns_is_read(tmp_path: Path, imported: Import) -> None:
    """The text column is found near the start of the header; far beyond it, one line says that it is missing."""
    near, far = tmp_path / "near.csv", tmp_path / "far.csv"
    near.write_text("text_signature" + ",c" * 1_000_000 + "\na()\n")
    assert imported(near).totals == (1, 1, 0, 0)
    far.write_text("c," * 1_000_000 + "x" * 200_000 + ",text_signature\n" + "," * 1_100_001 + "a()\n")
    imported(far).assert_refused(f"{far}: line 1: it is not clear which column has the signatures")


# Depth.


OPENED = (
    "{", "(", "[", "contract C {", "function f() { (", "function f(uint[]", "mapping(uint => ", "a.", "/* ",
    "struct S {", '"',
)  # fmt: skip


@pytest.mark.parametrize("opened", OPENED)
def test_deep_solidity_is_read(opened: str) -> None:
    """Nesting 20,000 deep that is never closed: reading ends, with or without the declaration in front of it."""
    code = "contract A { function f() public {} }\n" + opened * 20_000
    assert [entry.text for entry in declarations(code.encode()) if entry.reject_reason == OK] == [b"function f()"]


def test_a_source_of_very_many_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word counts as one token, white space as none."""
    monkeypatch.setattr("sigdir.pipeline.formats.solidity.statements.MAX_TOKENS", most := 1_000)
    for too_many in (b";" * (most + 1), b"a " * (most + 1), b"a;" * (most // 2 + 1)):
        assert has_too_many_tokens(too_many), too_many[:2]
    for fine in (b";" * most + b" " * most, b"word " * (most - 8), b"a" * 16 * most, b"w\xc3\xb6rd\t\r\n" * (most - 8)):
        assert not has_too_many_tokens(fine), fine[:9]


# Projects.

SOLIDITY = (
    "a b;", "event e{}(a,b);", "error e{}();", "enum e{} {{}}", "struct e{} {{ a b; a c; }}", 'import "{}";',
    "contract e{} is a,b,c {{}}", "function f() public returns (a,b,c);", "error e{}((a),(b,c));",
)  # fmt: skip
VYPER = (
    "a b\n", "import a{}\n", "a{}: public(b)\n", "event a{}: pass\n", "struct a{}:\n    b: c\n    d: e\n", "flag a{}:\n    b\n",
    "interface a{}:\n    def b(c: d) -> e: view\n", "@external\ndef a{}(b: c, d: e = 1) -> (f, g): pass\n",
    "a{}: public(HashMap[b, HashMap[c, d[4]]])\n", "a{}: constant(b) = 1+1+1+1\n",
    "a{}: public(b[-1][-1])\n", "a{}: public(b()()()())\n", "a{}: b = c\nexports: (d.e, d.f)\n",
)  # fmt: skip
DENSE = [
    *(("a.sol", one) for one in SOLIDITY), *(("remappings.txt", one) for one in ("a\n", "a=b\n")),
    *(("a.vy", one) for one in VYPER),
]  # fmt: skip


def add_all(project: solidity.Project | vyper.Project, sources: list[Source]) -> None:
    for source in sources:
        with source.open(lambda _: None):
            project.add(source)


@pytest.mark.parametrize(("name", "statement"), DENSE)
def test_the_memory_of_a_project_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, statement: str
) -> None:
    """Whatever sources consist of, one that comes when the memory for them is full is refused by its name."""
    module = vyper if name == "a.vy" else solidity
    monkeypatch.setattr(module, "MAX_KEPT", most := 1 << 18)
    dense = "".join(map(statement.format, range(100)))
    write_files(tmp_path, {f"{number:02}/{name}": dense for number in range(40)})
    sources, project = find([str(tmp_path)]), module.Project([str(tmp_path)])
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=rf"/[0-9]{{2}}/{name}: the \w+ sources before it fill the memory"):
            add_all(project, sources)
        gc.collect()  # what the collector would free later is not kept
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert most / 5 < taken < 2 * most


# Folders and names.


@pytest.mark.long
def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path, bounded: Import) -> None:
    """100 documents that take 18 MiB each once they are parsed stay within the memory limit: one is held at a time."""
    document = json.dumps({"abi": [{"type": "function", "name": "f"}], "metadata": [[]] * 240_000})
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.json").write_text(document)
    outcome = bounded(folder)
    outcome.assert_counted()
    assert outcome.totals == (100, 1, 99, 0)


def test_names_of_any_bytes_are_shown_in_one_line(tmp_path: Path, warehouse: Path, imported: Import) -> None:
    """A file name with a line break, an escape or invalid UTF-8 breaks neither error messages nor the history."""
    names = [b"a\nb", b"\x1b[31mred", b"\xff\xfe", b"'; DROP TABLE x; --", b"%s{}"]
    (folder := tmp_path / "in").mkdir()
    for number, name in enumerate(names):
        good, bad = (Path(os.fsdecode(os.fsencode(folder) + b"/" + name + end)) for end in (b".txt", b".json"))
        bad.write_text("{")
        imported(bad).assert_refused("broken JSON")
        bad.unlink()
        good.write_text(f"name{number}()\nbad{number}(uint7)\n")
    outcome = imported(folder)
    outcome.assert_counted()
    assert outcome.totals == (10, 5, 0, 5)
    for command in (["history", "--sources"], ["rejects"]):
        shown = invoke(warehouse, *command, "--format", "ndjson").stdout.splitlines()
        assert json.loads(invoke(warehouse, *command, "--json").stdout) == [json.loads(line) for line in shown]
        assert len(shown) == len(names)
