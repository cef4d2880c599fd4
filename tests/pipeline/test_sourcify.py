"""Sourcify's export: two tables of Parquet files, joined by the hash of the text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sigdir.pipeline.formats.sourcify import SourcifyTables
from sigdir.pipeline.inputs import find
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.evidence import Kind, Sighting, Witness
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from tests.conftest import import_files
from tests.pipeline.support import keccak256, parquet_bytes

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
        "created_at": pa.array([1_700_000_000_123_456_789] * len(texts), pa.timestamp("ns")),
    }
    return parquet_bytes(columns, compression="zstd")


def compiled(rows: Sequence[tuple[Any, Any]], as_hex: bool = False) -> bytes:
    """A file of the table `compiled_contracts_signatures`, from texts (or hashes) and types."""
    hashes = [keccak256(text) if isinstance(text, str) else text for text, _ in rows]
    written = pa.array(["0x" + digest.hex() for digest in hashes]) if as_hex else pa.array(hashes, pa.binary())
    columns = {
        "id": list(range(len(rows))),
        "compilation_id": [f"00000000-0000-0000-0000-{number:012}" for number in range(len(rows))],
        "signature_hash_32": written,
        "signature_type": pa.array([kind for _, kind in rows], pa.string()),
        "created_at": pa.array([1_700_000_000_123_456_789] * len(rows), pa.timestamp("ns")),
    }
    return parquet_bytes(columns, compression="zstd")


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def said(folder: Path, memory_limit: str = "256MB") -> tuple[list[tuple[int, str, str, Sighting]], list[str]]:
    """What the files of a folder say: (file, collection, text, sighting), and the warnings."""
    found, sources = [], find([str(folder)])
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)

    with ScratchTables(connect(memory_limit, 1, spill)) as tables:
        reader = SourcifyTables(lambda: tables)
        for number, source in enumerate(sources):
            source.number = number
            with source.open(lambda _: None):
                reader.add(source)
        for batch in reader.read():
            result = canonicalise(batch)
            for collection, rows in result.accepted.items():
                for row, text in enumerate(rows.text.to_pylist()):
                    sighting = rows.sightings.values[rows.sightings.of_row[row]] if rows.sightings else Sighting()
                    found.append((result.file, str(collection), text, sighting))
    return found, [warning for source in sources for warning in source.warnings]


def compiled_as(kind: Kind, contracts: int) -> Sighting:
    return Sighting(kind, Witness.DECLARED, contracts=contracts, verified=True)


@pytest.mark.parametrize("names", [("a", "b", "c", "d"), ("d", "c", "b", "a"), ("b", "d", "a", "c")])
def test_the_tables_are_joined_in_any_order(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A text is a candidate for each kind that it was compiled as, with the number of compilations of all files."""
    one, two, three, four = (f"{name}.parquet" for name in names)
    folder = written(
        tmp_path / "export",
        {
            one: signatures([SET, LOGGED]),
            two: signatures([LOW, BOTH, SENT]),
            three: compiled(COMPILATIONS[::2]),
            four: compiled(COMPILATIONS[1::2], as_hex=True),
        },
    )
    found, warnings = said(folder)
    assert {(collection, text, sighting) for _, collection, text, sighting in found} == {
        ("signatures", SET, compiled_as(Kind.FUNCTION, 3)),
        ("event-signatures", LOGGED, compiled_as(Kind.EVENT, 1)),
        ("signatures", LOW, compiled_as(Kind.ERROR, 1)),
        ("signatures", BOTH, compiled_as(Kind.FUNCTION, 2)),
        ("event-signatures", BOTH, compiled_as(Kind.EVENT, 1)),
        ("signatures", SENT, Sighting()),
    }
    assert len(found) == 6
    assert warnings == []


def test_one_import_of_both_tables(tmp_path: Path, warehouse: Path) -> None:
    """An import puts each text into the collections of its kinds; each file has its own counts."""
    folder = written(
        tmp_path / "export",
        {
            "1.parquet": compiled(COMPILATIONS),
            "2.parquet": signatures([BOTH, SENT, "f(uint7)"]),
            "3.parquet": signatures([LOGGED]),
        },
    )
    report = import_files([folder], warehouse)
    assert [(file.read, dict(file.accepted)) for file in report.files] == [
        (0, {}),
        (4, {"signatures": 2, "event-signatures": 1}),
        (1, {"event-signatures": 1}),
    ]
    assert report.files[1].reasons == {"bad_width": 1}
    assert report.files[0].warnings == [
        "2 hashes of compiled_contracts_signatures have no text in signatures; a file of it may be missing"
    ]


@pytest.mark.parametrize(
    ("file", "missing"),
    [("signatures", "compiled_contracts_signatures"), ("compiled_contracts_signatures", "signatures")],
)
def test_a_missing_table_is_named(tmp_path: Path, warehouse: Path, file: str, missing: str) -> None:
    """One table alone is read as far as it goes, and the report names the other one."""
    data = signatures([SET]) if file == "signatures" else compiled(COMPILATIONS)
    folder = written(tmp_path / "export", {f"{file}.parquet": data})
    (tmp_path / "list.txt").write_text("get()\n")
    report = import_files([folder, tmp_path / "list.txt"], warehouse)
    [warning] = report.files[0].warnings
    assert warning.startswith(f"Sourcify's table {missing} is not among the inputs: ")
    assert report.files[0].read == (file == "signatures")
    assert report.files[1].read == 1


def test_rows_that_cannot_be_read_cost_nothing_else(tmp_path: Path) -> None:
    """Hashes of another length, no hash, and unknown kinds are counted in a warning; a wrong hash of a text is a reject."""
    odd = [(b"\1" * 4, "function"), (None, "function"), (SET, "constructor"), (SET, None), (SET, "function")]
    folder = written(tmp_path / "export", {"1.parquet": compiled(odd), "2.parquet": signatures([SET, "set(uint)"])})
    found, warnings = said(folder)
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
    found, warnings = said(written(tmp_path / "export", files), "24MB")
    assert [text for _, _, text, _ in found] == texts
    assert [sighting.contracts for _, _, _, sighting in found] == [1 + number % 3 for number in range(60_000)]
    assert warnings == []


def test_other_parquet_files_are_read_at_once(tmp_path: Path, warehouse: Path) -> None:
    """A Parquet file of another shape keeps its place among the inputs; Sourcify's tables come after all others."""
    folder = written(
        tmp_path / "export",
        {"1.parquet": signatures([SET]), "2.parquet": parquet_bytes({"text_signature": ["a()"]}), "3.txt": b"b()\n"},
    )
    report = import_files([folder], warehouse)
    assert [file.read for file in report.files] == [1, 1, 1]
