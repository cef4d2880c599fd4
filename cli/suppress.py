"""The command `sigdir suppress`."""

from __future__ import annotations

from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import no_wait_option, warehouse_option
from sigdir.cli.output import write_line
from sigdir.signatures.errors import counted
from sigdir.signatures.grammar import GrammarError
from sigdir.warehouse.index.visible import change_list
from sigdir.warehouse.table.paths import existing
from sigdir.warehouse.table.suppressed import Entry, declaration, entries_of, read


@command(state="the list was not changed")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Take the texts off the list: servers show them again.")
@no_wait_option
@warehouse_option
def suppress(texts: tuple[str, ...], remove: bool, no_wait: bool, folder: Path) -> None:
    """Hide texts from everything that servers of the warehouse answer, or list the hidden texts.

    TEXT is a signature in any spelling; without the keyword function or event it names both. Servers hide it within
    a second and refuse a POST of it. The rows stay stored: `sigdir sql`, `sigdir verify` and most formats of
    `sigdir export` have them. Copies that clients and mirrors have made are not changed. The list is the file
    suppressed.txt in the warehouse.

    Exit status: 0 done, 2 a text is no signature or the warehouse cannot be used, 3 another process is
    publishing (with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir suppress 'function insult(address)' 'event Insult(uint256)'
      sigdir suppress --remove 'function insult(address)'
      sigdir suppress
    """
    paths = existing(folder)
    if not texts:
        for entry in sorted(read(paths).entries):
            click.echo(declaration(entry))
        return
    entries: list[Entry] = []
    known = read(paths).entries
    for text in texts:
        try:
            named = entries_of(text)
        except GrammarError as error:
            raise Failure(str(error)) from None
        entries += named
        if remove and known.isdisjoint(named):
            write_line(f"not on the list: {text}")
    listed = {"remove": entries} if remove else {"add": entries}
    suppressed = change_list(paths, **listed, wait=not no_wait, on_wait=write_line)
    number = len({text for _, text in suppressed.entries})  # one text may be of both collections
    click.echo(f"{counted(number, 'text')} {'is' if number == 1 else 'are'} suppressed")
