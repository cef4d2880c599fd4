"""Options that several commands have, and the types of their values.

A command with a warehouse in a store works on the working copy, which is brought up to date first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from sigdir.cli.output import write_line
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.errors import SigdirError
from sigdir.warehouse.table.errors import NoWarehouse, QueryError
from sigdir.warehouse.table.fields import number_or_time
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.stores import is_url


class StoreUrl(str):
    """What the user gave for --warehouse: the URL of a store."""

    __slots__ = ()


def local_folder(place: StoreUrl, as_of: int | datetime | None, make: bool, may_be_missing: bool) -> Path:
    """The folder of the store's working copy, brought up to date; ``make`` makes a warehouse where there is none.

    With ``may_be_missing`` (a dry run) a store without a warehouse gives a copy without rows. Raises StoreError,
    UnreadableWarehouse.
    """
    from sigdir.warehouse.table.places import working_copy
    from sigdir.warehouse.transfer.working_copy import pull  # the engines, which --help does without

    paths = working_copy(place)
    try:
        pulled = pull(paths, as_of, make=make)
    except NoWarehouse:
        if not may_be_missing:
            raise
        return paths.root
    if pulled.made:
        write_line(f"new warehouse at {place}")
    return paths.root


def mend(folder: Path) -> str:
    """Fetch again what is damaged in a store's working copy; gives what to do then, nothing if there is nothing to do."""
    from sigdir.warehouse.table.places import store_of
    from sigdir.warehouse.transfer.working_copy import pull

    if store_of(Paths(folder)) is None:
        return ""
    try:
        pulled = pull(Paths(folder), check="bytes")
    except (SigdirError, OSError):  # the store is away: what the command met is the error
        return ""
    fetched = pulled.bytes or pulled.log_entries
    return "what is damaged was fetched again: run the command again" if fetched else ""


def shown(folder: Path) -> str:
    """How messages name a warehouse: by the store's URL where the folder is a working copy."""
    from sigdir.warehouse.table.places import store_of

    store = store_of(Paths(folder))
    return str(folder) if store is None else store.url


Function = TypeVar("Function", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Several options as one decorator, in their order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class Place(click.Path):
    """A folder, or a store by its URL; gives a Path or a StoreUrl, which ``Command`` replaces by a Path."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and is_url(value):
            return StoreUrl(value)
        return super().convert(value, param, ctx)


existing_file = click.Path(exists=True, dir_okay=False, path_type=Path)
warehouse_option = click.option(
    "--warehouse", "folder", type=Place(), default="data", metavar="DIR|URL", envvar="SIGDIR_WAREHOUSE", show_envvar=True,
    help="Folder of the warehouse, or a store: s3://bucket/prefix.",
)  # fmt: skip
key_option = click.option(
    "--key", metavar="KEY", help="The public key that must have signed the pack: 64 hex digits, or a file with them."
)
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="End with status 3 if another process is publishing, instead of waiting."
)
threads_option = click.option(
    "--threads", type=click.IntRange(1, 256), default=lambda: os.cpu_count() or 1, show_default="one per core",
    help="Threads that work at the same time.",
)  # fmt: skip


def json_option(help: str = "Report as JSON on standard output.") -> Callable[[Function], Function]:
    return click.option("--json", "as_json", is_flag=True, help=help)


def quiet_option(help: str = "Show no progress.") -> Callable[[Function], Function]:
    return click.option("-q", "--quiet", is_flag=True, help=help)


def memory_limit_option(default: str, help: str) -> Callable[[Function], Function]:
    return click.option("--memory-limit", default=default, help=help)


class CollectionChoice(click.Choice[Collection]):
    """One of the two collections, by its name."""

    def __init__(self) -> None:
        super().__init__(COLLECTIONS)

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


class Seconds(click.FloatRange):
    """A number of seconds that a process can wait: to ``time.sleep`` infinity is an error, and so is nan.

    Nothing is less or more than nan, so that it is in any range.
    """

    def __init__(self, min: float = 0, max: float = 10**9, *, min_open: bool = False) -> None:
        super().__init__(min, max, min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if isnan(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


SHORTEST_PAUSE = 0.05
"""The shortest pause between two folds, in seconds."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration(value: str) -> timedelta:
    """The type of a number and a unit: 90s, 15m, 36h, 7d, 2w."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])", value)
    if not found:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 15m, 36h, 7d or 2w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _as_of(value: str) -> int | datetime | None:
    """The type of a version's number, or of a time in the form of ISO 8601, UTC where it has no zone."""
    try:
        return number_or_time(value)
    except QueryError as error:
        raise click.BadParameter(str(error)) from None


as_of_option = click.option(
    "--as-of", "version", type=_as_of, metavar="VERSION|TIME",
    help="Read an older version: its number, or a time such as 2026-11-21T08:00Z.",
)  # fmt: skip


# The warehouse or the pack that a command takes its texts from.

_KEY_BYTES = 200

_DIRECTORY = together(
    warehouse_option,
    click.option(
        "--pack", type=existing_file, metavar="FILE",
        help="Take the texts from this pack, and from no warehouse.",
    ),
    key_option,
)  # fmt: skip


def directory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --warehouse, --pack and --key; the command gets ``source``. Raises UsageError, OSError."""

    @wraps(command)
    def gathered(folder: Path, pack: Path | None, key: str | None, **others: Any) -> Any:
        from sigdir.pipeline.directory import PackSource, Source  # which commands without these options do without

        if pack is None and key is not None:
            raise click.UsageError("--key is of a pack: --pack FILE")
        is_given = click.get_current_context().get_parameter_source("folder") is ParameterSource.COMMANDLINE
        if pack is not None and is_given:
            raise click.UsageError("--pack and --warehouse exclude each other: the texts come from one of them")
        source: Source = folder if pack is None else PackSource(pack, public_key(key))
        return command(source=source, **others)

    return _DIRECTORY(gathered)


def public_key(key: str | None) -> str | None:
    """The digits of a key that is given as such or as a file."""
    if key is None or not os.path.isfile(key):
        return key
    with open(key, "rb") as file:
        return file.read(_KEY_BYTES).decode("ascii", "replace").strip()
