"""Which version of a warehouse is meant: the number of a version, or a time."""

from __future__ import annotations

import re
from datetime import datetime

from sigdir.warehouse.table.errors import QueryError


def number_or_time(given: object) -> int | datetime | None:
    """A version's number or a time, also of its text: ``3``, ``2026-11-21T08:00Z``; None stays. Raises QueryError.

    A time is UTC where it has no zone.
    """
    if given is None or isinstance(given, datetime) or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    if isinstance(given, str):
        try:
            return int(given) if re.fullmatch(r"\d{1,18}", given) else datetime.fromisoformat(given)
        except ValueError:
            pass
    raise QueryError(f"{given!r} is neither a version nor a time such as 2026-11-21T08:00Z")
