"""SQL functions over whole columns: keccak256, selector, topic0, canonical, decode_calldata and decode_log.

::

    Warehouse("data").sql("SELECT selector('f(uint)')")

Each of the first four runs the code of an import. Hashes are written as in the views: 0x and lower case. A text that
the grammar refuses has no canonical form, selector or topic; the answer is NULL, as it is for NULL. Such functions
are run on other people's lists, and one bad line should not end the query.

decode_calldata(data) and decode_log(topics, data) give the API's answer as JSON. Data and topics are blobs, or texts
of hex digits with or without 0x. What cannot be read is NULL, as for the other functions. The texts come from the
connection's own views, by a cursor of it, so a query of an older version decodes by that version's texts. Texts of a
hash stand in the order of their rank, with their declarations, by the evidence of the same version. With one more
argument they read by a contract: its ABI as JSON, its code as hex digits, or `1:0x...`, a chain and an address where
imports have seen it, which may be two arguments too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array, validity
from sigdir.signatures.candidates import HEX_PAIRS, bytes_of
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.manifest import Manifest
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.views import add_function

if TYPE_CHECKING:  # readings and grammar load numba, 0.5 s, and most queries need neither
    from sigdir.signatures.clear_signing import Descriptor, Place
    from sigdir.signatures.decode_batch import BatchDecoder
    from sigdir.signatures.given_contract import GivenContract
    from sigdir.signatures.grammar_rows import Normalised
    from sigdir.signatures.readings import Input, Known
    from sigdir.warehouse.sql.ranking import Ranking


_KNOWN_CONTRACTS = 1024


def keccak256(texts: pa.ChunkedArray) -> pa.StringArray:
    """The hash of each text as it stands: 0x and 64 hex digits."""
    from sigdir.signatures.keccak_rows import keccak256_rows  # numba takes 0.5 s to load

    bounds, data = _bytes(texts)
    return _where(_is_valid(texts), hex_texts(keccak256_rows(data, bounds)))


def canonical(texts: pa.ChunkedArray) -> pa.StringArray:
    """The canonical text of each function, error or event; NULL where it has none."""
    from sigdir.signatures.collections import FUNCTIONS
    from sigdir.signatures.grammar import OK

    found = _normalised(texts, FUNCTIONS)
    return _where((found.reasons == OK) & _is_valid(texts), found.texts())


def selector(texts: pa.ChunkedArray) -> pa.StringArray:
    """The selector of each function or error, however it is written: 0x and 8 hex digits; NULL for an event."""
    from sigdir.signatures.collections import FUNCTIONS

    return _hashed(texts, FUNCTIONS, 4)


def topic0(texts: pa.ChunkedArray) -> pa.StringArray:
    """The topic of each event, however it is written: 0x and 64 hex digits; NULL for a function or error."""
    from sigdir.signatures.collections import EVENTS

    return _hashed(texts, EVENTS, 32)


def _hashed(texts: pa.ChunkedArray, collection: int, width: int) -> pa.StringArray:
    """The first bytes of the canonical text's hash, for texts of the collection and those that state none."""
    from sigdir.signatures.grammar import OK
    from sigdir.signatures.keccak_rows import keccak256_rows

    found = _normalised(texts, collection)
    digests = keccak256_rows(found.data, found.offsets)
    good = (found.reasons == OK) & (found.collections == collection)
    return _where(good & _is_valid(texts), hex_texts(digests[:, :width]))


def _normalised(texts: pa.ChunkedArray, default: int) -> Normalised:
    from sigdir.signatures.collections import UNKNOWN
    from sigdir.signatures.grammar_rows import normalise_rows

    bounds, data = _bytes(texts)
    return normalise_rows(data, bounds[:-1], bounds[1:], np.full(len(bounds) - 1, UNKNOWN, np.uint8), default)


def _bytes(texts: pa.ChunkedArray) -> tuple[Array, Array]:
    """Offsets (int32, rows + 1) and bytes (uint8) of the texts; a null is an empty text."""
    import pyarrow.compute as pc  # takes 30 ms, and most queries call none of these functions

    return bytes_of(pc.fill_null(texts, "").combine_chunks())


def _is_valid(texts: pa.ChunkedArray) -> Array:
    """Which texts are not null, a flag a row."""
    import pyarrow.compute as pc

    valid: Array = pc.is_valid(texts).to_numpy()
    return valid


