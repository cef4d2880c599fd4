"""What is checked of each row, of a data file or of staging."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import Collection
from sigdir.warehouse.staging.rows import HighWaterMark
from sigdir.warehouse.verify.report import Finding, quoted

Array = npt.NDArray[Any]

NOTHING = HighWaterMark()
"""In front of the first row of a file."""


class CheckedRows:
    """Rows as they are stored: columns ``id``, ``created_at``, ``text_signature`` and ``hash``, at least one row.

    ``first_row`` is the number of the first one in its file, None in staging; ``before`` is the row in front of it. A
    hash is the first ``hash_bytes`` of the digest.
    """

    def __init__(
        self, where: str, collection: Collection, rows: pa.RecordBatch, hash_bytes: int, first_row: int | None = None,
        before: HighWaterMark = NOTHING,
    ) -> None:  # fmt: skip
        self.rows = rows
        self.ids: Array = rows["id"].to_numpy()
        self.created_at: Array = rows["created_at"].view(pa.int64()).to_numpy()
        self.before = before
        digests, self.is_canonical = check_canonical(collection, rows["text_signature"])
        self.hash = np.ascontiguousarray(digests[:, :hash_bytes])
        self._where, self._first_row = where, first_row

    def findings(self) -> Iterator[Finding]:
        """One for each check that fails."""
        for what, why, is_wrong in ROW_CHECKS:
            wrong = np.flatnonzero(is_wrong(self))
            if len(wrong):
                text = quoted(self.rows["text_signature"][int(wrong[0])].as_py())
                yield Finding(what, self._where, self._name(int(wrong[0])), f"{why}: {text}", len(wrong) - 1)

    def _name(self, row: int) -> str:
        name = f"id {self.ids[row]}"
        return name if self._first_row is None else f"row {self._first_row + row}, {name}"


def _is_not_rising(numbers: Array, before: int) -> Array:
    wrong: Array = np.diff(numbers, prepend=before) <= 0
    return wrong


def _is_other_hash(rows: CheckedRows) -> Array:
    kind = pa.binary(rows.hash.shape[1])
    expected = pa.FixedSizeBinaryArray.from_buffers(kind, len(rows.hash), [None, pa.py_buffer(rows.hash)])
    wrong: Array = pc.not_equal(rows.rows["hash"], expected.cast(pa.binary())).to_numpy(zero_copy_only=False)
    return wrong


ROW_CHECKS: tuple[tuple[str, str, Callable[[CheckedRows], Array]], ...] = (
    ("order", "its id is not above the previous one", lambda rows: _is_not_rising(rows.ids, rows.before.id)),
    (
        "order",
        "its created_at is not above the previous one",
        lambda rows: _is_not_rising(rows.created_at, rows.before.created_at),
    ),
    ("text", "not canonical", lambda rows: ~rows.is_canonical),
    ("hash", "not the hash of its text", _is_other_hash),
)
"""What a finding is called, what it says, and the rows that it is of, as a flag a row."""
