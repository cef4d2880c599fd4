"""The commands `sigdir decode ...`: calldata, logs, reverts and returned values explained by the warehouse's texts; and
`sigdir decode tx`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click
import orjson

from sigdir.cli.decode_contract import contract, entered, explain_code
from sigdir.cli.errors import Command, Failure, command
from sigdir.cli.options import Seconds, directory_options, existing_file, json_option, quiet_option, together
from sigdir.cli.output import write_json, write_report
from sigdir.cli.progress import reporter
from sigdir.pipeline.directory import Source, opened, readings_of
from sigdir.pipeline.transaction import ExplainedTransaction, Node, checked_hash, explain_transaction, read_transaction
from sigdir.signatures.abi_decoder import MAX_BYTES, as_json, checksummed
from sigdir.signatures.clear_signing import CallDisplay
from sigdir.signatures.contract import read_code
from sigdir.signatures.decode_input import (
    BadInput,
    hex_bytes,
    inputs_of_fields,
    inputs_of_text,
    return_inputs,
    texts_to_try,
)
from sigdir.signatures.errors import visible
from sigdir.signatures.given_contract import with_contract
from sigdir.signatures.interruption import waiting
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.reading_json import document
from sigdir.signatures.readings import Candidate, Form, Input, Reading


def noted(reading: Reading) -> str:
    """The note of a reading with its hash; "" for none."""
    hash = f"0x{reading.hash.hex()}: " if reading.hash else ""
    return f"{hash}{reading.note}" if reading.note else ""


def candidate_lines(candidate: Candidate, indent: str = "") -> Iterator[str]:
    """The text, then its values and the calls in them, or the reason why there are none."""
    attempt = candidate.attempt
    if attempt.values is None:
        why = f"; {candidate.known.why}" if candidate.known.why else ""
        yield f"{indent}{_shown(attempt.text)}  does not decode: {attempt.detail}{why}"
        return
    yield indent + _shown(attempt.text) + _note(candidate)
    if candidate.display is not None:
        yield from _display_lines(candidate.display, indent)
    width = max((len(type.text) for type in attempt.types), default=0)
    longest = max((len(type.name) + 2 for type in attempt.types if type.name), default=0)
    for number, (type, value) in enumerate(zip(attempt.types, attempt.values, strict=True)):
        yield f"{indent}  {type.text:{width}}  {type.name:{longest}}{_value(candidate, number, type, value)}"
        for nested in candidate.nested:
            if nested.path[0] == number:
                yield from _nested_lines(nested.path, nested.reading, indent + "    ")


def _display_lines(shown: CallDisplay, indent: str) -> Iterator[str]:
    """What a signer sees, and by which descriptor."""
    of = " of ".join(map(_shown, filter(None, (shown.contract, shown.owner))))
    source, meaning = _shown(shown.source), _shown(shown.sentence or shown.intent)
    yield f"{indent}  a signer sees, by {source}{f' for {of}' if of else ''}: {meaning}"
    for field in shown.fields:
        yield f"{indent}    {_shown(field.label)}: {_shown(field.text)}"


def _nested_lines(path: Sequence[int], reading: Reading, indent: str) -> Iterator[str]:
    place = ".".join(map(str, path))
    if not reading.candidates:
        yield f"{indent}[{place}] {reading.note}"
        return
    first, *rest = candidate_lines(reading.candidates[0], indent)
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
    if candidate.is_ambiguous and candidate.others:
        splits = ", or ".join(" and ".join(map(str, split)) or "none" for split in candidate.others[:5])
        note += f"  other parameters may be indexed, counted from 0: {splits}"
    return f"{note}  {candidate.note}" if candidate.note else note


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else visible(orjson.dumps(value).decode())


@command()
@click.argument("hash", metavar="HASH")
@click.option("--rpc", required=True, metavar="URL", envvar="ETH_RPC_URL", show_envvar=True, help="The node to ask.")
@click.option("--seconds", type=Seconds(1, 86_400), default=30.0, help="How long the node may take in all.")
@directory_options
@json_option("Write the transaction with the answers of the API for its parts.")
def transaction(hash: str, rpc: str, seconds: float, source: Source, as_json: bool) -> None:
    """Explain a transaction of a node: its call and the calls inside, its logs, and what it reverted with.

    HASH is 0x and 64 hex digits. The node is asked for the transaction, its receipt, and the code of the contracts
    in it; those behind proxies (EIP-1167, EIP-1967, EIP-1822, beacons, diamonds, Safes) are read too. What these
    contracts have comes first. A node does not keep what a failed call gave back: it is called again.

    Exit status: 0 each part has a text, 1 some have none, 2 the node or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir decode tx 0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060 --rpc http://127.0.0.1:8545
      ETH_RPC_URL=https://eth.example.org sigdir decode tx 0x5c50... --json
    """
    with waiting():
        found = read_transaction(Node(rpc, seconds), checked_hash(hash))
    with opened(source) as directory:
        explained = explain_transaction(found, partial(readings_of, directory))
    if as_json:
        write_json(explained.to_dict())
    else:
        click.echo("\n".join(_lines(explained)))
        for note in found.notes:
            click.echo(note, err=True)
    sys.exit(0 if explained.is_read else 1)


def _lines(explained: ExplainedTransaction) -> Iterator[str]:
    one = explained.transaction
    block = f", block {one.block}" if one.block is not None else ""
    target = f"makes {_address(one.created)}" if one.to is None else f"to {_address(one.to)}"
    yield f"{one.hash} {explained.status}, chain {one.chain}{block}"
    yield f"from {_address(one.sender)} {target}, value {one.value}"
    for part in explained.parts:
        yield ""
        contract = part.input.contract
        yield f"{part.title}, {_address(part.address)}"
        yield contract.sentence if contract else "Read without a contract."
        reading = part.readings[0]
        for candidate in reading.candidates[:1]:
            yield from candidate_lines(candidate)
        if note := noted(reading):
            yield note


def _address(address: bytes | None) -> str:
    return checksummed(f"0x{address.hex()}") if address is not None else "an unknown address"


_MAX_CHARACTERS = 4 * MAX_BYTES  # two digits per byte, and as many spaces and line breaks

_MAX_CONTRACT_BYTES = 16 << 20
_Given = Mapping[str, Any]
"""What the options say of a contract."""


def _file_option(name: str, what: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}", f"contract_{name}", type=existing_file, metavar="FILE",
        help=f"The contract's {what}: the texts that it has come first.",
    )  # fmt: skip


_OPTIONS = together(
    click.option("--chain", metavar="NUMBER", help="The chain of the address, 1 or 0x1 for Ethereum."),
    click.option("--to", metavar="ADDRESS", help="The contract's address: imports may have seen its ABI."),
    _file_option("code", "runtime code, as hex digits"),
    _file_option("abi", "ABI, as JSON, or an artifact"),
    directory_options,
    json_option("Write what the API answers: the tree of readings."),
)


def _called_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the contract that was called, of the directory and --json: ``called``, ``source``, ``as_json``."""

    @wraps(command)
    def gathered(
        contract_abi: Path | None, contract_code: Path | None, chain: str | None, to: str | None, **others: Any
    ) -> None:
        if to is not None and chain is None:
            raise click.UsageError("--to is an address on a chain: --chain 1 --to 0x...")
        files = {"abi": contract_abi, "code": contract_code}
        texts = {name: file and _contract_text(file) for name, file in files.items()}
        try:
            command(called=texts | {"chain": chain, "to": to}, **others)
        except BadInput as error:
            if file := files.get(error.field):
                raise Failure(f"{file}: {error.problem}") from error
            raise

    return _OPTIONS(gathered)


