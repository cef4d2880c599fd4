"""The commands `sigdir decode ...`: calldata, logs and reverts explained by the warehouse's texts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import orjson

from sigdir.cli.decode_contract import contract, explain_code, is_file
from sigdir.cli.errors import Command, Failure
from sigdir.cli.options import json_option, quiet_option, warehouse_option
from sigdir.cli.output import write_json
from sigdir.cli.progress import reporter
from sigdir.signatures.calldata import MAX_BYTES, as_json
from sigdir.signatures.decode_input import (
    hex_bytes,
    inputs_of_text,
    log_input,
    texts_to_try,
    whole,
)
from sigdir.signatures.interruption import waiting
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.reading_json import document
from sigdir.signatures.readings import Candidate, Form, Input, Reading
from sigdir.warehouse.index.known import read_alternatives
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import existing

_MAX_CHARACTERS = 4 * MAX_BYTES  # two digits per byte, and as many spaces and line breaks

_json = json_option("Write what the API answers: the tree of readings.")
_data = click.argument("data", metavar="DATA")


class _DecodeCommands(click.Group):
    """What is no subcommand's name is data for `auto`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["auto", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DecodeCommands)
def decode() -> None:
    """Explain calldata, logs and reverts by each text that has their selector or topic, the best match first.

    `sigdir decode DATA` is `sigdir decode auto DATA`; `sigdir decode auto --help` has its options. DATA is hex digits or
    a log, @FILE reads them from a file, - from standard input. --file FILE decodes each row of a .parquet, .csv,
    .jsonl or .json, and --output TARGET says where to. --warehouse DIR|URL names the warehouse, by default data.

    Exit status: 0 some text decodes the data, 1 no text does, 2 the data or the warehouse cannot be
    used, 130 interrupted.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode log --topic 0xddf252ad... --topic 0x... --topic 0x... --data 0x...
      sigdir decode revert 0x4e487b71000000...0011
      sigdir decode contract runtime.hex --solidity
      cast tx 0x5c50... input | sigdir decode -
    """


@decode.command(cls=Command)
@click.argument("data", metavar="DATA", required=False)
@click.option(
    "--file", "source", type=click.Path(), metavar="FILE", help="Decode each row: .parquet, .csv, .jsonl or .json."
)
@click.option(
    "--output",
    type=click.Path(),
    default="-",
    metavar="TARGET",
    help="For --file: .parquet or .ndjson.  [default: NDJSON on stdout]",
)
@click.option(
    "--workers", type=click.IntRange(1, 256), default=lambda: os.cpu_count() or 1, show_default="one per core",
    help="Processes that decode a file at the same time.",
)  # fmt: skip
@quiet_option()
@warehouse_option
@_json
def auto(
    data: str | None, source: str | None, output: str, workers: int, quiet: bool, folder: Path, as_json: bool
) -> None:  # fmt: skip
    """Explain data by its shape: calldata, revert data, a log or code; with --file each row of a file.

    DATA is hex digits, with or without 0x; a log is its topics and its data, each with 0x, or an object of JSON
    with topics and data. To try texts of your own, write them before the data, each on a line or with a semicolon
    behind it. @FILE reads the data from a file, - from standard input. Where the shape does not decide, every
    reading is given, the surest first.

    A file has the columns of cryo, Dune or BigQuery: input and to (or to_address), or data and topic0 to topic3 (or
    topics). Each row gets its best text, its values as JSON and the confidence, in the order of the file, and keeps
    its other columns.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode @calldata.hex --json
      cast receipt 0x5c50... logs --json | jq '.[0]' | sigdir decode -
      sigdir decode --file txs.parquet --output decoded.parquet
    """
    if (data is None) == (source is None):
        raise click.UsageError("DATA or --file FILE, please")
    if source is not None:
        _decode_file(source, output, folder, workers, quiet, as_json)
        return
    assert data is not None
    alternatives = whole(inputs_of_text(_entered(data)))
    if alternatives[0].form is Form.CODE:
        explain_code(alternatives[0].data, alternatives[0].libraries, None, folder, as_json)
    _explain(alternatives, folder, as_json)


@decode.command(cls=Command)
@_data
@warehouse_option
@_json
def calldata(data: str, folder: Path, as_json: bool) -> None:
    """Explain calldata: a selector and its arguments, and the calls inside.

    DATA is hex digits; @FILE reads them from a file, - from standard input.

    \b
    Example:
      sigdir decode calldata 0xac9650d8...
    """
    _explain(whole([Input(Form.CALLDATA, hex_bytes(_entered(data)))]), folder, as_json)


@decode.command(cls=Command)
@_data
@warehouse_option
@_json
def revert(data: str, folder: Path, as_json: bool) -> None:
    """Explain what a failed call gave back: errors first, panics with their meaning, errors inside errors.

    DATA is hex digits, 0x for a revert without data; @FILE reads them from a file, - from standard input.

    \b
    Example:
      sigdir decode revert 0x08c379a0...
    """
    _explain([Input(Form.REVERT, hex_bytes(_entered(data)))], folder, as_json)


