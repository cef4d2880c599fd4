"""`sigdir coverage`: how much of what is used is named, from tables of counts, and what is wrong with a row."""

from __future__ import annotations

import json
import tracemalloc
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from falcon.testing import TestClient

import sigdir
from sigdir.pipeline.source import Source
from sigdir.pipeline.usage_counts import usage_of
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.ranked import ranked_rows
from tests.conftest import import_files
from tests.pipeline.support import invoke, keccak256, write_table
from tests.serve.support import opened

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
    """The same counts as CSV, as JSON lines, and as Parquet of bytes, with decimals and with floats."""
    hashes, counts = ([*column] for column in zip(*ROWS, strict=True))
    (csv := folder / "a.csv").write_text("hash;calls\n" + "".join(f"0x{hash.hex()};{count}\n" for hash, count in ROWS))
    days = ["2026-01-01"] * len(ROWS)
    write_table(jsonl := folder / "b.jsonl", {"topic0": [hash.hex() for hash in hashes], "count": counts, "day": days})
    write_table(parquet := folder / "c.parquet", {"selector": hashes, "n": counts})
    sums = pa.array(map(Decimal, counts), pa.decimal128(38, 9))  # as BigQuery adds up, by the name that DuckDB gives
    pq.write_table(pa.table({"topic0": pa.array(hashes), "count_star()": sums}), decimals := folder / "d.parquet")
    lines = "".join(f"{hash.hex()},{count}.0\n" for hash, count in ROWS)  # as pandas writes counts beside nulls
    (floats := folder / "e.csv").write_text(f"hash,len\n{lines}")
    return [csv, jsonl, parquet, decimals, floats]


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
    assert [line.split()[-2] for line in shown if line.endswith("%")] == ["50.00", "36.66", "50.00", "71.42"]
    (tmp_path / "all.csv").write_text(f"hash,n\n{keccak256(EVENT).hex()},1000000\n{'00' * 32},7\n")
    assert b" 99.99 %" in invoke(warehouse, "coverage", tmp_path / "all.csv").stdout


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_counts_that_are_fractions(warehouse: Path, tmp_path: Path, ending: str) -> None:
    """Sums and columns with gaps are fractions; those that are whole count, the large ones too."""
    counts = [12_345_678_901.0, 2.0, None, 1.5, float("nan"), -1.0]
    write_table(file := tmp_path / f"a.{ending}", {"selector": ["0xa9059cbb"] * len(counts), "count": counts})
    answer = json.loads(invoke(warehouse, "coverage", file, "--json").stdout)
    assert answer["collections"]["signatures"]["uses"] == 12_345_678_903
    assert answer["unread"] == ["4 rows were not read: no count from 0 to 281,474,976,710,656; the first is row 3"]


def test_a_row_that_cannot_be_read_is_counted_and_named(warehouse: Path, tmp_path: Path) -> None:
    """Selectors of 3 bytes, counts below 0 and absurd ones cost their row, for one reason; a file without the columns is refused."""
    good, bad = f"0x{keccak256(TRANSFER)[:4].hex()}", "0xa9059c"
    (table := tmp_path / "bad.csv").write_text(
        f"selector,count,day,contract\n{good},1,,\n{bad},2,x,x\n{good},-3,x,x\n{good},{10**30},,\n{bad},,x,x\nzzzzzzzz,4,,\n"
    )
    found = invoke(warehouse, "coverage", table, "--json")
    answer = json.loads(found.stdout)
    assert (found.status, answer["rows"], answer["collections"]["signatures"]["uses"]) == (1, 6, 1)
    assert answer["unread"] == [
        "3 rows were not read: no count from 0 to 281,474,976,710,656; the first is row 3",
        "2 rows were not read: no selector of 4 bytes and no topic of 32; the first is row 2",
    ]
    (nested := tmp_path / "nested.jsonl").write_text(f'{{"selector":"{good}","count":[1],"day":{{"a":1}}}}\n')
    unread = json.loads(invoke(warehouse, "coverage", nested, "--json").stdout)["unread"]
    assert [sentence.partition(":")[0] for sentence in unread] == ["1 row was not read"]
    (other := tmp_path / "other.csv").write_text("a,b\n1,2\n")
    refused = invoke(warehouse, "coverage", other)
    assert (refused.status, "no column selector or topic beside a column count" in refused.stderr) == (2, True)


