"""SQL over one version of the warehouse. DuckDB, in memory, on views over the snapshot's files.

The connection reads the snapshot's data files and nothing else: the engine may open no other file, only listed table
functions may be called, the network is off, and the configuration is locked. SQL text from anyone may be run. For
``strangers`` it also says nothing of the machine: it names only our views, spills nothing, and no message has a path.
``unsafe`` lifts all of that, for users who run SQL of their own.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sigdir.signatures.errors import visible
from sigdir.signatures.interruption import each, postponed, waiting
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.guard import HOW_TO_GIVE_FILES, of_function, of_row, refusal, stranger_message
from sigdir.warehouse.sql.search import create_search
from sigdir.warehouse.sql.views import (
    VIEWS,
    LazyLog,
    create_derived_views,
    create_views,
    distinct_names,
    identifier,
    quoted,
)
from sigdir.warehouse.table.errors import QueryError, UnreadableWarehouse, first_line
from sigdir.warehouse.table.files import RunFolder, own_temporary_folder
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.parquet import require_whole
from sigdir.warehouse.table.paths import Paths

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from sigdir.warehouse.sql.ranking import Ranking


def connect(memory_limit: str, threads: int, spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A bare engine within a memory limit.

    It spills to ``spill``, by default a new folder in the system's temporary one, because the warehouse may be
    read-only and importers delete what is in its ``tmp``. That folder goes with the connection.
    """
    connection = duckdb.connect(":memory:")
    folder = spill or _temporary_folder(connection)
    try:
        connection.execute("SET memory_limit = $limit", {"limit": memory_limit})
    except duckdb.Error as error:
        raise QueryError(f"memory limit {memory_limit!r}: {first_line(error)}") from error
    connection.execute("SET threads = $threads", {"threads": threads})
    connection.execute("SET temp_directory = $folder", {"folder": str(folder)})
    connection.execute("SET TimeZone = 'UTC'")
    with suppress(duckdb.InvalidInputException):  # in Jupyter without ipywidgets there is no bar, and no such setting
        connection.execute("SET enable_progress_bar = false")  # the bar writes to standard output
    connection.execute("SET preserve_insertion_order = false")
    return connection


def _temporary_folder(connection: duckdb.DuckDBPyConnection) -> Path:
    """A new folder for what a connection spills; first removes those of connections whose process was killed."""
    try:
        run = RunFolder(own_temporary_folder("sigdir-sql"))
        run.__enter__()
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise QueryError(f"{place}no folder to spill into: {error.strerror or error}; TMPDIR can name one") from error
    weakref.finalize(connection, run.__exit__)
    return run.path


def _require_intact(snapshot: Snapshot) -> None:
    """Raise UnreadableWarehouse where a data file or an evidence file is not as it was written.

    DuckDB 2.0 checks no page's checksum, and one flipped byte in four would change an answer unnoticed. It takes
    0.1 s for 10 M rows, once for each opened warehouse.
    """
    recorded = {file.path: file.sha256 for file in snapshot.all_files()}
    recorded |= {file.path: file.sha256 for file in snapshot.evidence.all_files()}
    for_each(lambda item: require_whole(*item), recorded.items(), os.cpu_count() or 1)


_MOST_ROWS = 10_000  # so many are drawn at most: forty of ten million can be shown without computing all
_SHOWN_ROWS, _ANY_WIDTH = 40, 1_000_000
_PLAN = ["explain_key", "explain_value"]


