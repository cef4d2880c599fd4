"""The commands `sigdir coverage` and `sigdir wanted`: what the warehouse cannot name of what is used, or was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import json_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.pipeline.usage_counts import Coverage, Covered, coverage_of
from sigdir.serve.core.misses import LARGEST
from sigdir.serve.core.misses import wanted as wanted_of
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.files import is_read_only
from sigdir.warehouse.table.paths import existing


@command()
@click.argument("file", type=click.Path())
@click.option("--misses", type=click.IntRange(0, 100_000), default=20, help="Misses that are listed.")
@warehouse_option
@json_option()
def coverage(file: str, misses: int, folder: Path, as_json: bool) -> None:
    """Say how much of what is used the warehouse can name, and which misses matter most.

    FILE has a column selector or topic and a column count: Parquet, CSV with a header, or JSON lines. Rows that cannot be
    read are counted in a line that names the first.

    Exit status: 0 all rows were read, 1 some were not or only in part, 2 the file or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir coverage selectors.parquet
      sigdir coverage topics.csv --misses 100 --json
    """
    found = coverage_of(file, folder, misses)
    if as_json:
        write_json(asdict(found))
    else:
        click.echo("\n".join(_lines(found)))
        for line in found.unread:
            write_line(f"{file}: {line}")
    sys.exit(1 if found.unread else 0)


def _lines(found: Coverage) -> Iterator[str]:
    for collection, covered in found.collections.items():
        if covered.hashes:
            yield from _covered(collection, covered)
    if not any(covered.hashes for covered in found.collections.values()):
        yield "no selector and no topic was read"


def _covered(collection: Collection, covered: Covered) -> Iterator[str]:
    nouns = ("selectors", "calls") if collection == SIGNATURES else ("topics", "logs")
    parts = ((covered.named, covered.hashes), (covered.named_uses, covered.uses))
    for noun, (named, all) in zip(nouns, parts, strict=True):
        percent = 10_000 * named // max(1, all) / 100  # rounded down: all of them are named at 100 % only
        yield f"{noun:10} {named:>15,} of {all:>15,} named  {percent:6.2f} %"
    for miss in covered.misses:
        yield f"  {miss.hash}  {miss.uses:>15,}"


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
    with closing(Reader(paths, makes_staging=False)) as reader:
        found = wanted_of(paths.misses, reader.current())[:limit]
    if as_json:
        write_json(list(map(asdict, found)))
        return
    for one in found:
        click.echo(f"{one.count:>12,}  {one.since[:10]}  {one.hash}")
    if not found:
        click.echo("nothing is wanted: every lookup has found a text")
