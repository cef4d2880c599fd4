"""SQL at a terminal: line editing with history and completion; each statement with its time.

DuckDB's own shell cannot be used: it is a separate process without our functions, and its safe mode still
allows COPY into the folder that it may read. Statements go through ``Warehouse.sql``, with the same limits
as any other query; prompt_toolkit edits the lines.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from sigdir.cli.limits import limits
from sigdir.cli.rows import terminal_width
from sigdir.cli.script import QUIT
from sigdir.cli.statuses import end_interrupted
from sigdir.cli.table import draw
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.interruption import noting
from sigdir.warehouse import Warehouse
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.sql.search import NAME as SEARCH

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
    session: PromptSession[str] = PromptSession(
        history=_history(), completer=SqlCompleter(words), lexer=PygmentsLexer(SqlLexer),
        multiline=True, key_bindings=_bindings(), prompt_continuation="   ...> ",
    )  # fmt: skip
    while True:
        try:
            text = session.prompt("sigdir> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
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
                for line in draw(warehouse.sql(statement).reader(), terminal_width()):
                    click.echo(line)
            click.echo(f"{time.perf_counter() - began:.3f} s")
    except WarehouseError as error:
        click.echo(f"Error: {error}")
    except KeyboardInterrupt:
        click.echo("interrupted")


def _history() -> History:
    """The history in the user's state folder; only of this session if that folder cannot be written."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sigdir"
    file = state / "sql_history"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(file)


def is_whole(text: str) -> bool:
    """Whether Enter sends the text: a finished statement, a command, or nothing."""
    text = text.strip()
    return not text or text.endswith(";") or text.startswith(".") or text in QUIT


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=~completion_is_selected)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


# Completion.


@dataclass(frozen=True, slots=True)
class Words:
    """What completion offers: columns by table, functions and macros, keywords."""

    columns: dict[str, list[str]]
    functions: list[str]
    keywords: list[str]


def words_of(warehouse: Warehouse) -> Words:
    """The names that the engine knows; raises WarehouseError."""
    columns: dict[str, list[str]] = {}
    for table, column in warehouse.sql(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND schema_name <> 'parts'"
        " ORDER BY table_name, column_index"
    ).rows():
        columns.setdefault(table, []).append(column)
    functions = warehouse.sql(
        "SELECT function_name FROM duckdb_functions() WHERE regexp_full_match(function_name, '[a-z]\\w*')"
        " GROUP BY 1 ORDER BY bool_or(internal), 1"
    ).rows()
    keywords = warehouse.sql("SELECT upper(keyword_name) FROM duckdb_keywords() ORDER BY 1").rows()
    return Words(columns, [name for (name,) in functions], [name for (name,) in keywords])


_WORD = re.compile(r"\b\w+$")
_TABLE_FOLLOWS = re.compile(r"\b(?:from|join|describe|summarize)\s+\w*$", re.IGNORECASE)


class SqlCompleter(Completer):
    """Tables after FROM and JOIN; elsewhere columns of the tables in the statement, then the rest."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The names that start with the word in front of the cursor, each once."""
        before = document.text_before_cursor
        begun = _WORD.search(before)
        if begun is None:
            return
        typed, seen = begun[0].lower(), set()
        for word, kind in self._candidates(before, document.text):
            if word.lower().startswith(typed) and word.lower() not in seen:
                seen.add(word.lower())
                yield Completion(word, start_position=-len(typed), display_meta=kind)

    def _candidates(self, before: str, text: str) -> Iterator[tuple[str, str]]:
        tables = list(self._words.columns)
        if _TABLE_FOLLOWS.search(before):
            yield from ((table, "table") for table in tables)
            yield SEARCH, "function"
            return
        named = {word.lower() for word in re.findall(r"\w+", text)}
        for table in [table for table in tables if table in named] or tables:
            yield from ((column, table) for column in self._words.columns[table])
        yield from ((table, "table") for table in tables)
        yield from ((keyword, "keyword") for keyword in self._words.keywords)
        yield from ((function, "function") for function in self._words.functions)
