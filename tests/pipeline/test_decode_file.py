"""`sigdir decode --file`: each row of a file gets the text and the values that the API gives it alone."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from sigdir.pipeline import decode_file as job
from sigdir.pipeline.decode_file import RESULT
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.decode_batch import BatchDecoder
from sigdir.signatures.evidence import Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.reading_json import document, parameters, reading_document
from sigdir.signatures.readings import Form, Input, Known, Reading, Readings
from sigdir.signatures.types import Type, parameter_types
from sigdir.warehouse.table.errors import UnreadableWarehouse
from tests.conftest import import_files
from tests.pipeline.support import invoke, write_files, write_table
from tests.signatures.test_calldata import values_of, word
from tests.signatures.test_readings import MULTICALL, OTHER, TO, TRANSFER, call

TEXTS = [
    TRANSFER, MULTICALL, "approve(address,uint256)", "many_msg_babbage(bytes1)", "event Transfer(address,address,uint256)",
    "event Pair(uint256,uint256)", "error Broken(uint256)", "f(uint8)",
]  # fmt: skip
COLUMNS = ("input", "to", "data", "topic0", "topic1", "topic2", "topic3")
TOPIC = keccak256(b"Transfer(address,address,uint256)")
TOPICS = ["0x" + TOPIC.hex(), "0x" + TO[2:].zfill(64), "0x" + OTHER[2:].zfill(64)]


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
    write_table(path, {name: [row.get(name) for row in given] for name in COLUMNS})


def decoded(source: Path, target: Path, warehouse: Path) -> list[dict[str, Any]]:
    report = job.decode_file(str(source), str(target), warehouse, Reporter())
    found: list[dict[str, Any]] = pq.read_table(target).to_pylist()
    assert report.rows == len(found)
    assert sum(report.confidence.values()) == len(found)
    return found


@pytest.mark.parametrize("name", ["txs.parquet", "txs.csv", "txs.jsonl", "txs.jsonl.gz"])
def test_each_row_is_decoded_as_it_would_be_alone(warehouse: Path, tmp_path: Path, name: str) -> None:
    """In every format. What a call reads as is compared with the tree that the API builds further down."""
    given = rows()
    write(tmp_path / name, given)
    found = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert [row["row"] for row in found] == list(range(len(given)))
    assert [row["text_signature"] for row in found] == [
        TRANSFER, MULTICALL, TRANSFER, TRANSFER, None, None, "f(uint8)", "Broken(uint256)", None, None, None,
        "Transfer(address,address,uint256)", "Pair(uint256,uint256)", None,
    ]  # fmt: skip
    assert [row["exact"] for row in found[:8]] == [True, True, False, None, None, None, True, True]
    assert [row["confidence"] for row in found[:8]] == ["high", "high", "low", "none", "none", "none", "high", "high"]
    assert json.loads(found[0]["values"]) == [TO, "1000"]
    [nested] = json.loads(found[1]["nested"])
    assert (nested["path"], nested["candidates"][0]["text_signature"]) == ([0, 0], TRANSFER)
    assert json.loads(found[11]["values"]) == [TO, OTHER, "5"]
    assert [row["confidence"] for row in found[11:]] == ["high", "medium", "none"]
    assert [row["reason"] is None for row in found] == [row["confidence"] != "none" for row in found]
    assert "131073 bytes" in found[10]["reason"]


DECLARED = """function send(address to, uint64 amount, bool, int8 To, (address who, bytes data)[] list)
event Moved(address indexed from, uint256 amount, bool last)
function plain(uint256)
"""


def lines_of(source: Path, warehouse: Path) -> list[dict[str, Any]]:
    """What is written as NDJSON."""
    target = source.with_name("out.ndjson")
    job.decode_file(str(source), str(target), warehouse, Reporter())
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_columns_by_the_names_of_parameters(tmp_path: Path) -> None:
    """Parquet has one for each name, typed where the texts agree, with a number where the file has that column.

    `arguments` has the values by name in every format, `values` by position.
    """
    import_files(write_files(tmp_path, {"in.txt": DECLARED}), tmp_path / "w")
    text = "send(address,uint64,bool,int8,(address,bytes)[])"
    sent = [call(text, TO, amount, True, -1, [(OTHER, b"\1")]) for amount in (7, 2**63)]
    given = [{"input": "0x" + data.hex(), "from": OTHER} for data in sent]
    shown = [{"to": TO, "amount": str(amount), "2": True, "To": -1, "list": [[OTHER, "0x01"]]} for amount in (7, 2**63)]
    source, target = tmp_path / "calls.jsonl", tmp_path / "calls.parquet"
    source.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in [*given, {"input": "0x01"}]))
    found = decoded(source, target, tmp_path / "w")
    assert [json.loads(row["arguments"]) for row in found[:2]] == shown
    assert json.loads(found[0]["values"]) == list(shown[0].values())
    assert pq.read_table(target, columns=["to", "amount", "list", "from"]).to_pylist() == [
        *({"to": TO, "amount": amount, "list": f'[["{OTHER}","0x01"]]', "from": OTHER} for amount in (7, 2**63)),
        {"to": None, "amount": None, "list": None, "from": None},
    ]
    assert pq.read_schema(target).names[-3:] == ["to", "amount", "list"]
    assert pq.read_schema(target).field("amount").type == pa.uint64()

    topic = keccak256(b"Moved(address,uint256,bool)")
    log = {"topic0": "0x" + topic.hex(), "topic1": "0x" + word(int(TO, 16)).hex(), "from": "0x00"}
    log["data"] = "0x" + (word(5) + word(1)).hex()
    source.write_bytes(orjson.dumps(given[0]) + b"\n" + orjson.dumps(log))
    names = ["to", "amount", "from_2", "last"]
    found = decoded(source, target, tmp_path / "w")
    assert [[row[name] for name in names] for row in found] == [[TO, "7", None, None], [None, "5", TO, True]]
    by_name = [line["arguments"] for line in lines_of(source, tmp_path / "w")]
    assert by_name == [shown[0], {"from": TO, "amount": "5", "last": True}]
    source.write_bytes(orjson.dumps(log))  # without `To` beside `to`, which the engine takes for one name
    lines_of(source, tmp_path / "w")
    columns = f"SELECT arguments.amount, arguments.last FROM '{tmp_path}/out.ndjson'"
    assert duckdb.connect().execute(columns).fetchall() == [("5", True)]


def test_a_rarer_text_with_a_column_of_another_type_makes_it_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its value would be lost in a narrower integer, and true in a boolean."""
    monkeypatch.setattr(job, "_NAMED", 1)
    texts = "function often(uint8 amount, bool flag)\nfunction rarely(uint256 amount, uint8 flag, bool own)\n"
    import_files(write_files(tmp_path, {"in.txt": texts}), tmp_path / "w")
    calls = [call("often(uint8,bool)", 1, True)] * 2 + [call("rarely(uint256,uint8,bool)", 2**70, 2, True)]
    (tmp_path / "calls.csv").write_text("input\n" + "".join(f"0x{data.hex()}\n" for data in calls))
    found = decoded(tmp_path / "calls.csv", tmp_path / "calls.parquet", tmp_path / "w")
    assert [(row["amount"], row["flag"]) for row in found] == [("1", "true")] * 2 + [(str(2**70), "2")]
    assert "own" not in found[0]


