"""What the actions of entries and checkpoints say. Delta's names for their fields stand here and in ``entry.py``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import PARTITION, STORED, DataFile
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import microseconds

READER_VERSION = 1
"""Delta's protocol for readers. From 2 on a table may have mapped columns, from 3 on deletion vectors and the like."""

WRITER_VERSION = 2
"""Delta's protocol for writers. From 3 on a writer may have to check or compute values that it does not know."""

SHA256 = "sha256"
"""The tag of an ``add`` that holds the digest of the data file."""

COLUMN_TYPES: Final = {field.name: field.type.delta for field in (PARTITION, *STORED)}
"""The table's columns and their types as Delta names them."""


@dataclass(slots=True)
class LogChanges:
    """What actions add, remove and record. ``writer_version`` is that of ``protocol``."""

    added: list[DataFile] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    watermarks: dict[Collection, int] = field(default_factory=dict)
    writer_version: int | None = None


def changes_of(paths: Paths, actions: Iterable[Mapping[str, Any]]) -> LogChanges:
    """Read actions. Kinds that are not known are ignored, as Delta demands: ``protocol`` says what a reader must know.

    Raises UnreadableWarehouse for a table that this program cannot read, and the errors in ``DAMAGED`` for an action
    of another shape.
    """
    changes = LogChanges()
    for action in actions:
        ((kind, values),) = action.items()
        if kind == "add":
            changes.added.append(_added_file(paths, values))
        elif kind == "remove":
            changes.removed.append(paths.table / unquote(values["path"]))
        elif kind == "txn":
            changes.watermarks |= _watermark(values)
        elif kind == "protocol":
            changes.writer_version = _writer_version(paths, values)
        elif kind == "metaData":
            _require_table_of_signatures(paths, values)
    return changes


def transaction_name(collection: Collection) -> str:
    """The name under which a commit records a collection's watermark."""
    return f"sigdir:{collection}"


_WATERMARKS = {transaction_name(collection): collection for collection in COLLECTIONS}


def _added_file(paths: Paths, add: Mapping[str, Any]) -> DataFile:
    stats = json.loads(add["stats"])
    return DataFile(
        path=paths.table / unquote(add["path"]),
        collection=Collection.of_name(add["partitionValues"]["collection"]),
        rows=stats["numRecords"],
        size=add["size"],
        first_id=stats["minValues"]["id"],
        last_id=stats["maxValues"]["id"],
        first_created_at=microseconds(datetime.fromisoformat(stats["minValues"]["created_at"])),
        last_created_at=microseconds(datetime.fromisoformat(stats["maxValues"]["created_at"])),
        sha256=(add.get("tags") or {}).get(SHA256),
    )


def _watermark(transaction: Mapping[str, Any]) -> dict[Collection, int]:
    collection = _WATERMARKS.get(transaction["appId"])
    return {collection: index(transaction["version"])} if collection is not None else {}


def _writer_version(paths: Paths, protocol: Mapping[str, Any]) -> int:
    needed = index(protocol["minReaderVersion"])
    if needed > READER_VERSION:
        features = ", ".join(map(str, protocol.get("readerFeatures") or ())) or "mapped columns"
        raise UnreadableWarehouse(
            f"{paths.table}: another program changed the table to version {needed} of Delta's protocol for readers"
            f" ({features}); this program reads version {READER_VERSION}"
        )
    return index(protocol["minWriterVersion"])


def _require_table_of_signatures(paths: Paths, table: Mapping[str, Any]) -> None:
    types = {column["name"]: column["type"] for column in json.loads(table["schemaString"])["fields"]}
    if table["partitionColumns"] != ["collection"] or not COLUMN_TYPES.items() <= types.items():
        raise UnreadableWarehouse(f"{paths.table}: not a table of signatures: its columns are {', '.join(types)}")
