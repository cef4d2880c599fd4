"""Times as text: ISO 8601 in UTC, with a Z, as the HTTP answers have them; and what --as-of takes, a version or a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from sigdir.warehouse.table.errors import QueryError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> datetime:
    """The time so many microseconds after the begin of 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def microseconds(at: datetime) -> int:
    """The reverse. Whole: a float of seconds would round them."""
    return (at - EPOCH) // timedelta(microseconds=1)


def iso(time: datetime, timespec: str = "milliseconds") -> str:
    """A time that knows its zone; ``timespec`` is that of ``datetime.isoformat``."""
    return time.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


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
