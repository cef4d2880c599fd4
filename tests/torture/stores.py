"""A part of a round: a warehouse in a store, into which two machines import at once while a replica serves it.

Imports run by threads, by Sail in the driver's process, and by Sail's server, which is then the executor. Drivers and
executors are killed at failpoints or after some time, and so are the replica's processes. Afterwards each import is there
as a whole or not at all; run again it is there, no text is there twice, and nothing is left of those that were killed.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sigdir.pipeline.engine import SMALL_BYTES
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import working_copy
from sigdir.warehouse.table.stores import open_store
from sigdir.warehouse.transfer.working_copy import pull
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import HOST, SIGNATURES_PATH, until
from tests.torture import checks
from tests.torture.clients import Client, ConnectionLost, rows_above
from tests.torture.ledger import check_order
from tests.torture.plan import MACHINES, SHARED, StoreImport, StorePlan
from tests.torture.processes import Servers, at_once, check_success, run
from tests.warehouse.support import environment


class StoreRound:
    """Plays the part of a round in a folder of its own."""

    def __init__(self, folder: Path, plan: StorePlan, kills: Counter[str]) -> None:
        folder.mkdir()
        self._folder, self._plan, self._kills = folder, plan, kills
        self._url = f"file://{folder / 'store'}"
        self._stop = threading.Event()

    def play(self) -> int:
        """Do all of it and check it; gives the number of rows."""
        check_success(self._command("first", ["first()"], machine=0))
        with ExitStack() as running:
            replicas = Servers(running, self._folder / "replica", self._kills, "--follow-store", self._url)
            replicas.start()
            work = [partial(self._imports_of, machine) for machine in range(MACHINES)]
            kills = partial(replicas.kill_all, self._plan.kills, time.monotonic(), self._stop)
            at_once(work, [kills, partial(self._read, replicas)], self._stop)
            return self._check(replicas)

    # Imports.

    def _texts(self, number: int) -> list[str]:
        """The texts of an import: its own, and some that others bring too."""
        one = self._plan.imports[number]
        own = [f"of{number}n{row}(uint256)" for row in range(one.own)]
        return own + [f"shared{row}()" for row in range(one.shared, SHARED)]

    def _imports_of(self, machine: int) -> None:
        for number, one in enumerate(self._plan.imports):
            if one.machine == machine:
                self._import(number, one)

    def _import(self, number: int, one: StoreImport) -> None:
        lines = [*self._texts(number), "#" * SMALL_BYTES]  # a task reads it
        options = [] if one.engine == "local" else ["--engine", "spark"]
        killed = {"failpoint": one.failpoint, "kill_after": one.kill_after}
        if one.engine != "server":
            done = self._command(f"{number}", lines, one.machine, *options, **killed)
        else:
            with sail_server(self._folder / f"sail-{number}.stderr", one.task_failpoint) as (server, url):
                done = self._command(f"{number}", lines, one.machine, *options, "--master", url, **killed)
                executor = server.poll()
        if one.task_failpoint:
            assert executor == -signal.SIGKILL, f"no executor was killed at {one.task_failpoint}"
            assert done.returncode == 2, f"an import whose executor was killed ended with {done.returncode}"
            assert re.fullmatch("Error: the engine failed: .*\n", done.stderr), done.stderr
            self._kills[f"executor at {one.task_failpoint}"] += 1
        elif done.returncode == -signal.SIGKILL and (one.failpoint or one.kill_after):
            self._kills[f"driver of {one.engine}{f' at {one.failpoint}' if one.failpoint else ''}"] += 1
        else:
            check_success(done)

    def _command(
        self, name: str, texts: list[str], machine: int, *options: str, **killed: Any
    ) -> subprocess.CompletedProcess[str]:
        """An import of these texts by a machine."""
        lines = self._folder / f"{name}.txt"
        lines.write_text("\n".join(texts))
        arguments: list[str | Path] = ["import", lines, "--warehouse", self._url, "--quiet", *options]
        return run(self._folder, *arguments, variables=self._of_machine(machine), **killed)

    def _of_machine(self, machine: int) -> dict[str, str]:
        return {"SIGDIR_STORE_CACHE": str(self._folder / f"machine-{machine}")}

    def _read(self, replicas: Servers) -> None:
        """Ask the replica until all is done: the count never falls."""
        client = Client(replicas.port)
        count = 0
        while not self._stop.wait(0.05):
            with suppress(ConnectionLost):
                page = client.get(SIGNATURES_PATH)
                assert page["count"] >= count, f"the replica has {page['count']} rows, and had {count} before"
                count = page["count"]
        client.close()

    # The checks, while nothing else runs.

    def _check(self, replicas: Servers) -> int:
        """Gives the number of rows."""
        imports = dict(enumerate(self._plan.imports))
        present = self._present("killed")
        for number, one in imports.items():
            there = len(present.intersection(self._texts(number)[: one.own]))
            assert there in (0, one.own), f"{there} of the {one.own} texts of import {number} are there"
        last = {f"last-{machine}": ([f"last{machine}()"], machine) for machine in range(MACHINES)}
        again = {f"{number}": (self._texts(number), one.machine) for number, one in imports.items()}
        for name, (texts, machine) in {**again, **last}.items():  # the last removes what dead runs left on its machine
            check_success(self._command(name, texts, machine))
        wanted = {"first()"}.union(*(texts for texts, _ in {**again, **last}.values()))
        found = self._present("finished")
        assert found == wanted, f"{len(wanted - found)} texts are missing, {len(found - wanted)} are of nobody"
        self._check_objects()
        check_success(run(self._folder, "verify", "--warehouse", self._url, variables=self._of_machine(0)))
        return self._check_replica(replicas)

    def _present(self, reader: str) -> set[str]:
        """All texts, as a machine sees them that has no copy yet; none is there twice."""
        rows = checks.sql_rows(self._fresh(reader).root, SIGNATURES)
        check_order(SIGNATURES, rows, self._url)
        return {row.text for row in rows}

    def _fresh(self, reader: str) -> Paths:
        copy = working_copy(self._url, self._folder / reader)
        pull(copy)
        return copy

    def _check_objects(self) -> None:
        """The store has no file of a run without a version, and the machines nothing that a run left."""
        runs = {summary["run"] for summary in history(self._fresh("objects")) if summary.get("run")}
        stored = [one.name for one in open_store(self._url).list() if "_delta_log" not in one.name and "/" in one.name]
        checks.check_none("objects of no run", [name for name in stored if not any(run in name for run in runs)])
        for machine in range(MACHINES):
            checks.check_none("entries in tmp", (self._folder / f"machine-{machine}").glob("*/tmp/*"))

    def _check_replica(self, replicas: Servers) -> int:
        """Gives the number of rows."""
        newest = self._fresh("newest")
        version, client = read_snapshot(newest).version, Client(replicas.port)
        until(lambda: _version(client) == version, f"the replica to show version {version}")
        for collection in COLLECTIONS:
            rows, count = rows_above(client, collection, 0)
            stored = checks.sql_rows(newest.root, collection)
            assert count == len(stored), f"the replica has {count} rows of {collection}, the store {len(stored)}"
            assert [row.text for row in rows] == [row.text for row in stored], f"the replica has other {collection}"
        client.close()
        checks.check_none("errors of replicas", replicas.errors())
        return sum(read_snapshot(newest).count(collection) for collection in COLLECTIONS)


def _version(client: Client) -> int:
    with suppress(ConnectionLost):
        _, ready = client.request("GET", "/readyz")
        return int(ready["version"])
    return -1


@contextmanager
def sail_server(
    errors: Path, failpoint: str | None, cwd: Path = ROOT, more: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server of Sail in the folder ``cwd``, whose process runs the tasks, and its address."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    variables = {"PYTHONPATH": str(ROOT), "RUST_LOG": "error"} | ({"SIGDIR_FAILPOINT": failpoint} if failpoint else {})
    variables |= more or {}
    command = [sys.executable, "-m", "pysail", "spark", "server", "--port", str(port)]
    with errors.open("wb") as stderr:
        server = subprocess.Popen(command, env=environment(**variables), cwd=cwd, stdout=stderr, stderr=stderr)

    def is_up() -> bool:
        assert server.poll() is None, f"Sail's server ended: {errors.read_text()[-300:]!r}"
        with suppress(OSError), socket.create_connection((HOST, port), SAFETY_SECONDS):
            return True
        return False

    try:
        until(is_up, "Sail's server")
        yield server, f"sc://{HOST}:{port}"
    finally:
        server.kill()
        server.wait()
