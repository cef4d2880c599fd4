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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from sigdir.pipeline.engine import SMALL_BYTES
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import working_copy
from sigdir.warehouse.table.stores import open_store
from sigdir.warehouse.transfer.working_copy import pull
from tests.conftest import ROOT
from tests.torture import checks
from tests.torture.clients import Client, ConnectionLost, rows_above
from tests.torture.ledger import Finding, check_order
from tests.torture.plan import MACHINES, SHARED, StoreImport, StorePlan
from tests.torture.processes import HANGS_SECONDS, HOST, Server, run, until
from tests.warehouse.support import environment


class StoreRound:
    """Plays the part of a round in a folder of its own."""

    def __init__(self, folder: Path, plan: StorePlan, kills: Counter[str]) -> None:
        folder.mkdir()
        self._folder, self._plan, self._kills = folder, plan, kills
        self._url = f"file://{folder / 'store'}"
        self._replicas: list[Server] = []
        self._stop = threading.Event()

    def play(self) -> int:
        """Do all of it and check it; gives the number of rows. Raises Finding."""
        self._finish("first", ["first()"], machine=0)
        try:
            self._start_replica()
            self._run()
            self._check()
            return self._rows()
        finally:
            for server in self._replicas:
                server.end()

    def _run(self) -> None:
        """Import, kill and read, all at once."""
        with ThreadPoolExecutor(MACHINES + 2) as pool:
            work = [pool.submit(self._imports_of, machine) for machine in range(MACHINES)]
            others = [pool.submit(self._kill_replicas), pool.submit(self._read)]
            try:
                for each in work:
                    each.result()
            finally:
                self._stop.set()
            for other in others:
                other.result()

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
        if one.engine == "server":
            with sail_server(self._folder / f"sail-{number}.stderr", one.task_failpoint) as (server, url):
                done = self._command(f"{number}", number, one, ["--engine", "spark", "--master", url])
                was_killed = server.poll() == -signal.SIGKILL
            if one.task_failpoint:
                if (
                    not was_killed
                    or done.returncode != 2
                    or not re.fullmatch("Error: the engine failed: .*\n", done.stderr)
                ):
                    raise Finding(
                        f"an import whose executor was{'' if was_killed else ' not'} killed at {one.task_failpoint} ended"
                        f" with status {done.returncode}: {done.stderr[-500:]!r}"
                    )
                self._kills[f"executor at {one.task_failpoint}"] += 1
                return
        else:
            done = self._command(f"{number}", number, one, ["--engine", "spark"] if one.engine == "sail" else [])
        if done.returncode == -signal.SIGKILL and (one.failpoint or one.kill_after):
            point = f" at {one.failpoint}" if one.failpoint else ""
            self._kills[f"driver of {one.engine}{point}"] += 1
        elif done.returncode:
            raise Finding(f"an import by {one.engine} ended with status {done.returncode}: {done.stderr[-500:]!r}")

    def _command(self, name: str, number: int, one: StoreImport, more: list[str]) -> subprocess.CompletedProcess[str]:
        lines = self._folder / f"{name}.txt"
        lines.write_text("\n".join([*self._texts(number), "#" * SMALL_BYTES]))  # a task reads it
        return run(
            "import", lines, "--warehouse", self._url, "--quiet", *more, failpoint=one.failpoint,
            kill_after=one.kill_after, variables=self._of_machine(one.machine),
        )  # fmt: skip

    def _finish(self, name: str, texts: list[str], machine: int) -> None:
        """An import that nobody kills."""
        lines = self._folder / f"{name}.txt"
        lines.write_text("\n".join(texts))
        variables = self._of_machine(machine)
        done = run("import", lines, "--warehouse", self._url, "--quiet", variables=variables)
        if done.returncode:
            raise Finding(f"an import into a store ended with status {done.returncode}: {done.stderr[-500:]!r}")

    def _of_machine(self, machine: int) -> dict[str, str]:
        return {"SIGDIR_STORE_CACHE": str(self._folder / f"machine-{machine}")}

    # The replica.

    def _start_replica(self) -> None:
        errors = self._folder / f"replica-{len(self._replicas)}.stderr"
        self._replicas.append(Server(self._folder / "replica", errors, 0, "--follow-store", self._url))

    def _kill_replicas(self) -> None:
        began = time.monotonic()
        for kill in self._plan.kills:
            self._stop.wait(max(0.0, began + kill.at - time.monotonic()))
            replica = self._replicas[-1]
            if kill.target == "supervisor":
                replica.kill_supervisor()
                replica.end()
                self._start_replica()
                self._kills["replica's supervisor"] += 1
            else:
                self._kills[f"replica's {kill.target}"] += replica.kill_one(kill.target, kill.number)

    def _read(self) -> None:
        """Ask the replica until all is done: the count never falls."""
        client = Client(lambda: self._replicas[-1].port)
        count = 0
        while not self._stop.wait(0.05):
            with suppress(ConnectionLost):
                status, page = client.request("GET", "/api/v1/signatures/")
                if status != 200 or page["count"] < count:
                    raise Finding(f"the replica answers {status} with {page}, and had {count} rows before")
                count = page["count"]
        client.close()

    # The checks, while nothing else runs.

    def _check(self) -> None:
        present = self._present("killed")
        for number, one in enumerate(self._plan.imports):
            own = self._texts(number)[: one.own]
            there = len(present.intersection(own))
            if there not in (0, one.own):
                raise Finding(f"{there} of the {one.own} texts of import {number} are there")
        for number in range(len(self._plan.imports)):
            self._finish(f"{number}", self._texts(number), self._plan.imports[number].machine)
        for machine in range(MACHINES):  # each publishes, and removes what its dead runs left
            self._finish(f"last-{machine}", [f"last{machine}()"], machine)
        wanted = {text for number in range(len(self._plan.imports)) for text in self._texts(number)}
        wanted |= {"first()", *(f"last{machine}()" for machine in range(MACHINES))}
        if (found := self._present("finished")) != wanted:
            raise Finding(f"{len(wanted - found)} texts are missing, {len(found - wanted)} are of nobody")
        self._check_objects()
        self._check_replica()
        done = run("verify", "--warehouse", self._url, "--quiet", variables=self._of_machine(0))
        if done.returncode:
            raise Finding(f"verify ended with status {done.returncode}: {done.stdout[-500:]!r}")

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
        copy = self._fresh("objects")
        runs = {summary.get("run") for summary in history(copy)}
        names = [
            each.name for each in open_store(self._url).list() if "_delta_log" not in each.name and "/" in each.name
        ]
        checks.check_none("objects of no run", [name for name in names if not any(run and run in name for run in runs)])
        for machine in range(MACHINES):
            checks.check_none("entries in tmp", (self._folder / f"machine-{machine}").glob("*/tmp/*"))

    def _check_replica(self) -> None:
        replica, newest = self._replicas[-1], read_snapshot(self._fresh("newest")).version
        client = Client(lambda: replica.port)
        until(lambda: _version(client) == newest, f"the replica to show version {newest}")
        for collection in COLLECTIONS:
            rows, count = rows_above(client, collection, 0)
            stored = checks.sql_rows(self._folder / "newest", collection)
            if count != len(stored) or [row.text for row in rows] != [row.text for row in stored]:
                raise Finding(f"the replica has {count} rows of {collection}, the store {len(stored)}")
        client.close()
        if replica.errors():
            raise Finding(f"the replica reported {replica.errors()[0]}")

    def _rows(self) -> int:
        return sum(read_snapshot(self._fresh("newest")).count(collection) for collection in COLLECTIONS)


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
        if server.poll() is not None:
            raise Finding(f"Sail's server ended: {errors.read_text()[-300:]!r}")
        with suppress(OSError), socket.create_connection((HOST, port), HANGS_SECONDS):
            return True
        return False

    try:
        until(is_up, "Sail's server")
        yield server, f"sc://{HOST}:{port}"
    finally:
        server.kill()
        server.wait()
