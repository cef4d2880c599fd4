"""The root of all errors that are raised on purpose, and numbers of things in their sentences.

A message is one line that a user can act on.
"""

from __future__ import annotations


class SigdirError(Exception):
    """The root. Each layer has its own subclass; the command line and HTTP each map them in one place."""


def missing_package(what: str, package: str, extra: str) -> str:
    """The message where something needs a package of an extra that is not installed."""
    return f"{what} needs {package}: pip install 'signature-directory[{extra}]', or in a clone .venv/bin/pip install --editable '.[{extra}]'"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,000 rows, 2 addresses."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "sh")) else "s"
    return f"{number:,} {noun}{ending}"