class Result:
    """The rows of a query; they can be fetched once, in one of the forms below."""

    def __init__(self, database: Database, relation: duckdb.DuckDBPyRelation | None) -> None:
        self._database = database  # keeps the connection open
        self._relation = relation

    @property
    def types(self) -> list[str]:
        """The engine's types of the columns."""
        return [] if self._relation is None else [str(type) for type in self._relation.types]

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table; raises QueryError."""
        with self._database.turn():
            reader = self.reader()
            return pa.Table.from_batches(list(reader), schema=reader.schema)

    def df(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame; raises QueryError."""
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def pl(self) -> pl.DataFrame:
        """All rows as a polars DataFrame; raises QueryError, also where polars is not installed."""
        try:
            import polars as pl
        except ImportError as error:
            raise QueryError("pl() needs polars, which is not installed: pip install polars") from error
        return pl.DataFrame(self.arrow())

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as Python tuples; raises QueryError."""
        table = self.arrow()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The same as ``rows``, by the name that DuckDB and DB-API have for it."""
        return self.rows()

    def reader(self, batch_rows: int = 65_536) -> pa.RecordBatchReader:
        """The rows as a stream of batches, computed while they are read; raises QueryError at any."""
        if self._relation is None:
            return pa.RecordBatchReader.from_batches(pa.schema([]), [])
        with self._database.turn(), waiting(self._database.interrupt):
            rows = self._relation.to_arrow_reader(batch_rows)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def drawn(self, width: int | None = None) -> str:
        """The rows as the engine draws them in ``width`` characters: the first and last 20 of many. Raises QueryError.

        Of 10,000 or more the last are not computed: the first 20 are drawn, and a line says so. Columns of bytes are left out where there are others. The plan of a query is a drawing already.
        """
        if self._relation is None:
            return ""
        if self._relation.columns == _PLAN:
            return "\n".join(plan for _, plan in self.rows())
        table = self._first(_MOST_ROWS)
        fields = enumerate(table.schema)
        shown = [at for at, f in fields if not (pa.types.is_binary(f.type) or f.name == "bytes_signature")]
        table = table.select(shown) if shown else table
        if table.num_rows < _MOST_ROWS:
            return self._database.drawn(table, width)
        first = _SHOWN_ROWS // 2
        return f"{self._database.drawn(table.slice(0, first), width)}\nthe first {first} of {_MOST_ROWS:,} rows or more"

    def _first(self, rows: int) -> pa.Table:
        """So many rows and a batch more, if there are as many."""
        reader, batches = self.reader(), []
        for batch in reader:
            batches.append(batch)
            if (rows := rows - batch.num_rows) < 0:
                break
        return pa.Table.from_batches(batches, reader.schema)

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._database.engine_errors_as_ours():
            yield from each(rows, self._database.interrupt)

    def __repr__(self) -> str:
        """The columns and how to fetch the rows, without running the query; ``print`` shows the rows."""
        relation = self._relation
        columns = "" if relation is None else ", ".join(map("{} {}".format, relation.columns, relation.types))
        return f"<Result of columns ({columns}): .df(), .pl(), .arrow(), .reader() or .rows() fetches the rows>"

    def __str__(self) -> str:
        with self._database.turn():
            return "" if self._relation is None else str(self._relation)


