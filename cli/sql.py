"""The command `sigdir sql`, and its shell.

The shell is a loop of lines, which readline edits, with history and completion; each statement with its time.

DuckDB's own shell cannot be used: it is a separate process without our functions, and its safe mode still
allows COPY into the folder that it may read. Statements go through ``Warehouse.sql``, with the same limits
as any other query.
"""

from __future__ import annotations

import os
import re
import signal
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.main import end_interrupted
from sigdir.cli.options import as_of_option, duration, memory_limit_option, warehouse_option
from sigdir.cli.rows import limits, rows_options, terminal_width, write_rows
from sigdir.pipeline.target import STDOUT, WRITERS, open_target
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.interruption import noting, waiting
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.guard import missing_values
from sigdir.warehouse.sql.search import NAME as SEARCH
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.errors import QueryError, WarehouseError

_HISTORY_LINES = 10_000

_HELP = """\
A statement ends with ; and may have several lines. Tab completes, Ctrl-R searches the history,
Ctrl-C stops a statement, a second Ctrl-C ends the shell at once, Ctrl-D leaves it.
  .tables    list the views and their columns
  .refresh   go to the newest version
  .help      show this text
  .quit      leave the shell
"""


def run_shell(warehouse: Warehouse, timeout: timedelta | None = None) -> None:
    """Read statements and run them until the input ends."""
    # As interruptions they would only bring the next prompt. Statements note Ctrl-C.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    click.echo(_banner(warehouse))
    words = words_of(warehouse)
    editor = _Editor(words)
    while True:
        try:
            text = editor.statement()
        except KeyboardInterrupt:
            click.echo()
            continue
        except EOFError:
            click.echo()
            return
        if text.rstrip(";").strip() in QUIT:
            return
        if text.startswith("."):
            run_command(warehouse, words, text.rstrip(";").strip())
        elif text:
            _answer(warehouse, text, timeout)


def _banner(warehouse: Warehouse) -> str:
    counts = ", ".join(f"{warehouse.count(collection):,} {collection}" for collection in COLLECTIONS)
    return (
        f"{warehouse.paths.root}, version {warehouse.version}: {counts}. Statements end with ;  .help shows the rest."
    )


def run_command(warehouse: Warehouse, words: Words, text: str) -> None:
    """Run a command of the shell: .tables, .refresh, and .help for any other."""
    if text == ".tables":
        for table, columns in words.columns.items():
            click.echo(f"{table:<18} {', '.join(columns)}")
    elif text == ".refresh":
        try:
            warehouse.refresh()
            click.echo(_banner(warehouse))
        except WarehouseError as error:
            click.echo(f"Error: {error}")
    else:
        click.echo(_HELP, nl=False)


def _answer(warehouse: Warehouse, text: str, timeout: timedelta | None) -> None:
    """Run the statements of a text up to the first that fails."""
    try:
        for statement in warehouse.database.statements(text):
            began = time.perf_counter()
            with noting(end_interrupted, [signal.SIGINT]), limits(warehouse, timeout):
                click.echo(warehouse.sql(statement).drawn(terminal_width()))
            click.echo(f"{time.perf_counter() - began:.3f} s")
    except WarehouseError as error:
        click.echo(f"Error: {error}")
    except KeyboardInterrupt:
        click.echo("interrupted")


def is_sent(text: str) -> bool:
    """Whether Enter sends the text: a finished statement, a command, or nothing."""
    return is_whole(text) or text.startswith(".") or text.strip() in QUIT


class _Editor:
    """Statements from the lines of a terminal, with readline's keys, completion and history."""

    def __init__(self, words: Words) -> None:
        import readline

        self._readline = readline
        self._words = words
        self._lines: list[str] = []
        self._found: list[str] = []
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
        readline.parse_and_bind("set completion-ignore-case on")
        readline.set_completer_delims(string.whitespace + string.punctuation.replace("_", ""))
        readline.set_completer(self._completion)
        readline.set_history_length(_HISTORY_LINES)
        self._history = _history_file()
        if self._history is not None:
            readline.read_history_file(self._history)

    def statement(self) -> str:
        """The next statement or command; raises EOFError, and KeyboardInterrupt where its lines are to be forgotten."""
        self._lines, before = [], self._readline.get_current_history_length()
        while not self._lines or not is_sent("\n".join(self._lines)):
            self._lines.append(input("   ...> " if self._lines else "sigdir> "))
        if self._history is not None:
            with suppress(OSError):  # a full disk
                self._readline.append_history_file(self._readline.get_current_history_length() - before, self._history)
        return "\n".join(self._lines).strip()

    def _completion(self, begun: str, number: int) -> str | None:
        """The completion of this number, for readline, which counts until there is none."""
        if number == 0:
            line, end = self._readline.get_line_buffer(), self._readline.get_endidx()
            self._found = self._words.completions("\n".join([*self._lines, line[:end]]), line[end:])
        return self._found[number] if number < len(self._found) else None


