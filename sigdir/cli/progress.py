"""Progress on standard error."""

from __future__ import annotations

import click


def write_line(text: str) -> None:
    click.echo(text, err=True)
