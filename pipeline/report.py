"""What an import did, in numbers. The same facts for people, for machines and for the log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sigdir.signatures.collections import COLLECTIONS, Collection


@dataclass
class FileReport:
    """One input. ``read`` is always ``imported + duplicate + rejected``."""

    path: str
    format: str
    bytes: int = 0
    sha256: str = ""
    read: int = 0
    accepted: Counter[Collection] = field(default_factory=Counter)
    imported: Counter[Collection] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    leaves: Sequence[str] | None = None
    """The names of a tree's files, which are its lines."""

    def place(self, line: int) -> tuple[str, int]:
        """The file and the line in it, where this input's ``line`` is."""
        return (self.path, line) if self.leaves is None else (f"{self.path}/{self.leaves[line - 1]}", 1)

    @property
    def duplicate(self) -> int:
        return self.accepted.total() - self.imported.total()

    @property
    def rejected(self) -> int:
        return self.reasons.total()

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "read": self.read,
            "imported": self.imported.total(),
            "duplicate": self.duplicate,
            "rejected": self.rejected,
            "reasons": dict(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Example:
    """A rejected candidate, for show."""

    reason: str
    text: str
    position: int
    file: str
    line: int


@dataclass
class ImportReport:
    """A whole run. ``version`` is the newest version after it; -1 where there is none.

    ``published`` says whether the run made that version; ``rejects_in`` is the import under which
    its rejects can be looked up, None where it rejected nothing or published nothing.
    """

    files: list[FileReport] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    dry_run: bool = False
    published: bool = False
    version: int = -1
    rejects_in: int | None = None

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    def total(self, what: str) -> int:
        return sum(getattr(file, what) for file in self.files) if what != "imported" else self.imported()

    def imported(self, collection: Collection | None = None) -> int:
        if collection is None:
            return sum(file.imported.total() for file in self.files)
        return sum(file.imported[collection] for file in self.files)

    def totals(self) -> dict[str, int]:
        return {name: self.total(name) for name in ("read", "imported", "duplicate", "rejected")}

    def reasons(self) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for file in self.files:
            counted.update(file.reasons)
        return dict(counted.most_common())

    def collections(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for collection in COLLECTIONS:
            imported = self.imported(collection)
            accepted = sum(file.accepted[collection] for file in self.files)
            found[collection] = {"imported": imported, "duplicate": accepted - imported}
        return found

    def rate(self) -> float:
        """Candidates a second, over the whole run."""
        return self.total("read") / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The report for machines; ``files`` has one entry an input."""
        return {
            "dry_run": self.dry_run,
            "published": self.published,
            "version": self.version,
            "rejects_in_import": self.rejects_in,
            "totals": self.totals(),
            "collections": self.collections(),
            "reasons": self.reasons(),
            "seconds": round(self.seconds, 3),
            "stages": {name: round(seconds, 3) for name, seconds in self.stages.items()},
            "rows_per_second": round(self.rate()),
            "files": [file.as_dict() for file in self.files],
            "skipped": self.skipped,
            "examples": [
                {
                    "reason": e.reason, "text": e.text, "position": e.position,
                    "file": e.file, "line": e.line,
                }
                for e in self.examples
            ],
        }  # fmt: skip

    def print(self, console: Console) -> None:
        """The report for people: a table of the files, the totals, what was refused and why."""
        console.print(self._files_table())
        if self.skipped:
            shown = ", ".join(self.skipped[:3]) + (", ..." if len(self.skipped) > 3 else "")
            console.print(
                f"Skipped {len(self.skipped):,} of no known format: {shown}", highlight=False, markup=False, emoji=False
            )
        for collection, counts in self.collections().items():
            console.print(
                f"{collection}: {counts['imported']:,} imported, {counts['duplicate']:,} duplicate",
                highlight=False,
            )
        for reason, count in self.reasons().items():
            example = next((e for e in self.examples if e.reason == reason), None)
            shown = f"{os.path.basename(example.file)}:{example.line} {example.text}" if example else ""
            line = f"rejected {count:>9,} {reason:<16} e.g. {_printable(shown)}"
            console.print(line, highlight=False, markup=False, emoji=False, overflow="ellipsis", no_wrap=True)
        console.print(self._last_line(), highlight=False)

    def _files_table(self) -> Table:
        table = Table(title="Import" + (" (dry run)" if self.dry_run else ""))
        table.add_column("file", min_width=20, overflow="fold")
        table.add_column("format")
        for name in ("read", "imported", "duplicate", "rejected"):
            table.add_column(name, justify="right")
        by_size = sorted(self.files, key=lambda file: -file.read)
        shown = by_size if len(by_size) <= _SHOWN_FILES else by_size[: _SHOWN_FILES - 1]
        for file in shown:
            counts = (file.read, file.imported.total(), file.duplicate, file.rejected)
            table.add_row(Text(_shortened(file.path)), file.format, *(f"{count:,}" for count in counts))
        if len(shown) < len(by_size):
            rest = ImportReport(files=by_size[len(shown) :])
            more = f"{len(rest.files):,} more files"
            table.add_row(more, "", *(f"{count:,}" for count in rest.totals().values()))
        table.add_section()
        table.add_row("total", "", *(f"{count:,}" for count in self.totals().values()))
        return table

    def _last_line(self) -> str:
        speed = f"{self.total('read'):,} read in {self.seconds:.1f} s ({self.rate():,.0f} a second)"
        if self.dry_run:
            return f"{speed}; dry run, nothing published"
        if not self.published:
            return f"{speed}; nothing new, version {max(self.version, 0)} stays"
        rejects = f"; rejects: sigdir rejects --import {self.rejects_in}" if self.rejects_in else ""
        return f"{speed}; version {self.version} published{rejects}"


_SHOWN_FILES = 25


def _shortened(path: str) -> str:
    return path if len(path) <= 48 else "..." + path[-45:]


def _printable(text: str) -> str:
    """Text without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:160])