def test_logs_that_standards_name_otherwise_have_their_columns(tmp_path: Path) -> None:
    """The Transfer of ERC-721 has the topic of ERC-20's, and names its last parameter otherwise; without it there is no such column."""
    declared = "event Transfer(address indexed src, address indexed dst, uint256 wad)\n"
    import_files(write_files(tmp_path, {"in.txt": declared}), tmp_path / "w")
    amount: dict[str, Any] = {"topics": TOPICS, "data": "0x" + word(5).hex()}
    token: dict[str, Any] = {"topics": [*TOPICS, "0x" + word(7).hex()], "data": "0x"}
    source, target = tmp_path / "logs.jsonl", tmp_path / "logs.parquet"
    source.write_bytes(b"\n".join(map(orjson.dumps, [token, token, amount])))
    found = decoded(source, target, tmp_path / "w")
    names = ["src", "dst", "wad", "from", "to", "tokenId"]
    assert pq.read_schema(target).names[-6:] == names
    assert [[row[name] for name in names] for row in found] == [
        *[[None, None, None, TO, OTHER, "7"]] * 2,
        [TO, OTHER, "5", None, None, None],
    ]
    assert json.loads(found[0]["arguments"]) == {"from": TO, "to": OTHER, "tokenId": "7"}
    source.write_bytes(orjson.dumps(amount))
    decoded(source, target, tmp_path / "w")
    assert pq.read_schema(target).names[-3:] == names[:3]


