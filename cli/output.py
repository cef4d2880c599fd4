"""What commands write besides rows: JSON documents, and lines on standard error."""

from __future__ import annotations

from typing import Any

import click
import orjson


def write_json(document: Any, *, err: bool = False) -> None:
    """Write a document, indented, on standard output (or standard error)."""
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS), err=err)


def write_report(report: Any, as_json: bool, *, err: bool = False) -> None:
    """Write a report as a document or as its lines."""
    if as_json:
        write_json(report.to_dict(), err=err)
    else:
        click.echo("\n".join(report.lines()), err=err)


def write_line(text: str) -> None:
    """Write a line on standard error."""
    click.echo(text, err=True)
