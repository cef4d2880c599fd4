"""What an export did, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.plural import counted


@dataclass
class ExportReport:
    """What an export did."""

    format: str
    target: str
    version: int
    rows: Counter[Collection] = field(default_factory=Counter)
    left_out: Counter[Collection] = field(default_factory=Counter)
    """Rows that a format with one text per selector omits, because another text of their selector is exported."""
    files: int = 1
    bytes: int | None = None
    seconds: float = 0.0
    mixes: bool = False
    """Whether both collections are in one file without a column that names them."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "target": self.target,
            "version": self.version,
            "rows": {collection: self.rows[collection] for collection in COLLECTIONS},
            "left_out": {collection: self.left_out[collection] for collection in COLLECTIONS},
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate()),
        }

    def rate(self) -> float:
        return self.rows.total() / self.seconds if self.seconds else 0.0

    def lines(self) -> Iterator[str]:
        """The report for people."""
        for collection in COLLECTIONS:
            if self.rows[collection] or self.left_out[collection]:
                left_out = self.left_out[collection]
                more = f", {left_out:,} left out: another text of the selector is exported" if left_out else ""
                yield f"{collection}: {counted(self.rows[collection], 'row')}{more}"
        size = f", {self.bytes / 1e6:,.1f} MB" if self.bytes is not None else ""
        files = f", {self.files:,} files" if self.files != 1 else ""
        yield (
            f"{counted(self.rows.total(), 'row')} of version {max(self.version, 0)} in {self.seconds:.1f} s"
            f" ({self.rate():,.0f} a second){files}{size}: {self.target}"
        )
        if self.mixes and all(self.rows[collection] for collection in COLLECTIONS):
            yield "both collections, and an id is unique in its collection only; --collection NAME exports one"
