"""The command `sigdir decode tx`, and readings as the commands `sigdir decode ...` print them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click
import orjson

from sigdir.cli.directories import directory_options
from sigdir.cli.errors import Command
from sigdir.cli.options import json_option
from sigdir.cli.output import write_json
from sigdir.pipeline.directory import Source, opened, readings_of
from sigdir.pipeline.node import Node
from sigdir.pipeline.transaction import checked_hash, read_transaction
from sigdir.serve.core.transactions import ExplainedTransaction, explain_transaction
from sigdir.signatures.abi_decoder import as_json, checksummed
from sigdir.signatures.clear_signing import CallDisplay
from sigdir.signatures.interruption import waiting
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.readings import Candidate, Reading


@click.command(cls=Command)
@click.argument("hash", metavar="HASH")
@click.option("--rpc", required=True, metavar="URL", envvar="ETH_RPC_URL", show_envvar=True, help="The node to ask.")
@click.option(
    "--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="How long the node may take in all."
)
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
    target = f"makes {_shown(one.created)}" if one.to is None else f"to {_shown(one.to)}"
    yield f"{one.hash} {explained.status}, chain {one.chain}{block}"
    yield f"from {_shown(one.sender)} {target}, value {one.value}"
    for part in explained.parts:
        yield ""
        contract = part.input.contract
        yield f"{part.title}, {_shown(part.address)}"
        yield contract.sentence if contract is not None else "Read without a contract."
        reading = part.readings[0]
        for candidate in reading.candidates[:1]:
            yield from candidate_lines(candidate)
        if note := noted(reading):
            yield note


def _shown(address: bytes | None) -> str:
    return checksummed(f"0x{address.hex()}") if address is not None else "an unknown address"


def noted(reading: Reading) -> str:
    """The note of a reading with its hash; "" for none."""
    hash = f"0x{reading.hash.hex()}: " if reading.hash else ""
    return f"{hash}{reading.note}" if reading.note else ""


def candidate_lines(candidate: Candidate, indent: str = "") -> Iterator[str]:
    """The text, then its values and the calls in them, or the reason why there are none."""
    attempt = candidate.attempt
    if attempt.values is None:
        why = f"; {candidate.known.why}" if candidate.known.why else ""
        yield f"{indent}{attempt.text}  does not decode: {attempt.detail}{why}"
        return
    yield indent + attempt.text + _note(candidate)
    if candidate.display is not None:
        yield from _display_lines(candidate.display, indent)
    width = max((len(type.text) for type in attempt.types), default=0)
    names = [name[0] if isinstance(name, tuple) else name for name in candidate.known.names]
    longest = max(map(len, names), default=-2) + 2
    for number, (type, value) in enumerate(zip(attempt.types, attempt.values, strict=True)):
        name = names[number] if number < len(names) else ""
        yield f"{indent}  {type.text:{width}}  {name:{max(longest, 0)}}{_value(candidate, number, type, value)}"
        for nested in candidate.nested:
            if nested.path[0] == number:
                yield from _nested_lines(nested.path, nested.reading, indent + "    ")


def _display_lines(shown: CallDisplay, indent: str) -> Iterator[str]:
    """What a signer sees, and by which descriptor."""
    of = " of ".join(filter(None, (shown.contract, shown.owner)))
    yield f"{indent}  a signer sees, by {shown.source}{f' for {of}' if of else ''}: {shown.sentence or shown.intent}"
    for field in shown.fields:
        yield f"{indent}    {field.label}: {field.text}"


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
    shown = "0x" + value.hex() if isinstance(value, bytes) else _printed(as_json(type, value, checksums=True))
    return f"indexed {shown}" if candidate.split and number in candidate.split else shown


def _note(candidate: Candidate) -> str:
    """Behind a text: how sure it is and why, other choices of the indexed parameters, what the values mean."""
    note = f"  ({candidate.confidence}: {'; '.join(candidate.reasons)})"
    if candidate.is_ambiguous and candidate.others:
        splits = ", or ".join(" and ".join(map(str, split)) or "none" for split in candidate.others[:5])
        note += f"  other parameters may be indexed, counted from 0: {splits}"
    return f"{note}  {candidate.note}" if candidate.note else note


def _printed(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()
