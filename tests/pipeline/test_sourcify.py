"""Sourcify's export: two tables of Parquet files, joined by the hash of the text."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sigdir.pipeline.formats.sourcify import SourcifyTables
from sigdir.pipeline.inputs import find
from sigdir.signatures.evidence import Kind, Sighting, Witness
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from tests.conftest import import_files
from tests.pipeline.support import canonicalised, keccak256, parquet_bytes, texts_and_sightings, write_files

SET, LOGGED, LOW, BOTH, SENT = "set(uint256)", "Set(uint256)", "Low(uint256)", "both(bool)", "sent(bool)"
COMPILATIONS = [
    (SET, "function"), (SET, "function"), (SET, "function"), (LOGGED, "event"), (LOW, "error"),
    (BOTH, "function"), (BOTH, "function"), (BOTH, "event"),
]  # fmt: skip


def signatures(texts: Sequence[str]) -> bytes:
    """A file of the table `signatures`."""
    hashes = [keccak256(text) for text in texts]
    columns = {
        "signature_hash_32": pa.array(hashes, pa.binary()),
        "signature_hash_4": pa.array([digest[:4] for digest in hashes], pa.binary()),
        "signature": list(texts),
    }
    return parquet_bytes(columns, compression="zstd")


def compiled(rows: Sequence[tuple[Any, Any]], as_hex: bool = False) -> bytes:
    """A file of the table `compiled_contracts_signatures`, from texts (or hashes) and types."""
    hashes = [keccak256(text) if isinstance(text, str) else text for text, _ in rows]
    written = pa.array(["0x" + digest.hex() for digest in hashes]) if as_hex else pa.array(hashes, pa.binary())
    columns = {
        "compilation_id": [f"00000000-0000-0000-0000-{number:012}" for number in range(len(rows))],
        "signature_hash_32": written,
        "signature_type": pa.array([kind for _, kind in rows], pa.string()),
    }
    return parquet_bytes(columns, compression="zstd")


def said(
    folder: Path, files: Mapping[str, bytes], memory_limit: str = "256MB"
) -> tuple[list[tuple[int, str, str, Sighting]], list[str]]:
    """What these files say: (file, collection, text, sighting), and the warnings."""
    found, sources = [], find(map(str, write_files(folder, files)))
    with ScratchTables(connect(memory_limit, 1, folder)) as tables:
        reader = SourcifyTables(lambda: tables)
        for number, source in enumerate(sources):
            source.number = number
            with source.open(lambda _: None):
                reader.add(source)
        for result in canonicalised(reader.read()):
            for collection, rows in result.accepted.items():
                found += [
                    (result.file, str(collection), text, one or Sighting()) for text, one in texts_and_sightings(rows)
                ]
    return found, [warning for source in sources for warning in source.warnings]


def compiled_as(kind: Kind, contracts: int) -> Sighting:
    return Sighting(kind, Witness.DECLARED, contracts=contracts, verified=True)


@pytest.mark.parametrize("names", [("a", "b", "c", "d"), ("d", "c", "b", "a")])
def test_the_tables_are_joined_in_any_order(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A text is a candidate for each kind that it was compiled as, with the number of compilations of all files."""
    texts = signatures([SET, LOGGED]), signatures([LOW, BOTH, SENT])
    tables = [*texts, compiled(COMPILATIONS[::2]), compiled(COMPILATIONS[1::2], as_hex=True)]
    found, warnings = said(tmp_path, {f"{name}.parquet": data for name, data in zip(names, tables, strict=True)})
    assert sorted(one for _, *one in found) == [
        ["event-signatures", LOGGED, compiled_as(Kind.EVENT, 1)],
        ["event-signatures", BOTH, compiled_as(Kind.EVENT, 1)],
        ["signatures", LOW, compiled_as(Kind.ERROR, 1)],
        ["signatures", BOTH, compiled_as(Kind.FUNCTION, 2)],
        ["signatures", SENT, Sighting()],
        ["signatures", SET, compiled_as(Kind.FUNCTION, 3)],
    ]
    assert warnings == []


def test_one_import_of_both_tables(tmp_path: Path, warehouse: Path) -> None:
    """An import puts each text into the collections of its kinds; each file, of other shapes too, has its own counts."""
    files: dict[str, bytes | str] = {
        "1.parquet": compiled(COMPILATIONS),
        "2.parquet": signatures([BOTH, SENT, "f(uint7)"]),
        "3.parquet": signatures([LOGGED]),
        "4.parquet": parquet_bytes({"text_signature": ["a()"]}),
        "5.txt": "b()\n",
    }
    report = import_files(write_files(tmp_path, files), warehouse)
    assert [(file.read, dict(file.accepted)) for file in report.files] == [
        (0, {}), (4, {"signatures": 2, "event-signatures": 1}), (1, {"event-signatures": 1}),
        (1, {"signatures": 1}), (1, {"signatures": 1}),
    ]  # fmt: skip
    assert report.files[1].reasons == {"bad_width": 1}
    assert report.files[0].warnings == [
        "2 hashes of compiled_contracts_signatures have no text in signatures; a file of it may be missing"
    ]


def test_a_missing_table_is_named(tmp_path: Path, warehouse: Path) -> None:
    """One table alone is read as far as it goes, and the report names the other one."""
    tables = {"signatures": signatures([SET]), "compiled_contracts_signatures": compiled(COMPILATIONS)}
    for (name, data), missing in zip(tables.items(), reversed(tables), strict=True):
        paths = write_files(tmp_path / name, {f"{name}.parquet": data, "a.txt": "get()\n"})
        lists, table = import_files(paths, warehouse, dry_run=True).files
        [warning] = table.warnings
        assert warning.startswith(f"Sourcify's table {missing} is not among the inputs: ")
        assert (table.read, lists.read) == (name == "signatures", 1)


def test_rows_that_cannot_be_read_cost_nothing_else(tmp_path: Path) -> None:
    """Hashes of another length, no hash, and unknown kinds are counted in a warning; a wrong hash of a text is a reject."""
    odd = [(b"\1" * 4, "function"), (None, "function"), (SET, "constructor"), (SET, None), (SET, "function")]
    found, warnings = said(tmp_path, {"1.parquet": compiled(odd), "2.parquet": signatures([SET, "set(uint)"])})
    assert [(text, sighting) for _, _, text, sighting in found] == [(SET, compiled_as(Kind.FUNCTION, 1))]
    assert warnings == ["4 rows have no hash of 32 bytes or no known signature_type"]


@pytest.mark.long
def test_the_join_spills(tmp_path: Path) -> None:
    """Under a small memory limit the join gives every text with its count, in the order of the files."""
    texts = [f"function_{number}_with_a_longer_name(uint256,address)" for number in range(60_000)]
    rows = [(text, "function") for number, text in enumerate(texts) for _ in range(1 + number % 3)]
    random.Random(1).shuffle(rows)
    middle = len(rows) // 2
    files = {
        "a.parquet": compiled(rows[:middle]), "b.parquet": signatures(texts[:30_000]),
        "c.parquet": compiled(rows[middle:]), "d.parquet": signatures(texts[30_000:]),
    }  # fmt: skip
    found, warnings = said(tmp_path, files, "24MB")
    assert [text for _, _, text, _ in found] == texts
    assert [sighting.contracts for _, _, _, sighting in found] == [1 + number % 3 for number in range(60_000)]
    assert warnings == []
