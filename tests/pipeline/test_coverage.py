"""`sigdir coverage`: how much of what is used is named, from tables of counts, and what is wrong with a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import import_files
from tests.pipeline.support import invoke, keccak256

TRANSFER, APPROVE, EVENT = "transfer(address,uint256)", "approve(address,uint256)", "Moved(uint256)"
ROWS = [
    (keccak256(TRANSFER)[:4], 10), (keccak256(APPROVE)[:4], 1), (b"\0\0\0\1", 7), (b"\0\0\0\2", 9), (b"\0\0\0\1", 3),
    (keccak256(EVENT), 5), (keccak256(EVENT)[:31] + b"\0", 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coverage")
    (folder / "list.txt").write_text(f"{TRANSFER}\n{APPROVE}\nevent {EVENT}\n")
    import_files([folder / "list.txt"], folder / "warehouse")
    return folder / "warehouse"


def files(folder: Path) -> list[Path]:
    """The same counts as CSV, as JSON lines, and as Parquet of bytes."""
    (csv := folder / "a.csv").write_text("hash;calls\n" + "".join(f"0x{hash.hex()};{count}\n" for hash, count in ROWS))
    lines = [json.dumps({"topic0": hash.hex(), "count": count, "day": "2026-01-01"}) for hash, count in ROWS]
    (jsonl := folder / "b.jsonl").write_text("\n".join(lines))
    table = pa.table({"selector": pa.array([hash for hash, _ in ROWS], pa.binary()), "n": [count for _, count in ROWS]})
    pq.write_table(table, parquet := folder / "c.parquet")
    return [csv, jsonl, parquet]


def test_what_is_named_by_use_and_by_hash(warehouse: Path, tmp_path: Path) -> None:
    """Counts of one hash are added up, a topic counts only as a whole, the misses used most come first, in any format."""
    for file in files(tmp_path):
        found = invoke(warehouse, "coverage", file, "--misses", "1", "--json")
        assert found.status == 0, found.stderr
        covered: dict[str, Any] = json.loads(found.stdout)["collections"]
        assert covered["signatures"] == {
            "hashes": 4, "named": 2, "uses": 30, "named_uses": 11, "misses": [{"hash": "0x00000001", "uses": 10}],
        }, file  # fmt: skip
        assert [covered["event-signatures"][name] for name in ("hashes", "named", "uses", "named_uses")] == [2, 1, 7, 5]
    shown = invoke(warehouse, "coverage", file).stdout.decode().splitlines()
    assert [line.split()[-2] for line in shown if line.endswith("%")] == ["50.00", "36.67", "50.00", "71.43"]


def test_a_row_that_cannot_be_read_is_counted_and_named(warehouse: Path, tmp_path: Path) -> None:
    """Selectors of 3 bytes, counts below 0 and absurd ones cost their row; a file without the columns is refused."""
    good, bad = f"0x{keccak256(TRANSFER)[:4].hex()}", "0xa9059c"
    (table := tmp_path / "bad.csv").write_text(
        f"selector,count\n{good},1\n{bad},2\n{good},-3\n{good},{10**30}\n{good},\nzzzzzzzz,4\n"
    )
    found = invoke(warehouse, "coverage", table, "--json")
    answer = json.loads(found.stdout)
    assert (found.status, answer["rows"], answer["collections"]["signatures"]["uses"]) == (1, 6, 1)
    assert answer["unread"] == [
        "3 rows were not read: no count from 0 to 281,474,976,710,656; the first is row 3",
        "2 rows were not read: no selector of 4 bytes and no topic of 32; the first is row 2",
    ]
    (other := tmp_path / "other.csv").write_text("a,b\n1,2\n")
    refused = invoke(warehouse, "coverage", other)
    assert (refused.status, "no column selector or topic beside a column count" in refused.stderr) == (2, True)
