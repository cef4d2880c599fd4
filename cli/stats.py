"""The command `sigdir stats`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from sigdir.cli.errors import command
from sigdir.cli.options import as_of_option, json_option, shown, warehouse_option
from sigdir.cli.output import write_json
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import Warehouse
from sigdir.warehouse.log.snapshot import Snapshot


@command()
@json_option()
@warehouse_option
@as_of_option
def stats(as_json: bool, folder: Path, version: int | datetime | None) -> None:
    """Show how many rows, files and bytes the warehouse has.

    Exit status: 0 done, 2 the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir stats
      sigdir stats --json --as-of 3
    """
    snapshot = Warehouse(folder, version).snapshot
    if as_json:
        write_json(_document(snapshot))
    else:
        _print(shown(folder), snapshot)


def _document(snapshot: Snapshot) -> dict[str, Any]:
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


def _print(folder: str, snapshot: Snapshot) -> None:
    click.echo(f"{folder}: version {snapshot.version}" if snapshot.version >= 0 else f"{folder}: nothing imported yet")
    for collection, numbers in _document(snapshot)["collections"].items():
        click.echo(
            f"{collection:<18}{numbers['rows']:>12,} rows {numbers['files']:>5,} files"
            f" {numbers['bytes'] / 1e6:>10,.1f} MB, newest id {numbers['last_id']:,}"
        )
