"""The front door: the console command ``sigdir``, which gathers the commands of the floors, and ``open``.

::

    import sigdir

    sigdir.open("data").sql("SELECT text_signature FROM signatures WHERE hex_signature = selector('f(uint)')").df()
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from warehouse import Warehouse

# Loaded when called.
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
    "report": "serve.report:report",
    "rejects": "warehouse.commands:rejects",
    "history": "warehouse.commands:history",
    "stats": "warehouse.commands:stats",
    "sql": "pipeline.ask:sql",
    "decode": "serve.commands:decode",
}


def open(
    path: str | Path, version: int | None = None, *, unsafe: bool = False,
    files: Mapping[str, str | Path] | None = None, memory_limit: str = "1GB",
) -> Warehouse:  # fmt: skip
    """Open a warehouse as ``warehouse.open`` does, with the pipeline's functions in its SQL."""
    import warehouse
    from pipeline.functions import FUNCTIONS

    return warehouse.open(path, version, unsafe=unsafe, functions=FUNCTIONS, files=files, memory_limit=memory_limit)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line a command from its docstring, without loading it: all of them took 0.8 s."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(place)) for name, place in _COMMANDS.items()])


def _first_sentence(place: str) -> str:
    module, _, name = place.partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    functions = (node for node in ast.parse(source.read_bytes()).body if isinstance(node, ast.FunctionDef))
    told = next(ast.get_docstring(node) or "" for node in functions if node.name == name)
    return told.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".")


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

    With the first array that it makes it would import pandas, which takes 0.4 s, a third of a short
    import's or query's time. It looks once; as a library, in other processes, nothing changes.
    """
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    import_module("pyarrow").array([0])
    sys.meta_path.remove(finder)


def console() -> NoReturn:
    """The command as a process of its own."""
    if sys.argv[1:2] in (["import"], ["sql"]):
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
