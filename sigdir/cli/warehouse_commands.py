"""The commands that look at a warehouse: rejects, history, stats."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
import orjson

from sigdir.cli.options import (
    Failure,
    as_of_option,
    format_option,
    json_option,
    warehouse_option,
)
from sigdir.cli.output import write
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import Warehouse
from sigdir.warehouse.compact import compact, due
from sigdir.warehouse.errors import Busy, WarehouseError
from sigdir.warehouse.index.view import tidy
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import fold as fold_staged
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.sql.engine import Result
from sigdir.warehouse.vacuum import vacuum

# The log of the window is read for it: 0.6 s after a week of folds.
_VACUUM_SECONDS = 3600.0


def _open(folder: Path, version: int | None = None) -> Warehouse:
    try:
        return Warehouse(folder, version)
    except WarehouseError as error:
        raise Failure(str(error)) from error


def _write(result: Callable[[], Result], format: str) -> None:
    try:
        write(result(), format, sys.stdout.buffer)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except WarehouseError as error:
        raise Failure(str(error)) from error


@click.command()
@click.option("--import", "number", type=click.IntRange(min=1), help="Those of one import.")
@click.option("--reason", help="Those with one reason, for example bad_width.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many rows.")
@warehouse_option
@format_option
@json_option
def rejects(
    number: int | None, reason: str | None, limit: int | None, folder: Path, format: str, as_json: bool
) -> None:  # fmt: skip
    """Show the candidates that imports refused: text, reason, position, file, line.

    \b
    Examples:
      sigdir rejects --import 1 --reason unknown_type
      sigdir rejects --format ndjson > rejects.ndjson
    """
    house = _open(folder)
    _write(
        lambda: house.sql(
            "SELECT import_id, text, reason, position, file, line FROM rejects"
            " WHERE ($number IS NULL OR import_id = $number) AND ($reason IS NULL OR reason = $reason)"
            " ORDER BY import_id, file, line LIMIT $limit",
            {"number": number, "reason": reason, "limit": limit or 2**62},
        ),
        "json" if as_json else format,
    )


@click.command()
@click.option("--sources", is_flag=True, help="One row a source file, with its sha256.")
@warehouse_option
@format_option
@json_option
def history(sources: bool, folder: Path, format: str, as_json: bool) -> None:
    """List the imports: when, from what, with which result.

    \b
    Examples:
      sigdir history
      sigdir history --sources --format csv
    """
    house = _open(folder)
    if sources:
        query = (
            "SELECT import_id, s.path, s.format, s.bytes, s.sha256, s.read, s.imported, s.duplicate, s.rejected"
            " FROM (SELECT import_id, unnest(sources) AS s FROM imports) ORDER BY import_id, s.path"
        )
    else:
        query = "SELECT * EXCLUDE (sources) FROM imports ORDER BY import_id"
    _write(lambda: house.sql(query), "json" if as_json else format)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@warehouse_option
@as_of_option
def stats(as_json: bool, folder: Path, version: int | None) -> None:
    """Show what the warehouse holds.

    \b
    Examples:
      sigdir stats
      sigdir stats --json --as-of 3
    """
    house = _open(folder, version)
    facts = _facts(house.snapshot)
    if as_json:
        click.echo(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        return
    click.echo(f"{folder}: version {facts['version']}" if house.version >= 0 else f"{folder}: nothing imported yet")
    for collection in COLLECTIONS:
        held = facts["collections"][collection]
        click.echo(
            f"{collection:<18}{held['rows']:>12,} rows {held['files']:>5,} files"
            f" {held['bytes'] / 1e6:>10,.1f} MB, newest id {held['last_id']:,}"
        )


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "collections": {
            collection: {
                "rows": snapshot.count(collection),
                "files": len(snapshot.files[collection]),
                "bytes": sum(file.size for file in snapshot.files[collection]),
                "last_id": snapshot.high_water[collection].id,
            }
            for collection in COLLECTIONS
        },
    }


@click.command()
@click.option("--every", type=click.FloatRange(min=0.05), metavar="SECONDS", help="Go on, once in so many seconds.")
@warehouse_option
def fold(every: float | None, folder: Path) -> None:
    """Move POSTed rows from staging into the table, so that SQL sees them.

    A server does this by itself; see `sigdir serve --fold-every`. With --every it also merges
    small files and removes old ones, see `sigdir compact` and `sigdir vacuum`.

    \b
    Examples:
      sigdir fold
      sigdir fold --every 60
    """
    paths = Paths(folder.absolute())
    if every is not None:
        _go_on(_Upkeep(paths).go_round, every)
    try:
        done = fold_staged(paths)
    except (WarehouseError, OSError) as error:
        raise Failure(str(error)) from error
    click.echo(f"version {done.snapshot.version} published" if done else "nothing to fold")


class _Upkeep:
    """What a server does beside answering: fold, merge the files that are due, remove what is old."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._next_vacuum = 0.0

    def go_round(self) -> None:
        """One round; it ends where another publishes, and the next one goes on."""
        with suppress(Busy):  # an import is publishing: it takes the staged rows along
            folded = fold_staged(self._paths, wait=False)
            if compact(self._paths, due, threads=1, wait=False) or folded:
                tidy(self._paths)
            if time.monotonic() >= self._next_vacuum:
                vacuum(self._paths, wait=False)
                self._next_vacuum = time.monotonic() + _VACUUM_SECONDS


def _go_on(work: Callable[[], None], every: float) -> NoReturn:
    """Work until told to stop, at once where it waits, at the end of a round where it works."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    # In a thread: a publish must not be cut by a signal, and signals come to the main thread.
    with ThreadPoolExecutor(1) as pool:
        while True:
            try:
                pool.submit(work).result()
            except (WarehouseError, OSError) as error:
                click.echo(f"fold: {error}", err=True)
            time.sleep(every)
