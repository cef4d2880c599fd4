"""What the commands of all high_water share: options, and an error in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sigdir.cli.output import FORMATS
from sigdir.signatures.collections import COLLECTIONS, Collection

warehouse_option = click.option(
    "--warehouse",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="data",
    show_default=True,
    envvar="SIGDIR_WAREHOUSE",
    show_envvar=True,
    help="Folder of the warehouse.",
)
as_of_option = click.option("--as-of", "version", type=click.IntRange(min=0), help="Look at an older version.")
format_option = click.option(
    "--format",
    "format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to write the rows.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")


class CollectionChoice(click.Choice[str]):
    """One of the two collections, by its name; gives a Collection."""

    def __init__(self) -> None:
        super().__init__([collection.value for collection in COLLECTIONS])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Collection.of_name(super().convert(str(value), param, ctx))


class Failure(click.ClickException):
    """An error told in one line, exit status 2."""

    exit_code = 2
