"""The decorator of compiled functions, and the folder that keeps what numba compiled.

numba compiles a kernel when it is called first. All of them take 20 seconds of processor time, and the next process
loads them in half a second. They are kept in the first of these folders that can be written to:

1. ``NUMBA_CACHE_DIR``, where it is set;
2. ``__pycache__/kernels`` beside this file;
3. ``signature-directory/kernels`` in ``XDG_CACHE_HOME``, by default ``~/.cache``;
4. ``signature-directory-UID/kernels`` in ``TMPDIR``, by default ``/tmp``.

numba compiles a kernel again if its own file changed, but not if a function or a constant that it has from another file
did. So each edition of those files has a folder of its own in there, and after an upgrade nothing old is used.
A read-only installation whose kernels are compiled needs no compiling: folders 3 and 4 begin as a copy of folder 2.
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
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from numba import config, njit, types
from numba.core import event
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

SHARED = (
    "collections",
    "evidence",
    "fingerprints",
    "grammar",
    "grammar_rows",
    "keccak_rows",
    "kernels",
    "search_terms",
    "types",
)
"""The modules of this folder that kernels of other files have functions or constants from."""

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


def _edition() -> str:
    """A name that changes when a shared file does, as numba tells whether a kernel's own file changed."""
    found = [(name, Path(__file__).with_name(f"{name}.py").stat()) for name in SHARED]
    return sha256(repr([(name, file.st_size, file.st_mtime_ns) for name, file in found]).encode()).hexdigest()[:16]


def _writable_folder() -> Path | None:
    edition = _edition()
    named = Path(os.environ.get("NUMBA_CACHE_DIR") or _INSTALLED)
    if named.name == edition:  # a parent process has set it
        named = named.parent
    for base in (named, _INSTALLED):
        if _is_writable(base / edition):
            return base / edition
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "signature-directory"
    for parent in (users, _private_temporary()):
        if parent is not None and parent.is_absolute() and _is_writable(parent / "kernels"):
            _copy_installed(parent / "kernels", edition)
            return parent / "kernels" / edition
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


def _copy_installed(folder: Path, edition: str) -> None:
    """Copy the installation's kernels, unless that was done."""
    copy = folder / edition
    if copy.exists():
        return
    with suppress(OSError), tempfile.TemporaryDirectory(dir=folder) as scratch:
        copied = Path(scratch) / edition
        shutil.copytree(_INSTALLED / edition, copied, copy_function=shutil.copyfile)
        for inner in (copied, *copied.iterdir()):
            inner.chmod(0o700)
        copied.rename(copy)  # fails where another process was faster
    copy.mkdir(exist_ok=True)


def remove_other_editions(folder: Path) -> None:
    """Delete what was compiled from other editions of the code, in a folder that is ours alone."""
    if folder.parent != _INSTALLED:
        return
    for other in set(folder.parent.iterdir()) - {folder}:
        shutil.rmtree(other, ignore_errors=True)


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


FOLDER = _writable_folder()
"""Where compiled kernels are kept; None if no folder can be written to."""
if FOLDER is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(FOLDER)
    config.reload_config()  # numba may be loaded already
event.register("numba:compile", _SlowCompiles())
