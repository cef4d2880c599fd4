"""Frames of an engine with Spark's API. Each engine has errors of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pyarrow as pa

from sigdir.pipeline.errors import PipelineError, one_line


class EngineFailed(PipelineError):
    """The engine cannot be reached, or a task of it failed."""


def is_local(master: str | None) -> bool:
    """Whether all processes of a master are on this machine: Sail in this process, ``local[N]`` and ``local-cluster[...]``."""
    return master is None or master.startswith("local")


def collected(frame: Any) -> Future[pa.Table]:
    """The rows of a frame, collected in a thread, which does not keep an interrupted import from ending.

    Their result raises EngineFailed with the sentence that says most.
    """
    rows: Future[pa.Table] = Future()

    def collect() -> None:
        try:
            with quietly():
                rows.set_result(frame.toArrow())
        except Exception as error:  # noqa: BLE001 - each engine has errors of its own
            failure = EngineFailed(f"the engine failed: {reason_of(error)}")
            failure.__cause__ = error
            rows.set_exception(failure)

    Thread(target=collect, daemon=True).start()
    return rows


_GRPC_DETAILS = "details = "
"""In front of what an error of gRPC says, in a dump of its fields."""


def reason_of(error: Exception) -> str:
    """The last line of an error that names an exception: engines put stack traces of Java around those of Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.", "java."))]
    named = named or [line.removeprefix(_GRPC_DETAILS).strip('"') for line in lines if line.startswith(_GRPC_DETAILS)]
    return one_line((named or lines or [type(error).__name__])[-1 if named else 0])[:500]


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of pyspark that it does not know pandas 3, which is not used here, and that it gives a server
    up, which the error says too.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
        yield