@pytest.mark.long
def test_memory_grows_with_contracts_and_not_with_days(tmp_path: Path) -> None:
    """Of 300 days with the same 1,000 contracts no more is kept than of a few; all are added up."""
    contracts = pa.array([number.to_bytes(20) for number in range(1000)], pa.binary())
    table = pa.table({"contract": contracts, "selector": pa.array([b"\1\2\3\4"] * 1000), "count": range(1000)})
    with pq.ParquetWriter(path := tmp_path / "days.parquet", table.schema) as writer:
        for _ in range(300):
            writer.write_table(table)
    with (source := Source(str(path), explicit=True)).open(lambda _: None):
        tracemalloc.start()
        found = usage_of(source)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found.tables["signatures by contract"][1].tolist() == [300 * count for count in range(1000)]
    assert (found.tables["signatures"][0].tobytes(), found.tables["signatures"][1].tolist()) == (
        b"\1\2\3\4",
        [149_850_000],
    )
    assert most < 16 << 20


def test_usage_stands_beside_the_texts(tmp_path: Path) -> None:
    """In `ranked`, `sightings`, the evidence over HTTP and on the page; sources add up, a source's next import replaces its counts."""
    warehouse = tmp_path / "warehouse"
    (tmp_path / "list.txt").write_text(f"{TRANSFER}\n{APPROVE}\nevent {EVENT}\n")
    import_files([tmp_path / "list.txt"], warehouse)
    csv, jsonl, *_ = files(tmp_path)
    for file, published in ((csv, True), (csv, False), (jsonl, True)):
        result = invoke(warehouse, "import", "--usage", file, "--json")
        assert (result.status, json.loads(result.stdout)["published"]) == (0, published), result.stderr
    query = "SELECT text_signature, uses FROM ranked ORDER BY uses DESC"
    assert sigdir.open(warehouse).sql(query).rows() == [(TRANSFER, 20), (EVENT, 10), (APPROVE, 2)]
    by_source = "SELECT source, witness, uses FROM sightings WHERE text_signature = ? ORDER BY source"
    for text, uses in ((TRANSFER, 10), (EVENT, 5)):
        found = sigdir.open(warehouse).sql(by_source, [text]).rows()
        assert found == [("a.csv", None, uses), ("b.jsonl", None, uses), ("list.txt", "listed", None)]
    assert sigdir.open(warehouse).sql("SELECT DISTINCT sources FROM evidence").rows() == [(1,)]
    csv.write_text(f"selector,count\n0x{keccak256(APPROVE)[:4].hex()},100\n0xa9,1\n")
    replaced = invoke(warehouse, "import", "--usage", csv, "--json")
    assert json.loads(replaced.stdout)["files"][0]["warnings"] == [
        "1 row was not read: no selector of 4 bytes and no topic of 32; the first is row 2"
    ]
    assert sigdir.open(warehouse).sql(query).rows() == [(APPROVE, 101), (TRANSFER, 10), (EVENT, 5)]
    assert sigdir.open(warehouse, as_of=1).sql(query).rows()[0][1] == 0
    assert invoke(warehouse, "compact").status == invoke(warehouse, "verify").status == 0
    with opened(warehouse) as (reader, writer):
        client = TestClient(create_app(Settings(warehouse=warehouse), reader, writer))
        assert client.simulate_get("/api/v1/signatures/2/evidence/").json["uses"] == 101
        page = client.simulate_get(f"/selector/0x{keccak256(APPROVE)[:4].hex()}/", headers={"Accept": "text/html"}).text
        assert "101 times, as imports have counted" in page
    pack = invoke(warehouse, "export", "pack", tmp_path / "used.sigpack", "--texts", "1")
    assert pack.status == 0, pack.stderr
    assert [text for text, _ in sigdir.Pack(tmp_path / "used.sigpack").entries(keccak256(APPROVE)[:4])] == [APPROVE]
    (bad := tmp_path / "bad.csv").write_text("selector,count\n0xa9059cbb,-1\n")
    refused = invoke(warehouse, "import", "--usage", bad)
    assert (refused.status, "none of its 1 rows is a count" in refused.stderr) == (2, True), refused.stderr
    assert "no count from 0 to 281,474,976,710,656; the first is row 1" in refused.stderr