def test_many_batches_keep_their_order(warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary columns as cryo writes them; one constant row in them is counted as often as it stands there."""
    monkeypatch.setattr(job, "_BATCH_ROWS", 2_048)
    count = 5_000
    inputs = [call(TRANSFER, TO, number) for number in range(count)]
    pq.write_table(pa.table({"input": pa.array(inputs, pa.binary()), "n": range(count)}), tmp_path / "t.parquet")
    found = decoded(tmp_path / "t.parquet", tmp_path / "out.parquet", warehouse)
    expected = [(number, number, str(number)) for number in range(count)]
    assert [(row["row"], row["n"], json.loads(row["values"])[1]) for row in found] == expected
    pq.write_table(pa.table({"input": pa.array(inputs[:1] * count, pa.binary())}), tmp_path / "t.parquet")
    assert len(decoded(tmp_path / "t.parquet", tmp_path / "out.parquet", warehouse)) == count


class Recorder(Reporter):
    """Keeps what is reported, or ends the job."""

    def __init__(self, error: Exception | None = None) -> None:
        self.totals: list[tuple[str, int]] = []
        self.units: list[int] = []
        self.row_count = 0
        self.error = error

    def stage(self, name: str, total: int) -> None:
        self.totals.append((name, total))

    def advance(self, units: int) -> None:
        self.units.append(units)

    def rows(self, count: int) -> None:
        if self.error is not None:
            raise self.error
        self.row_count += count


@pytest.mark.parametrize("name", ["txs.parquet", "txs.csv", "txs.jsonl.gz"])
def test_the_progress_has_a_total(warehouse: Path, tmp_path: Path, name: str) -> None:
    """Rows; all of them are reported at the end, more than one time on the way.

    An error of the directory is raised as it was, not as the engine puts it, and the target does not appear.
    """
    write(tmp_path / name, rows()[:8] * 300)
    progress = Recorder()
    job.decode_file(str(tmp_path / name), str(tmp_path / "out.parquet"), warehouse, progress)
    assert (progress.totals, sum(progress.units), progress.row_count) == ([("decode", 2400)], 2400, 2400)
    assert len(progress.units) > 1
    failing = Recorder(UnreadableWarehouse("gone"))
    with pytest.raises(UnreadableWarehouse, match=r"^gone$"):
        job.decode_file(str(tmp_path / name), str(tmp_path / "none.parquet"), warehouse, failing)
    assert not (tmp_path / "none.parquet").exists()


# Random calls, by both ways of reading them.

PLAIN = (
    "transfer(address,uint256)", "a(string,bytes3)", "b((int8,bool)[],uint256[2])", "Odd(uint256)", "g()",
    "Error(string)", "watch_tg_invmru_119a5a98(address,uint256,uint256)",
)  # fmt: skip
"""The last one has the selector of balanceOf(address)."""

OUTER = (
    MULTICALL,
    "h(address,bytes)",
    "multiSend(bytes)",
    "execute(bytes32,bytes)",
    "execute(address,uint256,bytes,uint8)",
    "k(string,bytes)",
    "a(bytes)",
)
RIVALS = {
    "transfer(address,uint256)": "rival(uint8)",
    "b((int8,bool)[],uint256[2])": "rival(uint256)",
    "a(bytes)": "r(string)",
}
"""Other texts of the same selectors, as a directory may have by chance: some fit, some do not."""


def known(hash: bytes) -> list[Known]:
    texts = [text for text in (*PLAIN, *OUTER) if call_hash(text) == hash]
    found = [Known(one) for text in texts for one in (text, *([RIVALS[text]] if text in RIVALS else []))]
    return [one._replace(witness=Witness.SOLVED) if one.text == "g()" else one for one in found]


def call_hash(text: str) -> bytes:
    return keccak256(text.encode())[:4]


@st.composite
def random_calls(draw: st.DrawFn, depth: int = 3) -> bytes:
    """Calldata of a known or an unknown text, whole or changed, with calls in its bytes."""
    text = draw(st.sampled_from([*PLAIN, *OUTER, "unknown(uint256)"]))
    inner = random_calls(depth - 1) | st.binary(max_size=70) if depth else st.binary(max_size=70)
    types = parameter_types(text)
    data = call_hash(text) + encode([type.text for type in types], [draw(_filled(type, inner)) for type in types])
    change = draw(st.sampled_from(["", "", "", "", "cut", "more", "byte"]))
    if change == "byte" and len(data) > 4:
        at = draw(st.integers(4, len(data) - 1))
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    return data[:-1] if change == "cut" else data + bytes(32) if change == "more" else data


def _filled(type: Type, inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[Any]:
    """Values of a type, with ``inner`` for its bytes."""
    if type.text == "bytes":
        return inner
    return st.lists(inner, max_size=3) if type.text == "bytes[]" else values_of(type)


def named(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The values by their names, which these tests have for all parameters or for none."""
    return {one["name"]: one["value"] for one in found if "name" in one}


def readings_of_tree(input: Input) -> list[Reading]:
    readings = Readings([input])
    while wanted := readings.wanted():
        readings.supply({hash: known(hash) for hash in wanted})
    [found] = readings.results()
    return found


def by_tree(data: bytes) -> dict[str, Any]:
    """The row that the tree of readings gives."""
    [reading] = readings_of_tree(Input(Form.CALLDATA, data))
    best = reading.best
    if best is None:
        return {"confidence": "none", "values": None, "nested": None, "exact": None, "texts": reading.texts}
    nested = [{"path": list(one.path)} | reading_document(one.reading) for one in best.nested]
    return {
        "text_signature": best.attempt.text, "confidence": best.confidence.value, "exact": best.attempt.exact,
        "texts": reading.texts, "nested": orjson.dumps(nested).decode() if nested else None,
        "values": orjson.dumps([one["value"] for one in parameters(best)]).decode(),
        "arguments": orjson.dumps(by_name).decode() if (by_name := named(parameters(best))) else None,
    }  # fmt: skip


def texts_of(hashes: Sequence[bytes]) -> dict[bytes, list[Known]]:
    return {hash: known(hash) for hash in hashes}


@given(st.lists(random_calls(), max_size=6), st.integers(1, 12))
def test_rows_and_answers_are_those_of_the_tree(calls: list[bytes], times: int) -> None:
    """Each alone and among others like it: what columns and plans read is what the tree of readings says."""
    decoder, many = BatchDecoder(texts_of, lambda *_: ()), calls * times
    rows = decoder.rows([Input(Form.CALLDATA, data) for data in many])
    expected = {data: by_tree(data) for data in calls}
    for data, row in zip(many, rows, strict=True):
        assert {name: getattr(row, name) for name in expected[data]} == expected[data]
    answers = decoder.documents([Input(Form.AUTO, data) for data in many])
    trees = {data: document(readings_of_tree(Input(Form.AUTO, data))) for data in calls}
    assert answers == [orjson.dumps(trees[data]) for data in many]


def test_odd_rows(warehouse: Path, tmp_path: Path) -> None:
    """Topics may be one list, as BigQuery exports logs; a line that is no JSON is a row with its reason.

    Of an input beside data the one counts that is not empty; a log has its data, and its transaction's input may stand
    there.
    """
    pq.write_table(pa.table({"topics": [TOPICS], "data": ["0x" + word(5).hex()]}), tmp_path / "logs.parquet")
    [row] = decoded(tmp_path / "logs.parquet", tmp_path / "out.parquet", warehouse)
    assert (row["kind"], json.loads(row["values"])) == ("log", [TO, OTHER, "5"])
    (tmp_path / "a.jsonl").write_bytes(
        b"x" * (3 << 20) + b'\n[1]\n{"input":"0x' + call(TRANSFER, TO, 1).hex().encode() + b'"}'
    )
    found = decoded(tmp_path / "a.jsonl", tmp_path / "o.parquet", warehouse)
    assert [row["confidence"] for row in found] == ["none", "none", "high"]
    transfer = "0x" + call(TRANSFER, TO, 1).hex()
    calls = [{"input": "0x", "data": transfer}, {"input": transfer, "data": "0x"}]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, calls)))
    found = decoded(tmp_path / "a.jsonl", tmp_path / "o.parquet", warehouse)
    assert [json.loads(row["values"]) for row in found] == [[TO, "1"]] * 2
    given: list[dict[str, Any]] = [
        calls[1],
        {"topics": TOPICS, "data": "0x" + word(5).hex(), "input": transfer},
        {"topics": [*TOPICS, "0x" + word(7).hex()], "data": "", "input": transfer},
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, given)))
    found = decoded(tmp_path / "a.jsonl", tmp_path / "o.parquet", warehouse)
    assert [json.loads(row["values"]) for row in found] == [[TO, "1"], [TO, OTHER, "5"], [TO, OTHER, "7"]]
    assert {row["exact"] for row in found} == {True}


