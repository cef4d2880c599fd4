"""The command `sigdir keygen`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.signatures.pack_file import PrivateKey


@command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
def keygen(file: Path) -> None:
    """Make a key that signs packs.

    FILE gets the private key, as PEM without a password, readable by you alone. FILE.pub gets the public key, 64 hex
    digits, which is also written to standard output: those who read your packs need it. No file is overwritten.

    Exit status: 0 done, 2 a file exists or cannot be written.

    \b
    Examples:
      sigdir keygen operator.key
      sigdir export pack functions.pack --sign operator.key
      sigdir verify functions.pack --key operator.key.pub
    """
    key = PrivateKey.generate()
    public = file.with_name(f"{file.name}.pub")
    _write_new(file, key.pem(), 0o600)
    _write_new(public, key.public.hex().encode() + b"\n", 0o644)
    click.echo(key.public.hex())


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(content)
    except FileExistsError:
        raise Failure(f"{path}: exists already, and is not overwritten") from None
