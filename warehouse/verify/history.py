"""The log: its entries, the rejects that they name, the suppress list, and files that belong to nothing: what a killed
process left.

What holds between rows, staged rows, sightings and the log: queries of the engine, each of whose rows is a finding.

They see both collections: ``stored`` (the readable data files), ``staged`` (all staged rows), ``marks`` (the table's
highest ids), ``texts`` (stored rows and staged ones above these), ``logged`` (rows of each import), ``sightings``,
``sources``, ``evidence_files``, and ``known`` (the ids of the newest version and of staging).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import unused_indexes
from sigdir.warehouse.log.entry import LogEntry, read_entries
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import dead_runs
from sigdir.warehouse.table.parquet import (
    FILE_SCHEMA,
    REJECT_SCHEMA,
    SIGHTING_SCHEMA,
    batches_in,
    rows_and_digest,
)
from sigdir.warehouse.table.suppressed import read
from sigdir.warehouse.transfer.transfer import survey_of
from sigdir.warehouse.verify.files import EVIDENCE, LOG, ROWS, SHOWN, STAGING, StoredFile, Verification

_COUNTS = ("read", "imported", "duplicate", "rejected")


def check_log(work: Verification) -> None:
    """Read every entry, and check what it counts, and the watermarks of the snapshot."""
    paths = work.paths
    work.begin_stage("log", 0)
    try:
        work.entries = list(read_entries(paths, work.snapshot.version))
        work.complete.add(LOG)
    except UnreadableWarehouse as error:
        work.report.add("log", paths.log, str(error))
    for entry in work.entries:
        try:
            problems = list(_problems_of(entry))
        except (KeyError, TypeError) as error:
            problems = [("log", f"{type(error).__name__} in its summary: {error}")]
        for what, why in problems:
            work.report.add(what, paths.log_entry(entry.version), why)
    _check_import_numbers(work)
    for collection, files in work.snapshot.files.items():
        watermark = work.snapshot.high_water[collection].id
        if files and files[-1].last_id > watermark:
            why = f"{collection} has id {files[-1].last_id}, above its watermark {watermark}"
            work.report.add("watermark", paths.log_entry(work.snapshot.version), why)


def check_rejects(work: Verification) -> None:
    """Check that each import's rejects file holds the rows that the import rejected."""
    work.begin_stage("rejects", 0)
    for entry in work.entries:
        summary = entry.summary or {}
        rejected = summary.get("totals", {}).get("rejected", 0)
        if not rejected:
            continue
        file = StoredFile("rejects", work.paths.rejects_file(summary["run"]), REJECT_SCHEMA, rejected)
        if work.metadata_of(file) is None:
            continue
        try:
            _, digest = rows_and_digest(file.path)
        except UnreadableWarehouse as error:
            work.add_unreadable(file, error)
            continue
        if summary.get("rejects_sha256") != digest:
            work.report.add("rejects", file.path, f"not the rows that import {summary['import']} rejected")


def check_suppressed(work: Verification) -> None:
    """Check what keeps a server from starting, or is served: the suppress list, and the visible files that belong to it."""
    try:
        folder = work.paths.visible / read(work.paths).id
    except UnreadableWarehouse as error:
        work.report.add("suppressed", work.paths.suppressed, str(error))
        return
    for path in sorted(folder.glob("*/*.parquet")):
        try:
            for _ in batches_in(path):
                pass
        except UnreadableWarehouse as error:
            if path.exists():  # the list was changed meanwhile
                work.report.add("visible", path, f"{error}: `rm {path}`; servers write it again")


def _check_import_numbers(work: Verification) -> None:
    summaries = {entry.version: entry.summary or {} for entry in work.entries}
    imports = [(version, summary["import"]) for version, summary in summaries.items() if "import" in summary]
    for (_, before), (version, number) in pairwise([(0, 0), *imports]):
        if number <= before:
            work.report.add("log", work.paths.log_entry(version), f"import {number} comes after import {before}")


def _problems_of(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """What does not add up in an entry's summary: what a finding is called, and why."""
    summary = entry.summary or {}
    rows = sum(file.rows for file in entry.added)
    logged = sum(summary.get("rows", {}).values()) + sum(summary.get("folded", {}).values())
    if "rows" in summary and not entry.removed and logged != rows:
        yield "log", f"its files have {rows} rows, its summary says {logged}"
    if "import" in summary:
        for why in _wrong_counts(summary):
            yield "import", why


def _wrong_counts(summary: Mapping[str, Any]) -> Iterator[str]:
    """Check that everything an import read is accounted for."""
    totals, sources = summary["totals"], summary["sources"]
    for name, counts in [("in total", totals), *((source["path"], source) for source in sources)]:
        read, imported, duplicate, rejected = (counts[count] for count in _COUNTS)
        if read != imported + duplicate + rejected:
            yield f"{name}: {read} read are not {imported} imported, {duplicate} duplicate, {rejected} rejected"
    for count in _COUNTS:
        if totals[count] != sum(source[count] for source in sources):
            yield f"the {count} of its sources are not {totals[count]}, which is the total"
    if totals["imported"] != sum(summary["rows"].values()):
        yield f"{totals['imported']} imported, and {sum(summary['rows'].values())} rows"


def note_leftovers(work: Verification) -> None:
    """Note the files that nothing names. Lists them first and reads the log afterwards: others may publish."""
    paths, report = work.paths, work.report
    listed = [*paths.data_files(), *paths.rejects.glob("*"), *paths.evidence_files()]
    indexes = {path for path in paths.cache.glob("*") if path.is_dir()}
    unfinished: list[str] = []
    with suppress(UnreadableWarehouse), open_read_only(paths.staging) as staging:
        unfinished = staging.unfinished()
    newest = read_snapshot(paths)
    try:
        named = survey_of(paths, newest, math.inf).kept
        named |= {paths.rejects_file(summary["run"]) for summary in history(paths)}
    except UnreadableWarehouse:
        return  # a finding already
    for path in sorted(listed):
        if path not in named and not path.name.startswith(tuple(unfinished)) and path.exists():
            report.note(path, "no version names it")
    for path in sorted(indexes & set(unused_indexes(paths, newest))):
        if path.exists():
            report.note(path, "an index of no data file of the newest version")
    for path in dead_runs(paths.tmp):
        report.note(path, "left by an import that was killed")


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