def _history_file() -> Path | None:
    """The history in the user's state folder; None if it cannot be written, and then it is only of this session."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sigdir"
    file = state / "sql_history"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        return None
    return file


# Completion.


_WORD = re.compile(r"\b\w+$")
_TABLE_FOLLOWS = re.compile(r"\b(?:from|join|describe|summarize)\s+\w*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Words:
    """What completion offers: columns by table; keywords, then functions and macros."""

    columns: dict[str, list[str]]
    others: list[str]

    def completions(self, before: str, after: str = "") -> list[str]:
        """The names that start with the word in front of the cursor, each once; ``after`` stands behind the cursor."""
        begun = _WORD.search(before)
        if begun is None:
            return []
        found: dict[str, str] = {}
        for word in self._candidates(before, before + after):
            if word.lower().startswith(begun[0].lower()):
                found.setdefault(word.lower(), word)
        return list(found.values())

    def _candidates(self, before: str, text: str) -> Iterator[str]:
        """Tables after FROM and JOIN; elsewhere columns of the tables in the statement, then the rest."""
        if _TABLE_FOLLOWS.search(before):
            yield from (*self.columns, SEARCH)
            return
        named = {word.lower() for word in re.findall(r"\w+", text)}
        for table in [table for table in self.columns if table in named] or self.columns:
            yield from self.columns[table]
        yield from (*self.columns, *self.others)


def words_of(warehouse: Warehouse) -> Words:
    """The names that the engine knows; raises WarehouseError."""
    columns: dict[str, list[str]] = {}
    for table, column in warehouse.sql(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND schema_name <> 'parts'"
        " ORDER BY table_name, column_index"
    ).rows():
        columns.setdefault(table, []).append(column)
    others = warehouse.sql(
        "SELECT upper(keyword_name) FROM duckdb_keywords() UNION ALL SELECT DISTINCT function_name"
        " FROM duckdb_functions() WHERE regexp_full_match(function_name, '[a-z]\\w*')"
    ).rows()
    return Words(columns, [name for (name,) in others])


QUIT = (".quit", ".exit", "quit", "exit")
_COMMENT = re.compile(r"^[^\S\n]*--.*$", re.MULTILINE)


def is_whole(sql: str) -> bool:
    """Whether the text ends with a finished statement, or has none."""
    text = _COMMENT.sub("", sql).strip()
    return not text or text.endswith(";")


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
    help="Write to a file: .csv, .json, .ndjson, .parquet or .arrow (a stream); .gz or .zst after it compresses.",
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
    input. VALUES are bound to ? or $1, $2. They are text; compared with a number they become
    numbers, elsewhere write $n::INT.

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
    other formats have everything. Several statements run one after the other, as table, csv or ndjson.
    Ctrl-C ends the query, a second Ctrl-C does so at once.

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
    script = _stdin() if query is None else query
    _run(warehouse, script, param or values, format, output or STDOUT, timeout)


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


_ONE_DOCUMENT = ("json", "parquet", "arrow")
"""Formats in which a program does not look for the rows of a second statement."""


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
    if len(statements) != 1 and (parameters or target != STDOUT or format in _ONE_DOCUMENT):
        raise QueryError("parameters, --output and the formats json, parquet and arrow need exactly one statement")
    bound: dict[str, Any] | list[Any] = parameters if isinstance(parameters, dict) else list(parameters)
    with open_target(target, packs=True) as out:
        for statement in statements:
            _require_values(warehouse.database.parameters(statement), bound)
            with limits(warehouse, timeout):
                write_rows(warehouse.sql(statement, bound), format, out)


def _require_values(wanted: set[str], bound: dict[str, Any] | list[Any]) -> None:
    """Raise QueryError if a parameter has no value. The message names our options, which the engine does not know."""
    missing = missing_values(wanted, bound if isinstance(bound, dict) else map(str, range(1, len(bound) + 1)))
    names = [name for name in missing if not name.isdigit()]
    if names:
        options = " ".join(f"--param {name}=VALUE" for name in names)
        raise QueryError(f"no value for ${', $'.join(names)}: give {options}")
    if missing:
        have = len(wanted) - len(missing)
        raise QueryError(f"{have} of {len(wanted)} values: give the values after the query")
