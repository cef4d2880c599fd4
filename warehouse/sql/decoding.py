"""SQL functions that decode: decode_calldata(data) and decode_log(topics, data), each the API's answer as JSON.

Data and topics are blobs, or texts of hex digits with or without 0x.
The texts come from the connection's own views, by a cursor of it, so a query of an older version decodes by that version's texts.
Texts of a hash stand in the order of their rank, with their declarations, by the evidence of the same version. What cannot
be read is NULL, as for the other functions.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import orjson
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.paths import Paths

if TYPE_CHECKING:  # readings load numba, 0.5 s, and most queries decode nothing
    from sigdir.signatures.readings import Input, Known
    from sigdir.warehouse.sql.ranking import Ranking

_REMEMBERED = 100_000

# The engine would turn a text into a blob of its characters, so the macros look at the type first.
_MACROS = """
CREATE MACRO hex_digits(value) AS CASE typeof(value)
    WHEN 'VARCHAR' THEN value::VARCHAR WHEN 'BLOB' THEN hex(value) WHEN '"NULL"' THEN NULL ELSE 'no bytes' END;
CREATE MACRO decode_calldata(data) AS decode_calldata_hex(hex_digits(data));
CREATE MACRO decode_log(topics, data) AS
    decode_log_hex(list_transform(topics, lambda topic: hex_digits(topic)), hex_digits(data));
"""


def register(connection: duckdb.DuckDBPyConnection, paths: Paths, snapshot: Snapshot) -> None:
    """Add both functions to a connection that has the views of this version."""
    texts = _Texts(weakref.ref(connection), paths, snapshot)
    of_call: list[Any] = ["VARCHAR"]
    of_log: list[Any] = ["VARCHAR[]", "VARCHAR"]

    def decode_calldata_hex(data: pa.ChunkedArray) -> pa.StringArray:
        return texts.documents([_input("auto", one) for one in data.to_pylist()])

    def decode_log_hex(topics: pa.ChunkedArray, data: pa.ChunkedArray) -> pa.StringArray:
        pairs = zip(topics.to_pylist(), data.to_pylist(), strict=True)
        return texts.documents([_input("log", one, words) for words, one in pairs])

    for function, types in ((decode_calldata_hex, of_call), (decode_log_hex, of_log)):
        connection.create_function(
            function.__name__, function, types, "VARCHAR", type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )  # fmt: skip
    connection.execute(_MACROS)


def _input(kind: str, data: Any, topics: Sequence[Any] | None = ()) -> Input | None:
    """An input; None where a part of it is no bytes, hex or a word."""
    from sigdir.signatures.calldata import MAX_BYTES
    from sigdir.signatures.readings import Form, Input

    form = Form(kind)
    try:
        words = tuple(_bytes(topic) for topic in topics or () if topic is not None)
        found = _bytes(data) if data is not None or form is not Form.LOG else b""
    except (TypeError, ValueError):
        return None
    is_good = len(found) <= MAX_BYTES and len(words) <= 4 and all(len(word) == 32 for word in words)
    return Input(form, found, words) if is_good and (words or form is not Form.LOG) else None


def _bytes(text: str) -> bytes:
    """The bytes of hex digits, with or without 0x; raises TypeError for None, ValueError."""
    return bytes.fromhex(text[2:] if text[:2] in ("0x", "0X") else text)


class _Texts:
    """The texts of the hashes that were looked up; the connection outlives a call of a function."""

    def __init__(self, connection: weakref.ref[duckdb.DuckDBPyConnection], paths: Paths, snapshot: Snapshot) -> None:
        self._connection, self._paths, self._snapshot = connection, paths, snapshot
        self._ranking: Ranking | None = None
        self._known: dict[bytes, list[Known]] = {}

    def documents(self, inputs: Sequence[Input | None]) -> pa.StringArray:
        from sigdir.signatures.reading_json import document
        from sigdir.signatures.readings import Readings

        readings = Readings(input for input in inputs if input is not None)
        while wanted := readings.wanted():
            readings.supply(self._of(wanted))
        found = iter(readings.results())
        texts = [None if input is None else orjson.dumps(document(next(found))).decode() for input in inputs]
        return pa.array(texts, pa.string())

    def _of(self, wanted: Iterable[bytes]) -> dict[bytes, list[Known]]:
        from sigdir.signatures.readings import known_of
        from sigdir.warehouse.sql.ranking import Ranking

        self._ranking = self._ranking or Ranking.of(self._connection, self._paths, self._snapshot)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        known, missing = self._known, [hash for hash in wanted if hash not in self._known]
        known.update((hash, []) for hash in missing)
        for collection in COLLECTIONS:
            hashes = [hash for hash in missing if len(hash) == collection.hash_bytes]
            if hashes:
                ranked = self._ranking.ranked(collection, hashes)
                known.update((hash, [known_of(one.summary) for one in texts]) for hash, texts in ranked.items())
        return {hash: known[hash] for hash in wanted}
