"""What holds between rows, staged rows, sightings and the log: queries of the engine, each of whose rows is a finding.

They see both collections: ``stored`` (the readable data files), ``staged`` (all staged rows), ``marks`` (the table's
highest ids), ``texts`` (stored rows and staged ones above these), ``logged`` (rows of each import), ``sightings``,
``sources``, ``evidence_files``, and ``known`` (the ids of the newest version and of staging).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.parquet import FILE_SCHEMA, SIGHTING_SCHEMA
from sigdir.warehouse.verify.files import EVIDENCE, LOG, ROWS, SHOWN, STAGING, Verification


class Relation(NamedTuple):
    """What a finding is called, what must have been read as a whole, and the query: ``filename``, ``row``, ``why``."""

    what: str
    needs: frozenset[str]
    query: str


RELATIONS: Final = (
    Relation("twice", frozenset(), f"""
        SELECT filename, row_name(number, id) AS row, to_json(left(text, 80)) || ' is also in ' || parse_filename(first)
               || ', ' || first_row || ': restore a backup, or export, and import into a new folder' AS why
        FROM (SELECT *, first(filename) OVER one AS first, first(row_name(number, id)) OVER one AS first_row,
                     row_number() OVER one AS n
              FROM texts WHERE hash(collection, text) IN (
                  SELECT hash(collection, text) FROM texts GROUP BY 1 HAVING count(*) > 1 LIMIT {SHOWN})
              WINDOW one AS (PARTITION BY collection, text ORDER BY id, filename))
        WHERE n > 1 ORDER BY text, id LIMIT {100 * SHOWN}"""),
    Relation("fold", frozenset({ROWS}), """
        SELECT staging AS filename, row_name(NULL, t.id) AS row, 'counts as folded and is not in the table as it was staged' AS why
        FROM (FROM staged JOIN marks USING (collection) WHERE id <= last_id) AS t ANTI JOIN stored AS s
        ON t.collection = s.collection AND t.id = s.id AND text = text_signature AND t.created_at = epoch_us(s.created_at)
        ORDER BY t.id"""),
    Relation("import", frozenset({ROWS, LOG}), """
        SELECT partition AS filename, '' AS row, coalesce(found.rows, 0) || ' rows of '
               || if(import_id = 0, 'POSTs', 'import ' || import_id) || '; the log says ' || coalesce(logged.rows, 0) AS why
        FROM (SELECT collection, import_id, count(*) AS rows FROM stored GROUP BY ALL) AS found
        FULL JOIN logged USING (collection, import_id) JOIN marks USING (collection)
        WHERE coalesce(found.rows, 0) <> coalesce(logged.rows, 0) ORDER BY import_id"""),
    Relation("evidence", frozenset(), """
        SELECT filename, '' AS row, 'a sighting of a source that is not in the manifest' AS why
        FROM sightings ANTI JOIN sources USING (source) GROUP BY filename"""),
    Relation("evidence", frozenset(), """
        SELECT filename, '' AS row, 'sightings of the ids ' || min(id) || ' to ' || max(id) || '; the manifest says '
               || first_id || ' to ' || last_id AS why
        FROM sightings JOIN evidence_files USING (filename) GROUP BY filename, first_id, last_id
        HAVING min(id) <> first_id OR max(id) <> last_id"""),
    Relation("evidence", frozenset({EVIDENCE}), """
        SELECT o.filename, '' AS row, count(s.id) || ' sightings of source ' || o.source || '; the manifest says ' || o.sightings AS why
        FROM sources AS o LEFT JOIN sightings AS s ON s.source = o.source AND s.import_id >= o.import_id
        GROUP BY o.filename, o.source, o.sightings HAVING count(s.id) <> o.sightings AND o.source <> 0"""),
    Relation("sighting", frozenset({ROWS, STAGING}), """
        SELECT filename, row_name(NULL, id) AS row, 'of a text that is not there' AS why
        FROM sightings ANTI JOIN known USING (collection, id) ORDER BY filename, id LIMIT 1000"""),
)  # fmt: skip


def check_relations(work: Verification) -> None:
    """Run each query whose tables could be read as a whole."""
    work.begin_stage("relations", 0)
    data_files, evidence_files = work.snapshot.all_files(), work.manifest.sighting_files()
    work.create_view("stored", (file for file in data_files if file.path in work.readable), FILE_SCHEMA)
    work.create_view("sightings", (file for file in evidence_files if file.path in work.readable), SIGHTING_SCHEMA)
    # Read after staging: rows may have been POSTed and folded since the version under check was read.
    newest, lost = (
        read_snapshot(work.paths).all_files(),
        {file for file in data_files if file.path not in work.readable},
    )
    work.create_view("newest", (file for file in newest if file not in lost), FILE_SCHEMA)
    _create_tables(work)
    for name, files in ((ROWS, data_files), (EVIDENCE, evidence_files)):
        # The files of an older version may have been deleted meanwhile.
        if all(file.path in work.readable and file.path.exists() for file in files):
            work.complete.add(name)
    for relation in RELATIONS:
        for found in work.select(relation.query) if relation.needs <= work.complete else ():
            work.report.add(relation.what, Path(found["filename"]), found["why"], found["row"])


def _create_tables(work: Verification) -> None:
    paths, text, number = work.paths, pa.string(), pa.int64()
    work.create_table(
        {"collection": text, "id": number, "created_at": number, "text": text}, "staged",
        [(c, row.id, row.created_at, row.text) for c, rows in work.staged.items() for row in rows],
    )  # fmt: skip
    work.create_table(
        {"collection": text, "last_id": number, "partition": text, "staging": text}, "marks",
        [(c, last.id, str(paths.partition(c)), str(paths.staging)) for c, last in work.snapshot.high_water.items()],
    )  # fmt: skip
    work.create_table(
        {"collection": text, "import_id": number, "rows": number}, "logged",
        [(*key, rows) for key, rows in _logged(work).items()],
    )  # fmt: skip
    work.create_table(
        {"source": number, "import_id": number, "sightings": number, "filename": text}, "sources",
        [(one.number, one.import_id, one.sightings, str(paths.evidence)) for one in work.manifest.sources.values()],
    )  # fmt: skip
    work.create_table(
        {"filename": text, "first_id": number, "last_id": number}, "evidence_files",
        [(str(file.path), file.first_id, file.last_id) for file in work.manifest.sighting_files()],
    )  # fmt: skip
    work.engine.execute("""
        CREATE MACRO row_name(number, id) AS coalesce('row ' || number || ', ', '') || 'id ' || id;
        CREATE VIEW texts AS
            SELECT collection, id, text_signature AS text, filename, file_row_number AS number FROM stored
            UNION ALL SELECT collection, id, text, staging, NULL FROM staged JOIN marks USING (collection) WHERE id > last_id;
        CREATE VIEW known AS SELECT collection, id FROM newest UNION ALL SELECT collection, id FROM staged""")


def _logged(work: Verification) -> Counter[tuple[Collection, int]]:
    """How many rows of each import the log names; POSTed ones are those of import 0."""
    logged: Counter[tuple[Collection, int]] = Counter()
    for summary in (entry.summary or {} for entry in work.entries):
        for collection in COLLECTIONS:
            logged[collection, 0] += summary.get("folded", {}).get(collection, 0)
            if "import" in summary:
                logged[collection, summary["import"]] += summary["rows"][collection]
    return logged
