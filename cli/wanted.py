"""The command `sigdir wanted`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import json_option, warehouse_option
from sigdir.cli.output import write_json
from sigdir.serve.core.misses import LARGEST
from sigdir.serve.core.misses import wanted as wanted_of
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.files import is_read_only
from sigdir.warehouse.table.paths import existing


@command()
@click.option("--limit", type=click.IntRange(1, LARGEST), default=20, help="Hashes that are listed.")
@click.option(
    "--cache", type=click.Path(file_okay=False, path_type=Path), envvar="SIGDIR_CACHE", show_envvar=True,
    help="The folder of `serve --cache`, where the warehouse is on read-only media.",
)  # fmt: skip
@warehouse_option
@json_option()
def wanted(limit: int, cache: Path | None, folder: Path, as_json: bool) -> None:
    """List selectors and topics that a server was asked for and could not name, the most wanted first.

    `sigdir serve --count-misses` counts them. A hash leaves the list when a text of it is imported or POSTed.

    Exit status: 0 success, 2 no server has counted misses here, 130 interrupted.

    \b
    Examples:
      sigdir wanted
      sigdir wanted --limit 100 --json
    """
    paths = replace(existing(folder), derived=cache if is_read_only(folder) else None)
    if not paths.misses.exists():
        raise Failure(f"{folder}: no server has counted misses here; serve with --count-misses")
    with closing(Reader(paths)) as reader:
        found = wanted_of(paths.misses, reader.current())[:limit]
    if as_json:
        write_json(list(map(asdict, found)))
        return
    for one in found:
        click.echo(f"{one.count:>12,}  {one.since[:10]}  {one.hash}")
    if not found:
        click.echo("nothing is wanted: every lookup has found a text")
