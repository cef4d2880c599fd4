"""One round: run everything in its plan at once, wait until all of it has ended, then check the warehouse."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from tests.torture import checks
from tests.torture.clients import Client, ConnectionLost, Reader, post, poster
from tests.torture.contracts import ImportedContract
from tests.torture.ledger import Finding, Ledger
from tests.torture.plan import CLIENTS, Command, Plan, Post
from tests.torture.processes import Server, run, until
from tests.torture.stores import StoreRound

UPKEEP: dict[str, Sequence[str]] = {
    "compact": [],
    "vacuum": ["--keep", "10s"],
    "verify": [],
    "backup": ["BESIDE/backup"],
}
"""The commands besides import and fold, with their arguments. BESIDE is the folder that contains the warehouse."""


class Torture:
    """Plays rounds on one warehouse after another in ``folder``, each with its server."""

    def __init__(self, folder: Path) -> None:
        self.figures, self.kills, self.commands = Counter[str](), Counter[str](), Counter[str]()
        self._folder = folder
        self._server: Server | None = None
        self._orphans: list[Server] = []
        self._servers = 0

    def to_json(self) -> str:
        """How much was done: POSTs that were answered, rows that were found, kills, commands that finished."""
        return json.dumps({**self.figures, "kills": self.kills, "commands": self.commands})

    # A round.

    def play(self, plan: Plan) -> None:
        """Run a plan and compare the warehouse with the ledger. Raises Finding."""
        if plan.starts_warehouse:
            self._start_warehouse(plan)
        if self._server is None:
            self._start(plan.fold_every)
        self._run(plan)
        for orphan in self._orphans:
            orphan.end()
        self._orphans.clear()
        self._check(plan)
        if plan.stores is not None:
            place = self._place / f"stores-{plan.round}"
            self.figures["found"] += StoreRound(place, plan.stores, self.kills).play()
        self.figures["rounds"] += 1

    def _start_warehouse(self, plan: Plan) -> None:
        self.close()
        self._place = self._folder / f"from-round-{plan.round}"
        self._place.mkdir()
        self._paths = Paths(self._place / "warehouse")
        self._ledger = Ledger()
        self._whole: list[ImportedContract] = []
        self._used: list[ImportedContract] = []
        self._counted = (0, 0)

    def _start(self, fold_every: float) -> None:
        self._servers += 1
        errors = self._place / f"server-{self._servers}.stderr"
        self._server = Server(self._paths.root, errors, fold_every)

    def _running(self) -> Server:
        assert self._server is not None
        return self._server

    def _port(self) -> int:
        return self._running().port

    def _run(self, plan: Plan) -> None:
        """Run all of it at once until posts and commands have ended. Raises the first failure."""
        began = time.monotonic()
        stop = threading.Event()
        readers = [Reader(seed, Client(self._port), self._ledger) for seed in plan.readers]
        with ThreadPoolExecutor(CLIENTS + len(plan.commands) + len(readers) + 1) as pool:
            work: list[Any] = [
                pool.submit(poster, posts, Client(self._port), self._ledger, began) for posts in plan.posts
            ]
            others = [
                pool.submit(self._command, plan, number, command, began) for number, command in enumerate(plan.commands)
            ]
            others.append(pool.submit(self._kills, plan, began))
            reading = [pool.submit(reader.run, stop) for reader in readers]
            try:
                self.figures["posts"] += sum(each.result() for each in work)
                for each in others:
                    each.result()
            finally:
                stop.set()
            for each in reading:
                each.result()
        self.figures["pages"] += sum(reader.pages for reader in readers)
        self.figures["lookups"] += sum(reader.lookups for reader in readers)

    def _kills(self, plan: Plan, began: float) -> None:
        for kill in plan.kills:
            time.sleep(max(0.0, began + kill.at - time.monotonic()))
            if kill.target != "supervisor":
                self.kills[kill.target] += self._running().kill_one(kill.target, kill.number)
                continue
            # The children it leaves run for a while at the same time as the next server.
            left = self._running()
            left.kill_supervisor()
            self.kills["supervisor"] += 1
            self._orphans.append(left)
            self._start(plan.fold_every)
            time.sleep(kill.number / 4)
            left.end()

    def _command(self, plan: Plan, number: int, command: Command, began: float) -> None:
        time.sleep(max(0.0, began + command.at - time.monotonic()))
        arguments: list[str | Path] = [command.name]
        if command.contract is not None:
            self._ledger.send(command.brings)
            arguments += self._contract_files(command, number)
        elif command.name == "import":
            lines = self._place / f"round-{plan.round}-{number}.txt"
            lines.write_text("".join(f"{line}\n" for line in command.lines))
            self._ledger.send(command.brings)
            arguments += [lines, "--json", "--quiet"]
        elif command.name in UPKEEP:
            arguments += [word.replace("BESIDE", str(self._place)) for word in UPKEEP[command.name]]
        owed = self._ledger.owed() if command.name == "backup" else {}
        done = run(
            *arguments, "--warehouse", self._paths.root, failpoint=command.failpoint, kill_after=command.kill_after
        )
        if done.returncode == -9 and (command.failpoint or command.kill_after):
            self.kills[f"{command.name} at {command.failpoint}" if command.failpoint else command.name] += 1
        elif done.returncode != 0:
            raise Finding(
                f"{command.name} ended with status {done.returncode}: {done.stdout[-300:]!r} {done.stderr[-500:]!r}"
            )
        else:
            self.commands[command.name] += 1
            if command.contract is not None:
                self._ledger.exists(command.brings)
                (self._whole if command.brings else self._used).append(command.contract)
            elif command.name == "import":
                self._finished(command, json.loads(done.stdout)["totals"])
            elif command.name == "backup":
                checks.backup(self._place / "backup", owed)

    def _contract_files(self, command: Command, number: int) -> list[str | Path]:
        """The files of a contract or of its use, as arguments of an import."""
        assert command.contract is not None
        folder = self._place / f"contract-{number}-{command.contract.round}"
        folder.mkdir()
        files = command.contract.abi_files() if command.brings else command.contract.usage_files()
        for name, content in files.items():
            (folder / name).write_text(content)
        return [folder, "--json", "--quiet", *([] if command.brings else ["--usage"])]

    def _finished(self, command: Command, totals: dict[str, int]) -> None:
        self._ledger.exists(command.brings)
        if not (
            totals["read"] == len(command.lines) == totals["imported"] + totals["duplicate"] + totals["rejected"]
            and totals["rejected"] == command.rejects
        ):
            raise Finding(f"an import of {len(command.lines)} lines, {command.rejects} of them bad, reports {totals}")

    # The checks, while nothing else runs.

    def _check(self, plan: Plan) -> None:
        server, ledger = self._running(), self._ledger
        chance = random.Random(f"{plan.seed}:{plan.round}:checks")
        self.figures["lookups"] += checks.by_http(server, self._paths, ledger, chance, plan.reads_all)
        self._check_contracts(plan, chance)
        run_to_success("fold", "--warehouse", self._paths.root)
        self._post_and_wait(plan)
        rows = checks.by_sql(self._paths, ledger)
        checks.by_usage(self._paths.root, self._used)
        checks.by_files(self._paths)
        checks.by_cache(self._paths)
        run_to_success("verify", "--warehouse", self._paths.root)
        for each in (server, *self._orphans):
            if each.errors():
                raise Finding(f"the server reported {each.errors()[0]}")
        acknowledged = len(ledger.acknowledged())
        self.figures["acknowledged"] += acknowledged - self._counted[0]
        self.figures["found"] += rows - self._counted[1]
        self._counted = (acknowledged, rows)

    def _check_contracts(self, plan: Plan, chance: random.Random) -> None:
        """The round's contract, and two of earlier rounds."""
        client = Client(self._port)
        for one in chance.sample(self._whole, min(2, len(self._whole))):
            checks.by_contract(client, one, finished=True)
        for command in plan.commands:
            if command.contract is not None and command.brings:
                checks.by_contract(client, command.contract, finished=command.contract in self._whole)
        client.close()

    def _post_and_wait(self, plan: Plan) -> None:
        """POST one row to each collection and wait until the server's fold process has moved it into the table."""
        client = Client(self._port)
        for collection in COLLECTIONS:
            text = f"Silence{plan.round}(address)"
            written = text if collection == SIGNATURES else f"event {text};"
            until(lambda: self._posted(client, Post(0.0, collection, written, text, by_abi=False)), "a response")  # noqa: B023
        client.close()
        newest = {collection: row.id for collection, row in self._ledger.acknowledged()}
        until(
            lambda: all(read_snapshot(self._paths).high_water[c].id >= id for c, id in newest.items()),
            "the server to fold",
        )

    def _posted(self, client: Client, one: Post) -> bool:
        try:
            post(client, self._ledger, one)
        except ConnectionLost:
            return False
        return True

    def close(self) -> None:
        """Stop the server. Raises Finding if it does not stop as it should."""
        if self._server is not None:
            server, self._server = self._server, None
            try:
                server.stop()
            finally:
                server.end()

    def end(self) -> None:
        """Kill every process that still runs."""
        for server in [*self._orphans, *([self._server] if self._server else [])]:
            server.end()


def run_to_success(*arguments: str | Path) -> None:
    done = run(*arguments)
    if done.returncode:
        raise Finding(
            f"{arguments[0]} ended with status {done.returncode}: {done.stdout[-500:]!r} {done.stderr[-500:]!r}"
        )
