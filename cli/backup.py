"""The command `sigdir backup`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import Place, StoreUrl, json_option, quiet_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.warehouse.table.errors import Busy
from sigdir.warehouse.table.paths import Paths, existing
from sigdir.warehouse.transfer.backup import backup as back_up
from sigdir.warehouse.transfer.backup import push
from sigdir.warehouse.transfer.transfer import TransferReport

_LINE_SECONDS = 5.0


@command(state="an older backup in DEST is still good; run it again to go on")
@click.argument("dest", type=Place(), metavar="DEST")
@warehouse_option
@click.option("--link", is_flag=True, help="Make hard links instead of copies, if DEST is on the same file system.")
@json_option()
@quiet_option()
def backup(dest: Path | StoreUrl, folder: Path, link: bool, as_json: bool, quiet: bool) -> None:
    """Copy the warehouse into DEST, as it is now, while it is in use.

    Files that DEST already has are not copied again, so the next backup copies only what is new.
    A damaged file is refused by its name, one of an older version too. Vacuumed files are left out.
    DEST is a warehouse: to restore, serve DEST or a copy of it. Once something else has written
    to DEST, it is no longer a backup, and further backups into it are refused. A hard link takes
    no space, but it is the same data on the same disk: it protects against deletion, not against
    a failing disk.

    DEST may be a store, as s3://bucket/prefix, from where `sigdir serve --follow-store` serves replicas. It gets the
    published versions; POSTed rows come with the next fold.

    Exit status: 0 done, 2 not done (an older backup in DEST is still good), 130 interrupted.

    \b
    Examples:
      sigdir backup /backups/signatures
      sigdir backup --link ../signatures.today
      sigdir verify --warehouse /backups/signatures
      sigdir backup s3://signatures/main
    """
    source = existing(folder)
    if isinstance(dest, StoreUrl):
        if link:
            raise click.UsageError("--link makes hard links, which a store has not")
        report, staged = push(source, dest, _Progress(quiet)), "POSTed rows wait for the next fold"
    else:
        try:
            report, staged = back_up(source, Paths(dest.absolute()), link, _Progress(quiet)), "staged"
        except Busy as error:  # another backup writes DEST; the warehouse itself is never waited for
            raise Failure(str(error)) from error
    if as_json:
        write_json(report.to_dict())
        return
    click.echo(
        f"{dest}: version {report.version}, {report.rows:,} rows and {report.staged:,} {staged}\n"
        f"{report.copied:,} files copied ({report.bytes / 1e6:,.1f} MB), {report.linked:,} linked,"
        f" {report.present:,} there already; {report.log_entries:,} new log entries; {report.seconds:.1f} s"
    )


class _Progress:
    """Writes a line every few seconds with what is copied so far."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._next = time.monotonic() + _LINE_SECONDS

    def __call__(self, report: TransferReport) -> None:
        if not self._quiet and time.monotonic() > self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            files = report.copied + report.linked + report.present
            write_line(f"backup: {files:,} files, {report.bytes / 1e6:,.1f} MB copied")
