"""The rows of a query, for people (table) and for programs, and what bounds a query: its time, and this process's memory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO

import click

from sigdir.pipeline.target import WRITERS
from sigdir.serve.core.process import limited_memory
from sigdir.signatures.errors import counted
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.engine import Result
from sigdir.warehouse.sql.time_limit import time_limit
from sigdir.warehouse.table.errors import QueryError


def write_rows(result: Result, format: str, out: BinaryIO | None = None) -> None:
    """Write a result as table or in a format of WRITERS, to standard output by default.

    Raises QueryError if computing the result fails.
    """
    out = out or sys.stdout.buffer
    if format == "table":
        out.write(result.drawn(terminal_width()).encode() + b"\n")
    else:
        WRITERS[format](result.reader(), out)


def terminal_width() -> int | None:
    """The characters of a line, None where standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def rows_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format, and --json as a short form of --format json; the function gets ``format``."""
    json_flag = click.option("--json", "format", flag_value="json", help="The same as --format json.")
    format = click.option(
        "--format", "format", type=click.Choice(["table", *WRITERS]), default="table",
        help="How to write the rows.",
    )  # fmt: skip
    return format(json_flag(function))


_BESIDE = 512 << 20
"""Bytes beside the engine's own: rows on their way to the output, and threads."""

_OUT_OF_MEMORY = ("Out of Memory", "malloc", "realloc", "allocat")


@contextmanager
def limits(warehouse: Warehouse, timeout: timedelta | None) -> Iterator[None]:
    """Within the block the time limit ends a statement, and memory is limited; raises QueryError."""
    database = warehouse.database
    seconds = timeout.total_seconds() if timeout else None
    why = f"the query was stopped after {counted(round(seconds or 0), 'second')}, its --timeout"
    with _limited_memory(database.memory_limit()), time_limit(database.interrupt, seconds, why):
        yield


@contextmanager
def _limited_memory(engine: int) -> Iterator[None]:
    """Within the block the process gets ``engine`` bytes and half a GiB more than it has; raises QueryError beyond.

    The engine's limit counts what it keeps. A result of 20,000 texts of a megabyte passed 6 GB under a limit of 1 GB.
    The kernel refuses the memory, and the engine says so.
    """
    try:
        with limited_memory(engine + _BESIDE):
            yield
    except (MemoryError, QueryError) as error:
        first = str(error).partition("\n")[0]
        if isinstance(error, MemoryError) or any(word in first for word in _OUT_OF_MEMORY):
            raise QueryError(
                f"the query needs more memory than it may have: {first or 'MemoryError'}; --memory-limit allows more"
            ) from error
        raise
