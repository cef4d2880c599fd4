"""Sessions of the engines that `sigdir import --engine spark` knows: Sail in this process, Spark Connect, PySpark."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from sigdir.pipeline.engine import EngineFailed, quietly, reason_of
from sigdir.pipeline.errors import one_line
from sigdir.signatures.errors import missing_package

_CONNECT_PORT = 15002
"""Of Spark Connect, where the URL has none."""
_CONNECT_SECONDS = 10
_CLASSIC: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_TRIES, _BACKOFF_MS = 8, 5000
"""A request to a Connect server that does not answer is repeated for 25 s. By default it is for ten minutes, and an import
whose server has died would wait that long."""


@contextmanager
def open_session(master: str | None) -> Iterator[Any]:
    """A session of a master: ``local[N]``, ``local-cluster[N,cores,MiB]``, ``spark://...``, ``sc://...``, or Sail in
    this process. Raises EngineFailed, which says what is missing.
    """
    opened = _sail() if master is None else _remote(master) if master.startswith("sc://") else _classic(master)
    with quietly(), _spark_home(), opened as session:
        yield session


@contextmanager
def _sail() -> Iterator[Any]:
    if find_spec("pysail") is None:
        raise EngineFailed(missing_package("Sail", "pysail", "sail"))
    os.environ.setdefault("RUST_LOG", "error")  # Sail's log goes to standard error
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start(background=True)
    try:
        _, port = server.listening_address
        with _remote(f"sc://127.0.0.1:{port}") as session:
            yield session
    finally:
        server.stop()


@contextmanager
def _remote(url: str) -> Iterator[Any]:
    if find_spec("pyspark") is None or find_spec("grpc") is None:
        raise EngineFailed(missing_package("Spark Connect", "pysail", "sail"))
    server = _listening(url)
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.builder.remote(url).create()
    except Exception as error:
        raise EngineFailed(f"{server} does not answer: {reason_of(error)}") from error
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES, max_backoff=_BACKOFF_MS)])
    try:
        yield session
    finally:
        session.client.set_retry_policies([])  # the server may be gone
        session.stop()


@contextmanager
def _spark_home() -> Iterator[None]:
    """Set SPARK_HOME where pyspark-client, which has no Spark to find, would look for it.

    pyspark takes a process whose main module has no file (``python -c``, a worker of xdist) for its own doctests. For
    these it looks for Spark, and ends the process where there is none.
    """
    found = find_spec("pyspark")
    folders = found.submodule_search_locations if found is not None else None
    has_main_file = hasattr(sys.modules["__main__"], "__file__")
    if has_main_file or find_spec("py4j") is not None or "SPARK_HOME" in os.environ or not folders:
        yield
        return
    os.environ["SPARK_HOME"] = folders[0]
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _listening(url: str) -> str:
    """The host and port of a Connect URL, whose parameters may hold a token. Raises EngineFailed if nobody listens."""
    try:
        address = urlsplit(url)
        host, port = address.hostname or "", address.port or _CONNECT_PORT
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            return f"sc://{host}:{port}"
    except (OSError, ValueError) as error:
        raise EngineFailed(f"the Spark Connect server does not answer: {one_line(str(error))}") from None


@contextmanager
def _classic(master: str) -> Iterator[Any]:
    if find_spec("py4j") is None or find_spec("pyspark") is None:
        raise EngineFailed(missing_package(f"the master {master}", "pyspark", "spark"))
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise EngineFailed(
            f"the master {master} needs Java 17 or newer, which is not there: install it, set JAVA_HOME, or leave"
            " --master out for Sail, which needs none"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("sigdir import").config(map=_CLASSIC)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise EngineFailed(f"{master} cannot be used: {reason_of(error)}") from error
    try:
        yield session
    finally:
        with suppress(Exception):  # Ctrl-C has ended Java too
            session.stop()
