"""Checkpoints: the state of the table as a Parquet file, which is read instead of the entries up to it.

One row an action, in the column of its kind. A checkpoint of ours is one file, with a digest of its bytes in the
footer; of other programs those in several parts are read too. Version 1 of Delta's protocol for readers has these kinds
alone.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from sigdir.warehouse.log.entry import DAMAGED, FIELD, damaged_checkpoint, is_whole, new_mark, read_actions, with_digest
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import write_file
from sigdir.warehouse.table.paths import Paths

CHECKPOINT_VERSIONS = 100
"""A checkpoint is written every so many versions."""

_KEPT_MILLISECONDS = 7 * 24 * 3600 * 1000
"""So long a removed file is in checkpoints: Delta's default. Other programs' vacuum leaves it that long."""

_NAME = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")

_STATE = ("protocol", "metaData", "txn", "add")
"""The kinds of actions that a reader needs."""

_MAP: Final = pa.map_(pa.string(), pa.string())

_SCHEMA: Final = pa.schema({
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    "metaData": pa.struct({
        "id": pa.string(), "name": pa.string(), "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _MAP}),
        "schemaString": pa.string(), "partitionColumns": pa.list_(pa.string()), "createdTime": pa.int64(),
        "configuration": _MAP,
    }),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "add": pa.struct({
        "path": pa.string(), "partitionValues": _MAP, "size": pa.int64(), "modificationTime": pa.int64(),
        "dataChange": pa.bool_(), "stats": pa.string(), "tags": _MAP,
    }),
    "remove": pa.struct({
        "path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(), "partitionValues": _MAP, "size": pa.int64(),
    }),
})  # fmt: skip
"""A checkpoint of ours; the columns and fields that version 2 of the protocol for writers knows."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint: ``files`` hold the state at ``version``, in the order of their parts."""

    version: int
    files: tuple[Path, ...]


def newest_complete(paths: Paths, last: int) -> Checkpoint | None:
    """The newest checkpoint up to version ``last`` that has all its parts; None if there is none.

    It is found by its name. The file that points at the newest one is for other programs.
    """
    found: dict[tuple[int, int], list[Path]] = {}
    for file in sorted(paths.log.glob("*.checkpoint*.parquet")):
        name = _NAME.fullmatch(file.name)
        if name and int(name[1]) <= last:
            found.setdefault((int(name[1]), int(name[2] or 1)), []).append(file)
    complete = [(version, files) for (version, parts), files in found.items() if len(files) == parts]
    return Checkpoint(complete[-1][0], tuple(complete[-1][1])) if complete else None


def read_checkpoint(paths: Paths, checkpoint: Checkpoint, kinds: Sequence[str] = _STATE) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint, as an entry's JSON has them.

    The file's bytes are compared with its digest. Raises UnreadableWarehouse.
    """
    import pyarrow.parquet as pq  # 11 ms, which a log without a checkpoint is read without

    for file in checkpoint.files:
        try:
            raw = file.read_bytes()
            parquet = pq.ParquetFile(pa.BufferReader(raw))
            digest = (parquet.metadata.metadata or {}).get(FIELD.encode())
            if digest is not None and not is_whole(raw, digest.decode()):
                raise ValueError("not the bytes that were written")
            table = parquet.read(columns=list(kinds))
            for kind in table.column_names:
                rows = table[kind].to_pylist(maps_as_pydicts="strict")
                yield from ({kind: row} for row in rows if row is not None)
        except (pa.ArrowException, OSError, *DAMAGED) as error:
            raise damaged_checkpoint(paths, file, error) from error


def write_checkpoint(paths: Paths, version: int) -> None:
    """Every CHECKPOINT_VERSIONS versions, write a checkpoint. A version is complete without it.

    It takes 30 ms, 80 where there are a thousand files, so it is written after the commit, which blocks POST.
    """
    if version % CHECKPOINT_VERSIONS:
        return
    import pyarrow.parquet as pq

    with suppress(OSError, pa.ArrowException, UnreadableWarehouse, *DAMAGED):
        actions = _reconciled(paths, version)
        mark, written = new_mark(), io.BytesIO()
        with pq.ParquetWriter(written, _SCHEMA, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist(actions, _SCHEMA))
            writer.add_key_value_metadata({FIELD: mark})
        raw = with_digest(written.getvalue(), mark)
        write_file(paths.checkpoint(version), raw)
        pointer = {
            "version": version,
            "size": len(actions),
            "sizeInBytes": len(raw),
            "numOfAddFiles": sum("add" in action for action in actions),
        }
        write_file(paths.last_checkpoint, json.dumps(pointer).encode())


def _reconciled(paths: Paths, version: int) -> list[Mapping[str, Any]]:
    """The actions that make up a version: the last one for each file, each watermark, the protocol and the table."""
    before = newest_complete(paths, version - 1)
    kept: dict[tuple[str, str], Mapping[str, Any]] = {}
    for action in chain(
        read_checkpoint(paths, before, _SCHEMA.names) if before else (),
        *(read_actions(paths, number) for number in range(before.version + 1 if before else 0, version + 1)),
    ):
        key = _key(action)
        if key is not None:
            kept[key] = action
    expired = time.time_ns() // 1_000_000 - _KEPT_MILLISECONDS
    return [
        action for action in kept.values()
        if "remove" not in action or (action["remove"].get("deletionTimestamp") or 0) > expired
    ]  # fmt: skip


def _key(action: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a later action replaces; None for a kind that is not part of the state."""
    ((kind, values),) = action.items()
    if kind in ("add", "remove"):
        return "file", unquote(values["path"])
    if kind == "txn":
        return kind, values["appId"]
    return (kind, "") if kind in ("protocol", "metaData") else None
