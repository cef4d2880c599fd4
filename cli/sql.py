"""The command `sigdir sql`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import as_of_option, duration, memory_limit_option, warehouse_option
from sigdir.cli.rows import limits, rows_options, write_rows
from sigdir.cli.shell import COMMANDS, QUIT, parts_of, run_command, run_shell, words_of
from sigdir.pipeline.row_writers import WRITERS
from sigdir.pipeline.target import STDOUT, open_target
from sigdir.signatures.interruption import waiting
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.errors import QueryError


def _pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` options as a mapping. A file whose name makes a good name in SQL needs no other."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if param.name == "file" and text and not equals:
            name, value = _name_of(text), text
            if name != _stem(text).lower():
                raise click.BadParameter(f"{text!r} needs a name; write --file {name}={text}", ctx, param)
        elif not name or not equals:
            raise click.BadParameter(f"{text!r} is not {param.metavar}", ctx, param)
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
        pairs[name] = value
    return pairs


def _stem(path: str) -> str:
    return Path(path).name.partition(".")[0]


def _name_of(path: str) -> str:
    """A name in SQL for a file, made from the file's name."""
    name = re.sub(r"\W+", "_", _stem(path), flags=re.ASCII).strip("_").lower()
    return name if name and not name[0].isdigit() and name not in VIEWS else f"my_{name}".rstrip("_")


def _named(option: str, metavar: str, help: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(option, multiple=True, callback=_pairs, metavar=metavar, help=help, **more)


@command()
@click.argument("query", required=False)
@click.argument("values", nargs=-1)
@warehouse_option
@as_of_option
@_named("--param", "NAME=VALUE", "Value of $NAME.")
@_named(
    "--file",
    "[NAME=]PATH",
    "A file that SQL reads by NAME, else by its own: .csv, .tsv, .json, .parquet, else lines of text.",
    shell_complete=click.Path().shell_complete,
)
@rows_options
@click.option(
    "--output", type=click.Path(), metavar="FILE",
    help="Write to a file: .csv, .json, .ndjson, .parquet or .arrow; .gz or .zst after it compresses.",
)  # fmt: skip
@memory_limit_option("1GB", "Memory for a query; above it, data is spilled to disk.")
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="Stop a statement after this time: 30s, 5m. Without it none is stopped.",
)
@click.option("--unsafe", is_flag=True, help="Allow other files, extensions and the network.")
def sql(
    query: str | None, values: tuple[str, ...], folder: Path, version: int | datetime | None, param: dict[str, str],
    file: dict[str, str], format: str, output: str | None, memory_limit: str, timeout: timedelta | None, unsafe: bool,
) -> None:  # fmt: skip
    """Run SQL over the warehouse.

    Without QUERY: a shell with history and completion at a terminal, else the statements on standard
    input, with the shell's commands (.tables, .help) in lines between them. VALUES are bound to ? or
    $1, $2. They are text; compared with a number they become numbers, elsewhere write $n::INT.

    \b
    Views: signatures, event_signatures (id, text_signature, hex_signature, created_at, import_id,
    hash, bytes_signature), sightings (who says so), evidence (what all say together), declarations,
    ranked (each text's place and reasons), collisions, standards, names, parameters, imports, rejects,
    contracts (what is said of addresses), interfaces (their texts).
    FROM search('fragment'): the rows whose text has the fragment in any case; with * and ? a pattern
    that the whole text fits.
    Functions: selector(text), topic0(text), canonical(text), which are NULL if the text is not a
    signature; keccak256(text); signature_name, parameter_list and parameter_types of a
    canonical text; hex_of(hash), the 0x text of a hash in any spelling: text with or without 0x,
    bytes, integers; decode_calldata(data) and decode_log(topics, data), the API's answer as JSON, of
    bytes or hex text. docs/cookbook.md has questions and their SQL.

    A table shows the columns that fit the terminal, without bytes, and the first and last rows; the
    other formats have everything. Ctrl-C ends the query, a second Ctrl-C does so at once.

    \b
    The engine is DuckDB. It reads the warehouse and the files that --file names, nothing else,
    and writes nothing, so a query from anyone may be run.
    It may take --timeout and --memory-limit, and half a GiB for its result.
    With --unsafe it does whatever DuckDB can: read and write any file that you can, load
    extensions, use the network. Only for a query that you have read.

    Exit status: 0 done, 2 the query or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir sql
      sigdir sql "SELECT count(*) FROM signatures"
      sigdir sql "FROM collisions ORDER BY texts DESC LIMIT 10" --json
      sigdir sql "FROM signatures WHERE hex_signature = selector(?)" "transfer(address,uint)"
      sigdir sql "SELECT count(*) FROM search('balanceOf')"
      sigdir sql "FROM event_signatures WHERE id > \\$since" --param since=1000 --output new.parquet
      sigdir sql --timeout 10s "SELECT count(DISTINCT hash) FROM signatures"
      sigdir sql --as-of 1 "SELECT max(id) FROM signatures"
      sigdir sql --file mine=list.txt "SELECT text FROM mine
                 WHERE canonical(text) NOT IN (SELECT text_signature FROM signatures)"
      sigdir sql --file seen.csv "FROM seen JOIN signatures ON hex_signature = hex_of(selector)"
      sigdir sql --unsafe "SELECT text_signature FROM signatures SEMI JOIN 'mine.csv' USING (hex_signature)"
    """
    if values and param:
        raise click.UsageError("VALUES for ? or --param for $NAME, not both")
    if output is not None:
        format = _format_of(output, format)
    warehouse = Warehouse(folder, version, unsafe=unsafe, files=file, memory_limit=memory_limit)
    if query is None and output is None and sys.stdin.isatty():
        run_shell(warehouse, timeout)
        return
    run = partial(
        _run, warehouse, parameters=param or values, format=format, target=output or STDOUT, timeout=timeout
    )  # fmt: skip
    if query is None:
        _run_script(warehouse, _stdin(), run, takes_commands=not (param or values or output))
    else:
        run(query)


