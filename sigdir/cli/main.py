"""The command ``sigdir``: a group that loads a command's module when the command is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn

import click

# Name, where it is, and its line in the list of commands: loading all of them takes 0.8 s.
_COMMANDS = {
    "import": ("pipeline_commands:import_", "Import signatures from files, folders, archives, or standard input (-)"),
    "export": ("pipeline_commands:export", "Export signatures as a file or tree of another program's shape"),
    "mirror": ("pipeline_commands:mirror", "Keep a private copy of another directory"),
    "serve": ("serve_commands:serve", "Serve the directory: the 4byte.directory API over the warehouse and what is POSTed"),
    "fold": ("warehouse_commands:fold", "Move POSTed rows from staging into the table, so that SQL sees them"),
    "verify": ("verify:verify", "Check everything that is stored, and change nothing"),
    "backup": ("maintenance:backup", "Copy the warehouse into DEST, as it is now, while it is in use"),
    "compact": ("maintenance:compact", "Merge small data files into few, in one new version that holds the same rows"),
    "vacuum": ("maintenance:vacuum", "Remove data files that no version within a time window needs, and what dead processes left"),
    "report": ("report:report", "Make a page about the warehouse: totals, and plots of what is in it"),
    "rejects": ("warehouse_commands:rejects", "Show the candidates that imports refused: text, reason, position, file, line"),
    "history": ("warehouse_commands:history", "List the imports: when, from what, with which result"),
    "stats": ("warehouse_commands:stats", "Show what the warehouse holds"),
    "sql": ("sql_command:sql", "Run SQL over the warehouse"),
    "decode": ("serve_commands:decode", "Decode calldata with each text that the warehouse has for its selector, the best first"),
}  # fmt: skip


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"sigdir.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="signature-directory")
def main() -> None:
    """The signature directory: Ethereum signatures and their hashes, imported, queried, served.

    \b
    Start with:
      sigdir import samples
      sigdir sql "SELECT * FROM signatures LIMIT 10"
    """


def console() -> NoReturn:
    """Run the command as a process of its own."""
    status: int | str | None = 0
    try:
        main(prog_name="sigdir")
    except SystemExit as stop:
        status = stop.code
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed by now. Unloading the engines' modules takes 0.4 s.
    os._exit(status if isinstance(status, int) else 1)