def test_the_days_of_a_source(tmp_path: Path) -> None:
    """The first and the last one stand in `sightings`; no import of the same source counts twice, other sources add up."""
    warehouse, hash = tmp_path / "warehouse", f"0x{keccak256(TRANSFER)[:4].hex()}"
    (tmp_path / "list.txt").write_text(TRANSFER)
    import_files([tmp_path / "list.txt"], warehouse)

    def add(name: str, *rows: str, source: str = "") -> dict[str, Any]:
        (tmp_path / name).write_text("\n".join(["block_date,selector,count", *rows]) + "\n")
        labelled = ["--source", source] if source else []
        result = invoke(warehouse, "import", "--usage", tmp_path / name, *labelled, "--json")
        assert result.status == 0, result.stderr
        report = json.loads(result.stdout)
        found: dict[str, Any] = {"published": report["published"]} | report["files"][0]
        return found

    def counted() -> list[tuple[Any, ...]]:
        query = "SELECT source, uses, first_day, last_day FROM sightings WHERE uses > 0 ORDER BY source"
        return sigdir.open(warehouse).sql(query).rows()

    november = [f"2026-11-02 00:00:00.000 UTC,{hash},5", f"2026-11-01,{hash},3", f",{hash},1", f"1.11.2026,{hash},1"]
    first = add("november.csv", *november, "2026-12-01,0xzz,5")
    assert first["usage"] == {
        "rows": 5, "hashes": {"signatures": 1, "event-signatures": 0}, "uses": 10, "days": ["2026-11-01", "2026-11-02"],
    }  # fmt: skip
    assert first["warnings"] == [
        "1 row was not read: no selector of 4 bytes and no topic of 32; the first is row 5",
        "1 row was counted without a day: none such as 2026-01-31; the first is row 4",
    ]
    assert not add("november.csv", *november)["published"]
    assert counted() == [("november.csv", 10, date(2026, 11, 1), date(2026, 11, 2))]
    add("other.csv", f"2026-11-03,{hash},4", source="november.csv")
    assert counted() == [("november.csv", 4, date(2026, 11, 3), date(2026, 11, 3))]
    add("2026-11-04.csv", f"2026-11-04,{hash},2")
    assert [row[:2] for row in counted()] == [("2026-11-04.csv", 2), ("november.csv", 4)]
    shown = invoke(warehouse, "import", "--usage", tmp_path / "2026-11-04.csv").stdout.decode()
    assert "2 uses of 1 selector and 0 topics, 2026-11-04 to 2026-11-04" in shown
    assert "No candidates" not in shown
    assert ("nothing new" in shown, "earlier counts" in shown) == (True, False)


def test_usage_orders_search_and_what_a_contract_distinguishes(tmp_path: Path) -> None:
    """Texts of the same witness are found by use; of two with one selector that stands first whose contract is called more.

    Rows without an address count for the selector alone; without counts by contract the older text is first.
    """
    warehouse, older, newer = tmp_path / "warehouse", "setCiwe(bytes)", "setHeoi(bytes)"
    shared = keccak256(older)[:4].hex()
    assert shared == keccak256(newer)[:4].hex()
    (tmp_path / "list.txt").write_text(f"{older}\n{newer}\nswapA()\nswapB()\n")
    (tmp_path / "texts.csv").write_text(f"address,text\n0x{'aa' * 20},{older}\n0x{'bb' * 20},{newer}\n")
    import_files([tmp_path / "list.txt", tmp_path / "texts.csv"], warehouse)

    def first(as_of: int | None = None) -> str:
        query = f"SELECT text_signature FROM ranked WHERE hex_signature = '0x{shared}' ORDER BY position LIMIT 1"
        with opened(warehouse) as (reader, _):
            found = ranked_rows(reader.current(), SIGNATURES, bytes.fromhex(shared))[0].text
        assert sigdir.open(warehouse).sql(query).rows() == [(found,)]
        return found

    assert first() == older
    day = "2026-11-01"
    (usage := tmp_path / "usage.csv").write_text(
        "day,chain,contract,selector,count\n"
        f"{day},1,0x{'aa' * 20},{shared},5\n{day},1,0x{'bb' * 20},{shared},4\n{day},1,0x{'bb' * 20},{shared},4\n"
        f"{day},2,0x{'aa' * 20},{shared},90\n{day},1,,{shared},70\n{day},1,0xaa,{shared},1\n"
        f"{day},-1,0x{'aa' * 20},{shared},80\n"
        f"{day},1,,{keccak256('swapB()')[:4].hex()},9\n"
    )
    result = invoke(warehouse, "import", "--usage", usage, "--json")
    assert json.loads(result.stdout)["files"][0]["warnings"] == [
        "1 row was counted without a contract: no address of 20 bytes; the first is row 6",
        "1 row was counted without a contract: no number of a chain; the first is row 7",
    ]
    assert first() == newer
    found = json.loads(invoke(warehouse, "search", "swap*", "--json").stdout)["signatures"]["results"]
    assert [one["text_signature"] for one in found] == ["swapB()", "swapA()"]
    by_weight = sigdir.open(warehouse).sql("SELECT text_signature FROM search('swap') ORDER BY weight, id").rows()
    assert by_weight == [("swapB()",), ("swapA()",)]
    assert sigdir.open(warehouse).sql("SELECT uses FROM ranked WHERE text_signature = ?", [newer]).rows() == [(254,)]
    assert invoke(warehouse, "verify").status == 0
