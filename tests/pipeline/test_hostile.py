"""Inputs made to break an import: each is read with every candidate counted, or refused in one line.

``bounded`` runs the real command as a process with a memory limit. ``imported`` runs it in this process,
which is faster and enough for inputs that are odd but not large.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import time
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

from sigdir.pipeline.formats.solidity import (
    MAX_POSTED_TOKENS,
    MAX_TOKENS,
    declarations,
    has_too_many_tokens,
    is_too_long_to_post,
)
from sigdir.signatures.grammar import OK
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, environment
from tests.pipeline.support import invoke, peak_mib, write_files

MIB = 1 << 20
MOST_MIB = 800
"""Limit of the resident memory of an import; one of a few rows peaks at 200 to 300."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an import ended: exit status, report if any, standard error, peak of resident memory in MiB."""

    status: int
    report: dict[str, Any]
    error: str
    peak: int

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
    def run(*paths: Path | str) -> Outcome:
        result = invoke(warehouse, "import", "--quiet", "--json", *paths)
        return Outcome(result.status, json.loads(result.stdout or "{}"), result.stderr, 0)

    return run


@pytest.fixture
def bounded(warehouse: Path) -> Import:
    def run(*paths: Path | str, most: int = MOST_MIB) -> Outcome:
        """Import; kill the process if it has more than ``most`` MiB resident."""
        command = [*command_line(), "import", "--quiet", "--json", *map(str, paths)]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment(warehouse), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            outcome = _watch(process, most)
        assert outcome.peak <= most, f"{outcome.peak} MiB"
        assert "Traceback" not in outcome.error
        return outcome

    return run


def _watch(process: subprocess.Popen[bytes], most: int) -> Outcome:
    """Wait for a process; kill it if it exceeds ``most`` MiB or hangs."""
    assert process.stdout is not None
    assert process.stderr is not None
    peak, deadline = 0, time.monotonic() + SAFETY_SECONDS
    while process.poll() is None:
        peak = max(peak, peak_mib(process.pid))
        if peak > most or time.monotonic() > deadline:
            process.kill()
        time.sleep(0.01)
    out, error = process.stdout.read(), process.stderr.read().decode()
    return Outcome(process.returncode, json.loads(out) if out else {}, error, peak)


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


