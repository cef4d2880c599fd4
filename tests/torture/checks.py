"""After a round: the warehouse held to the ledger, by HTTP from each worker, by SQL, and by its files."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa

import sigdir
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.files import FileLock
from sigdir.warehouse.paths import Paths, index_name
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.staging import Staging
from tests.torture.clients import (
    Client,
    client_of,
    look_up,
    rows_above,
)
from tests.torture.ledger import (
    Finding,
    Ledger,
    Row,
    Rows,
    check_order,
    check_promises,
)
from tests.torture.processes import Server, until

_LOOKUPS = 20
_ROOT_ENTRIES = 16
"""A warehouse's folder has ten entries, the SQLite files included; what a kill left there would add up."""


def by_http(server: Server, paths: Paths, ledger: Ledger, chance: random.Random, whole: bool) -> int:
    """Every worker has all rows, the new ones read again page by page; how many lookups were made.

    With ``whole`` it is all rows that are read again.
    """
    newest = read_snapshot(paths).version
    workers = until(lambda: _both(server), "two workers")
    for worker in workers:
        client = client_of(worker, server.port)
        # One that was killed behind its commit told nobody: it shows at the worker's next look, and if that were
        # between two pages, its rows would move those that follow.
        until(partial(_shows, client, newest), f"worker {worker} to show version {newest}")
        for collection in COLLECTIONS:
            seen = ledger.seen(collection)
            old = [] if whole else list(seen)
            rows, count = rows_above(client, collection, old[-1].id if old else 0)
            if count != len(old) + len(rows):
                raise Finding(f"worker {worker}: {collection}: {len(old) + len(rows)} rows, and the count is {count}")
            ledger.hold_to(collection, Rows.of([*old, *rows]), f"HTTP of worker {worker}")
        acknowledged = ledger.acknowledged()
        for row in chance.sample(acknowledged, min(_LOOKUPS, len(acknowledged))):
            look_up(client, *row)
        client.close()
    return 3 * _LOOKUPS * len(workers)


def _shows(client: Client, version: int) -> bool:
    shown: int = client.get("/readyz")["version"]
    return shown >= version


def _both(server: Server) -> list[int] | None:
    workers = server.workers()
    return workers if len(workers) == 2 else None


def sql_rows(root: Path, collection: Collection) -> Rows:
    """All folded rows, by SQL."""
    query = (
        f"SELECT id, epoch_us(created_at) AS created_at, text_signature, hash FROM {collection.view_name} ORDER BY id"
    )
    table: pa.Table = sigdir.open(root).sql(query).arrow().combine_chunks()
    return Rows(
        table["id"].to_numpy(), table["created_at"].to_numpy(),
        table["text_signature"].to_pylist(), table["hash"].to_pylist(),
    )  # fmt: skip


def by_sql(paths: Paths, ledger: Ledger) -> int:
    """With nothing left in staging, SQL has every row that is owed; how many rows there are."""
    total = 0
    for collection in COLLECTIONS:
        rows = sql_rows(paths.root, collection)
        if len(rows) != read_snapshot(paths).count(collection):
            raise Finding(f"{collection}: SQL has {len(rows)} rows, the log {read_snapshot(paths).count(collection)}")
        ledger.hold_to(collection, rows, "SQL")
        ledger.remember(collection, rows)
        total += len(rows)
    return total


def by_files(paths: Paths) -> None:
    """With no publisher at work, every file is one that the log names, and no other is left; raises Finding."""
    with FileLock(paths.lock):  # the server's folder may go on to compact what it folded
        _by_files(paths)


def _by_files(paths: Paths) -> None:
    snapshot = read_snapshot(paths)
    named = {file.path for files in snapshot.files.values() for file in files}
    gone = [file for file in named if not file.exists()]
    if gone:
        raise Finding(f"{gone[0]} is named by the newest version and is not there")
    runs = set()
    for entry in paths.log.glob("*.json"):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                named.add(paths.table / action["add"]["path"])
            if "commitInfo" in action and "sigdir" in action["commitInfo"]:
                runs.add(json.loads(action["commitInfo"]["sigdir"]).get("run"))
    _none("data files that no version names", set(paths.table.glob("collection=*/*")) - named)
    _none("rejects files of no import", [file for file in paths.rejects.glob("*") if file.stem not in runs])
    _none("entries of tmp", paths.tmp.glob("*"))
    known = re.compile(r"\d{20}\.(json|checkpoint\.parquet|crc)|_last_checkpoint")
    _none("strange files in the log", [file for file in paths.log.iterdir() if not known.fullmatch(file.name)])
    if len(list(paths.root.iterdir())) > _ROOT_ENTRIES:
        raise Finding(f"{paths.root} has {sorted(file.name for file in paths.root.iterdir())}")


def _none(what: str, found: Iterable[Path]) -> None:
    left = sorted(map(str, found))
    if left:
        raise Finding(f"{len(left)} {what}: {left[0]}")


def by_cache(paths: Paths) -> None:
    """The server's folder clears up behind its folds: no index of a file that is not in the table."""

    def is_clean() -> bool:
        files = read_snapshot(paths).files
        used = {index_name(collection, file.path) for collection in files for file in files[collection]}
        return all(entry.name.removesuffix(".lock") in {*used, "warm"} for entry in paths.cache.iterdir())

    until(is_clean, f"{paths.cache} to hold nothing but what is used")


def copy(root: Path, owed: dict[Collection, tuple[dict[str, Row], set[str]]]) -> None:
    """A backup has everything that was owed when it began; raises Finding."""
    paths = Paths(root)
    for collection, (acknowledged, present) in owed.items():
        rows = list(sql_rows(root, collection))
        rows += staged_rows(paths, collection, rows[-1].id if rows else 0)
        check_order(collection, Rows.of(rows), str(root))
        check_promises(collection, Rows.of(rows), acknowledged, present, str(root))


def staged_rows(paths: Paths, collection: Collection, above: int) -> list[Row]:
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        rows = transaction.rows(collection, above)
    staging.close()
    return [Row(row.id, row.created_at, row.text, row.digest[: collection.hash_bytes]) for row in rows]
