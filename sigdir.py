"""The console command ``sigdir``: gathers the commands of the floors, and nothing else."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

# Loaded when called: `sigdir --help` need not wait for the engines.
_COMMANDS = {
    "import": "pipeline.commands:import_",
    "export": "pipeline.commands:export",
    "mirror": "pipeline.commands:mirror",
    "serve": "serve.commands:serve",
    "fold": "warehouse.commands:fold",
    "verify": "pipeline.upkeep:verify",
    "backup": "warehouse.upkeep:backup",
    "compact": "warehouse.upkeep:compact",
    "vacuum": "warehouse.upkeep:vacuum",
    "rejects": "warehouse.commands:rejects",
    "history": "warehouse.commands:history",
    "stats": "warehouse.commands:stats",
    "sql": "warehouse.commands:sql",
    "decode": "serve.commands:decode",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="signature-directory")
def main() -> None:
    """The signature directory: Ethereum signatures and their hashes, imported, queried, served.

    \b
    Start with:
      sigdir import samples
      sigdir sql "SELECT * FROM signatures LIMIT 10"
    """


class _NoPandas:
    """An import finder that has no pandas."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _leave_pandas_out() -> None:
    """Let pyarrow find no pandas in this process, which has no use for it.

    With the first array that it makes it would import pandas, which takes 0.4 s of an import's
    time. It looks once; as a library, in other processes, nothing changes.
    """
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    import_module("pyarrow").array([0])
    sys.meta_path.remove(finder)


def console() -> NoReturn:
    """The command as a process of its own."""
    if sys.argv[1:2] == ["import"]:
        _leave_pandas_out()
    status: int | str | None = 0
    try:
        main(prog_name="sigdir")
    except SystemExit as stop:
        status = stop.code
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed by now, and taking the engines' modules down one by one takes 0.4 s.
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    console()
