"""`python -m tests.pipeline.formats_table`: write the table of docs/formats.md from the formats' own sentences."""

from __future__ import annotations

from sigdir.pipeline.formats.registry import FORMATS, Format
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "formats.md"
_HEAD = "| name | format | what determines the collection |\n|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with its table as the formats say it."""
    before, _, rest = page.partition(_HEAD)
    after = rest[rest.index("\n\n") :]
    return before + _HEAD + "\n".join(map(_row, FORMATS)) + after


def _row(format: Format) -> str:
    about = f"{format.about}; {format.details}" if format.details else format.about
    return f"| `{format.name}` | {about} | {format.collection} |"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
