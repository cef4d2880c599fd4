"""The mapped files of the evidence: that they are as they were written, and that their columns belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.evidence.mapped import Columns, mapped_columns, numbers_of
from sigdir.warehouse.log.manifest import CONTRACTS, USAGE, MappedFile
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parquet import naming, sha256_of
from sigdir.warehouse.verify.files import Verification
from sigdir.warehouse.verify.report import reason_of

Array = npt.NDArray[Any]


def check_mapped(work: Verification) -> None:
    """Check every mapped file that the snapshot's manifest names."""
    try:
        manifest = work.snapshot.evidence
    except UnreadableWarehouse:  # a finding already
        return
    for file in manifest.mapped:
        for problem in _problems(work, file):
            work.report.add("evidence", file.path, problem)
        if any(said is not None and said[0] not in manifest.sources for said in file.statements):
            work.report.add("evidence", file.path, "a statement of a source that is not in the manifest")


def _problems(work: Verification, file: MappedFile) -> Iterator[str]:
    try:
        with naming(file.path):
            digest, size = sha256_of(file.path), file.path.stat().st_size
            if size != file.size:
                yield f"{size} bytes, and the manifest says {file.size}"
            if digest != file.sha256:
                yield "not the bytes that were written"
                return
            columns = mapped_columns(file.path)
    except UnreadableWarehouse as error:
        if file.path.exists() or work.is_current(file.path):
            yield reason_of(error, file.path) if file.path.exists() else "missing"
        return
    yield from _PROBLEMS[file.kind](file, columns)


def _of_contracts(file: MappedFile, columns: Columns) -> Iterator[str]:
    rows, keys, texts = (len(columns[name]) for name in ("addresses", "keys", "texts"))
    ends = columns["chain_ends"]
    checks = {
        "its chains do not rise": _rise(columns["chains"]),
        "its deployments do not end where their chains do": _end_at(ends, rows),
        "its addresses do not rise": _rise_inside(columns["addresses"], ends),
        "it has a deployment of an interface that it does not have": _below(
            numbers_of(columns["interfaces"]), keys + 1
        ),
        "it has a deployment of a statement that it does not have": _below(
            numbers_of(columns["statements"]), len(file.statements)
        ),
        "its proxies do not rise": _rise(columns["proxies"]) and _below(columns["proxies"], rows),
        "its interfaces do not rise": _rise(columns["keys"]),
        "its texts do not end where their interfaces do": _end_at(columns["key_ends"], texts),
        "its texts do not rise": _rise_inside(columns["texts"], columns["key_ends"]),
        "it has a text of no known kind": bool(np.isin(columns["kinds"], [kind for kind in Kind if kind]).all()),
        f"{rows} rows, and the manifest says {file.rows}": rows == file.rows,
    }
    yield from (problem for problem, is_right in checks.items() if not is_right)


def _of_usage(file: MappedFile, columns: Columns) -> Iterator[str]:
    rows = sum(len(columns[collection]) for collection in COLLECTIONS)
    if rows != file.rows:
        yield f"{rows} rows, and the manifest says {file.rows}"
    for collection in COLLECTIONS:
        uses = columns[f"{collection} uses"]
        if not _rise(columns[collection]) or len(uses) != len(columns[collection]):
            yield f"its hashes of {collection} do not rise, or have no counts"
        if len(uses) and int(uses.min()) < 0:
            yield f"it has a count of {collection} below 0"


_PROBLEMS: dict[str, Callable[[MappedFile, Columns], Iterator[str]]] = {CONTRACTS: _of_contracts, USAGE: _of_usage}


def _rise(column: Array) -> bool:
    return bool((column[1:] > column[:-1]).all())


def _end_at(ends: Array, rows: int) -> bool:
    """Whether ends of ranges never fall, and the last one is that of the rows."""
    return bool((ends[1:] >= ends[:-1]).all()) and (int(ends[-1]) if len(ends) else 0) == rows


def _rise_inside(column: Array, ends: Array) -> bool:
    """Whether values never fall between the ends of ranges."""
    falls = np.flatnonzero(column[1:] < column[:-1]) + 1
    return bool(np.isin(falls, ends).all())


def _below(numbers: Array, limit: int) -> bool:
    return not len(numbers) or int(numbers.max()) < limit
