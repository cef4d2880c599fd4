"""The console command ``sigdir``: gathers the commands of the floors, and nothing else."""

from __future__ import annotations

from importlib import import_module

import click

# Loaded when called: `sigdir --help` need not wait for the engines.
_COMMANDS = {
    "import": "pipeline.commands:import_",
    "rejects": "warehouse.commands:rejects",
    "history": "warehouse.commands:history",
    "stats": "warehouse.commands:stats",
    "sql": "warehouse.commands:sql",
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


if __name__ == "__main__":
    main(prog_name="sigdir")
