"""The command `sigdir verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import (
    existing_file,
    json_option,
    key_option,
    memory_limit_option,
    public_key,
    quiet_option,
    shown,
    threads_option,
    warehouse_option,
)
from sigdir.cli.output import write_json
from sigdir.cli.progress import reporter
from sigdir.pipeline.directory import PackSource, open_pack
from sigdir.pipeline.mirror_state import problems_of_states
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.errors import counted
from sigdir.signatures.pack_file import BadPack
from sigdir.warehouse import verify as checking
from sigdir.warehouse.table.paths import Paths


@command(state="nothing was changed")
@click.argument("pack", type=existing_file, required=False, metavar="[PACK]")
@warehouse_option
@key_option
@json_option()
@quiet_option()
@threads_option
@memory_limit_option("512MB", "Memory for the search for duplicates; above it, data is spilled to disk.")
def verify(
    pack: Path | None, folder: Path, key: str | None, as_json: bool, quiet: bool, threads: int, memory_limit: str
) -> None:  # fmt: skip
    """Check everything that is stored, or a pack, and change nothing.

    Every hash is computed again and every text canonicalised again. Checksums, ids, times, duplicates, the log, staging,
    the totals of the imports, the suppress list, the servers' indexes and their files without hidden rows, and the
    progress of mirrors are checked, and the bytes of files that only older versions have. Servers and imports may run at
    the same time. A finding is one line: what, where, why. A note is a file that a killed process left; the next publish
    removes it.

    Of a PACK the digest, each text and each hash are checked, and with --key its signature.

    Exit status: 0 clean, 1 findings, 2 the warehouse cannot be checked or the pack fails, 130 interrupted.

    \b
    Examples:
      sigdir verify
      sigdir verify --warehouse /backups/signatures --json
      sigdir verify functions.pack --key operator.key.pub
    """
    if pack is not None:
        _verify_pack(PackSource(pack, public_key(key)), as_json)
        return
    if key is not None:
        raise click.UsageError("--key is of a pack: sigdir verify PACK --key KEY")
    with reporter(quiet) as progress:
        report = _check(Paths(folder.absolute()), threads, memory_limit, progress)
    if as_json:
        write_json(report.to_dict())
    else:
        _print(report, shown(folder))
    sys.exit(1 if report.findings else 0)


def _verify_pack(source: PackSource, as_json: bool) -> None:
    pack = open_pack(source)
    try:
        pack.check()
    except BadPack as error:
        raise Failure(f"{source.path}: {error}") from None
    counts = {collection.value: pack.count(collection) for collection in COLLECTIONS}
    if as_json:
        write_json({"form": pack.form, "version": pack.version, "texts": counts, "signed_by": pack.signed_by or None})
        return
    for name, count in counts.items():
        click.echo(f"{name:<18}{count:>12,} texts")
    signer = f"signed by {pack.signed_by}" if pack.signed_by else "not signed"
    checked = "" if source.key or not pack.signed_by else ", which was not checked: give --key"
    click.echo(f"{source.path}: version {pack.version}, {signer}{checked}: clean")


def _check(paths: Paths, threads: int, memory_limit: str, progress: Reporter) -> checking.VerifyReport:
    report = checking.verify(paths, threads, memory_limit, progress.stage, progress.advance)
    for path, why in problems_of_states(paths):
        report.add("mirror", path, why)
    return report


def _print(report: checking.VerifyReport, folder: str) -> None:
    for finding in report.findings:
        click.echo(str(finding))
    for note in report.notes:
        click.echo(f"note: {note}")
    for collection in COLLECTIONS:
        click.echo(f"{collection:<18}{report.rows[collection]:>12,} rows {report.staged[collection]:>8,} staged")
    result = counted(len(report.findings), "finding") if report.findings else "clean"
    click.echo(f"{folder}: version {report.version}, {counted(report.files, 'file')}, {report.seconds:.1f} s: {result}")
