"""The command `sigdir decode contract`."""

from __future__ import annotations

import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import directory_options, json_option
from sigdir.cli.output import write_json
from sigdir.pipeline.directory import Source, known_of_all, opened
from sigdir.pipeline.errors import printable
from sigdir.signatures.bytecode import MAX_BYTES, BadBytecode, CodeProblem
from sigdir.signatures.contract import ContractCode, ContractInterface, Member, interface_of, read_contract
from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Kind
from sigdir.signatures.interface_forms import abi_of, document, solidity_of
from sigdir.signatures.interruption import waiting

_MAX_CHARACTERS = 4 * MAX_BYTES  # two digits a byte, and as many spaces and line breaks

_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")
"""What no text has."""


@command()
@click.argument("code", metavar="FILE|HEX|-")
@click.option("--abi", "form", flag_value="abi", help="Write the ABI, as JSON.")
@click.option("--solidity", "form", flag_value="solidity", help="Write an interface that solc compiles.")
@directory_options
@json_option("Write what POST /api/v1/contract/ answers.")
def contract(code: str, form: str | None, source: Source, as_json: bool) -> None:
    """Find the interface in a contract's bytecode: functions, events, errors, standards, proxies.

    The code is runtime or creation code, as hex digits with or without 0x: given here, in a FILE, or on standard
    input (-). Each selector gets the texts of the warehouse, those first that fit the arguments that the code reads.

    Exit status: 0 every function has a text, 1 some have none, 2 the code or the warehouse cannot be used, 130
    interrupted.

    \b
    Examples:
      sigdir decode contract 0x6080604052...
      cast code 0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2 | sigdir decode contract - --solidity
    """
    explain_code(code_of(code), form, source, as_json)


def code_of(argument: str) -> ContractCode:
    """The code that an argument is or names, read; raises Failure."""
    try:
        return read_contract(entered(argument, _MAX_CHARACTERS, takes_files=True))
    except BadBytecode as error:
        was_read = argument[:1] in ("-", "@") or os.path.isfile(argument)
        may_be_name = error.reason is CodeProblem.NOT_HEX and not was_read and argument[:2] not in ("0x", "0X")
        missing = f"there is no file {printable(argument[:80])!r}, and as hex digits: " if may_be_name else ""
        raise Failure(f"{missing}{error}") from None


def explain_code(read: ContractCode, form: str | None, source: Source, as_json: bool) -> NoReturn:
    """Write the interface of code, as the command does, and exit."""
    with opened(source) as directory:
        found = interface_of(read, known_of_all(directory, read.hashes))
    if as_json:
        write_json(document(found))
    elif form == "abi":
        write_json(abi_of(found))
    else:
        click.echo(solidity_of(found).rstrip() if form == "solidity" else "\n".join(_lines(found)))
    sys.exit(1 if found.unknown else 0)


def entered(argument: str, most: int, *, takes_files: bool = False) -> str:
    """What an argument is or names, at most so many characters. Bytes that are not ASCII stay visible as bad digits.

    ``takes_files``: a file's path means the file, without an @ before it.
    """
    if argument == "-":
        with waiting():
            return _text(sys.stdin.buffer, most)
    is_file = os.path.isfile(argument)  # hex digits may be longer than a path, for which Path.is_file raises
    if argument.startswith("@") or (is_file and takes_files):
        with open(argument.removeprefix("@"), "rb") as file:
            return _text(file, most)
    if is_file and re.search("[^0-9a-fA-FxX]", argument):
        raise Failure(f"{argument} is a file: write @{argument}")
    return argument


def _text(file: BinaryIO, most: int) -> str:
    text = file.read(most + 1)
    if len(text) > most:
        raise Failure(f"more than {most:,} characters, the most that are read")
    if found := _CONTROL.search(text):
        raise Failure(f"binary data: byte {found.start() + 1:,} is 0x{found[0].hex()}; write the bytes as hex digits")
    return text.removeprefix(BOM_UTF8).decode("ascii", "replace")


def _lines(found: ContractInterface) -> Iterator[str]:
    kind = "runtime code inside of creation code" if found.code.is_creation else "runtime code"
    yield f"{kind} ({found.code.machine}), {len(found.code.runtime.code):,} bytes without metadata, hash 0x{found.code.code_hash.hex()}"
    for proxy in found.proxies:
        yield f"{proxy.name}: {proxy.detail}"
    for standard in found.standards:
        yield standard.interface.name + (f", without {', '.join(standard.missing)}" if standard.missing else "")
    if found.interface_ids:
        yield f"supportsInterface: {', '.join(f'{one.name} (0x{one.id.hex()})' for one in found.interface_ids)}"
    for title, members in (("functions", found.functions), ("events", found.events), ("errors", found.errors)):
        if members:
            yield ""
            yield f"{title}:"
            yield from map(_line, members)
    if found.note:
        yield found.note


def _line(member: Member) -> str:
    hash = f"  0x{member.hash.hex() if member.kind is not Kind.EVENT else member.hash[:4].hex() + '...'}"
    payable = f"  {member.payable:7}" if member.kind is Kind.FUNCTION else ""
    if member.best is None:
        return f"{hash}{payable}  unknown {member.shape}"
    others = [counted(len(member.texts) - 1, "other text")] if len(member.texts) > 1 else []
    reasons = "; ".join([*member.best.reasons, *others])
    return f"{hash}{payable}  {member.best.known.text}" + (f"  ({reasons})" if reasons else "")
