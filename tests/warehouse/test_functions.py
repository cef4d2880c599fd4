"""The SQL functions on texts: each gives what an import computes for the same text."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from Crypto.Hash import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.functions import canonical, keccak256, selector, topic0
from tests.conftest import import_lines
from tests.examples import examples
from tests.signatures.strategies import broken, valid

TEXTS = st.one_of(valid().map(lambda v: v.written), broken().map(lambda b: b.written), st.text(max_size=40))


def hashed(text: str | None, digits: int = 64) -> str | None:
    """The first hexadecimal digits of a text's hash, by pycryptodome."""
    return text if text is None else "0x" + keccak.new(digest_bits=256, data=text.encode()).hexdigest()[:digits]


def canonical_of(text: str | None, kind: int | None = None) -> str | None:
    """The text by the grammar in plain Python, if it is of this kind."""
    try:
        found = None if text is None else normalise(text, default_kind=FUNCTIONS if kind is None else kind)
    except GrammarError:
        return None
    return found.text if found is not None and kind in (None, found.collection) else None


@settings(max_examples=examples(60))
@given(st.lists(st.none() | TEXTS, min_size=1, max_size=30))
def test_a_column_gives_the_values_of_its_texts(texts: list[str | None]) -> None:
    """Each row has the value of its own text, whatever its neighbours and nulls are."""
    texts = [text if text is None else text.encode("utf-8", "replace").decode() for text in texts]
    column = pa.chunked_array([pa.array(texts, pa.string())])
    assert keccak256(column).to_pylist() == [hashed(text) for text in texts]
    assert canonical(column).to_pylist() == [canonical_of(text) for text in texts]
    assert selector(column).to_pylist() == [hashed(canonical_of(text, FUNCTIONS), 8) for text in texts]
    assert topic0(column).to_pylist() == [hashed(canonical_of(text, EVENTS)) for text in texts]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A text of each collection. Not to be changed."""
    folder = tmp_path_factory.mktemp("functions") / "warehouse"
    event = "event Transfer(address indexed from, address indexed to, uint256 value)"
    return sigdir.open(import_lines(folder, "transfer(address,uint256)", event))


TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


ANSWERS = {
    "selector('function transfer(address to, uint amount) external returns (bool);')": "0xa9059cbb",
    "selector('error Panic(uint code)')": "0x4e487b71",
    "selector('event Transfer(address,address,uint)')": None,
    "topic0('event Transfer(address indexed from, address indexed to, uint value)')": TRANSFER_TOPIC,
    "topic0('Transfer(address,address,uint256)')": TRANSFER_TOPIC,
    "topic0('function transfer(address,uint256)')": None,
    "canonical('f(tuple(uint a, bool[2] b)[] c)')": "f((uint256,bool[2])[])",
    "keccak256('')": "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
    "selector(NULL)": None,
}


def test_known_answers(samples: Warehouse) -> None:
    """A bad signature or one of the other kind gives NULL, no error."""
    for expression, value in ANSWERS.items():
        assert samples.sql(f"SELECT {expression}").rows() == [(value,)], expression


def test_long_columns_with_nulls(samples: Warehouse) -> None:
    """The engine passes a few thousand rows per call; each row has its own value."""
    query = "SELECT i, selector(CASE WHEN i % 3 THEN 'f' || i || '(uint)' END) FROM range(9000) t(i) ORDER BY i"
    for number, value in samples.sql(query).rows():
        assert value == hashed(f"f{number}(uint256)" if number % 3 else None, 8), number


def test_calldata_and_logs_are_decoded(samples: Warehouse) -> None:
    """Blobs, hex and NULL, in any number of rows; an answer as the API's, and NULL for what cannot be read."""
    word = "00" * 12 + "ab" * 20
    calldata = f"a9059cbb{word}{1000:064x}"
    given = ["unhex($1)", "$1", "'0x' || $1", "upper('0x' || $1)", "'0xzz'", "NULL", "'junk'", "5"]
    query = f"SELECT {', '.join(f'decode_calldata({one})' for one in given)}"
    [(blob, *found)] = samples.sql(query, [calldata]).rows()
    assert found == [blob, blob, blob, None, None, None, None]
    first = json.loads(blob)["candidates"][0]
    assert (first["text_signature"], first["parameters"][1]["value"]) == ("transfer(address,uint256)", "1000")
    query = "SELECT decode_log([$1, $2, $2], unhex($3)), decode_log(['junk'], ''), decode_log([$1], '0x1')"
    [(log, *bad)] = samples.sql(query, [TRANSFER_TOPIC, "0x" + word, f"{5:064x}"]).rows()
    assert bad == [None, None]
    assert [one["indexed"] for one in json.loads(log)["candidates"][0]["parameters"]] == [True, True, False]
    assert json.loads(log)["candidates"][0]["parameters"][0]["name"] == "from"
    plain = samples.sql("SELECT decode_log([$1, $2, $2, ''], $3)", [TRANSFER_TOPIC[2:], word, f"{5:064x}"])
    assert plain.rows() == [(log,)]
    many = samples.sql("SELECT count(decode_calldata(unhex($1))) FROM range(5000)", [calldata]).rows()
    assert many == [(5000,)]


def test_decoding_takes_the_texts_in_the_order_of_their_rank(tmp_path: Path) -> None:
    """A text that an ABI declares comes before an older one of its selector that a list names, and has its declaration."""
    import_lines(tmp_path / "data", "withdrawByAdmin_Unau(uint256[])")
    inputs = [{"name": "a", "type": type} for type in ("uint256", "uint256", "uint64", "uint32")]
    entry = {"type": "function", "name": "lend_during", "stateMutability": "view", "outputs": [], "inputs": inputs}
    import_lines(tmp_path / "data", json.dumps([entry]), name="abi.json")
    [(found,)] = sigdir.open(tmp_path / "data").sql("SELECT decode_calldata(unhex('000000c700'))").rows()
    texts = [(one["text_signature"], "declaration" in one) for one in json.loads(found)["candidates"]]
    assert texts == [("lend_during(uint256,uint256,uint64,uint32)", True), ("withdrawByAdmin_Unau(uint256[])", False)]
