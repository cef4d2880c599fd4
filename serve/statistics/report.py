"""The statistics of a version as HTML: the figures, and the page of `sigdir report`, one self-contained file."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import jinja2

from sigdir.serve.statistics.figures import figures, totals
from sigdir.warehouse.sql.statistics import Statistics

_PAGES = Path(__file__).parents[1] / "pages"
_STYLES = ("site.css", "plots.css")
TEMPLATES = [_PAGES / "templates" / name for name in ("figures.html", "charts.html")]


def rendered_figures(found: Statistics, template: str = "figures.html", **values: str) -> str:
    """The totals and the figures, or a template that includes them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGES / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(totals=totals(found), figures=figures(found), **values)


def page(found: Statistics) -> bytes:
    """The page, with its style inside. Its Content-Security-Policy permits that style by hash, and nothing else."""
    style = "".join((_PAGES / "assets" / name).read_text() for name in _STYLES)
    digest = "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text = rendered_figures(
        found, "report.html", title="Signature directory", about=about(found), style=style, digest=digest
    )
    return text.encode(errors="backslashreplace")


def about(found: Statistics) -> str:
    """A sentence that names the version of the numbers."""
    if found.version < 0 or not found.committed_at:
        return "Nothing is imported yet, so there is nothing to show. Run sigdir import PATH... first."
    return f"Version {found.version:,}, newest row of {found.committed_at:%Y-%m-%d %H:%M} UTC."
