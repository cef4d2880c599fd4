"""The views over the evidence: who says so, what a text's sources say together, and the order of a selector's texts.

``sigdir.signatures.rank`` owns the order and the reasons. Few selectors have several texts, so ``ranked`` finds those first
and gives the first place to every other text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures import standards
from sigdir.signatures.arrow import Array, numbers, string_lists, values
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary, noted_reasons, plain_reasons
from sigdir.warehouse.evidence.contracts import days_in, uses_in, uses_of_hashes
from sigdir.warehouse.evidence.summaries import KINDS
from sigdir.warehouse.log.manifest import USAGE, Manifest, MappedFile
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.ranking import RIVAL, Ranking, SummaryReader
from sigdir.warehouse.sql.scratch import live_sightings
from sigdir.warehouse.sql.views import add_function
from sigdir.warehouse.table.fields import moment, sql_of


def create_evidence_views(connection: duckdb.DuckDBPyConnection, snapshot: Snapshot, ranking: Ranking) -> None:
    """Create the views over the evidence of a version, after those of the rows and the imports.

    What they share is in the schema ``parts``, which SHOW TABLES does not list.
    """
    manifest = snapshot.evidence

    def rivals(rows: pa.ChunkedArray) -> pa.ListArray:
        ends = np.arange(len(rows) + 1, dtype=np.int32) * len(ranking.rivals)
        return pa.ListArray.from_arrays(numbers(ends), pa.concat_arrays([ranking.rivals] * len(rows)))

    add = partial(add_function, connection)
    add("rivals", rivals, ["INTEGER"], f"{RIVAL}[]", is_volatile=True)
    add("deep_parameter_names", _parameter_names, ["VARCHAR"], "VARCHAR[]")
    for collection, reader in ranking.readers.items():
        add(_summary(collection), partial(_summaries, reader), ["BIGINT"], SQL_TYPE)
    of_reasons = [*_REASONED.values(), "BIGINT", "VARCHAR", "VARCHAR"]
    add("reasons_of", reasons_of, of_reasons, "VARCHAR[]", takes_null=True)
    add("uses_of", partial(_uses_of, manifest), ["BLOB"], "BIGINT")
    add("counted", partial(_counted, manifest), ["BLOB", "INTEGER"], _COUNTED)
    connection.execute("CREATE SCHEMA parts")
    _create_table(connection, "sources", _sources(manifest))
    _create_table(connection, "counting", _counting(manifest))
    _create_table(connection, "standards", _standards())
    connection.execute(_MACROS)
    for collection in COLLECTIONS:
        connection.execute(f"CREATE VIEW {_live(collection)} AS {_live_sightings(manifest, collection)}")
    connection.execute(f"CREATE VIEW sightings AS {_of_both(_sightings)}")
    connection.execute(f"CREATE VIEW evidence AS {_of_both(_evidence)}")
    connection.execute(f"CREATE VIEW declarations AS {_of_both(_declarations)}")
    connection.execute(_RIVALS + _NOTED)
    connection.execute(f"CREATE VIEW ranked AS {_of_both(_ranked)}")


def _uses_of(manifest: Manifest, hashes: pa.ChunkedArray) -> pa.Array:
    """How often each selector or topic is used."""
    raw = hashes.to_pylist()
    width = max(map(len, raw), default=4)
    joined = np.frombuffer(b"".join(one.ljust(width, b"\0") for one in raw), np.uint8).reshape(-1, width)
    is_topic = np.array([len(one) == EVENT_SIGNATURES.hash_bytes for one in raw], np.bool_)
    found = np.zeros(len(raw), np.int64)
    for collection, rows in ((EVENT_SIGNATURES, is_topic), (SIGNATURES, ~is_topic)):
        if rows.any():
            found[rows] = uses_of_hashes(manifest, joined[rows, : collection.hash_bytes])
    return numbers(found)


_COUNTED = "STRUCT(uses BIGINT, first_day DATE, last_day DATE)"


def _counted(manifest: Manifest, hashes: pa.ChunkedArray, sources: pa.ChunkedArray) -> pa.StructArray:
    """How often each source has counted each hash, all of one collection, and its first and last day."""
    raw, wanted = hashes.to_pylist(), values(sources)
    keys = np.frombuffer(b"".join(raw), np.uint8).reshape(len(raw), -1)
    uses, days = np.zeros(len(raw), np.int64), np.full((len(raw), 2), "NaT", "<M8[D]")
    for file in manifest.mapped_of(USAGE):
        rows = np.flatnonzero(wanted == _statement(file)[0])
        if len(rows):
            uses[rows] = uses_in(file, keys[rows])
            days[rows, : len(days_in(file))] = days_in(file)
    return pa.StructArray.from_arrays([numbers(uses), *map(pa.array, days.T)], ["uses", "first_day", "last_day"])


def _create_table(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, tuple[str, list[Any]]]
) -> None:
    """A table of these columns, each a type and its values. Arrow would load pandas to make it, 0.2 s of each start."""
    lists = ", ".join(f"unnest(${column}::{kind}[]) AS {column}" for column, (kind, _) in columns.items())
    connection.execute(
        f"CREATE TABLE parts.{name} AS SELECT {lists}", {column: values for column, (_, values) in columns.items()}
    )


def _sources(manifest: Manifest) -> dict[str, tuple[str, list[Any]]]:
    sources = list(manifest.sources.values())
    return {
        "source": ("INTEGER", [source.number for source in sources]),
        "label": ("VARCHAR", [source.label for source in sources]),
        "import_id": ("BIGINT", [source.import_id for source in sources]),
    }


def _statement(file: MappedFile) -> tuple[int, int]:
    """The source and the import of a file of usage, which is all that one source has counted."""
    return next(filter(None, file.statements))


def _counting(manifest: Manifest) -> dict[str, tuple[str, list[Any]]]:
    """The sources that have counted, and the import of each."""
    statements = list(map(_statement, manifest.mapped_of(USAGE)))
    return {
        "source": ("INTEGER", [source for source, _ in statements]),
        "import_id": ("BIGINT", [import_id for _, import_id in statements]),
    }


def _standards() -> dict[str, tuple[str, list[Any]]]:
    texts, names = standards.canonical(), standards.sources()
    return {
        "hash": ("BLOB", list(texts)),
        "text_signature": ("VARCHAR", list(texts.values())),
        "standard": ("VARCHAR", [names[hash] for hash in texts]),
    }


def _parameter_names(declarations: pa.ChunkedArray) -> pa.Array:
    """The names of each declaration's parameters, "" for one without; those with tuples, which a pattern cannot read."""
    from sigdir.signatures.types import parse_declaration  # numba takes 0.5 s to load

    return string_lists([[one.name for one in parse_declaration(text).inputs] for text in declarations.to_pylist()])


