"""Checks after a round: the warehouse against the ledger, by HTTP from each worker, by SQL, and file by file."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import sigdir
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.log.manifest import POST
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths, index_name, index_of_entry
from sigdir.warehouse.verify import verify
from tests.conftest import SAFETY_SECONDS
from tests.serve.support import HOST, JSON, Row, Server, only, selector, until
from tests.torture.clients import Client, look_up, rows_above
from tests.torture.ledger import Ledger, Owed, Rows, check_order, check_owed
from tests.torture.plan import ImportedContract
from tests.warehouse.support import staged_rows

_LOOKUPS = 10
"""In each collection."""
_ROOT_ENTRIES = 16
"""Most entries in a warehouse's folder. There are ten with SQLite's files; left-overs of kills would add up."""


def by_http(server: Server, paths: Paths, ledger: Ledger, chance: random.Random, whole: bool) -> int:
    """Check that every worker has all new rows, or the ``whole``; gives the number of lookups."""
    newest, lookups = read_snapshot(paths).version, 0
    until(lambda: len(server.workers()) == 2, "two workers")
    for worker in server.workers():
        with pinned(server, worker) as connection:
            client = Client(lambda: server.port, connection)
            # A process that was killed after its commit notified no worker. A worker finds the commit at its next
            # look at the log. Between two pages that would shift the rows of the second page.
            until(lambda: client.get("/readyz")["version"] >= newest, f"worker {worker} to show version {newest}")  # noqa: B023
            for collection in COLLECTIONS:
                old = [] if whole else ledger.seen[collection]
                rows, count = rows_above(client, collection, old[-1].id if old else 0)
                found = len(old) + len(rows)
                assert count == found, f"worker {worker}: {found} rows of {collection}, and the count is {count}"
                ledger.check(collection, [*old, *rows], f"HTTP of worker {worker}")
                acknowledged = ledger.acknowledged(collection)
                for row in chance.sample(acknowledged, min(_LOOKUPS, len(acknowledged))):
                    lookups += look_up(client, collection, row)
    return lookups


@contextmanager
def pinned(server: Server, worker: int) -> Iterator[HTTPConnection]:
    """A connection that this worker has taken and keeps."""
    connection = HTTPConnection(HOST, server.port, timeout=SAFETY_SECONDS)
    try:
        with only(server, worker):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        yield connection
    finally:
        connection.close()


def sql_rows(root: Path, collection: Collection) -> Rows:
    """All folded rows, by SQL."""
    query = f"SELECT id, epoch_us(created_at), text_signature, hash FROM {collection.view_name} ORDER BY id"
    return [Row(*row) for row in sigdir.open(root).sql(query).rows()]


def by_sql(paths: Paths, ledger: Ledger) -> int:
    """Check that SQL has every row of the ledger; gives the number of rows. Staging must be empty."""
    for collection in COLLECTIONS:
        rows, logged = sql_rows(paths.root, collection), read_snapshot(paths).count(collection)
        assert len(rows) == logged, f"{collection}: SQL has {len(rows)} rows, the log {logged}"
        ledger.check(collection, rows, "SQL")
        ledger.remember(collection, rows)
    return sum(map(len, ledger.seen.values()))


def by_files(paths: Paths) -> None:
    """Check that the files are as they were written, and exactly those that the log names."""
    with FileLock(paths.lock):  # the server's fold process may be compacting
        snapshot = read_snapshot(paths)
        by_evidence(paths, snapshot)
        named, runs = {file.path for file in snapshot.all_files()}, set()
        for entry in paths.log.glob("*.json"):
            for action in map(json.loads, entry.read_text().splitlines()):
                if "add" in action:
                    named.add(paths.table / action["add"]["path"])
                if "sigdir" in action.get("commitInfo", {}):
                    runs.add(json.loads(action["commitInfo"]["sigdir"]).get("run"))
        check_none("data files that no version names", set(paths.table.glob("collection=*/*")) - named)
        check_none("rejects without an import", [file for file in paths.rejects.glob("*") if file.stem not in runs])
        check_none("entries in tmp", paths.tmp.glob("*"))
        known = re.compile(r"\d{20}\.(json|checkpoint\.parquet|crc)|_last_checkpoint")
        check_none("unknown files in the log", [file for file in paths.log.iterdir() if not known.fullmatch(file.name)])
        entries = sorted(file.name for file in paths.root.iterdir())
        assert len(entries) <= _ROOT_ENTRIES, f"{paths.root} has {entries}"


def by_evidence(paths: Paths, snapshot: Snapshot) -> None:
    """Check that versions name all files of the evidence, and that each folded POST has its sighting."""
    report = verify(paths, 1, "128MB", lambda *_: None, lambda _: None)
    check_none("findings", report.findings)
    check_none("files of no version", [note for note in report.notes if note.where.startswith("evidence")])
    for collection in COLLECTIONS:
        posted = _ids(snapshot.files[collection], "import_id", 0)
        seen = _ids(snapshot.evidence.files[collection], "source", POST)
        check_none(f"POSTed rows of {collection} without a sighting", posted - seen)


def _ids(files: Iterable[Any], column: str, value: Any) -> set[int]:
    """The ids of the rows that have this value."""
    tables = [pq.read_table(file.path, filters=[(column, "==", value)]) for file in files]
    return {id for table in tables for id in table["id"].to_pylist()}


def check_none(what: str, found: Iterable[object]) -> None:
    left = sorted(map(str, found))
    assert not left, f"{len(left)} {what}: {left[0]}"


def by_cache(paths: Paths) -> None:
    """Wait until the server's fold process has removed the indexes of files that left the table."""

    def is_clean() -> bool:
        files = read_snapshot(paths).files
        used = {index_name(collection, file.path) for collection in files for file in files[collection]}
        return all(index_of_entry(entry) in {*used, "warm"} for entry in paths.cache.iterdir())

    until(is_clean, f"{paths.cache} to have no unused index")


