"""Times as text: ISO 8601 in UTC, with a Z, as --as-of and the HTTP answers have them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(time: datetime, timespec: str = "milliseconds") -> str:
    """A time that knows its zone; ``timespec`` is that of ``datetime.isoformat``."""
    return time.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
