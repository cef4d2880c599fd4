"""Checks after a round: the warehouse against the ledger, by HTTP from each worker, by SQL, and file by file."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import sigdir
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.log.manifest import POST
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths, index_name, index_of_entry
from sigdir.warehouse.verify import verify
from tests.torture.clients import Client, client_of, look_up, rows_above
from tests.torture.contracts import ImportedContract, selector
from tests.torture.ledger import Finding, Ledger, Row, Rows, check_acknowledged, check_order
from tests.torture.processes import Server, until

_LOOKUPS = 20
_ROOT_ENTRIES = 16
"""Most entries in a warehouse's folder. There are ten with SQLite's files; left-overs of kills would add up."""


def by_http(server: Server, paths: Paths, ledger: Ledger, chance: random.Random, whole: bool) -> int:
    """Check that every worker has all new rows, or the ``whole``; gives the number of lookups. Raises Finding."""
    newest = read_snapshot(paths).version
    workers = until(lambda: _two_workers(server), "two workers")
    for worker in workers:
        client = client_of(worker, server.port)
        # A process that was killed after its commit notified no worker. A worker finds the commit at its next
        # look at the log. Between two pages that would shift the rows of the second page.
        until(partial(_has_version, client, newest), f"worker {worker} to show version {newest}")
        for collection in COLLECTIONS:
            seen = ledger.seen(collection)
            old = [] if whole else seen
            rows, count = rows_above(client, collection, old[-1].id if old else 0)
            if count != len(old) + len(rows):
                raise Finding(f"worker {worker}: {collection}: {len(old) + len(rows)} rows, and the count is {count}")
            ledger.check(collection, [*old, *rows], f"HTTP of worker {worker}")
        acknowledged = ledger.acknowledged()
        for row in chance.sample(acknowledged, min(_LOOKUPS, len(acknowledged))):
            look_up(client, *row)
        client.close()
    return 3 * _LOOKUPS * len(workers)


def _has_version(client: Client, version: int) -> bool:
    current: int = client.get("/readyz")["version"]
    return current >= version


def _two_workers(server: Server) -> list[int] | None:
    workers = server.workers()
    return workers if len(workers) == 2 else None


def sql_rows(root: Path, collection: Collection) -> Rows:
    """All folded rows, by SQL."""
    query = f"SELECT id, epoch_us(created_at), text_signature, hash FROM {collection.view_name} ORDER BY id"
    return [Row(*row) for row in sigdir.open(root).sql(query).rows()]


def by_sql(paths: Paths, ledger: Ledger) -> int:
    """Check that SQL has every row of the ledger; gives the number of rows. Staging must be empty. Raises Finding."""
    total = 0
    for collection in COLLECTIONS:
        rows = sql_rows(paths.root, collection)
        if len(rows) != read_snapshot(paths).count(collection):
            raise Finding(f"{collection}: SQL has {len(rows)} rows, the log {read_snapshot(paths).count(collection)}")
        ledger.check(collection, rows, "SQL")
        ledger.remember(collection, rows)
        total += len(rows)
    return total


def by_files(paths: Paths) -> None:
    """Check that the files are exactly those that the log names. Raises Finding."""
    with FileLock(paths.lock):  # the server's fold process may be compacting
        _by_files(paths)


def _by_files(paths: Paths) -> None:
    snapshot = read_snapshot(paths)
    named = {file.path for file in snapshot.all_files()}
    missing = [file for file in named if not file.exists()]
    if missing:
        raise Finding(f"{missing[0]} is missing, and the newest version names it")
    by_evidence(paths)
    runs = set()
    for entry in paths.log.glob("*.json"):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                named.add(paths.table / action["add"]["path"])
            if "commitInfo" in action and "sigdir" in action["commitInfo"]:
                runs.add(json.loads(action["commitInfo"]["sigdir"]).get("run"))
    check_none("data files that no version names", set(paths.table.glob("collection=*/*")) - named)
    check_none("rejects files without an import", [file for file in paths.rejects.glob("*") if file.stem not in runs])
    check_none("entries in tmp", paths.tmp.glob("*"))
    known = re.compile(r"\d{20}\.(json|checkpoint\.parquet|crc)|_last_checkpoint")
    check_none("unknown files in the log", [file for file in paths.log.iterdir() if not known.fullmatch(file.name)])
    if len(list(paths.root.iterdir())) > _ROOT_ENTRIES:
        raise Finding(f"{paths.root} has {sorted(file.name for file in paths.root.iterdir())}")


def by_evidence(paths: Paths) -> None:
    """Check that versions name all files of the evidence, and that each folded POST has its sighting. Raises Finding."""
    report = verify(paths, 1, "128MB", lambda *_: None, lambda _: None)
    for found in [*report.findings, *report.notes]:
        if found.where.startswith("evidence"):
            raise Finding(str(found))
    snapshot = read_snapshot(paths)
    for collection in COLLECTIONS:
        posted, seen = set(), set()
        for file in snapshot.files[collection]:
            posted |= set(pq.read_table(file.path, filters=[("import_id", "==", 0)])["id"].to_pylist())
        for evidence in snapshot.evidence.files[collection]:
            seen |= set(pq.read_table(evidence.path, filters=[("source", "==", POST)])["id"].to_pylist())
        if not posted <= seen:
            raise Finding(f"{len(posted - seen)} POSTed rows of {collection} have no sighting")


def check_none(what: str, found: Iterable[Path | str]) -> None:
    """Raises Finding."""
    left = sorted(map(str, found))
    if left:
        raise Finding(f"{len(left)} {what}: {left[0]}")


def by_cache(paths: Paths) -> None:
    """Wait until the server's fold process has removed the indexes of files that left the table. Raises Finding."""

    def is_clean() -> bool:
        files = read_snapshot(paths).files
        used = {index_name(collection, file.path) for collection in files for file in files[collection]}
        return all(index_of_entry(entry) in {*used, "warm"} for entry in paths.cache.iterdir())

    until(is_clean, f"{paths.cache} to have no unused index")