@pytest.mark.long
@pytest.mark.parametrize("packer", FAST_COMPRESSORS)
def test_a_bomb_of_zeros_is_one_reject(tmp_path: Path, bounded: Import, packer: str) -> None:
    """With every compression, it is one line that is too long, and is never in memory as a whole."""
    path = tmp_path / f"zeros.txt.{packer}"
    path.write_bytes(bomb(packer, b"\0", GIGABYTE // 2))
    outcome = bounded(path)
    outcome.assert_counted()
    assert outcome.totals == (1, 0, 0, 1)
    assert outcome.report["reasons"] == {"too_long": 1}


@pytest.mark.long
def test_a_frame_of_a_gigabyte_is_one_reject(tmp_path: Path, bounded: Import) -> None:
    """One zstd frame of a gigabyte (128 KiB compress to 4 bytes) is decompressed piece by piece."""
    path = tmp_path / "zeros.txt.zst"
    path.write_bytes(FAST_COMPRESSORS["zst"](bytes(GIGABYTE)))
    assert path.stat().st_size < MIB // 16
    outcome = bounded(path)
    outcome.assert_counted()
    assert outcome.totals == (1, 0, 0, 1)


@pytest.mark.long
def test_a_gigabyte_of_newlines_is_nothing(tmp_path: Path, bounded: Import) -> None:
    """Blank lines are no candidates, however many there are."""
    path = tmp_path / "lines.txt.zst"
    path.write_bytes(bomb("zst", b"\n", GIGABYTE))
    outcome = bounded(path)
    outcome.assert_counted()
    assert outcome.totals == (0, 0, 0, 0)


def test_a_bomb_without_an_end_is_refused(tmp_path: Path, imported: Import) -> None:
    """Above 1 GiB, an input may decompress to 1,000 times its size at most: 4 MB of bzip2 would be 1.6 TB."""
    path = tmp_path / "bomb.txt.bz2"
    path.write_bytes(bomb("bz2", b"\0", 1_600_000 * MIB))
    imported(path).assert_refused(f"{path}: after ", "it unpacks to over 1,000 times its size")


@pytest.mark.long
def test_a_bomb_of_json_is_refused(tmp_path: Path, bounded: Import) -> None:
    """A document that is too large or has too many values is refused before Python objects are made."""
    large, dense = tmp_path / "large.json.gz", tmp_path / "dense.json.gz"
    large.write_bytes(bomb("gz", b"a", 272 * MIB, b'["'))
    bounded(large, most=1000).assert_refused(f"{large}: ", "a JSON document of over 256 MiB")
    dense.write_bytes(bomb("gz", b"[], ", 64 * MIB, b"["))
    bounded(dense).assert_refused(f"{dense}: ", "a JSON document of over 8,388,608 values")


def test_a_stream_with_a_huge_dictionary_is_refused(tmp_path: Path, imported: Import) -> None:
    """An xz stream whose header declares a dictionary of 1.5 GiB is refused."""
    header = lzma.LZMACompressor(filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    packed = bytearray(header.compress(b"a()\n") + header.flush())
    # The block header has the dictionary's size in a byte of its own, and a checksum of the whole.
    at = packed.index(b"\x21\x01", 12) + 2
    packed[at] = 37  # 1.5 GiB
    end = 12 + 4 * (packed[12] + 1)
    packed[end - 4 : end] = zlib.crc32(packed[12 : end - 4]).to_bytes(4, "little")
    greedy = tmp_path / "greedy.txt.xz"
    greedy.write_bytes(packed)
    imported(greedy).assert_refused(f"{greedy}: ", "Memory usage limit")


@pytest.mark.parametrize("packer", ["xz", "bz2"])
def test_a_damaged_second_stream_is_refused(tmp_path: Path, imported: Import, packer: str) -> None:
    """If the first of two streams is intact and the header of the second is not, nothing is imported."""
    pack = FAST_COMPRESSORS[packer]
    second = bytearray(pack(b"b()\n"))
    second[4] ^= 1
    broken = tmp_path / f"two.txt.{packer}"
    broken.write_bytes(pack(b"a()\n") + second)
    imported(broken).assert_refused(f"{broken}: ", "bytes unpacked")


def test_padding_after_a_stream_is_accepted(tmp_path: Path, imported: Import) -> None:
    """xz streams may be followed by zeros, between streams and at the end."""
    padded = tmp_path / "padded.txt.xz"
    padded.write_bytes(lzma.compress(b"a()\n") + bytes(8) + lzma.compress(b"b()\n") + bytes(4))
    assert imported(padded).totals == (2, 2, 0, 0)


# Lines and rows.


def test_a_line_of_50_mb_is_one_reject(tmp_path: Path, imported: Import) -> None:
    """The lines around it are imported."""
    long = tmp_path / "long.txt"
    long.write_bytes(b"a()\n" + b"f" * 50_000_000 + b"()\nb()\n")
    outcome = imported(long)
    outcome.assert_counted()
    assert outcome.totals == (3, 2, 0, 1)


@pytest.mark.long
def test_a_header_of_a_million_columns_is_read(tmp_path: Path, imported: Import) -> None:
    """The text column is found near the start of the header; far beyond it, one line says that it is missing."""
    near, far = tmp_path / "near.csv", tmp_path / "far.csv"
    near.write_text("text_signature" + ",c" * 1_000_000 + "\na()\n")
    assert imported(near).totals == (1, 1, 0, 0)
    far.write_text("c," * 1_000_000 + "x" * 200_000 + ",text_signature\n" + "," * 1_100_001 + "a()\n")
    imported(far).assert_refused(f"{far}: line 1: it is not clear which column has the signatures")


def test_a_header_of_very_many_columns_is_refused(tmp_path: Path, bounded: Import) -> None:
    """Half a gigabyte of commas, compressed to half a megabyte, is refused within the memory limit."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(bomb("gz", b",", GIGABYTE // 2))
    bounded(path).assert_refused(f"{path}: line 1: it is not clear which column has the signatures")


@pytest.mark.long
def test_a_row_without_an_end_is_refused(tmp_path: Path, bounded: Import) -> None:
    """Quoted fields may contain line breaks, so a row without end is possible; its length is bounded."""
    path = tmp_path / "endless.csv.zst"
    path.write_bytes(bomb("zst", b'b\n","', GIGABYTE // 2, b'text_signature,x\na(),"'))
    bounded(path).assert_refused(f"{path}: line ", "a row of over 8,388,608 characters")


# Depth.

DEEP = 100_000


@pytest.mark.parametrize("opened", ["(", "tuple("])
def test_parentheses_100_000_deep_are_one_reject(tmp_path: Path, imported: Import, opened: str) -> None:
    """In every format of lines; the grammar counts depth and does not recurse."""
    text = "f(" + opened * DEEP + ")" * DEEP + ")"
    files = {
        "deep.txt": text,
        "deep.csv": f'text_signature\n"{text}"',
        "deep.jsonl": json.dumps({"text_signature": text}),
        "deep.json": json.dumps({"12345678": text}),
        "deep.abi": json.dumps([{"type": "function", "name": "f", "inputs": [{"type": text[2:-1]}]}]),
        "deep.export": "0x12345678," + text,
    }
    outcome = imported(*write_files(tmp_path / "in", {name: content + "\n" for name, content in files.items()}))
    outcome.assert_counted()
    assert {file["path"]: (file["read"], file["rejected"]) for file in outcome.report["files"]} == {
        str(tmp_path / "in" / name): (1, 1) for name in files
    }


def test_deep_json_is_refused_or_rejected(tmp_path: Path, imported: Import) -> None:
    """Deep documents are refused and deep lines are rejects, also in a member that no format reads."""
    nest = "[" * DEEP + "]" * DEEP
    components = '{"type":"tuple","components":[' * DEEP + "]}" * DEEP
    document = tmp_path / "deep.json"
    for content in (nest, f'{{"abi": [{nest}]}}', f'[{{"type":"function","name":"f","inputs":[{components}]}}]'):
        document.write_text(content)
        imported(document).assert_refused(f"{document}: JSON nested too deeply")
    lines = tmp_path / "deep.jsonl"
    good = {"selector": "0x0dbe671f", "abi": {"type": "function", "name": "a", "inputs": []}}
    for inside in (f'"abi": {nest}', f'"x": {nest}, "abi": {json.dumps(good["abi"])}'):
        lines.write_text(json.dumps(good) + f'\n{{"selector": "0x12345678", {inside}}}\n')
        outcome = imported(lines)
        outcome.assert_counted()
        assert outcome.totals[0] == 2


@pytest.mark.parametrize(
    "opened",
    [
        "{",
        "(",
        "[",
        "contract C {",
        "function f() { (",
        "function f(uint[]",
        "mapping(uint => ",
        "a.",
        "/* ",
        "struct S {",
        '"',
    ],
)
def test_deep_solidity_is_read(opened: str) -> None:
    """Nesting 20,000 deep that is never closed: reading ends, with or without the declaration in front of it."""
    code = "contract A { function f() public {} }\n" + opened * 20_000
    assert [entry.text for entry in declarations(code.encode()) if entry.reject_reason == OK] == [b"f()"]


def test_a_source_of_very_many_tokens_is_refused() -> None:
    """The parser needs 430 MB for a million tokens. A word counts as one token, white space as none."""
    most = MAX_TOKENS
    assert has_too_many_tokens(b";" * (most + 1))
    assert has_too_many_tokens(b"a " * (most + 1))
    assert has_too_many_tokens(b"a;" * (most // 2 + 1))
    assert not has_too_many_tokens(b";" * most + b" " * most)
    assert not has_too_many_tokens(b"word " * (most - 8))
    assert not has_too_many_tokens(b"a" * 16 * most)
    assert not has_too_many_tokens(b"w\xc3\xb6rd\t\r\n" * (most - 8))


def test_a_posted_source_has_few_tokens_outside_of_bodies() -> None:
    """The parser does not see bodies and comments, so they count for nothing."""
    most = MAX_POSTED_TOKENS
    assert is_too_long_to_post(b"contract " * (most + 1))
    assert not is_too_long_to_post(b"contract " * (most - 8))
    assert not is_too_long_to_post(b"function f() public { x = 1; } // one two three\n" * (most // 8))
    assert is_too_long_to_post(b"function f() public { x = 1; } // one two three\n" * most)


# Odd JSON.


def test_odd_json_is_counted(tmp_path: Path, imported: Import) -> None:
    """Repeated keys, numbers of 10,000 digits, lone surrogates and NUL are counted, in documents and in lines."""
    digits = "9" * 10_000
    contents = {
        "twice.json": '{"a9059cbb": "transfer(address,uint256)", "a9059cbb": "transfer(address,uint256)"}',
        "number.jsonl": f'{{"text_signature": "a()"}}\n{{"text_signature": {digits}}}\n{{"text_signature": "b()", "id": {digits}}}\n',
        "float.jsonl": f'{{"text_signature": "a()"}}\n{{"text_signature": 1e{digits}}}\n',
        "surrogate.json": '{"12345678": "a\\ud800()", "87654321": "\\udfff\\ud800"}',
        "surrogate.jsonl": '{"text_signature": "a()"}\n{"text_signature": "a\\ud800()"}\n',
        "nul.json": '{"12345678": "a\\u0000()", "87654321": "\\u0000"}',
        "nul.jsonl": '{"text_signature": "a()"}\n{"text_signature": "a\\u0000()"}\n{"text_signature": "b()\0"}\n',
        "nul.csv": 'text_signature\na()\n"b(\0)"\n\0\n',
        "nul.txt": "a()\nb(\0)\nc()\n\0\n",
    }
    outcome = imported(*write_files(tmp_path / "in", contents))
    outcome.assert_counted()
    assert [file["path"] for file in outcome.report["files"] if file["read"] < 2] == []
    assert len(outcome.report["files"]) == len(contents)
    document = tmp_path / "number.json"
    document.write_text(f'{{"12345678": {digits}}}')
    imported(document).assert_refused(f"{document}: broken JSON: ")


# Parquet.


def _parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.long
def test_a_repeated_value_stays_one_value_in_memory(tmp_path: Path, bounded: Import) -> None:
    """3,000 rows that refer to one value of 1 MiB are a file of a few kB and do not take 3 GB of memory."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 3_000, pa.int32()), pa.array([b"f" * MIB]))
    path = _parquet(tmp_path / "bomb.parquet", {"text_signature": rows}, compression="zstd")
    assert path.stat().st_size < MIB
    outcome = bounded(path)
    outcome.assert_counted()
    assert outcome.totals == (3_000, 0, 0, 3_000)


@pytest.mark.long
def test_a_value_of_500_mb_is_refused(tmp_path: Path, bounded: Import) -> None:
    """A value that would fill the memory is refused by the size of its page, before it is read."""
    half = pa.array([b"f" * (GIGABYTE // 4)])
    path = _parquet(
        tmp_path / "bomb.parquet", {"text_signature": pa.chunked_array([half, half])},
        compression="zstd", use_dictionary=False, write_statistics=False, row_group_size=2,
    )  # fmt: skip
    bounded(path).assert_refused(
        f"{path}: row group 1: a page of ", " MiB in column text_signature; write smaller pages"
    )


@pytest.mark.long
def test_a_value_that_occurs_too_often_is_refused(tmp_path: Path, bounded: Import) -> None:
    """2 million rows of one text of 60 kB would be 120 GB of texts; the import ends after the first few."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000_000, pa.int32()), pa.array([b"f" * 60_000]))
    path = _parquet(tmp_path / "bomb.parquet", {"text_signature": rows}, compression="zstd")
    bounded(path).assert_refused(f"{path}: row ", "its texts have over 1,000 times its size")


def test_chunks_that_are_read_again_and_again_are_refused(tmp_path: Path, imported: Import) -> None:
    """A footer of 500 kB that names one chunk of a megabyte 4,096 times would be read for an hour."""
    path = _parquet(tmp_path / "bomb.parquet", {"text_signature": [f"f{number}()" for number in range(100_000)]})
    footer = pq.read_metadata(path)
    for _ in range(12):
        footer.append_row_groups(footer)
    footer.write_metadata_file(tmp_path / "footer")
    with path.open("ab") as file:
        file.write((tmp_path / "footer").read_bytes()[4:])
    imported(path).assert_refused(f"{path}: row group 2: its column chunks overlap")


@pytest.mark.long
def test_large_rows_are_read_in_small_batches(tmp_path: Path, bounded: Import) -> None:
    """A row group of 1,000 rows of 1 MiB each, in a file of less than 1 MiB, stays within the memory limit."""
    rows = pa.array([b"%07d" % number + b"f" * MIB for number in range(50)])
    path = _parquet(
        tmp_path / "bomb.parquet", {"text_signature": pa.chunked_array([rows] * 20)},
        compression="zstd", use_dictionary=False, row_group_size=1_000, write_batch_size=1,
    )  # fmt: skip
    assert path.stat().st_size < MIB
    outcome = bounded(path)
    outcome.assert_counted()
    assert outcome.totals == (1_000, 0, 0, 1_000)


def test_a_text_column_of_any_type_is_counted(tmp_path: Path, imported: Import) -> None:
    """Every type of Arrow is read or rejected row by row, never an error."""
    columns = [
        pa.array([1, 2]), pa.array([["a()"], []]), pa.array([{"a": "b()"}, None]), pa.array([2**62, -(2**62)], pa.timestamp("us")),
        pa.array([2**31 - 1, -(2**31)], pa.date32()), pa.array([None, None]), pa.array([b"12", b"ab"], pa.binary(2)),
        pa.array([True, None]), pa.array(["a()", "b()"], pa.string_view()), pa.array([b"\xff", b""]),
    ]  # fmt: skip
    paths = [
        _parquet(tmp_path / f"{number}.parquet", {"text_signature": column}) for number, column in enumerate(columns)
    ]
    outcome = imported(*paths)
    outcome.assert_counted()
    assert [
        (path, file["read"]) for path, file in zip(columns, outcome.report["files"], strict=True) if file["read"] != 2
    ] == []


def test_columns_of_one_name_are_refused(tmp_path: Path, imported: Import) -> None:
    """Two columns with the name of the text column are ambiguous."""
    table = pa.Table.from_arrays([pa.array(["a()"]), pa.array(["b()"])], names=["text_signature", "text_signature"])
    twice = tmp_path / "twice.parquet"
    pq.write_table(table, twice)
    imported(twice).assert_refused(f"{twice}: several columns are named text_signature")


def test_a_column_name_with_line_breaks_is_shown_in_one_line(tmp_path: Path, imported: Import) -> None:
    """The error escapes line breaks and control characters of a column name."""
    odd = _parquet(tmp_path / "odd.parquet", {"a\nb\x1b[31m": [1]})
    imported(odd).assert_refused(f"{odd}: it is not clear which column has the signatures; it has", r"a\nb\x1b[31m")


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
    names = [b"a\nb", b"\x1b[31mred", b"\xff\xfe", b"'; DROP TABLE x; --", b" ", b"%s{}"]
    for number, name in enumerate(names):
        good = os.fsencode(tmp_path) + b"/" + name + b".txt"
        Path(os.fsdecode(good)).write_text(f"name{number}()\nbad{number}(uint7)\n")
        outcome = imported(os.fsdecode(good))
        outcome.assert_counted()
        assert outcome.totals == (2, 1, 0, 1)
        bad = os.fsdecode(os.fsencode(tmp_path) + b"/" + name + b".json")
        Path(bad).write_text("{")
        imported(bad).assert_refused("broken JSON")
    for command in ("history", "rejects"):
        shown = invoke(warehouse, command, "--format", "ndjson")
        assert json.loads(invoke(warehouse, command, "--json").stdout) == list(
            map(json.loads, shown.stdout.splitlines())
        )
        assert (shown.status, shown.stdout.count(b"\n")) == (0, len(names))