@decode.command(cls=Command)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic, 0x and 64 digits; in their order.")
@click.option("--data", default="0x", show_default=True, metavar="DATA", help="The data; @FILE reads it from a file.")
@click.option("--anonymous", is_flag=True, help="The first topic is no hash; --text gives the events to try.")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="An event to try first, canonical or as declared.")
@warehouse_option
@_json
def log(
    topics: Sequence[str], data: str, anonymous: bool, texts: Sequence[str], folder: Path, as_json: bool
) -> None:  # fmt: skip
    """Explain a log: its event, and which parameters are indexed.

    \b
    Examples:
      sigdir decode log --topic 0xddf252ad... --topic 0x... --topic 0x... --data 0x...
      sigdir decode log --topic 0x... --data 0x... --text 'event E(bytes4 indexed sig, uint value) anonymous'
    """
    words = [hex_bytes(topic, "topics") for topic in topics]
    given = texts_to_try(list(texts))
    _explain([log_input(words, hex_bytes(_entered(data)), anonymous=anonymous, texts=given)], folder, as_json)


decode.add_command(contract)


def _decode_file(source: str, output: str, folder: Path, workers: int, quiet: bool, as_json: bool) -> None:
    from sigdir.pipeline.decode_file import decode_file  # pyarrow, which one input does without

    with reporter(quiet) as progress:
        report = decode_file(source, output, folder, workers, progress)
    if as_json:
        write_json(report.to_dict(), err=True)
    else:
        click.echo("\n".join(report.lines()), err=True)


def _explain(alternatives: list[Input], folder: Path, as_json: bool) -> None:
    """Write the readings of an input; the exit status says whether a text decodes it."""
    with closing(Reader(existing(folder))) as reader:
        readings = read_alternatives(reader.current(), alternatives)
    if as_json:
        write_json(document(readings))
    else:
        for reading in readings:
            _print(reading)
    sys.exit(0 if any(reading.best for reading in readings) else 1)


def _entered(argument: str) -> str:
    """What an argument is or names. Bytes that are not ASCII stay visible as bad digits."""
    if argument == "-":
        with waiting():
            return sys.stdin.buffer.read(_MAX_CHARACTERS).decode("ascii", "replace")
    if argument.startswith("@"):
        with Path(argument[1:]).open("rb") as file:
            return file.read(_MAX_CHARACTERS).decode("ascii", "replace")
    if re.search("[^0-9a-fA-FxX]", argument) and is_file(argument):
        raise Failure(f"{argument} is a file: write @{argument}")
    return argument


def _print(reading: Reading) -> None:
    for candidate in reading.candidates:
        click.echo("\n".join(_lines(candidate)))
    if reading.note:
        hash = f"0x{reading.hash.hex()}: " if reading.hash else ""
        click.echo(f"{hash}{reading.note}", err=True)


def _lines(candidate: Candidate, indent: str = "") -> Iterator[str]:
    """The text, then its values and the calls in them, or the reason why there are none."""
    attempt = candidate.attempt
    if attempt.values is None:
        yield f"{indent}{attempt.text}  does not decode: {attempt.detail}"
        return
    yield indent + attempt.text + _note(candidate)
    width = max((len(type.text) for type in attempt.types), default=0)
    names = [name[0] if isinstance(name, tuple) else name for name in candidate.known.names]
    longest = max(map(len, names), default=-2) + 2
    for number, (type, value) in enumerate(zip(attempt.types, attempt.values, strict=True)):
        name = names[number] if number < len(names) else ""
        yield f"{indent}  {type.text:{width}}  {name:{max(longest, 0)}}{_value(candidate, number, type, value)}"
        for nested in candidate.nested:
            if nested.path[0] == number:
                yield from _nested_lines(nested.path, nested.reading, indent + "    ")


def _nested_lines(path: Sequence[int], reading: Reading, indent: str) -> Iterator[str]:
    place = ".".join(map(str, path))
    if not reading.candidates:
        yield f"{indent}[{place}] {reading.note}"
        return
    first, *rest = _lines(reading.candidates[0], indent)
    yield f"{indent}[{place}] {first.lstrip()}"
    yield from rest
    if reading.note:
        yield f"{indent}  {reading.note}"


def _value(candidate: Candidate, number: int, type: Any, value: Any) -> str:
    if isinstance(value, IndexedHash):
        return f"indexed, hash 0x{value.hex()}"
    shown = "0x" + value.hex() if isinstance(value, bytes) else _shown(as_json(type, value, checksums=True))
    return f"indexed {shown}" if candidate.split and number in candidate.split else shown


def _note(candidate: Candidate) -> str:
    """Behind a text: how sure it is and why, other choices of the indexed parameters, what the values mean."""
    note = f"  ({candidate.confidence}: {'; '.join(candidate.reasons)})"
    if candidate.is_ambiguous:
        splits = ", or ".join(" and ".join(map(str, split)) or "none" for split in candidate.others[:5])
        note += f"  other parameters may be indexed, counted from 0: {splits}"
    return f"{note}  {candidate.note}" if candidate.note else note


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()
