"""The decorator of compiled functions, and the folder that keeps what numba compiled.

numba compiles a kernel when it is called first. All of them take 20 seconds of processor time, and the next process loads them in half a
second. They are kept in the first of these folders that can be written to:

1. ``NUMBA_CACHE_DIR``, where it is set;
2. ``__pycache__/kernels`` beside this file;
3. ``signature-directory/kernels`` in ``XDG_CACHE_HOME``, by default ``~/.cache``;
4. ``signature-directory-UID/kernels`` in ``TMPDIR``, by default ``/tmp``.

Folders 3 and 4 begin as a copy of folder 2, so a read-only installation whose kernels are compiled needs no compiling.
The copy is made again when the installation's kernels were compiled again, as after an upgrade.
Where no folder can be written to, each process compiles for itself, in memory. ``NUMBA_CACHE_DIR`` is set for this
process and its children.

The files are pickles: whoever can write them runs code here. So folder 4 is used only if it belongs to this user and
nobody else may enter it. numba itself would also take a folder from a ``.numba_config.yaml`` in the current folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit, types
from numba.core import event
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_SCRATCH = "new-"
_SLOW_SECONDS = 1.5  # a single small kernel takes less, and is not worth a line
_INSTALLED = Path(__file__).parent / "__pycache__" / "kernels"

_log = logging.getLogger(__name__)


def kernel(**options: Any) -> Callable[[Function], Function]:
    """``numba.njit`` with these options; what it compiles is kept in ``FOLDER``."""
    decorator: Callable[[Function], Function] = njit(cache=FOLDER is not None, **options)
    return decorator


def _pointer(typing: Any, array: Any) -> Any:
    if array.layout != "C":
        return None  # a pointer knows no strides

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(array)(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), build


# The fuzzer runs kernels as plain Python.
pointer: Any = (lambda array: array) if config.DISABLE_JIT else intrinsic(_pointer)  # type: ignore[attr-defined]
"""The elements of an array as a C pointer, inside a kernel whose caller holds the array.

numba counts the references to an array with two atomic operations wherever a function passes it on. In the grammar and
the speller that was 60 % of the time.
"""


def _writable_folder() -> Path | None:
    wanted = os.environ.get("NUMBA_CACHE_DIR")
    if wanted and _is_writable(Path(wanted)):
        return Path(wanted)
    if _is_writable(_INSTALLED):
        return _INSTALLED
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    for base in (users / "signature-directory", _private_temporary()):
        if base is not None and base.is_absolute() and _is_writable(base / "kernels"):
            _copy_installed(base / "kernels")
            return base / "kernels"
    return None


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _private_temporary() -> Path | None:
    folder = Path(os.environ.get("TMPDIR") or "/tmp") / f"signature-directory-{os.getuid()}"  # noqa: S108 - checked below
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours else None


def _copy_installed(folder: Path) -> None:
    """Copy each folder of the installation's kernels that is new or was compiled again since it was copied.

    numba names the inner folders by the place of the source, so installations do not share them. A file beside the
    copy has the time of the folder that was copied.
    """
    with suppress(OSError):
        for installed in _INSTALLED.iterdir():
            compiled_at, marker = str(installed.stat().st_mtime_ns), folder / f"{installed.name}.copied"
            if marker.exists() and marker.read_text() == compiled_at:
                continue
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                copied, old = Path(scratch) / "new", Path(scratch) / "old"
                shutil.copytree(installed, copied, copy_function=shutil.copyfile)
                copied.chmod(0o700)
                if (folder / installed.name).exists():
                    (folder / installed.name).rename(old)
                copied.rename(folder / installed.name)  # fails where another process was faster
                marker.write_text(compiled_at)


@contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Processes that are started within the block compile anew; at its end that takes the place of all in ``folder``.

    numba recompiles a kernel if its own file changed, but not if a file that it uses did. An interruption keeps what
    there was. A folder that the user named is only added to: it may hold kernels of other programs.
    """
    if _IS_NAMED:
        yield
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
        os.environ["NUMBA_CACHE_DIR"] = scratch
        try:
            yield
        finally:
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
        for old in folder.iterdir():
            if not old.name.startswith(_SCRATCH):  # another process may compile, too
                shutil.rmtree(old, ignore_errors=True)
        for new in Path(scratch).iterdir():
            with suppress(OSError):  # the other one was faster
                new.rename(folder / new.name)


class _SlowCompiles(event.Listener):
    """Says what is going on if compiling takes long. numba reports nested compiles too, one at a time."""

    def __init__(self) -> None:
        self._depth = 0
        self._timer = threading.Timer(0, lambda: None)

    def on_start(self, event: Any) -> None:
        if not self._depth:
            self._timer = threading.Timer(_SLOW_SECONDS, _say)
            self._timer.daemon = True
            self._timer.start()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._timer.cancel()


_said = threading.Event()


def _say() -> None:
    if _said.is_set():
        return
    _said.set()
    if FOLDER is not None:
        _log.warning("compiling kernels, once; 15 seconds on an idle machine")
    else:
        _log.warning(
            "compiling kernels in memory at each start, 20 seconds on an idle machine: no folder for them can be written to;"
            " set NUMBA_CACHE_DIR to one that can"
        )


_IS_NAMED = "NUMBA_CACHE_DIR" in os.environ
FOLDER = _writable_folder()
"""Where compiled kernels are kept; None if no folder can be written to."""
if FOLDER is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(FOLDER)
    config.reload_config()  # numba may be loaded already
event.register("numba:compile", _SlowCompiles())