def backup(root: Path, owed: dict[Collection, tuple[dict[str, Row], set[str]]]) -> None:
    """Check that a backup has everything that was acknowledged before it started. Raises Finding."""
    paths = Paths(root)
    for collection, (acknowledged, present) in owed.items():
        rows = sql_rows(root, collection)
        rows += staged_rows(paths, collection, rows[-1].id if rows else 0)
        check_order(collection, rows, str(root))
        check_acknowledged(collection, rows, acknowledged, present, str(root))


def staged_rows(paths: Paths, collection: Collection, above: int) -> list[Row]:
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        rows = transaction.rows(collection, above)
    staging.close()
    return [Row(row.id, row.created_at, row.text, row.digest[: collection.hash_bytes]) for row in rows]


# Contracts.

_CALL_WORDS = f"{7:064x}{8:064x}"
_JSON = {"Content-Type": "application/json"}


def by_contract(client: Client, one: ImportedContract, finished: bool) -> None:
    """Check what a server says of a contract: all, or nothing if its import was killed. Raises Finding, ConnectionLost."""
    path = f"/api/v1/contracts/1/{one.address}/"
    status, found = client.request("GET", path)
    if status == 404 and not finished:
        return
    if status != 200 or {each["text_signature"] for each in found["functions"]} != set(one.texts):
        raise Finding(f"GET {path}: {status} {str(found)[:300]}")
    call = {"data": selector(one.texts[0]) + _CALL_WORDS, "chain": 1, "to": one.address}
    best = _decoded(client, call)
    shown = best.get("display", {})
    if (best["text_signature"], shown.get("intent")) != (one.texts[0], f"Round {one.round}"):
        raise Finding(f"{call} is decoded as {str(best)[:300]}")
    returned = {"as": "return", "data": f"0x{9:064x}", "selector": selector(one.texts[1])}
    best = _decoded(client, returned)
    if [each["name"] for each in best["parameters"]] != ["left"]:
        raise Finding(f"{returned} is decoded as {str(best)[:300]}")


def _decoded(client: Client, body: Mapping[str, Any]) -> Any:
    status, found = client.request("POST", "/api/v1/decode/", json.dumps(body).encode(), _JSON)
    if status != 200 or not found["candidates"]:
        raise Finding(f"POST of {body}: {status} {str(found)[:300]}")
    return found["candidates"][0]


def by_usage(root: Path, used: Iterable[ImportedContract]) -> None:
    """Check that each function is used as often as a finished import has said. Raises Finding."""
    for one in used:
        query = f"SELECT text_signature, uses FROM ranked WHERE collection = '{SIGNATURES}' AND text_signature LIKE 'c{one.round}x%'"
        uses = dict(sigdir.open(root).sql(query).rows())
        wanted = {text: one.count + number for number, text in enumerate(one.texts)}
        if uses and uses != wanted:
            raise Finding(f"the uses of the functions of {one.address} are {uses}")
