"""The commands that keep a warehouse in order: compact, vacuum, backup."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from sigdir.cli.options import Failure, warehouse_option
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import compact as compacting
from sigdir.warehouse import vacuum as vacuuming
from sigdir.warehouse.backup import Report
from sigdir.warehouse.backup import backup as bring
from sigdir.warehouse.errors import Busy, WarehouseError
from sigdir.warehouse.paths import Paths, existing

_TOLD_EVERY_SECONDS = 5.0
BUSY_STATUS = 3
INTERRUPTED_STATUS = 130

Done = TypeVar("Done")

json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")
no_wait_option = click.option("--no-wait", is_flag=True, help="Give up (status 3) where another process is publishing.")


def _carried_out(work: Callable[[], Done]) -> Done:
    try:
        return work()
    except Busy as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BUSY_STATUS)
    except (WarehouseError, OSError) as error:
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted: no row is touched", err=True)
        sys.exit(INTERRUPTED_STATUS)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _write_json(facts: dict[str, Any]) -> None:
    click.echo(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


@click.command()
@click.option("--all", "everything", is_flag=True, help="Merge large files too, up to 5 million rows a file.")
@no_wait_option
@json_option
@warehouse_option
def compact(everything: bool, no_wait: bool, as_json: bool, folder: Path) -> None:
    """Merge small data files into few, in one new version that holds the same rows.

    Each fold and each small import adds files; reading gets slower with their number. A server merges
    them by itself, a few at a time. Ids and times stay, and so do the old files until `sigdir vacuum`.
    Exit status: 0 done (also where nothing is to be merged), 2 the warehouse cannot be used, 3 another
    process is publishing.

    \b
    Examples:
      sigdir compact
      sigdir compact --all --json
    """
    choose = compacting.everything if everything else compacting.small
    done = _carried_out(lambda: compacting.compact(existing(folder), choose, wait=not no_wait, say=_say))
    if as_json:
        _write_json(
            {"version": done.snapshot.version if done else None, "collections": done.collections if done else {}}
        )
    elif done is None:
        click.echo("nothing to compact")
    else:
        click.echo(f"version {done.snapshot.version} published")
        for collection in COLLECTIONS:
            told = done.collections[collection]
            click.echo(
                f"{collection:<18}{told['files_before']:>7,} files -> {told['files_after']:,},"
                f" {told['rows']:,} rows written again"
            )


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Duration(click.ParamType[timedelta]):
    """A number and a unit: 90s, 15m, 36h, 7d, 2w."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([smhdw])", value)
        if not found:
            self.fail(f"{value!r} is no duration; write 90s, 15m, 36h, 7d or 2w", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


_WHAT = {
    "data": "data files of older versions or dead runs",
    "log": "left-overs of killed commits",
    "run": "folders of dead imports",
    "index": "indexes of files that are not in the newest version",
    "mirror": "left-overs of killed mirrors",
}


@click.command()
@click.option(
    "--keep", type=_Duration(), default="7d", show_default=True, metavar="DURATION",
    help="Keep what was the newest version at any time since so long ago: 36h, 7d, 2w.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@no_wait_option
@json_option
@warehouse_option
def vacuum(keep: timedelta, dry_run: bool, no_wait: bool, as_json: bool, folder: Path) -> None:
    """Remove data files that no version within a time window needs, and what dead processes left.

    The newest version, the history of imports and their rejects always stay. Versions from before the
    window can then not be read any more with --as-of, once files of theirs were merged. A server does
    this by itself, with a window of a week. A window shorter than the longest query takes its files away.
    Exit status: 0 done, 2 the warehouse cannot be used, 3 another process is publishing.

    \b
    Examples:
      sigdir vacuum --dry-run
      sigdir vacuum --keep 36h
    """
    done = _carried_out(lambda: vacuuming.vacuum(existing(folder), keep, dry_run, not no_wait, _say))
    if as_json:
        _write_json({"dry_run": dry_run, "keep_seconds": keep.total_seconds(), **done.as_dict()})
        return
    verb = "would be removed" if dry_run else "removed"
    for kind, what in _WHAT.items():
        waste = [waste for waste in done.waste if waste.kind == kind]
        if waste:
            click.echo(f"{len(waste):>7,} {what}, {sum(w.size for w in waste) / 1e6:,.1f} MB, {verb}")
    if not done.waste:
        click.echo("nothing to remove")
    if done.newest >= 0:
        click.echo(f"versions {done.oldest} to {done.newest} {'would be' if dry_run else 'are'} readable")


@click.command()
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@warehouse_option
@click.option("--link", is_flag=True, help="Hard links instead of copies, where DEST is on the same file system.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--quiet", is_flag=True, help="No progress.")
def backup(dest: Path, folder: Path, link: bool, as_json: bool, quiet: bool) -> None:
    """Copy the warehouse into DEST, as it is now, while it is in use.

    What DEST has already is not copied again, so the next backup into it takes what is new.
    It is a warehouse: to restore, serve DEST, or a copy of it. Once something was written to
    it by itself, it is a backup no more and is refused. A linked file takes no room, but is
    the same bytes on the same disk: it protects from deletion, not from a disk that fails.
    Exit status: 0 done, 2 not done, and DEST is as good as before.

    \b
    Examples:
      sigdir backup /backups/signatures
      sigdir backup --link ../signatures.today
      sigdir verify --warehouse /backups/signatures
    """
    try:
        report = bring(existing(folder), Paths(dest.absolute()), link, _Told(quiet))
    except WarehouseError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or dest}: {error.strerror or error}") from error
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        return
    click.echo(
        f"{dest}: version {report.version}, {report.rows:,} rows and {report.staged:,} staged\n"
        f"{report.copied:,} files copied ({report.bytes / 1e6:,.1f} MB), {report.linked:,} linked,"
        f" {report.present:,} there already; {report.log_entries:,} new log entries; {report.seconds:.1f} s"
    )


class _Told:
    """Says now and then how far a backup is."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._next = time.monotonic() + _TOLD_EVERY_SECONDS

    def __call__(self, report: Report) -> None:
        if not self._quiet and time.monotonic() > self._next:
            self._next = time.monotonic() + _TOLD_EVERY_SECONDS
            files = report.copied + report.linked + report.present
            click.echo(f"backup: {files:,} files, {report.bytes / 1e6:,.1f} MB copied", err=True)
