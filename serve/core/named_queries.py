"""Named queries of the operator: a file of SQL in which each query follows a line with its name.

::

    -- name: new_since
    -- The texts that came since a day.
    -- $day: 2026-01-01
    SELECT text_signature, created_at FROM signatures WHERE created_at >= $day::TIMESTAMP ORDER BY id

Lines of comment below the name are what the query is for; one that begins with a parameter gives its usual value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sigdir.warehouse.table.errors import QueryError

_GOOD_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(slots=True)
class NamedQuery:
    """A query by its name; ``values`` are the usual ones of its parameters."""

    name: str
    about: str = ""
    values: dict[str, str] = field(default_factory=dict)
    sql: str = ""


def read_queries(path: Path) -> dict[str, NamedQuery]:
    """The queries of a file by their names; raises QueryError, which names the line, or OSError."""
    try:
        return parse_queries(path.read_text("utf-8-sig").splitlines())
    except UnicodeDecodeError as error:
        raise QueryError(f"{path}: not UTF-8 at byte {error.start}") from None
    except QueryError as error:
        raise QueryError(f"{path}: {error}") from None


def parse_queries(lines: Iterable[str]) -> dict[str, NamedQuery]:
    found: dict[str, NamedQuery] = {}
    query: NamedQuery | None = None
    for number, line in enumerate(lines, 1):
        comment = line[2:].strip() if line.startswith("--") else ""
        word, _, rest = comment.partition(":")
        if word == "name":
            name = _new_name(rest.strip(), found, number)
            query = found[name] = NamedQuery(name)
        elif query is not None:
            _add(query, line, comment)
        elif line.strip() and not line.startswith("--"):
            raise QueryError(f"line {number}: a query needs a name: a line -- name: NAME above it")
    for name, query in found.items():
        query.sql = query.sql.strip().rstrip(";")
        if not query.sql:
            raise QueryError(f"{name}: there is no SQL below the name")
    return found


def _new_name(name: str, found: dict[str, NamedQuery], number: int) -> str:
    if not _GOOD_NAME.fullmatch(name):
        raise QueryError(f"line {number}: {name!r} is no name: letters, digits, - and _, please")
    if name in found:
        raise QueryError(f"line {number}: {name} is there twice")
    return name


def _add(query: NamedQuery, line: str, comment: str) -> None:
    """Add a line to a query: a comment in front of the SQL, or SQL."""
    word, colon, rest = comment.partition(":")
    if query.sql or not line.startswith("--"):
        query.sql += line + "\n" if query.sql or line.strip() else ""
    elif colon and word.startswith("$"):
        query.values[word[1:]] = rest.strip()
    else:
        query.about = f"{query.about} {comment}".strip()
