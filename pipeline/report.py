"""What an import did, in numbers: for the log, for programs and for the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.source import BytecodeCounts, Sections, Source
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.publish.renewal import Withdrawn

COUNTS = ("read", "imported", "duplicate", "rejected")


# Reasons to reject a candidate that is written as it should be.
_EXPECTED_REASONS = ("library_type", "placeholder")


@dataclass
class FileReport:
    """The counts of one input. ``read`` is always ``imported + duplicate + rejected``."""

    path: str
    format: str
    bytes: int = 0
    sha256: str = ""
    """Of the whole input as stored; empty, and ``bytes`` 0, if a fault ended the reading."""
    fault: str | None = None
    """Why the input could not be read to its end. What was read before is counted and kept."""
    warnings: Sequence[str] = ()
    """What the reader did not understand, in sentences."""
    read: int = 0
    accepted: Counter[Collection] = field(default_factory=Counter)
    new: Counter[Collection] = field(default_factory=Counter)
    """The accepted rows that the warehouse lacked."""
    reasons: Counter[str] = field(default_factory=Counter)
    variants_left_out: int = 0
    """Accepted candidates whose declaration is not kept, because a text has too many of them."""
    file_names: Sequence[str] | None = None
    """For hash-named files read as one input: the file name of each line."""
    sections: Sections = field(default_factory=Sections)
    """The sources inside this input."""
    source: str = ""
    """The label of the source that its candidates come from."""
    below: str = ""
    """The input's name below what the user named."""
    bytecode: BytecodeCounts = field(default_factory=BytecodeCounts)
    """What the bytecode of this input's contracts proves."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """What it counts of selectors and topics: rows, distinct hashes by collection, uses, and the first and last day."""

    def place(self, line: int) -> tuple[str, int]:
        """The file, and the line in it, of a line of this input."""
        if self.file_names is not None:
            return f"{self.path}/{self.file_names[line - 1]}", 1
        return self.sections.place(line) or (self.path, line)

    def add(self, other: FileReport) -> None:
        """Add the counts of another part of the input."""
        self.read += other.read
        self.accepted += other.accepted
        self.reasons += other.reasons
        self.variants_left_out += other.variants_left_out

    @property
    def imported(self) -> int:
        return self.new.total()

    @property
    def duplicate(self) -> int:
        return self.accepted.total() - self.imported

    @property
    def rejected(self) -> int:
        return self.reasons.total()

    @property
    def is_all_rejected(self) -> bool:
        """Whether no candidate was accepted, although some were not written as they should be."""
        expected = sum(self.reasons[reason] for reason in _EXPECTED_REASONS)
        return expected < self.read == self.rejected

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "fault": self.fault,
            "warnings": list(self.warnings),
            **{name: getattr(self, name) for name in COUNTS},
            "reasons": dict(self.reasons),
            **({"bytecode": self.bytecode.to_dict()} if self.bytecode else {}),
            **({"usage": self.usage} if self.usage else {}),
            **({"variants_left_out": self.variants_left_out} if self.variants_left_out else {}),
        }


@dataclass(frozen=True, slots=True)
class Unread:
    """An input that was skipped or is broken, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Example:
    """A rejected candidate that the report shows."""

    reason: str
    text: str
    position: int
    file: str
    line: int


