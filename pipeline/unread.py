"""The inputs that an import does not read, or not to their end: what it skips, and what is broken.

A path that the user names must be readable, otherwise the import stops. A file that was found in a folder or
an archive must not stop the thousands beside it: it is a fault in the report, and the exit status is 1.
``strict`` stops the import at the first fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.report import ImportReport, Unread
from sigdir.pipeline.source import Source

HIDDEN = "hidden"
LINK = "link"
DANGLING_LINK = "dangling_link"
REPEATED_FOLDER = "repeated_folder"
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