def _stdin() -> str:
    try:
        with waiting():
            return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise Failure(f"standard input is not UTF-8 at byte {error.start}") from error


def _format_of(output: str, format: str) -> str:
    """The format of --format if it is not the default, else that of the file name's ending."""
    ending = output.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2].lower()
    if format == "table":
        format = ending
    if format not in WRITERS:
        raise click.UsageError(f"--output {output}: end it with .{', .'.join(WRITERS)}, or name one with --format")
    return format


def _run_script(warehouse: Warehouse, script: str, run: Callable[[str], None], takes_commands: bool) -> None:
    """Run the statements and the shell's commands of standard input, up to the first that fails."""
    for number, part in parts_of(script):
        if part in QUIT:
            return
        if not part.startswith("."):
            run(part)
        elif part not in COMMANDS:
            raise QueryError(f"line {number}: {part}: no such command; the commands are {', '.join(COMMANDS[:4])}")
        elif not takes_commands:
            raise QueryError(f"line {number}: {part}: parameters and --output need exactly one statement")
        else:
            run_command(warehouse, words_of(warehouse), part)


def _run(
    warehouse: Warehouse,
    script: str,
    parameters: dict[str, str] | Sequence[str],
    format: str,
    target: str,
    timeout: timedelta | None,
) -> None:
    """Run the statements of a script one after the other, up to the first that fails."""
    statements = warehouse.database.statements(script)
    if len(statements) != 1 and (parameters or target != STDOUT):
        raise QueryError("parameters and --output need exactly one statement")
    bound: dict[str, Any] | list[Any] = parameters if isinstance(parameters, dict) else list(parameters)
    with open_target(target, packs=True) as out:
        for statement in statements:
            _require_values(warehouse.database.parameters(statement), bound)
            with limits(warehouse, timeout):
                write_rows(warehouse.sql(statement, bound), format, out)


def _require_values(wanted: set[str], bound: dict[str, Any] | list[Any]) -> None:
    """Raise QueryError if a parameter has no value. The message names our options, which the engine does not know."""
    names_given = bound if isinstance(bound, dict) else map(str, range(1, len(bound) + 1))
    given = {name.lower() for name in names_given}  # to the engine $A and $a are the same
    missing = sorted(name for name in wanted if name.lower() not in given)
    names = [name for name in missing if not name.isdigit()]
    if names:
        options = " ".join(f"--param {name}=VALUE" for name in names)
        raise QueryError(f"no value for ${', $'.join(names)}: give {options}")
    if missing:
        have = len(wanted) - len(missing)
        raise QueryError(f"{have} of {len(wanted)} values: give the values after the query")