def hex_texts(digests: Array, is_valid: npt.NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Digests, uint8 of (rows, width), as 0x and hex digits; null where they are not valid."""
    rows, width = digests.shape
    out = np.empty((rows, 2 + 2 * width), np.uint8)
    out[:, 0], out[:, 1] = b"0x"
    out[:, 2:] = HEX_PAIRS[digests].view(np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * out.shape[1]
    bitmap = None if is_valid is None else validity(is_valid)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out), bitmap)


def _where(kept: Array, texts: pa.StringArray) -> pa.StringArray:
    import pyarrow.compute as pc

    return texts if kept.all() else pc.if_else(pa.array(kept), texts, pa.scalar(None, pa.string()))


# The engine would turn a text into a blob of its characters, so the macros look at the type first.
_MACROS = """
CREATE MACRO hex_digits(value) AS CASE typeof(value)
    WHEN 'VARCHAR' THEN value::VARCHAR WHEN 'BLOB' THEN hex(value) WHEN '"NULL"' THEN NULL ELSE 'no bytes' END;
CREATE MACRO all_hex_digits(topics) AS list_transform(topics, lambda topic: hex_digits(topic));
CREATE MACRO place(chain, address) AS chain::BIGINT || ':0x' || right(hex_digits(address), 40);
CREATE MACRO decode_calldata(data) AS decode_calldata_hex(hex_digits(data), NULL),
    (data, contract) AS decode_calldata_hex(hex_digits(data), contract::VARCHAR),
    (data, chain, address) AS decode_calldata_hex(hex_digits(data), place(chain, address));
CREATE MACRO decode_log(topics, data) AS decode_log_hex(all_hex_digits(topics), hex_digits(data), NULL),
    (topics, data, contract) AS decode_log_hex(all_hex_digits(topics), hex_digits(data), contract::VARCHAR),
    (topics, data, chain, address) AS
        decode_log_hex(all_hex_digits(topics), hex_digits(data), place(chain, address));
"""


def create_functions(connection: duckdb.DuckDBPyConnection, snapshot: Snapshot, ranking: Callable[[], Ranking]) -> None:
    """Add all functions to a connection that has the views of this version."""
    documents = _Documents(snapshot.evidence, ranking)

    def decode_calldata_hex(data: pa.ChunkedArray, contracts: pa.ChunkedArray) -> pa.StringArray:
        return documents.of(((data, None) for data in data.to_pylist()), contracts)

    def decode_log_hex(topics: pa.ChunkedArray, data: pa.ChunkedArray, contracts: pa.ChunkedArray) -> pa.StringArray:
        given = ([one for one in words or () if one] for words in topics.to_pylist())  # topic3 may be NULL or empty
        pairs = ((one or "" if words else None, words) for words, one in zip(given, data.to_pylist(), strict=True))
        return documents.of(pairs, contracts)

    functions: list[tuple[Callable[..., pa.Array], list[str]]] = [
        *((function, ["VARCHAR"]) for function in (keccak256, selector, topic0, canonical)),
        (decode_calldata_hex, ["VARCHAR", "VARCHAR"]),
        (decode_log_hex, ["VARCHAR[]", "VARCHAR", "VARCHAR"]),
    ]
    for function, types in functions:
        add_function(connection, function.__name__, function, types, "VARCHAR", takes_null=True)
    connection.execute(_MACROS)


class _Documents:
    """The answers by the texts of one version; the connection outlives a call of a function."""

    def __init__(self, evidence: Manifest, ranking: Callable[[], Ranking]) -> None:
        self._evidence, self._ranking = evidence, ranking
        self._decoder: BatchDecoder | None = None
        self._described = lru_cache(_KNOWN_CONTRACTS)(self._descriptors_of)
        self._contract = lru_cache(_KNOWN_CONTRACTS)(self._contract_of)

    def of(
        self, pairs: Iterable[tuple[str | None, Sequence[str] | None]], contracts: pa.ChunkedArray
    ) -> pa.StringArray:
        """The answers for data with topics, by contracts as the functions take them, null for none.

        None where there is no data, or a part of it is no bytes, hex or a word.
        """
        from sigdir.signatures.decode_batch import BatchDecoder, read_input
        from sigdir.signatures.decode_input import BadInput
        from sigdir.signatures.readings import Form

        def read(data: str | None, topics: Sequence[str] | None) -> Input | None:
            try:
                return None if data is None else read_input(Form.AUTO, data, topics)
            except BadInput:
                return None

        self._decoder = self._decoder or BatchDecoder(self._texts, self._descriptors)
        given = zip((read(*pair) for pair in pairs), contracts.to_pylist(), strict=True)
        inputs = [one and self._with_contract(one, contract) for one, contract in given]
        found = iter(self._decoder.documents([one for one in inputs if one is not None]))
        return pa.array([None if one is None else next(found) for one in inputs], pa.string())

    def _with_contract(self, input: Input, contract: str | None) -> Input:
        """An input with the contract; without one where the text names none."""
        from sigdir.signatures.decode_input import BadInput

        try:
            return input if contract is None else input._replace(contract=self._contract(contract))
        except BadInput:
            return input

    def _contract_of(self, text: str) -> GivenContract | None:
        """The contract by its place, its ABI or its code; raises BadInput."""
        from sigdir.signatures.given_contract import contract_fields, contract_of
        from sigdir.warehouse.evidence.contracts import deployed_contract

        return contract_of(contract_fields(text), partial(deployed_contract, self._evidence))

    def _descriptors(self, selector: bytes, place: Place) -> Sequence[Descriptor]:
        return self._described(selector).get(place, ())

    def _descriptors_of(self, selector: bytes) -> dict[Place, list[Descriptor]]:
        from sigdir.signatures.evidence import Witness
        from sigdir.signatures.readings import MAX_TEXTS
        from sigdir.warehouse.evidence.lookup import descriptors_of

        texts = self._ranking().ranked(SIGNATURES, [selector]).get(selector, ())
        ids = [one.summary.id for one in texts if one.summary.witness == Witness.DESCRIBED]
        return descriptors_of(self._evidence, ids[:MAX_TEXTS])

    def _texts(self, hashes: Sequence[bytes]) -> dict[bytes, list[Known]]:
        from sigdir.signatures.readings import known_of

        known: dict[bytes, list[Known]] = {hash: [] for hash in hashes}
        for collection in COLLECTIONS:
            wanted = [hash for hash in hashes if len(hash) == collection.hash_bytes]
            if wanted:
                ranked = self._ranking().ranked(collection, wanted)
                known.update((hash, [known_of(one) for one in texts]) for hash, texts in ranked.items())
        return known
