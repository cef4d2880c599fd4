"""SQL functions that decode: decode_calldata(blob) and decode_log(topics, data), each the API's answer as JSON.

The texts come from the connection's own views, by a cursor of it, so a query of an older version decodes by that version's texts.
Texts of a hash stand in the order standard, then oldest. What cannot be read is NULL, as for the other functions.
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
from sigdir.signatures.standards import is_filtered

if TYPE_CHECKING:  # readings load numba, 0.5 s, and most queries decode nothing
    from sigdir.signatures.readings import Input, Known

_REMEMBERED = 100_000


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Add both functions to a connection that has the views."""
    texts = _Texts(weakref.ref(connection))
    of_call: list[Any] = ["BLOB"]
    of_log: list[Any] = ["VARCHAR[]", "BLOB"]

    def decode_calldata(data: pa.ChunkedArray) -> pa.StringArray:
        return texts.documents([_input("auto", one) for one in data.to_pylist()])

    def decode_log(topics: pa.ChunkedArray, data: pa.ChunkedArray) -> pa.StringArray:
        pairs = zip(topics.to_pylist(), data.to_pylist(), strict=True)
        return texts.documents([_input("log", one, words) for words, one in pairs])

    for function, types in ((decode_calldata, of_call), (decode_log, of_log)):
        connection.create_function(
            function.__name__, function, types, "VARCHAR", type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )  # fmt: skip


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


def _bytes(value: Any) -> bytes:
    """Bytes as they are, or of their hex digits with 0x; raises TypeError or ValueError."""
    if isinstance(value, bytes):
        return bytes.fromhex(value[2:].decode("ascii")) if value[:2] == b"0x" else value
    return bytes.fromhex(value[2:] if value[:2] == "0x" else value)


class _Texts:
    """The texts of the hashes that were looked up; the connection outlives a call of a function."""

    def __init__(self, connection: weakref.ref[duckdb.DuckDBPyConnection]) -> None:
        self._connection = connection
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
        from sigdir.signatures.readings import Known

        if len(self._known) > _REMEMBERED:
            self._known.clear()
        known, missing = self._known, [hash for hash in wanted if hash not in self._known]
        known.update((hash, []) for hash in missing)
        for collection in COLLECTIONS:
            hashes = [hash for hash in missing if len(hash) == collection.hash_bytes]
            if hashes:
                for hash, text in self._rows(collection.view_name, hashes):
                    known[bytes(hash)].append(Known(text))
        for hash in missing:
            known[hash].sort(key=lambda one: is_filtered(hash, one.text))
        return {hash: known[hash] for hash in wanted}

    def _rows(self, view: str, hashes: list[bytes]) -> list[tuple[bytes, str]]:
        connection = self._connection()
        if connection is None:
            return []
        query = f"SELECT hash, text_signature FROM {view} WHERE hash IN (SELECT unnest($hashes::BLOB[])) ORDER BY id"
        with connection.cursor() as cursor:
            return cursor.execute(query, {"hashes": hashes}).fetchall()
