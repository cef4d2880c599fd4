"""The command `sigdir decode tx`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import click

from sigdir.cli.decode_lines import candidate_lines, noted
from sigdir.cli.errors import command
from sigdir.cli.options import Seconds, directory_options, json_option
from sigdir.cli.output import write_json
from sigdir.pipeline.directory import Source, opened, readings_of
from sigdir.pipeline.node import Node
from sigdir.pipeline.transaction import checked_hash, read_transaction
from sigdir.serve.core.transactions import ExplainedTransaction, explain_transaction
from sigdir.signatures.abi_decoder import checksummed
from sigdir.signatures.interruption import waiting


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
    target = f"makes {_shown(one.created)}" if one.to is None else f"to {_shown(one.to)}"
    yield f"{one.hash} {explained.status}, chain {one.chain}{block}"
    yield f"from {_shown(one.sender)} {target}, value {one.value}"
    for part in explained.parts:
        yield ""
        contract = part.input.contract
        yield f"{part.title}, {_shown(part.address)}"
        yield contract.sentence if contract else "Read without a contract."
        reading = part.readings[0]
        for candidate in reading.candidates[:1]:
            yield from candidate_lines(candidate)
        if note := noted(reading):
            yield note


def _shown(address: bytes | None) -> str:
    return checksummed(f"0x{address.hex()}") if address is not None else "an unknown address"