@dataclass
class ImportReport:
    """What a whole import did."""

    files: list[FileReport] = field(default_factory=list)
    skipped: list[Unread] = field(default_factory=list)
    """The inputs that were not read, for a reason of SKIP_REASONS."""
    faults: list[Unread] = field(default_factory=list)
    """The inputs that could not be opened, or not be read to their end."""
    examples: list[Example] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage."""
    dry_run: bool = False
    published: bool = False
    """Whether the import published ``version``."""
    version: int = -1
    """The newest version after the import; -1 if there is none."""
    sightings: int = 0
    """How many sightings the import brought: who says what about a text, new or not."""
    deployments: int = 0
    interfaces: int = 0
    """How many addresses of contracts, and how many interfaces, the import names; new or not."""
    withdrawn: Withdrawn = field(default_factory=Withdrawn)
    """What the sources said before and do not say any more, where the import replaces them."""
    rejects_in: int | None = None
    """The import whose rejects file has the rejects; None if nothing was rejected or published."""

    @property
    def all_rejected(self) -> list[str]:
        """The inputs of which every candidate was rejected."""
        return [file.path for file in self.files if file.is_all_rejected]

    @property
    def is_complete(self) -> bool:
        """Whether every input was read to its end, and something of each was accepted."""
        return not self.faults and not self.all_rejected

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    @property
    def rows_per_second(self) -> float:
        return self.total("read") / self.seconds if self.seconds else 0.0

    def total(self, name: str) -> int:
        """The sum of one of COUNTS, or of ``variants_left_out``, over all inputs."""
        return sum(getattr(file, name) for file in self.files)

    def totals(self) -> dict[str, int]:
        return {name: self.total(name) for name in COUNTS}

    def reasons(self) -> dict[str, int]:
        """How many candidates were rejected for each reason, the commonest first."""
        counts: Counter[str] = Counter()
        for file in self.files:
            counts.update(file.reasons)
        return dict(counts.most_common())

    def skip_reasons(self) -> dict[str, int]:
        """How many inputs were skipped for each reason, the commonest first."""
        return dict(Counter(unread.reason for unread in self.skipped).most_common())

    def bytecode(self) -> BytecodeCounts:
        """What the bytecode of all contracts proves."""
        counts = BytecodeCounts()
        for file in self.files:
            counts += file.bytecode
        return counts

    def collections(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for collection in COLLECTIONS:
            imported = sum(file.new[collection] for file in self.files)
            accepted = sum(file.accepted[collection] for file in self.files)
            counts[collection] = {"imported": imported, "duplicate": accepted - imported}
        return counts

    def to_dict(self) -> dict[str, Any]:
        """The report for programs; ``files`` has one entry per input."""
        return {
            "dry_run": self.dry_run,
            "published": self.published,
            "version": self.version,
            "rejects_in_import": self.rejects_in,
            "totals": self.totals(),
            "sightings": self.sightings,
            "deployments": self.deployments,
            "interfaces": self.interfaces,
            "withdrawn": asdict(self.withdrawn),
            "collections": self.collections(),
            "reasons": self.reasons(),
            "bytecode": self.bytecode().to_dict(),
            "variants_left_out": self.total("variants_left_out"),
            "seconds": round(self.seconds, 3),
            "stages": {name: round(seconds, 3) for name, seconds in self.stages.items()},
            "rows_per_second": round(self.rows_per_second),
            "files": [file.to_dict() for file in self.files],
            "faults": [asdict(unread) for unread in self.faults],
            "all_rejected": self.all_rejected,
            "skip_reasons": self.skip_reasons(),
            "skipped": [asdict(unread) for unread in self.skipped],
            "examples": [asdict(example) for example in self.examples],
        }


# Inputs that are not read, or not to their end. A path that the user names must be readable, otherwise the import stops. A file
# that was found in a folder or an archive must not stop the thousands beside it: it is a fault in the report, and the exit
# status is 1. ``strict`` stops the import at the first fault.

HIDDEN = "hidden"
LINK = "link"
DANGLING_LINK = "dangling_link"
REPEATED_FOLDER = "repeated_folder"
WAREHOUSE = "warehouse"
SPECIAL = "special"
SPARSE = "sparse"
NESTED_ARCHIVE = "nested_archive"
NAME = "name"
UNKNOWN_FORMAT = "unknown_format"

SKIP_REASONS = {
    HIDDEN: "hidden",
    LINK: "links; --follow-links reads those in folders",
    DANGLING_LINK: "links that lead nowhere",
    REPEATED_FOLDER: "links to folders that are read anyway",
    WAREHOUSE: "warehouses inside of a folder",
    SPECIAL: "neither files nor folders",
    SPARSE: "sparse files in a tar",
    NESTED_ARCHIVE: "archives inside archives",
    NAME: "not signatures, by their names",
    UNKNOWN_FORMAT: "of no known format",
}
"""Each reason to skip an input, in words."""


class UnreadInputs:
    """Takes what an import skips, and the faults of what it found."""

    def __init__(self, report: ImportReport, strict: bool = False) -> None:
        self._report = report
        self._strict = strict

    def skip(self, name: str, reason: str) -> None:
        """Note an input that is not read; ``reason`` is one of SKIP_REASONS."""
        self._report.skipped.append(Unread(name, reason))

    def add_fault(self, error: BadInput) -> None:
        """Note an input that cannot be read to its end; raise the error again if faults stop the import."""
        if self._strict:
            raise error
        self._report.faults.append(Unread(error.name, error.reason))

    @contextmanager
    def faults_of(self, source: Source) -> Iterator[None]:
        """Note a BadInput of the block, which reads the input. It is raised again if the user named the input."""
        try:
            yield
        except BadInput as error:
            if source.explicit:
                raise
            source.stop()
            self.add_fault(error)