class Database:
    """The views and macros of ``sigdir.warehouse.sql.views`` over one snapshot, and the user's own tables.

    ``files`` are further tables that SQL may read, each as a view of its name: paths, DataFrames or Arrow data.
    """

    def __init__(
        self, paths: Paths, snapshot: Snapshot, memory_limit: str = "1GB", threads: int | None = None,
        unsafe: bool = False, files: Mapping[str, Any] | None = None, strangers: bool = False,
    ) -> None:  # fmt: skip
        self._unsafe, self._strangers = unsafe, strangers
        self._query = ""
        """The one that runs, for the places in errors."""
        self._log = LazyLog(paths, snapshot.version, names_only=strangers)
        self._lock, self._process = threading.RLock(), os.getpid()
        self._connection = connect(memory_limit, threads or os.cpu_count() or 1)
        # The engine prints a complaint at exit about functions that are still registered.
        self._closing = weakref.finalize(self, _close, self._connection, self._process)
        try:
            _require_intact(snapshot)
            create_views(self._connection, paths, snapshot, self._log)
        except (duckdb.Error, OSError) as error:
            raise UnreadableWarehouse(f"{paths.root}: {first_line(error)}") from error
        self._creations = _creations(self._connection, paths, snapshot)
        self._creation_error: Exception | None = None
        read = [file for name, given in (files or {}).items() if (file := self._add_table(name, given))]
        if not unsafe:
            evidence = [str(file.path) for file in snapshot.evidence.all_files()]
            self._confine([str(file.path) for file in snapshot.all_files()] + evidence + read)

    def _confine(self, files: list[str]) -> None:
        if self._strangers:
            self._connection.execute("DROP VIEW rejects")  # SHOW TABLES would list it
            self._connection.execute("SET max_temp_directory_size = '0 bytes'")
            self._connection.execute("SET errors_as_json = true")  # they have the position
        self._connection.execute("SET allowed_paths = $files", {"files": files})
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def _add_table(self, name: str, given: Any) -> str:
        """Make a view of a file or of a table in memory; returns the file's path, if it is one."""
        if not _NAME.fullmatch(name):
            raise QueryError(f"{name!r} is no name for a view: letters, digits and _, please")
        if name.lower() in VIEWS:
            raise QueryError(f"{name}: the warehouse has a view of that name")
        with self.engine_errors_as_ours():
            if isinstance(given, str | os.PathLike):
                file = Path(given).absolute()
                self._create_file_view(name, file)
                return str(file)
            self._connection.register(name, _arrow_table(name, given))
        return ""

    def _create_file_view(self, name: str, file: Path) -> None:
        if not file.is_file():
            raise QueryError(f"{file}: {'is no file' if file.exists() else 'no such file'}")
        try:
            self._connection.execute(f'CREATE VIEW "{name}" AS FROM {_read_file(self._connection, file)}')
        except duckdb.Error as error:
            reason = first_line(of_row(str(error))).removeprefix(f"{file}: ")
            raise QueryError(f"{name}: {file}: {reason}") from error

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run one query; raises QueryError. ``parameters`` bind ``?``, ``$1`` or ``$name``.

        Only statements that read are run, unless ``unsafe``: COPY could write to the files that the engine may
        read.
        """
        query = _utf8(query)
        with self.turn():
            self._query = query
            if not self._unsafe and (refused := refusal(self._connection, query, self._strangers)):
                raise QueryError(refused)
            if _LISTS_VIEWS.search(query):
                self._create_all()
            while True:
                try:
                    with waiting(self.interrupt):
                        return Result(self, _presented(self._connection.sql(query, params=parameters or None)))
                except duckdb.CatalogException:  # the query may name what is not created yet
                    if not self._create_more():
                        raise

    def prepare(self, query: str = "") -> None:
        """Create all that queries may need, and what this one does: either takes longer than it may."""
        pa.scalar(0)  # loads pandas, as the view of imports does: half a second
        with self.engine_errors_as_ours():
            self._create_all()
            if _ASKS_RIVALS.search(query):
                self._connection.execute("SELECT len(rivals(0))").fetchall()

    def _create_more(self) -> bool:
        """Create the next things that few queries use; False where all are there. An error is raised again at each call."""
        if self._creation_error is not None:
            raise self._creation_error
        try:
            with postponed():  # what is half created could not be created again
                return next(self._creations, False)
        except Exception as error:
            self._creation_error = error
            raise

    def _create_all(self) -> None:
        while self._create_more():
            pass

    def statements(self, script: str) -> list[str]:
        """A text of several statements, cut at its semicolons; raises QueryError."""
        with self.engine_errors_as_ours():
            return [statement.query.strip() for statement in self._connection.extract_statements(_utf8(script))]

    def parameters(self, statement: str) -> set[str]:
        """The parameters of a statement: names, and numbers from 1 for ``?`` and ``$1``; raises QueryError."""
        self._query = _utf8(statement)
        with self.engine_errors_as_ours():
            return {name for each in self._connection.extract_statements(statement) for name in each.named_parameters}

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let threads use the engine one after the other: it refuses a second call. Its threads are lost in a fork."""
        if os.getpid() != self._process:
            raise QueryError("the process was forked after the warehouse was opened; open it again in this one")
        with self._lock, self.engine_errors_as_ours():
            yield

    @contextmanager
    def engine_errors_as_ours(self) -> Iterator[None]:
        """Raise the engine's errors as QueryError, Ctrl-C as KeyboardInterrupt, and an error of the log as it was."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            log_error, self._log.error = self._log.error, None
            message = stranger_message(str(error), self._query) if self._strangers else _message(error)
            raise log_error or QueryError(message) from error
        except RuntimeError as error:  # the engine's form of Ctrl-C
            if "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise

    def memory_limit(self) -> int:
        """The engine's own limit in bytes. It counts what the engine keeps, not the rows that it hands over."""
        with self.engine_errors_as_ours():
            query = "SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'"
            [(text,)] = self._connection.sql(query).fetchall()
        number, unit = text.split()
        return int(float(number) * 1024 ** _UNITS.index(unit))

    def interrupt(self) -> None:
        """End the running query, which then raises; for another thread than the one that runs it."""
        self._connection.interrupt()

    def drawn(self, table: pa.Table, width: int | None) -> str:
        """Rows as the engine draws them in ``width`` characters, the first and the last of many."""
        with self.engine_errors_as_ours(), redirect_stdout(StringIO()) as out:
            self._connection.from_arrow(table).show(max_width=width or _ANY_WIDTH, max_rows=_SHOWN_ROWS)
        return visible(out.getvalue().rstrip())

    def close(self) -> None:
        """Free what the engine holds. Results can no longer be read."""
        self._closing()