SQL_TYPE = (
    "STRUCT(witness UTINYINT, kinds UTINYINT, sources UINTEGER, contracts UINTEGER, compiled UINTEGER, verified BOOLEAN,"
    " declaration VARCHAR)"
)
"""The type of a summary."""


def _summaries(reader: SummaryReader, ids: pa.ChunkedArray) -> pa.StructArray:
    counts, declarations = reader.of(values(ids))
    names = ["witness", "kinds", "sources", "contracts", "compiled", "verified"]
    return pa.StructArray.from_arrays(
        [*(numbers(counts[name]) for name in names), declarations], [*names, "declaration"]
    )


# Reasons. 2,048 texts have some ten different lists, so these are a dictionary.

_DAY = 86_400_000_000
_REASONED = {
    "witness": "UTINYINT",
    "sources": "UINTEGER",
    "contracts": "UINTEGER",
    "compiled": "UINTEGER",
    "verified": "BOOLEAN",
}
"""What the reasons that any text has are made of, beside its time."""


def reasons_of(
    witness: pa.ChunkedArray, sources: pa.ChunkedArray, contracts: pa.ChunkedArray, compiled: pa.ChunkedArray, verified: pa.ChunkedArray,
    times: pa.ChunkedArray, standards: pa.ChunkedArray, mined: pa.ChunkedArray,
) -> pa.DictionaryArray:  # fmt: skip
    """The reasons for the places of texts, as ``rank.Ranked`` gives them; ``times`` in microseconds since 1970."""
    plain = [*map(values, (witness, sources, contracts, compiled, verified)), values(times) // _DAY]
    of_row, firsts = _distinct(plain)
    lists = [_plain_reasons(*one) for one in zip(*(column[firsts].tolist() for column in plain), strict=True)]
    for row in np.flatnonzero(values(standards.is_valid()) | values(mined.is_valid())).tolist():
        noted = noted_reasons(standards[row].as_py() or "", mined[row].as_py() or "")
        lists.append((*noted, *lists[of_row[row]]))
        of_row[row] = len(lists) - 1
    return pa.DictionaryArray.from_arrays(numbers(of_row.astype(np.int32)), string_lists(lists))


@lru_cache(maxsize=4096)
def _plain_reasons(
    witness: int, sources: int, contracts: int, compiled: int, verified: bool, day: int
) -> tuple[str, ...]:
    """To word them for each 2,048 texts anew would take as long as all else that is done for these."""
    first_seen = moment(day * _DAY)
    return plain_reasons(Summary(0, "", Witness(witness), (), sources, contracts, compiled, verified, first_seen))


def _distinct(columns: Sequence[Array]) -> tuple[Array, Array]:
    """For each row the number of its combination of values, and a row of each combination."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():  # most columns have one value
            encoded = numbers(column).dictionary_encode()
            joined = numbers(codes * len(encoded.dictionary) + values(encoded.indices)).dictionary_encode()
            codes = values(joined.indices).astype(np.int64)
    rows = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    rows[codes[::-1]] = np.arange(len(codes))[::-1]
    return codes, rows


def _of_both(query: Callable[[Collection], str]) -> str:
    """A query over the rows of both collections."""
    return " UNION ALL ".join(query(collection) for collection in COLLECTIONS)


# The sightings that count.

_NO_SIGHTINGS = (
    "(SELECT NULL::BIGINT AS id, NULL::INTEGER AS source, NULL::BIGINT AS import_id, NULL::TINYINT AS kind,"
    " NULL::TINYINT AS witness, NULL::INTEGER AS contracts, NULL::BOOLEAN AS verified, NULL::VARCHAR AS file,"
    " NULL::VARCHAR AS contract, NULL::BIGINT AS contract_key, NULL::VARCHAR AS display, NULL::VARCHAR AS declaration LIMIT 0)"
)


def _live(collection: Collection) -> str:
    """The view of a collection's sightings that count."""
    return f"parts.{collection.view_name}_sightings"


def _live_sightings(manifest: Manifest, collection: Collection) -> str:
    files = manifest.files[collection]
    return live_sightings(files, "parts.sources") if files else f"FROM {_NO_SIGHTINGS}"


# Numbers as in signatures/evidence.py and signatures/rank.py, and their names.
_MACROS = f"""
CREATE MACRO parts.kind_name(kind) AS CASE kind {" ".join(f"WHEN {k:d} THEN '{k.name.lower()}'" for k in Kind)} END;
CREATE MACRO parts.witness_name(witness) AS
    CASE witness {" ".join(f"WHEN {w:d} THEN '{w.name.lower()}'" for w in Witness)} END;
CREATE MACRO parts.kind_names(mask) AS
    CASE mask {" ".join(f"WHEN {mask} THEN {[kind.name.lower() for kind in kinds]}" for mask, kinds in enumerate(KINDS))} END;
CREATE MACRO parts.parameter_names(declaration) AS CASE
    WHEN regexp_matches(declaration, '^[^(]*\\(\\)') THEN []
    WHEN regexp_matches(declaration, '^[^(]*\\([^()]*\\)')
    THEN list_transform(string_split(regexp_extract(declaration, '\\(([^()]*)\\)', 1), ', '),
                        lambda one: if(contains(one, ' ') AND NOT ends_with(one, ' indexed'), split_part(one, ' ', -1), ''))
    ELSE deep_parameter_names(declaration) END;
"""


def _sightings(collection: Collection) -> str:
    return f"""
SELECT '{collection}' AS collection, t.id, t.text_signature, t.hex_signature, o.label AS source, s.import_id, coalesce(s.file, o.label) AS file, s.contract,
       parts.kind_name(s.kind) AS kind, parts.witness_name(s.witness) AS witness, s.declaration,
       s.contracts AS contracts, s.verified, NULL AS uses, NULL AS first_day, NULL AS last_day, t.hash
FROM {_live(collection)} AS s JOIN {collection.view_name} AS t ON t.id = s.id
     JOIN parts.sources AS o ON o.source = s.source
UNION ALL
SELECT '{collection}', id, text_signature, hex_signature, label, import_id, label, NULL, NULL, NULL, NULL, NULL, NULL,
       said.uses, said.first_day, said.last_day, hash
FROM (SELECT t.id, t.text_signature, t.hex_signature, t.hash, o.label, c.import_id, counted(t.hash, c.source) AS said
      FROM {collection.view_name} AS t, parts.counting AS c JOIN parts.sources AS o USING (source))
WHERE said.uses > 0
"""


# A contract declares, or a source that names none. Each is counted once by grouping twice: 0.25 s for 1.17 M rows.
# count(DISTINCT) took 4 s, and more memory than a stranger's query may have.
def _declarations(collection: Collection) -> str:
    return f"""
SELECT '{collection}' AS collection, t.id, t.text_signature, t.hex_signature, s.declaration,
       parts.kind_name(s.kind) AS kind, parts.parameter_names(s.declaration) AS parameter_names, s.count, t.hash
FROM {collection.view_name} AS t JOIN (
    SELECT id, declaration, max(kind) AS kind, count(*) AS count
    FROM (SELECT id, declaration, max(kind) AS kind FROM {_live(collection)} WHERE declaration IS NOT NULL
          GROUP BY id, declaration, contract_key, if(contract_key IS NULL, source, NULL))
    GROUP BY id, declaration) AS s ON s.id = t.id
"""


def _summary(collection: Collection) -> str:
    """The function that gives the summary of a text of the collection by its id."""
    return f"{collection.view_name}_summary"


# A summary is looked up by a function, so that a filter on hash or text reaches the rows first. A join with sums over
# all sightings took 5 s of the corpora, and 3 s for one of their texts.
def _evidence(collection: Collection) -> str:
    return f"""
SELECT '{collection}' AS collection, id, text_signature, hex_signature, parts.kind_names(said.kinds) AS kinds,
       parts.witness_name(said.witness) AS witness, said.sources, said.contracts, said.compiled, said.verified,
       created_at AS first_seen, said.declaration, import_id, hash
FROM (SELECT *, {_summary(collection)}(id) AS said FROM {collection.view_name})
"""


# The texts of selectors that have several. ``mined`` is NULL for a text that does not look mined.
_RIVALS = "CREATE VIEW parts.rivals AS SELECT unnest(rival) FROM (SELECT unnest(rivals(0)) AS rival);"

# What few texts of a collection have: a place behind another text, and a standard.
_NOTED = f"""
CREATE VIEW parts.signatures_noted AS
SELECT hash, text_signature, max(position) AS position, max(mined) AS mined, max(standard) AS standard
FROM (SELECT hash, text_signature, position, mined, NULL AS standard FROM parts.rivals
      UNION ALL SELECT hash, text_signature, NULL, NULL, standard FROM parts.standards)
GROUP BY hash, text_signature;
CREATE VIEW parts.event_signatures_noted AS
SELECT hash, text_signature, NULL AS position, NULL::VARCHAR AS mined, standard FROM parts.standards;
CREATE VIEW standards AS
SELECT CASE octet_length(hash) WHEN 4 THEN 'signatures' ELSE 'event-signatures' END AS collection,
       nullif(text_signature, '{standards.NO_TEXT}') AS text_signature, {sql_of("hex_signature")}, standard, hash
FROM parts.standards;
CREATE VIEW collisions AS
SELECT {sql_of("hex_signature")}, count(*) AS texts,
       list(text_signature ORDER BY position) AS text_signatures, hash
FROM parts.rivals GROUP BY hash;
"""


def _ranked(collection: Collection) -> str:
    view = collection.view_name
    return f"""
SELECT '{collection}' AS collection, id, hex_signature, text_signature, coalesce(position, 1) AS position,
       reasons_of({", ".join(f"said.{name}" for name in _REASONED)}, epoch_us(created_at), standard, mined) AS reasons,
       mined IS NOT NULL AS looks_mined, parts.witness_name(said.witness) AS witness, said.sources, said.contracts, said.verified,
       created_at AS first_seen, said.declaration, uses_of(hash) AS uses, hash
FROM (SELECT t.*, n.position, n.mined, n.standard, {_summary(collection)}(t.id) AS said
      FROM {view} AS t LEFT JOIN parts.{view}_noted AS n ON n.hash = t.hash AND n.text_signature = t.text_signature)
"""