def _explaining(inputs: Callable[..., list[Input]]) -> Callable[..., Any]:
    """A command from a function that gives the alternatives of its arguments."""

    @wraps(inputs)
    def explain(called: _Given, source: Source, as_json: bool, **arguments: Any) -> None:
        _explain(inputs(**arguments), called, source, as_json)

    return _called_options(explain)


_data = click.argument("data", metavar="DATA")


class _DecodeCommands(click.Group):
    """What is no subcommand's name is data for `auto`."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["auto", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DecodeCommands)
def decode() -> None:
    """Explain calldata, logs, reverts and returned values by each text that has their selector or topic, the best match first.

    `sigdir decode DATA` is `sigdir decode auto DATA`; `sigdir decode auto --help` has its options. DATA is hex digits or
    a log, @FILE reads them from a file, - from standard input. --file FILE decodes each row of a table, and
    --output TARGET says where to. --warehouse DIR|URL names the warehouse, by default data; --pack FILE takes the texts
    from a pack.

    Exit status: 0 some text decodes the data, 1 no text does, 2 the data or the warehouse cannot be
    used, 130 interrupted.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode log --topic 0xddf252ad... --topic 0x... --topic 0x... --data 0x...
      sigdir decode revert 0x4e487b71000000...0011
      sigdir decode return 0x000000...0001 --selector 0xa9059cbb
      sigdir decode contract runtime.hex --solidity
      sigdir decode tx 0x5c50... --rpc http://127.0.0.1:8545
      cast tx 0x5c50... input | sigdir decode -
    """


@decode.command()
@click.argument("data", metavar="DATA", required=False)
@click.option(
    "--file", type=click.Path(), metavar="FILE", help="Decode each row: .parquet, .csv, .tsv, .jsonl, .ndjson or .json."
)
@click.option(
    "--output",
    type=click.Path(),
    default="-",
    metavar="TARGET",
    show_default="NDJSON on stdout",
    help="For --file: .parquet or .ndjson.",
)
@quiet_option()
@_called_options
def auto(
    data: str | None, file: str | None, output: str, quiet: bool, called: _Given, source: Source, as_json: bool
) -> None:
    """Explain data by its shape: calldata, revert data, a log or code; with --file each row of a file.

    DATA is hex digits, with or without 0x; a log is its topics and its data, each with 0x, or the JSON of
    a node: a log, a transaction, or the whole answer with one. To try texts of your own, write them before the
    data, each on a line or with a semicolon behind it. @FILE reads the data from a file, - from standard input.
    Where the shape does not decide, every reading is given, the surest first.

    A file has the columns of cryo, Dune or BigQuery: input or calldata, or data and topic0 to topic3 (or
    topics). Each row gets its best text, its values as JSON and the confidence, in the order of the file, and keeps
    its other columns.
    Parquet has a column for each named parameter, too. Each row is read by the contract at its `to`, to_address,
    address or contract_address, on its `chain` or chain_id, or on that of --chain where it has none; with --abi,
    --code or --to all rows by that one.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode @calldata.hex --json
      cast receipt 0x5c50... logs --json | jq '.[0]' | sigdir decode -
      sigdir decode 0x42966c68... --chain 1 --to 0x6b175474e89094c44da98b954eedeac495271d0f
      sigdir decode --file txs.parquet --output decoded.parquet --chain 1
    """
    if (data is None) == (file is None):
        raise click.UsageError("DATA or --file FILE, please")
    if file is not None:
        _decode_file(file, output, source, quiet, as_json, called)
        return
    assert data is not None
    alternatives = inputs_of_text(_entered(data))
    if alternatives[0].form is Form.CODE:
        explain_code(read_code(alternatives[0].data, alternatives[0].libraries), None, source, as_json)
    _explain(alternatives, called, source, as_json)


@decode.command()
@_data
@_explaining
def calldata(data: str) -> list[Input]:
    """Explain calldata: a selector and its arguments, and the calls inside.

    DATA is hex digits; @FILE reads them from a file, - from standard input.

    \b
    Example:
      sigdir decode calldata 0xac9650d8...
    """
    return inputs_of_text(_entered(data), Form.CALLDATA)


@decode.command()
@_data
@_explaining
def revert(data: str) -> list[Input]:
    """Explain what a failed call gave back: errors first, panics with their meaning, errors inside errors.

    DATA is hex digits, 0x for a revert without data; @FILE reads them from a file, - from standard input.

    \b
    Example:
      sigdir decode revert 0x08c379a0...
    """
    return [Input(Form.REVERT, hex_bytes(_entered(data)))]


@decode.command()
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic, 0x and 64 digits; in their order.")
@click.option("--data", default="0x", metavar="DATA", help="The data; @FILE reads it from a file.")
@click.option("--anonymous", is_flag=True, help="The first topic is no hash; --text gives the events to try.")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="An event to try first, canonical or as declared.")
@_explaining
def log(topics: Sequence[str], data: str, anonymous: bool, texts: Sequence[str]) -> list[Input]:
    """Explain a log: its event, and which parameters are indexed.

    \b
    Examples:
      sigdir decode log --topic 0xddf252ad... --topic 0x... --topic 0x... --data 0x...
      sigdir decode log --topic 0x... --data 0x... --text 'event E(bytes4 indexed sig, uint value) anonymous'
    """
    fields = {"topics": list(topics), "data": _entered(data), "anonymous": anonymous, "texts": list(texts)}
    return inputs_of_fields(fields, Form.LOG)


@decode.command(name="return")
@_data
@click.option(
    "--selector", default="", show_default=False, metavar="SELECTOR", help="The selector of the call, 8 hex digits."
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="The function, canonical or as declared; its `returns` is tried first.",
)
@_explaining
def returned(data: str, selector: str, texts: Sequence[str]) -> list[Input]:
    """Explain what a call returned, by the declarations of its function that say so.

    DATA is hex digits; @FILE reads them from a file, - from standard input. The declaration comes first whose values
    encode to the same bytes and that most sources and contracts have; where several fit, the answer says so. A revert
    that was given back in its place is explained as one.

    \b
    Examples:
      sigdir decode return 0x000000...0001 --selector 0xa9059cbb
      cast rpc eth_call ... | tr -d '"' | sigdir decode return - --text 'f(uint256) returns (uint256 price, bool ok)'
    """
    return return_inputs(hex_bytes(_entered(data)), selector, texts_to_try(list(texts)))


decode.add_command(contract)
decode.add_command(transaction, "tx")


def _decode_file(source: str, output: str, directory: Source, quiet: bool, as_json: bool, called: _Given) -> None:
    from sigdir.pipeline.decode_file import decode_file  # pyarrow, which one input does without

    with reporter(quiet) as progress:
        report = decode_file(source, output, directory, progress, called)
    write_report(report, as_json, err=True)


def _contract_text(file: Path) -> str:
    with file.open("rb") as content:
        text = content.read(_MAX_CONTRACT_BYTES + 1)
    if len(text) > _MAX_CONTRACT_BYTES:
        raise Failure(f"{file}: more than {_MAX_CONTRACT_BYTES >> 20} MiB")
    return text.decode("utf-8-sig", "replace")


def _explain(alternatives: list[Input], called: _Given, source: Source, as_json: bool) -> None:
    """Write the readings of an input; the exit status says whether a text decodes it."""
    with opened(source) as directory:
        alternatives = with_contract(alternatives, called, directory.contract)
        readings = readings_of(directory, alternatives)
    contract = alternatives[0].contract
    if as_json:
        write_json(document(readings, contract))
    else:
        for reading in readings:
            for candidate in reading.candidates:
                click.echo("\n".join(candidate_lines(candidate)))
            if note := noted(reading):
                click.echo(note, err=True)
        click.echo(contract.sentence if contract else "Read without a contract.", err=True)
    sys.exit(0 if any(reading.best for reading in readings) else 1)


def _entered(argument: str) -> str:
    text = entered(argument, _MAX_CHARACTERS)
    if not text.strip():
        raise Failure("nothing was entered; no data is written 0x")
    return text
