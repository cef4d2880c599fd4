"""The page of ``sigdir report``: what a version holds, as one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2

from sigdir.warehouse.sql.statistics import Statistics

_WEB = Path(__file__).parents[1] / "pages"
_STYLES = ("site.css", "plots.css")


def page(found: Statistics) -> bytes:
    """The page: one file with its style inside, allowed by its hash."""
    from sigdir.serve.statistics.figures import figures, totals  # matplotlib takes 0.6 s

    style = "".join((_WEB / "assets" / name).read_text() for name in _STYLES)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_WEB / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made = templates.get_template("report.html").render(
        title="Signature directory", about=about(found), style=style, digest=f"sha256-{digest}",
        totals=totals(found), figures=figures(found),
    )  # fmt: skip
    return made.encode(errors="backslashreplace")


def about(found: Statistics) -> str:
    """Which version these are the numbers of."""
    if found.version < 0 or not found.committed_at:
        return "Nothing is imported yet, so there is nothing to show: sigdir import PATH... brings it."
    return f"Version {found.version:,}, newest row of {found.committed_at:%Y-%m-%d %H:%M} UTC."
