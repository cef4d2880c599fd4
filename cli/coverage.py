"""The command `sigdir coverage`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import json_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.pipeline.usage_counts import Coverage, Covered, coverage_of
from sigdir.signatures.collections import SIGNATURES, Collection


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
        yield f"{noun:10} {named:>15,} of {all:>15,} named  {100 * named / max(1, all):6.2f} %"
    for miss in covered.misses:
        yield f"  {miss.hash}  {miss.uses:>15,}"
