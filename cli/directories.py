"""The warehouse or the pack that a command takes its texts from, as its options name it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sigdir.cli.options import existing_file, key_option, together, warehouse_option
from sigdir.pipeline.directory import PackSource, Source

_KEY_BYTES = 200

_OPTIONS = together(
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
        if pack is None and key is not None:
            raise click.UsageError("--key is of a pack: --pack FILE")
        source: Source = folder if pack is None else PackSource(pack, public_key(key))
        return command(source=source, **others)

    return _OPTIONS(gathered)


def public_key(key: str | None) -> str | None:
    """The digits of a key that is given as such or as a file."""
    if key is None or not os.path.isfile(key):
        return key
    with open(key, "rb") as file:
        return file.read(_KEY_BYTES).decode("ascii", "replace").strip()