_of_parent: list[duckdb.DuckDBPyConnection] = []
"""The engines that a fork copied. They are kept to the end: to close or free one without its threads ends the process."""


def _close(connection: duckdb.DuckDBPyConnection, process: int) -> None:
    """Close an engine of this process."""
    if os.getpid() == process:
        connection.close()
    else:
        _of_parent.append(connection)


def _utf8(query: str) -> str:
    """The query. Raises QueryError where it has half of a surrogate pair, as a command's argument that is no UTF-8 has."""
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"{query[error.start]!a} at character {error.start + 1}: the query is no UTF-8") from None
    return query


def _presented(relation: duckdb.DuckDBPyRelation | None) -> duckdb.DuckDBPyRelation | None:
    """The rows with each name once, for readers of Parquet, and as text what Arrow has as other numbers or as bytes."""
    if relation is None:
        return None
    names, types = distinct_names(relation.columns), list(map(str, relation.types))
    texts = [_NOT_IN_ARROW.sub("VARCHAR", type) for type in types]
    if (names, texts) == (relation.columns, types):
        return relation
    casts = [
        f"{f'c{number}' if text == type else f'CAST(c{number} AS {text})'} AS {identifier(name)}"
        for number, (name, type, text) in enumerate(zip(names, types, texts, strict=True))
    ]
    columns = ", ".join(f"c{number}" for number in range(len(names)))
    return relation.query(_ROWS, f"SELECT {', '.join(casts)} FROM {identifier(_ROWS)} AS t({columns})")


def _message(error: Exception) -> str:
    """The engine's message, and what to do where a query names a file that it may not read."""
    if isinstance(error, duckdb.ResourceInUseException):
        return "the reader of another result is open: read it to its end, or open the warehouse once more beside it"
    text = of_row(of_function(str(error)))
    return f"{text}; {HOW_TO_GIVE_FILES}" if "disabled by configuration" in text else text


def _creations(connection: duckdb.DuckDBPyConnection, paths: Paths, snapshot: Snapshot) -> Iterator[bool]:
    """Create what few queries use, step by step, each at the first query that needs it: functions, then views that call them."""
    reference = weakref.ref(connection)

    @cache
    def ranking() -> Ranking:
        """The order of the connection's texts, and their summaries, for all that asks for them."""
        from sigdir.warehouse.sql.ranking import Ranking  # and pyarrow.parquet, 65 ms

        return Ranking(reference, paths, snapshot)

    from sigdir.warehouse.sql.functions import create_functions

    create_functions(connection, snapshot, ranking)  # 12 ms
    yield True
    create_search(connection, ranking)
    yield True
    create_derived_views(connection)
    yield True
    from sigdir.warehouse.sql.evidence import create_evidence_views

    create_evidence_views(connection, snapshot, ranking())  # 0.14 s
    yield True
    from sigdir.warehouse.sql.contracts import create_contract_views

    create_contract_views(connection, snapshot.evidence)
    yield True


_ASKS_RIVALS = re.compile(r"\b(ranked|collisions|rivals)\b", re.IGNORECASE)
_LISTS_VIEWS = re.compile(
    r"\b(?:show|describe|summarize|pragma|information_schema|duckdb_\w+|sqlite_master|pg_\w+)\b", re.IGNORECASE
)
"""Statements that list views and functions instead of naming them."""
_NOT_IN_ARROW = re.compile(r"\b(?:UHUGEINT|BIGNUM|BIT|TIME WITH TIME ZONE)(?=[\[,)]|$)")
"""Also inside of lists and structs. The engine reads an integer of over 128 bits in a CSV file as a BIGNUM."""
_ROWS = "its rows"  # no view has such a name
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON = (".json", ".jsonl", ".ndjson")