@pytest.mark.parametrize(("name", "prefix"), [("txs.parquet", ""), ("txs.csv", ""), ("traces.jsonl", "action_")])
def test_a_transaction_to_nobody_is_no_call(warehouse: Path, tmp_path: Path, name: str, prefix: str) -> None:
    """Its input is the code of a new contract, which may begin as a text's selector does; a log has no such column."""
    inputs = ["0x" + call(TRANSFER, TO, 1).hex()] * 2 + [""]
    write_table(tmp_path / name, {f"{prefix}input": inputs, f"{prefix}to": ["0x", TO, None]})
    created, called, none = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert (created["text_signature"], "new contract" in created["reason"]) == (None, True)
    assert (called["text_signature"], none["text_signature"]) == (TRANSFER, None)
    job.decode_file(str(tmp_path / name), str(tmp_path / "out.parquet"), warehouse, Reporter(), {"chain": 1, "to": TO})
    assert pq.read_table(tmp_path / "out.parquet").column("text_signature").to_pylist()[:2] == [TRANSFER] * 2


JOINED, NO_TOPICS = ",".join(TOPICS), "A log without topics is of an anonymous event; its text has to be given."


@pytest.mark.parametrize("name", ["logs.csv", "logs.parquet", "logs.jsonl"])
def test_topics_in_one_text(warehouse: Path, tmp_path: Path, name: str) -> None:
    """As ethereum-etl, Postgres and others write them. One that is not understood makes a row with its reason, no call."""
    given = [JOINED, f"{{{JOINED}}}", f"[{JOINED}]", " ".join(TOPICS), json.dumps(TOPICS), repr(TOPICS)]
    given.append("{" + ",".join(f'"\\\\x{topic[2:]}"' for topic in TOPICS) + "}")  # bytes of Postgres
    bad = {"?": "'?' at digit 1 is not a hex digit", TOPICS[0] + ";": "';' at digit 65 is not a hex digit"}
    data = (
        ["0x" + word(5).hex()] * (len(given) - 1)
        + ["\\x" + word(5).hex()]
        + ["0x" + call(TRANSFER, TO, 1).hex()] * len(bad)
    )
    write_table(tmp_path / name, {"topics": [*given, *bad], "data": data})
    found = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert [json.loads(row["values"]) for row in found[: len(given)]] == [[TO, OTHER, "5"]] * len(given)
    assert [row["reason"] for row in found[len(given) :]] == [f"topics: topic 0: {reason}" for reason in bad.values()]


