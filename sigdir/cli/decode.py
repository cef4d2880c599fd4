"""The command `sigdir decode`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import orjson

from sigdir.cli.errors import Command
from sigdir.cli.options import json_option, warehouse_option
from sigdir.cli.output import write_json
from sigdir.serve.decode import candidates, document
from sigdir.signatures.calldata import MAX_BYTES, as_json, calldata
from sigdir.signatures.decode_attempt import DecodeAttempt
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.paths import existing

_MAX_CHARACTERS = 4 * MAX_BYTES  # two digits per byte, and as many spaces and line breaks


@click.command(cls=Command)
@click.argument("data", metavar="DATA")
@warehouse_option
@json_option("Write what GET /api/v1/decode/ answers.")
def decode(data: str, folder: Path, as_json: bool) -> None:
    """Decode calldata with each text that has its selector, the best match first.

    DATA is hex digits, with or without 0x; @FILE reads them from a file, - from standard input.

    Exit status: 0 some text decodes the data, 1 no text does, 2 the data or the warehouse cannot be
    used, 130 interrupted.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode @calldata.hex --json
      cast tx 0x5c50... input | sigdir decode -
    """
    decoded = calldata(_digits(data))
    with closing(Reader(existing(folder))) as reader:
        view = reader.current()
        is_decoded = _write_document(view, decoded) if as_json else _print(view, decoded)
    sys.exit(0 if is_decoded else 1)


def _digits(argument: str) -> str:
    """The digits that an argument is or names. Bytes that are not ASCII stay visible as bad digits."""
    if argument == "-":
        return sys.stdin.buffer.read(_MAX_CHARACTERS).decode("ascii", "replace")
    if argument.startswith("@"):
        with Path(argument[1:]).open("rb") as file:
            return file.read(_MAX_CHARACTERS).decode("ascii", "replace")
    return argument


def _write_document(view: View, data: bytes) -> bool:
    answer = document(view, data)
    write_json(answer)
    return any(candidate["decodes"] for candidate in answer["candidates"])


def _print(view: View, data: bytes) -> bool:
    attempts, _ = candidates(view, data)
    if not attempts:
        click.echo(f"0x{data[:4].hex()}: no text with this selector is known", err=True)
    for attempt in attempts:
        click.echo("\n".join(_lines(attempt)))
    return any(attempt.values is not None for attempt in attempts)


def _lines(attempt: DecodeAttempt) -> Iterator[str]:
    """The text, then its values, or the reason why there are none."""
    if attempt.values is None:
        yield f"{attempt.text}  does not decode: {attempt.detail}"
        return
    yield attempt.text + _note(attempt)
    width = max((len(type.text) for type in attempt.types), default=0)
    for type, value in zip(attempt.types, attempt.values, strict=True):
        yield f"  {type.text:{width}}  {_shown(as_json(type, value, checksums=True))}"


def _note(attempt: DecodeAttempt) -> str:
    if attempt.exact:
        return ""
    return f"  {attempt.left_over} bytes left over" if attempt.left_over else "  not exact"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()
