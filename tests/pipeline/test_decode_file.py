"""`sigdir decode --file`: each row of a file gets the text and the values that the API gives it alone."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.pipeline import decode_file as job
from sigdir.pipeline.decode_rows import COLUMNS, SCHEMA
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.readings import Form, Input
from sigdir.warehouse.index.known import read_alternatives
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths
from tests.conftest import Sigdir, import_files
from tests.signatures.test_calldata import word
from tests.signatures.test_readings import MULTICALL, OTHER, TO, TRANSFER, call

TEXTS = [
    TRANSFER, MULTICALL, "approve(address,uint256)", "many_msg_babbage(bytes1)", "event Transfer(address,address,uint256)",
    "event Pair(uint256,uint256)", "error Broken(uint256)", "f(uint8)",
]  # fmt: skip
TOPIC = keccak256(b"Transfer(address,address,uint256)")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decode")
    (texts := folder / "texts.txt").write_text("\n".join(TEXTS))
    import_files([texts], folder / "data")
    return folder / "data"


def rows() -> list[dict[str, Any]]:
    """Calls, calls in calls, logs, and rows that nothing decodes."""
    transfer = call(TRANSFER, TO, 1000)
    inputs: list[Any] = [
        transfer, call(MULTICALL, [transfer, b"\1"]), transfer + b"\0", transfer[:-1], b"", b"\1\2\3\4",
        call("f(uint8)", 7), call("Broken(uint256)", 2**200),
    ]  # fmt: skip
    found: list[dict[str, Any]] = [{"input": "0x" + data.hex(), "to": TO} for data in inputs]
    found += [{"input": "0xzz"}, {}, {"input": "ab" * ((128 << 10) + 1)}]
    topics = [TOPIC, bytes(12) + b"\xab" * 20, bytes(12) + b"\xcd" * 20]
    found.append({f"topic{n}": "0x" + topic.hex() for n, topic in enumerate(topics)} | {"data": "0x" + word(5).hex()})
    pair = keccak256(b"Pair(uint256,uint256)")
    found.append({"topic0": "0x" + pair.hex(), "topic1": "0x" + word(1).hex(), "data": word(2).hex()})
    found.append({"topic0": "0x12", "data": "0x"})
    return found


def write(path: Path, given: list[dict[str, Any]]) -> None:
    """The rows in the format that the name says."""
    columns = {name: [row.get(name) for row in given] for name in COLUMNS}
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(given)
    else:
        data = b"".join(orjson.dumps(row) + b"\n" for row in given)
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def decoded(source: Path, target: Path, warehouse: Path, workers: int = 1) -> list[dict[str, Any]]:
    report = job.decode_file(str(source), str(target), warehouse, workers, Reporter())
    found: list[dict[str, Any]] = pq.read_table(target).to_pylist()
    assert report.rows == len(found)
    assert sum(report.confidence.values()) == len(found)
    return found


@pytest.mark.parametrize("name", ["txs.parquet", "txs.csv", "txs.jsonl", "txs.jsonl.gz"])
def test_each_row_is_decoded_as_it_would_be_alone(warehouse: Path, tmp_path: Path, name: str) -> None:
    """In every format; text, values and confidence are those of the tree that the API builds."""
    given = rows()
    write(tmp_path / name, given)
    found = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert [row["row"] for row in found] == list(range(len(given)))
    assert [row["text_signature"] for row in found] == [
        TRANSFER, MULTICALL, TRANSFER, TRANSFER, None, None, "f(uint8)", "Broken(uint256)", None, None, None,
        "Transfer(address,address,uint256)", "Pair(uint256,uint256)", None,
    ]  # fmt: skip
    reader = Reader(Paths(warehouse))
    for row, source in zip(found[:8], given[:8], strict=True):
        [reading] = read_alternatives(
            reader.current(), [Input(Form.CALLDATA, bytes.fromhex(source["input"][2:]))], Names()
        )
        best = reading.best
        assert row["confidence"] == (best.confidence.value if best else "none")
        assert row["exact"] == (best.attempt.exact if best else None)
    reader.close()
    assert json.loads(found[0]["values"]) == [TO, "1000"]
    [nested] = json.loads(found[1]["nested"])
    assert (nested["path"], nested["candidates"][0]["text_signature"]) == ([0, 0], TRANSFER)
    assert json.loads(found[11]["values"]) == [TO, OTHER, "5"]
    assert [row["confidence"] for row in found[11:]] == ["high", "medium", "none"]
    assert [row["reason"] is None for row in found] == [row["confidence"] != "none" for row in found]
    assert "131073 bytes" in found[10]["reason"]


def test_workers_give_the_same_rows_in_the_same_order(warehouse: Path, tmp_path: Path) -> None:
    """A file larger than one batch, with binary columns as cryo writes them."""
    given = [{"input": call(TRANSFER, TO, number)} for number in range(30_000)]
    pq.write_table(pa.table({"input": pa.array([row["input"] for row in given], pa.binary())}), tmp_path / "t.parquet")
    alone = decoded(tmp_path / "t.parquet", tmp_path / "alone.parquet", warehouse)
    assert [json.loads(row["values"])[1] for row in alone] == [str(number) for number in range(30_000)]
    assert decoded(tmp_path / "t.parquet", tmp_path / "both.parquet", warehouse, workers=2) == alone


class Recorder(Reporter):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.totals: list[tuple[str, int]] = []
        self.units: list[int] = []
        self.row_count = 0

    def stage(self, name: str, total: int) -> None:
        self.totals.append((name, total))

    def advance(self, units: int) -> None:
        self.units.append(units)

    def rows(self, count: int) -> None:
        self.row_count += count


@pytest.mark.parametrize("name", ["txs.parquet", "txs.csv", "txs.jsonl", "txs.jsonl.gz"])
def test_the_progress_has_a_total(warehouse: Path, tmp_path: Path, name: str) -> None:
    """Rows of Parquet and bytes of any other file; all of them are reported at the end, more than one time on the way."""
    write(tmp_path / name, rows()[:8] * 1000)
    progress = Recorder()
    job.decode_file(str(tmp_path / name), str(tmp_path / "out.parquet"), warehouse, 1, progress)
    total = 8000 if name.endswith(".parquet") else (tmp_path / name).stat().st_size
    assert (progress.totals, sum(progress.units), progress.row_count) == ([("decode", total)], total, 8000)
    assert min(progress.units) >= 0
    assert len(progress.units) > 1


def test_topics_may_be_one_list(warehouse: Path, tmp_path: Path) -> None:
    """As BigQuery exports logs."""
    topics = ["0x" + TOPIC.hex(), "0x" + TO[2:].zfill(64), "0x" + OTHER[2:].zfill(64)]
    pq.write_table(pa.table({"topics": [topics], "data": ["0x" + word(5).hex()]}), tmp_path / "logs.parquet")
    [row] = decoded(tmp_path / "logs.parquet", tmp_path / "out.parquet", warehouse)
    assert (row["kind"], json.loads(row["values"])) == ("log", [TO, OTHER, "5"])


def test_the_command_writes_ndjson_and_a_summary(warehouse: Path, tmp_path: Path, run_sigdir: Sigdir) -> None:
    """Values are JSON, not a text of JSON; the summary is on standard error."""
    write(tmp_path / "txs.jsonl", rows())
    ran = run_sigdir("decode", "--file", tmp_path / "txs.jsonl", "--warehouse", warehouse, "--quiet")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (ran.returncode, [list(line) for line in lines]) == (0, [SCHEMA.names] * len(rows()))
    assert lines[0]["values"] == [TO, "1000"]
    assert ran.stderr.startswith(b"14 rows by confidence: ")


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("a.txt", b"", "o.parquet", "neither with .parquet nor .csv nor .jsonl"),
        ("a.csv", b"x,y\n1,2\n", "o.parquet", "none of the columns"),
        ("a.parquet", b"PAR1 no", "o.parquet", "a.parquet"),
        ("a.jsonl", b"x" * (3 << 20), "o.ndjson", "a line of over"),
        ("a.jsonl", b"{}\n", "o.doc", "neither with .parquet nor .ndjson"),
    ],
)
def test_a_bad_file_is_refused(
    warehouse: Path, tmp_path: Path, name: str, content: bytes, target: str, message: str
) -> None:
    """In one line that names it; no target appears."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises((BadInput, BadTarget), match=message):
        job.decode_file(str(tmp_path / name), str(tmp_path / target), warehouse, 1, Reporter())
    assert not (tmp_path / target).exists()


def test_a_line_that_is_no_json_is_a_row_with_its_reason(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'nonsense\n[1]\n{"input":"0x' + call(TRANSFER, TO, 1).hex().encode() + b'"}')
    found = decoded(tmp_path / "a.jsonl", tmp_path / "o.parquet", warehouse)
    assert [row["confidence"] for row in found] == ["none", "none", "high"]