@pytest.mark.parametrize("name", ["logs.csv", "logs.parquet", "logs.jsonl"])
@pytest.mark.parametrize(
    "topics",
    [
        {"topics": [None, "", "[]"]}, {"topics": pa.array([None, [], [None]], pa.list_(pa.string()))},
        {"topics": pa.array([None, [], [None]], pa.list_(pa.binary()))},
        {topic: [None, "", None] for topic in COLUMNS[3:]},
    ],
)  # fmt: skip
def test_a_log_without_topics_is_no_call(warehouse: Path, tmp_path: Path, name: str, topics: dict[str, Any]) -> None:
    """Its data may begin with a selector."""
    if isinstance(lists := topics.get("topics"), pa.Array) and not name.endswith(".parquet"):
        topics = {"topics": list(map(json.dumps, lists.to_pylist())) if name.endswith(".csv") else lists.to_pylist()}
    write_table(tmp_path / name, {**topics, "data": ["0x" + call(TRANSFER, TO, 1).hex()] * 3})
    found = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert [(row["kind"], row["hash"], row["reason"]) for row in found] == [("log", None, NO_TOPICS)] * 3
    assert pq.read_schema(tmp_path / "out.parquet").names[-1] != "uint256"


def test_the_command_writes_ndjson_and_a_summary(warehouse: Path, tmp_path: Path) -> None:
    """Values are JSON, not a text of JSON; the summary is on standard error."""
    write(tmp_path / "txs.jsonl", rows())
    ran = invoke(warehouse, "decode", "--file", tmp_path / "txs.jsonl", "--quiet")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (ran.status, [list(line) for line in lines]) == (0, [[*RESULT, *COLUMNS[1:2]] for _ in rows()])
    assert lines[0]["values"] == [TO, "1000"]
    assert ran.stderr.startswith("14 rows by confidence: ")


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("a.json", b'{\n "abi": []\n}\n', "o.ndjson", "none of the columns"),
        ("a.json", b'[{"input": "0x"},\n{"input": 1x}]', "o.ndjson", "at byte 12 in record"),
        ("a.txt", b"", "o.parquet", "neither with .parquet nor .csv nor .tsv nor .jsonl nor .json"),
        ("a.csv", b"x,y\n1,2\n", "o.parquet", "none of the columns"),
        ("a.csv", b"input\n" + b"0x," * 1_000, "o.ndjson", "it has 1,001 columns; at most 1,000 are read"),
        ("a.jsonl", b"{%s}\n" % b",".join(b'"k%d":1' % n for n in range(1_001)), "o.ndjson", "it has 1,001 columns"),
        ("a.csv", b"input,note\n0x,\n0x,\xff\n", "o.ndjson", "^[^:]*/a.csv: line 3: .* not utf-8 encoded.$"),
        ("a.parquet", b"PAR1 no", "o.parquet", "a.parquet"),
        ("a.jsonl", b"{}\n", "o.doc", "neither with .parquet nor .ndjson"),
    ],
)
def test_a_bad_file_is_refused(
    warehouse: Path, tmp_path: Path, name: str, content: bytes, target: str, message: str
) -> None:
    """In one line that names it; no target appears."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises((BadInput, BadTarget), match=message):
        job.decode_file(str(tmp_path / name), str(tmp_path / target), warehouse, Reporter())
    assert not (tmp_path / target).exists()


KEPT = {
    "transaction_hash": "0xab", "block_number": 7, "hash": "0xcd", "note": 'a "quoted" NA, x', "logs": [{"n": None}],
}  # fmt: skip
"""Columns that are not decoded; the result has a ``hash`` of its own."""


def rows_with_columns() -> list[dict[str, Any]]:
    calls = [{"input": "0x" + call(TRANSFER, TO, number).hex(), "from": OTHER, "to": TO} for number in range(2)]
    other: dict[str, Any] = {"transaction_hash": None, "block_number": 10**20, "hash": "", "note": "NULL", "logs": []}
    return [calls[0] | KEPT, calls[1] | other]


def outputs(source: Path, warehouse: Path) -> tuple[pa.Table, list[dict[str, Any]]]:
    """What is written as Parquet, and as NDJSON."""
    target = source.with_name("out.parquet")
    job.decode_file(str(source), str(target), warehouse, Reporter())
    return pq.read_table(target), lines_of(source, warehouse)


def test_other_columns_of_parquet_keep_their_types(warehouse: Path, tmp_path: Path) -> None:
    """After ours, in the file's order; one with a name of ours gets a number. Bytes are hex in NDJSON."""
    given = rows_with_columns()
    big = pa.array([Decimal(7), Decimal(10**20)], pa.decimal128(38, 0))
    columns = {name: pa.array([row[name] for row in given]) for name in ("transaction_hash", "input", "to", "hash")}
    columns |= {"value": big, "id": pa.array([b"\1", None]), "at": pa.array([0, 1], pa.timestamp("us", "UTC"))}
    columns |= {
        "price": pa.array([float("nan"), 1.5], pa.float32()),
        "slots": [[{"address": b"\1", "keys": [b"\2"]}]] * 2,
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=1)
    table, lines = outputs(tmp_path / "a.parquet", warehouse)
    names = ["transaction_hash", "hash_2", "value", "id", "at", "price", "slots"]
    assert table.column_names == [*RESULT, names[0], "to", *names[1:]]
    assert [table.schema.field(name).type for name in names[2:5]] == [big.type, pa.binary(), pa.timestamp("us", "UTC")]
    assert table.column("value").to_pylist() == [7, 10**20]
    assert [line["values"] for line in lines] == [[TO, "0"], [TO, "1"]]
    assert [[line[name] for name in names] for line in lines] == [
        ["0xab", "0xcd", 7, "0x01", "1970-01-01T00:00:00.000000Z", None, [{"address": "0x01", "keys": ["0x02"]}]],
        [None, "", 10**20, None, "1970-01-01T00:00:00.000001Z", 1.5, [{"address": "0x01", "keys": ["0x02"]}]],
    ]


