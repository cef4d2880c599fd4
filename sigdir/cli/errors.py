"""How errors and interruptions end a command: one line on standard error, and the exit status.

============================  ==========================================  ======
what ends the command         standard error                              status
============================  ==========================================  ======
Busy                          Error: <message>                            3
any other SigdirError         Error: <message>                            2
OSError                       Error: <file>: <reason>; <state>            2
Ctrl-C or SIGTERM             interrupted: <state>                        130
standard output is closed     nothing, as for any program before a pipe   0
============================  ==========================================  ======

``<state>`` is what the command says about the warehouse or the target at that point, if it says something.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from sigdir.cli.statuses import INTERRUPTED_STATUS
from sigdir.cli.store import StoreUrl, local_folder
from sigdir.signatures.errors import SigdirError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Failure(click.ClickException):
    """An error in one line."""

    exit_code = 2


class BusyFailure(Failure):
    """Another process publishes, or mirrors the same directory."""

    exit_code = 3


class Command(click.Command):
    """A command that ends as the table above says. ``state`` is, for example, "nothing was published".

    Where --warehouse names a store, the command gets the folder of its working copy. ``makes`` says that the command
    makes a warehouse where there is none, ``opens_stores`` that it opens stores itself.
    """

    def __init__(
        self, *arguments: Any, state: str = "", makes: bool = False, opens_stores: bool = False, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._state, self._makes, self._opens_stores = state, makes, opens_stores

    def invoke(self, ctx: click.Context) -> Any:
        with _interrupted_by_sigterm(), _errors_to_statuses(self._state):
            place = ctx.params.get("folder")
            if isinstance(place, StoreUrl) and not self._opens_stores:
                makes = self._makes and not ctx.params.get("dry_run")
                ctx.params["folder"] = local_folder(place, ctx.params.get("version"), makes, self._makes)
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _errors_to_statuses(state: str) -> Iterator[None]:
    try:
        yield
    except SigdirError as error:
        raise _failure(error) from error
    except BrokenPipeError:
        # The reader has seen enough. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise Failure(_joined(_described(error), state, "; ")) from error
    except KeyboardInterrupt:
        click.echo(_joined("interrupted", state, ": "), err=True)
        sys.exit(INTERRUPTED_STATUS)


def _failure(error: SigdirError) -> Failure:
    from sigdir.warehouse.errors import Busy  # loads the engines, which `serve` and --help do without

    return BusyFailure(str(error)) if isinstance(error, Busy) else Failure(str(error))


def _described(error: OSError) -> str:
    """The reason and its file. Of a copy both files are known, and the target is the one that has no space."""
    reason = error.strerror or str(error)
    file = error.filename2 if error.filename2 and error.errno in _FULL else error.filename
    return f"{file}: {reason}" if file else reason


def _joined(text: str, state: str, separator: str) -> str:
    return f"{text}{separator}{state}" if state else text


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM stops the work as Ctrl-C does: locks are released, temporary files removed."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
