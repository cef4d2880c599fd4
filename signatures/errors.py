"""The root of all errors that are raised on purpose, and what their sentences and other texts for people need.

A message is one line that a user can act on.
"""

from __future__ import annotations

import re


class SigdirError(Exception):
    """The root. Each layer has its own subclass; the command line and HTTP each map them in one place."""


def missing_package(what: str, package: str, extra: str) -> str:
    """The message where something needs a package of an extra that is not installed."""
    return f"{what} needs {package}: pip install 'signature-directory[{extra}]', or in a clone .venv/bin/pip install --editable '.[{extra}]'"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,000 rows, 2 addresses."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "sh")) else "s"
    return f"{number:,} {noun}{ending}"


_CONTROLS = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def visible(text: str) -> str:
    """A foreign text with its control characters as ``\\u202e``, except tabs and line breaks.

    Those for the direction of writing show "alice" where the bytes say "ecila". Those without width hide what differs.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