def _read_file(connection: duckdb.DuckDBPyConnection, file: Path) -> str:
    """The SQL that reads a user's file, by its name: Parquet, JSON, CSV, else lines of text."""
    name = file.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".parquet"):
        return f"read_parquet({quoted(str(file))})"
    if name.endswith(_JSON):
        return _read_json(connection, file)
    if name.endswith((".csv", ".tsv")):
        return _read_csv(connection, file)
    # Texts have no unit separator, so no line is split.
    return (
        f"read_csv({quoted(str(file))}, columns = {{'text': 'VARCHAR'}}, header = false, auto_detect = false,"
        " delim = chr(31), quote = '', escape = '')"
    )


def _read_json(connection: duckdb.DuckDBPyConnection, file: Path) -> str:
    """The SQL that reads a file of JSON. A column of integers has all their digits, as text where they are over 38.

    The engine would make floats of those over 64 bits, as of amounts in wei. So the columns that it takes for floats are
    read as they are written. The others stay with what it finds out itself: columns that are named to it lose keys.
    """
    plain, written = f"read_json({quoted(str(file))})", f"read_json({quoted(str(file))}, maximum_depth = 1)"
    found = connection.sql(f"FROM {plain}")
    floats = [identifier(name) for name, type in zip(found.columns, found.types, strict=True) if str(type) == "DOUBLE"]
    if not floats:
        return plain
    texts = [f"{column} ->> '$'" for column in floats]
    tests = (f"bool_and(regexp_full_match({text}, '-?[0-9]+')), max(length({text}))" for text in texts)
    [row] = connection.sql(f"SELECT {', '.join(tests)} FROM {written}").fetchall()
    exact = [
        (column, f"CAST({text} AS {'HUGEINT' if longest <= 38 else 'VARCHAR'})")
        for column, text, is_whole, longest in zip(floats, texts, row[::2], row[1::2], strict=True) if is_whole
    ]  # fmt: skip
    if not exact:
        return plain
    return f"""(
        SELECT read.* REPLACE ({", ".join(f"exact.{column} AS {column}" for column, _ in exact)})
        FROM {plain} AS read
        POSITIONAL JOIN (SELECT {", ".join(f"{value} AS {column}" for column, value in exact)} FROM {written}) AS exact
    )"""


def _read_csv(connection: duckdb.DuckDBPyConnection, file: Path) -> str:
    """The SQL that reads a CSV file. Columns with 0x stay text.

    The engine would read 0xa9059cbb as an integer, also after a thousand rows of decimal numbers. So the columns that
    it takes for numbers are searched for 0x, in one pass over the file.
    """
    name = quoted(str(file))
    [(has_header, columns)] = connection.sql(f"SELECT HasHeader, Columns FROM sniff_csv({name})").fetchall()
    numbers = [column["name"] for column in columns if column["type"] not in ("VARCHAR", "BOOLEAN")]
    if not numbers:
        return f"read_csv({name})"
    tests = ", ".join(f"bool_or(ltrim({identifier(number)}) ILIKE '0x%')" for number in numbers)
    as_text = f"read_csv({name}, all_varchar = true, header = {has_header})"
    [found] = connection.sql(f"SELECT {tests} FROM {as_text}").fetchall()
    texts = [number for number, has_0x in zip(numbers, found, strict=True) if has_0x]
    types = ", ".join(f"{quoted(text)}: 'VARCHAR'" for text in texts)
    return f"read_csv({name}, header = {has_header}, types = {{{types}}})" if texts else f"read_csv({name})"


def _arrow_table(name: str, given: Any) -> pa.Table:
    """A DataFrame or Arrow data as a table. A DataFrame's index is left out; raises QueryError."""
    is_pandas = type(given).__module__.partition(".")[0] == "pandas"
    if not is_pandas and not hasattr(given, "__arrow_c_stream__"):
        raise QueryError(f"{name}: a path, a DataFrame or Arrow data is expected, not {type(given).__name__}")
    try:
        return pa.Table.from_pandas(given, preserve_index=False) if is_pandas else pa.table(given)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise QueryError(f"{name}: {first_line(error)}") from error