def test_other_columns_of_csv_are_text(warehouse: Path, tmp_path: Path) -> None:
    """As they stand in the file."""
    given = [row | {"logs": "007", "to": "NULL"} for row in rows_with_columns()]
    names = ["note, and more" if name == "note" else name for name in given[0]]
    with (tmp_path / "a.csv").open("w", newline="") as out:
        csv.writer(out).writerows([names, *(row.values() for row in given)])
    table, lines = outputs(tmp_path / "a.csv", warehouse)
    kept = ["from", "to", "transaction_hash", "block_number", "hash_2", "note, and more", "logs"]
    assert table.column_names[len(RESULT) :] == kept
    assert table["note, and more"].to_pylist() == [KEPT["note"], "NULL"]
    shown = [(line["block_number"], line["logs"], line["to"]) for line in lines]
    assert shown == [("7", "007", "NULL"), (str(10**20), "007", "NULL")]
    (tmp_path / "a.csv").write_text("Hash,input\nabc,0x01\n")  # SQL would read ours for it
    [row] = decoded(tmp_path / "a.csv", tmp_path / "out.parquet", warehouse)
    assert (row["hash"], row["Hash_2"]) == ("0x01", "abc")
    (tmp_path / "a.jsonl").write_text('{"input": "0x01", "note": 1}\n{"input": "0x01", "Note": 2}\n')
    found = decoded(tmp_path / "a.jsonl", tmp_path / "out.parquet", warehouse)
    assert [(row["note"], row["Note_2"]) for row in found] == [("1", None), (None, "2")]
    (tmp_path / "a.csv").write_text("label,input\n#1,0x01,\n#2,0x02,\nx,0x03\n")  # the engine would find comments
    found = decoded(tmp_path / "a.csv", tmp_path / "out.parquet", warehouse)
    assert [row["label"] for row in found] == ["#1", "#2", "x"]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.csv.gz", "|"), ("a.tsv", ",")])