def backup(root: Path, owed: Mapping[Collection, Owed]) -> None:
    """Check that a backup has everything that was acknowledged before it started."""
    for collection, texts in owed.items():
        rows = sql_rows(root, collection)
        last_id = rows[-1].id if rows else 0
        staged = [row for row in staged_rows(Paths(root), collection) if row.id > last_id]
        rows += [Row(row.id, row.created_at, row.text, row.digest[: collection.hash_bytes]) for row in staged]
        check_order(collection, rows, str(root))
        check_owed(collection, rows, texts, str(root))


# Contracts.

_CALL_WORDS = f"{7:064x}{8:064x}"


def by_contract(client: Client, one: ImportedContract, finished: bool) -> None:
    """Check what a server says of a contract: all, or nothing if its import was killed. Raises ConnectionLost."""
    path = f"/api/v1/contracts/1/{one.address}/"
    status, found = client.request("GET", path)
    if status == 404 and not finished:
        return
    assert status == 200, f"GET {path}: {status}"
    assert {each["text_signature"] for each in found["functions"]} == set(one.texts), f"GET {path}: {found}"
    best = _decoded(client, {"data": selector(one.texts[0]) + _CALL_WORDS, "chain": 1, "to": one.address})
    shown = (best["text_signature"], best.get("display", {}).get("intent"))
    assert shown == (one.texts[0], f"Round {one.round}"), f"a call of {one.address} is decoded as {best}"
    best = _decoded(client, {"as": "return", "data": f"0x{9:064x}", "selector": selector(one.texts[1])})
    assert [each["name"] for each in best["parameters"]] == ["left"], f"what {one.texts[1]} returns is {best}"


def _decoded(client: Client, body: Mapping[str, Any]) -> Any:
    status, found = client.request("POST", "/api/v1/decode/", json.dumps(body).encode(), JSON)
    assert status == 200, f"POST of {body}: {status}"
    assert found["candidates"], f"POST of {body}: {found}"
    return found["candidates"][0]


def by_usage(root: Path, used: Iterable[ImportedContract]) -> None:
    """Check that each function is used as often as a finished import has said."""
    for one in used:
        query = f"SELECT text_signature, uses FROM ranked WHERE collection = '{SIGNATURES}' AND text_signature LIKE 'c{one.round}x%'"
        uses = dict(sigdir.open(root).sql(query).rows())
        wanted = {text: one.count + number for number, text in enumerate(one.texts)}
        assert uses in ({}, wanted), f"the uses of the functions of {one.address} are {uses}"
