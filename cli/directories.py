"""The warehouse or the pack that a command takes its texts from, as its options name it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sigdir.pipeline.directory import PackSource, Source

_KEY_BYTES = 200


def chosen(folder: Path, pack: Path | None, key: str | None) -> Source:
    """The pack, if one is given; raises UsageError, OSError."""
    if pack is not None:
        return PackSource(pack, public_key(key))
    if key is not None:
        raise click.UsageError("--key is of a pack: --pack FILE")
    return folder


def public_key(key: str | None) -> str | None:
    """The digits of a key that is given as such or as a file."""
    if key is None or not os.path.isfile(key):
        return key
    with open(key, "rb") as file:
        return file.read(_KEY_BYTES).decode("ascii", "replace").strip()
