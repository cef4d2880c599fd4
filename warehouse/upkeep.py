"""The commands that keep a warehouse well: backup."""

from __future__ import annotations

import time
from pathlib import Path

import click
import orjson

from warehouse.backup import Report
from warehouse.backup import backup as bring
from warehouse.commands import Failure, warehouse_option
from warehouse.errors import WarehouseError
from warehouse.paths import Paths

_TOLD_EVERY_SECONDS = 5.0


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
        report = bring(Paths(folder.absolute()), Paths(dest.absolute()), link, _Told(quiet))
    except WarehouseError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or dest}: {error.strerror or error}") from error
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2))
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
