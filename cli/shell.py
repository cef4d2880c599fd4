"""SQL at a terminal: a loop of lines, which readline edits, with history and completion; each statement with its time.

DuckDB's own shell cannot be used: it is a separate process without our functions, and its safe mode still
allows COPY into the folder that it may read. Statements go through ``Warehouse.sql``, with the same limits
as any other query.
"""

from __future__ import annotations

import os
import re
import signal
import string
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click

from sigdir.cli.main import end_interrupted
from sigdir.cli.rows import limits, terminal_width
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.interruption import noting
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.search import NAME as SEARCH
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
COMMANDS = (".tables", ".refresh", ".help", *QUIT)
_COMMENT = re.compile(r"^[^\S\n]*--.*$", re.MULTILINE)


def parts_of(script: str) -> Iterator[tuple[int, str]]:
    """The script cut at its commands: SQL or a command, each with the number of its first line.

    Raises QueryError at a line that is a command inside of a statement.
    """
    sql: list[str] = []
    lines = script.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        word = line.strip().rstrip(";")
        if not line.startswith(".") and word not in QUIT:
            sql.append(line)
        elif is_whole("".join(sql)):
            if sql:
                yield number - len(sql), "".join(sql)
            yield number, word
            sql.clear()
        elif line.startswith(".") and word in COMMANDS:
            raise QueryError(f"line {number}: {word}: end the statement in front of it with ;")
        else:
            sql.append(line)
    if sql or not lines:
        yield len(lines) - len(sql) + 1, "".join(sql)


def is_whole(sql: str) -> bool:
    """Whether the text ends with a finished statement, or has none."""
    text = _COMMENT.sub("", sql).strip()
    return not text or text.endswith(";")
