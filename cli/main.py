"""The command `sigdir`: the list of its commands, each loaded when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any, NoReturn

import click

from sigdir.signatures.interruption import noting
from sigdir.signatures.open_files import allow_open_files

# Name and line of help. Loading all modules to ask them takes 0.8 s.
_COMMANDS = {
    "import": "Import signatures from files, folders, archives, or standard input (-)",
    "export": "Export signatures in the format of another program, as a file or a folder tree",
    "mirror": "Keep a private copy of another directory",
    "serve": "Serve the warehouse and what is POSTed over HTTP, as the 4byte.directory API does",
    "fold": "Move POSTed rows from staging into the table, where SQL sees them",
    "suppress": "Hide texts from everything that servers of the warehouse answer, or list the hidden texts",
    "verify": "Check everything that is stored, or a pack, and change nothing",
    "backup": "Copy the warehouse into DEST, as it is now, while it is in use",
    "compact": "Merge small data files into fewer, in one new version that holds the same rows",
    "vacuum": "Remove data files that no version within a time window needs, and what dead processes left",
    "report": "Write a page about the warehouse, with totals and plots",
    "rejects": "Show the candidates that imports rejected: text, reason, file, line, position",
    "history": "List the imports with their times, sources and counts",
    "stats": "Show how many rows, files and bytes the warehouse has",
    "sql": "Run SQL over the warehouse",
    "clashes": "Find selectors that two texts share, in ABIs, artifacts, sources and lists",
    "coverage": "Say how much of what is used the warehouse can name, and which misses matter most",
    "wanted": "List selectors and topics that a server was asked for and could not name, the most wanted first",
    "compile": "Compile the kernels now, so that no later command waits for it",
    "resolve": "Show the texts of selectors and topics, the best first, and the reasons for their order",
    "solve": "Look for texts of selectors and topics that nobody knows: known names with the likeliest parameters",
    "search": "Find signatures by a piece of their text, by a pattern of the name, or by their parameters",
    "mcp": "Answer agents by the Model Context Protocol, on standard input and output",
    "keygen": "Make a key that signs packs",
    "decode": "Explain calldata, logs, reverts and returned values by each text that has their selector or topic, the best match first",
}

_MODULES = {"import": "import_", "compact": "fold", "rejects": "history", "wanted": "coverage"}
"""The modules of commands that have not the command's name; `import` is a keyword of Python."""

_NAMES: Any = dict.fromkeys(_COMMANDS)
"""Of these click suggests one to whoever mistypes it."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"sigdir.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Commands, commands=_NAMES, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(package_name="signature-directory")
def main() -> None:
    """Import, query and serve Ethereum signatures and their hashes.

    \b
    Start with:
      sigdir import --samples
      sigdir sql "SELECT * FROM signatures LIMIT 10"
    """


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Open /dev/null for each stream that the caller closed: else the next file gets its number, and what is printed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    with ExitStack() as streams:
        if sys.stdout is None:
            streams.enter_context(redirect_stdout(os.fdopen(1, "w", closefd=False)))
        if sys.stderr is None:
            streams.enter_context(redirect_stderr(os.fdopen(2, "w", closefd=False)))
        yield


def console() -> NoReturn:
    """Run the command in this process, and end it. Signals are noted to the end: what is freed last hears no exception."""
    status: int | str | None = 0
    with _standard_streams(), noting(end_interrupted):
        allow_open_files()
        try:
            main(prog_name="sigdir")
        except SystemExit as stop:
            status = stop.code
        sys.stdout.flush()
        sys.stderr.flush()
        # Everything is closed by now. Unloading the engines' modules takes 0.4 s.
        os._exit(status if isinstance(status, int) else 1)


INTERRUPTED_STATUS = 130


def end_interrupted(state: str = "") -> None:
    """End this process as it is, with the line and the status of an interrupted command."""
    os.write(2, f"interrupted{state and ': '}{state}\n".encode())
    os._exit(INTERRUPTED_STATUS)
