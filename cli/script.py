"""A script on standard input: SQL, and between its statements the commands of the shell, each in a line of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.warehouse.table.errors import QueryError

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