def test_the_header_shows_the_separator(warehouse: Path, tmp_path: Path, name: str, separator: str) -> None:
    """By the column that is decoded, which may be `calldata`; other cells may have another separator."""
    lines = ['"a,b;c|d\te"', "calldata"], ['"1,2;3|4\t5"', "0x" + call(TRANSFER, TO, 7).hex()]
    text = "".join(separator.join(line) + "\n" for line in lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    [row] = decoded(tmp_path / name, tmp_path / "out.parquet", warehouse)
    assert (json.loads(row["values"]), row["a,b;c|d\te"]) == ([TO, "7"], "1,2;3|4\t5")


@pytest.mark.parametrize("shape", ["lines", "list", "pretty result", "rows", "pretty object", "answer object"])
def test_other_columns_of_json_stay_json(warehouse: Path, tmp_path: Path, shape: str) -> None:
    """In NDJSON; Parquet has text. JSON is an object a line or one document: a list, an explorer's answer, one object."""
    given = rows_with_columns()[: 1 if "object" in shape else 2]
    document: Any = {"status": "1", "result": given} if "result" in shape else given[0] if "object" in shape else given
    document = {"jsonrpc": "2.0", "id": 1, "result": document} if "answer" in shape else document
    document = {"state": "DONE", "result": {"rows": given, "metadata": {}}} if shape == "rows" else document  # Dune
    text = json.dumps(document, indent=2 if "pretty" in shape else None)
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, given)) if shape == "lines" else text)
    table, lines = outputs(tmp_path / "a.json", warehouse)
    assert [line["values"] for line in lines] == [[TO, "0"], [TO, "1"]][: len(given)]
    for line, row in zip(lines, given, strict=True):
        assert {name: line["hash_2" if name == "hash" else name] for name in row if name != "input"} == {
            name: value for name, value in row.items() if name != "input"
        }
    written = table.select(["block_number", "note", "logs"]).to_pylist()
    assert [list(row.values()) for row in written] == [
        ["7", KEPT["note"], '[{"n":null}]'],
        [str(10**20), "NULL", "[]"],
    ][: len(given)]


def test_a_column_that_late_lines_have(warehouse: Path, tmp_path: Path) -> None:
    """The columns are those of all lines."""
    given = [{"input": "0x" + call(TRANSFER, TO, number).hex(), "n": number} for number in range(2100)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*given, {"late": [1]}]))
    table, lines = outputs(tmp_path / "a.jsonl", warehouse)
    assert [line["n"] for line in lines] == [*range(2100), None]
    assert (lines[-1]["late"], table["late"].to_pylist()[-2:]) == ([1], [None, "[1]"])
