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
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import click

from sigdir.cli.main import INTERRUPTED_STATUS, end_interrupted
from sigdir.cli.options import StoreUrl, local_folder, mend
from sigdir.signatures import interruption
from sigdir.signatures.errors import SigdirError
from sigdir.warehouse.table.errors import Busy, DiskFull, UnreadableWarehouse

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
        end = partial(end_interrupted, self._state)
        with interruption.noting(end), _errors_to_statuses(self._state, ctx.params):
            interruption.check()  # one that came while the command's modules were loaded
            place = ctx.params.get("folder")
            if isinstance(place, StoreUrl) and not self._opens_stores:
                makes = self._makes and not ctx.params.get("dry_run")
                ctx.params["folder"] = local_folder(place, ctx.params.get("version"), makes, self._makes)
            try:
                result = super().invoke(ctx)
            except UnreadableWarehouse as error:
                folder = ctx.params.get("folder")
                if isinstance(folder, Path) and (mended := mend(folder)):
                    raise Failure(f"{error}; {mended}") from error
                raise
            sys.stdout.flush()
            return result


def command(name: str | None = None, **options: Any) -> Callable[[Callable[..., Any]], Command]:
    """A Command from a function, as ``click.command``."""
    return click.command(name, cls=Command, **options)


@contextmanager
def _errors_to_statuses(state: str, parameters: dict[str, Any]) -> Iterator[None]:
    try:
        with _interruptions():
            yield
    except Busy as error:
        raise BusyFailure(str(error)) from error
    except DiskFull as error:
        raise Failure(_joined(str(error), state, "; ")) from error
    except SigdirError as error:
        raise Failure(str(error)) from error
    except BrokenPipeError:
        # The reader has seen enough. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise Failure(_joined(_described(error, _written_to(parameters, state)), state, "; ")) from error
    except KeyboardInterrupt:
        click.echo(_joined("interrupted", state, ": "), err=True)
        sys.exit(INTERRUPTED_STATUS)


@contextmanager
def _interruptions() -> Iterator[None]:
    """After a signal any error is its consequence: an engine that called Python reports a failure of its own."""
    try:
        yield
    except Exception as error:
        if interruption.is_noted():
            raise KeyboardInterrupt from error
        raise


def _described(error: OSError, written_to: list[Path]) -> str:
    """The reason and its file. Of a copy both files are known, and the target is the one that has no space."""
    reason = error.strerror or str(error)
    if error.errno is None or error.errno not in _FULL:
        return f"{error.filename}: {reason}" if error.filename else reason
    if file := error.filename2 or error.filename:
        return f"{file}: {reason}"
    reason = os.strerror(error.errno)  # pyarrow puts its own words around it
    return f"{reason} ({', '.join(_free([*written_to, Path(gettempdir())]))})" if written_to else reason


def _written_to(parameters: dict[str, Any], state: str) -> list[Path]:
    """The files and folders that a command writes to. One without a state does not change the warehouse."""
    names = ("target", "output", "out", *(("folder",) if state else ()))
    places = (str(parameters.get(name) or "-") for name in names)
    return [Path(place).absolute() for place in places if place != "-" and "://" not in place]


def _free(places: list[Path]) -> Iterator[str]:
    """What is free on the disk of each place, now that temporary files are gone."""
    seen = set()
    for place in places:
        folder = next(path for path in (place, *place.parents) if path.is_dir())
        if (disk := folder.stat().st_dev) not in seen:
            seen.add(disk)
            yield f"{shutil.disk_usage(folder).free / 1e6:,.0f} MB are free in {folder}"


def _joined(text: str, state: str, separator: str) -> str:
    return f"{text}{separator}{state}" if state else text
