"""One round: run everything in its plan at once, wait until all of it has ended, then check the warehouse."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from tests.pipeline.support import write_files
from tests.serve.support import until
from tests.torture import checks
from tests.torture.clients import Client, ConnectionLost, post, poster, reader
from tests.torture.ledger import Ledger
from tests.torture.plan import Command, ImportedContract, Plan, Post
from tests.torture.processes import Servers, Work, at_once, check_success, run
from tests.torture.stores import StoreRound

ROUNDS_PER_WAREHOUSE = 25
"""After these a new warehouse starts, so that a late round of a long run takes no longer than an early one."""
_READERS = 2


class Torture:
    """Plays rounds on one warehouse after another in ``folder``, each with its servers."""

    def __init__(self, folder: Path) -> None:
        self.figures, self.kills, self.commands = Counter[str](), Counter[str](), Counter[str]()
        self._folder = folder
        self.running = ExitStack()
        """The servers of the present warehouse."""

    def to_json(self) -> str:
        """How much was done: POSTs that were answered, rows that were found, kills, commands that finished."""
        return json.dumps({**self.figures, "kills": self.kills, "commands": self.commands})

    # A round.

    def play(self, plan: Plan) -> None:
        """Run a plan and compare the warehouse with the ledger."""
        if self.figures["rounds"] % ROUNDS_PER_WAREHOUSE == 0:
            self._start_warehouse(plan)
        self._servers.fold_every = plan.fold_every
        self._run(plan)
        self._check(plan)
        if plan.stores is not None:
            place = self._place / f"stores-{plan.round}"
            self.figures["found"] += StoreRound(place, plan.stores, self.kills).play()
        self.figures["rounds"] += 1

    def _start_warehouse(self, plan: Plan) -> None:
        self.running.close()
        self._place = self._folder / f"from-round-{plan.round}"
        self._place.mkdir()
        self._paths = Paths(self._place / "warehouse")
        self._ledger = Ledger()
        self._whole: list[ImportedContract] = []
        self._used: list[ImportedContract] = []
        self._counted = (0, 0)
        self._servers = Servers(self.running, self._paths.root, self.kills)
        self._servers.fold_every = plan.fold_every
        self._servers.start()

    def _run(self, plan: Plan) -> None:
        """Run all of it at once until posts and commands have ended. Raises the first failure."""
        began, stop = time.monotonic(), threading.Event()
        work: list[Work] = [partial(poster, posts, self._client(), self._ledger, began) for posts in plan.posts]
        work += [partial(self._command, plan, number, one, began) for number, one in enumerate(plan.commands)]
        work.append(partial(self._servers.kill_all, plan.kills, began, stop))
        readers = [
            partial(reader, f"{plan.seed}:{plan.round}:{number}", self._client(), self._ledger, stop)
            for number in range(_READERS)
        ]
        self.figures.update(at_once(work, readers, stop))

    def _client(self) -> Client:
        return Client(self._servers.port)

    def _command(self, plan: Plan, number: int, command: Command, began: float) -> None:
        time.sleep(max(0.0, began + command.at - time.monotonic()))
        arguments: list[str | Path] = [command.name, *command.options, "--warehouse", self._paths.root]
        if command.name == "import":
            self._ledger.send(command.brings)
            files = self._place / f"round-{plan.round}-{number}"
            write_files(files, command.files)
            arguments += [files, "--json", "--quiet"]
        owed = {collection: self._ledger.owed(collection) for collection in COLLECTIONS}
        done = run(self._place, *arguments, failpoint=command.failpoint, kill_after=command.kill_after)
        if done.returncode == -signal.SIGKILL and (command.failpoint or command.kill_after):
            self.kills[f"{command.name} at {command.failpoint}" if command.failpoint else command.name] += 1
            return
        check_success(done)
        self.commands[command.name] += 1
        if command.name == "import":
            self._finished(command, json.loads(done.stdout)["totals"])
        elif command.name == "backup":
            checks.backup(self._place / "backup", owed)

    def _finished(self, command: Command, totals: dict[str, int]) -> None:
        self._ledger.exists(command.brings)
        if command.contract is not None:
            (self._whole if command.brings else self._used).append(command.contract)
            return
        lines = len(command.brings) + command.rejects
        counted = (totals["read"], totals["imported"] + totals["duplicate"], totals["rejected"])
        assert counted == (lines, len(command.brings), command.rejects), f"an import of {lines} lines reports {totals}"

    # The checks, while nothing else runs.

    def _check(self, plan: Plan) -> None:
        ledger, root = self._ledger, self._paths.root
        chance = random.Random(f"{plan.seed}:{plan.round}:checks")
        self.figures["lookups"] += checks.by_http(self._servers.current, self._paths, ledger, chance, plan.reads_all)
        self._check_contracts(plan, chance)
        check_success(run(self._place, "fold", "--warehouse", root))
        self._post_and_wait(plan)
        rows = checks.by_sql(self._paths, ledger)
        checks.by_usage(root, self._used)
        checks.by_files(self._paths)
        checks.by_cache(self._paths)
        checks.check_none("errors of servers", self._servers.errors())
        acknowledged = sum(len(ledger.acknowledged(collection)) for collection in COLLECTIONS)
        self.figures.update(acknowledged=acknowledged - self._counted[0], found=rows - self._counted[1])
        self._counted = (acknowledged, rows)

    def _check_contracts(self, plan: Plan, chance: random.Random) -> None:
        """The round's contract, and two of earlier rounds."""
        client = self._client()
        known = [*self._whole, *(one.contract for one in plan.commands if one.contract and one.brings)]
        for one in chance.sample(known[:-1], min(2, len(known) - 1)) + known[-1:]:
            checks.by_contract(client, one, finished=one in self._whole)
        client.close()

    def _post_and_wait(self, plan: Plan) -> None:
        """POST one row to each collection and wait until the server's fold process has moved it into the table."""
        client = self._client()
        for collection in COLLECTIONS:
            text = f"Silence{plan.round}(address)"
            written = text if collection == SIGNATURES else f"event {text};"
            until(lambda: self._posted(client, Post(0.0, collection, written, text)), "a response")  # noqa: B023
        client.close()
        newest = {
            collection: max(row.id for row in self._ledger.acknowledged(collection)) for collection in COLLECTIONS
        }
        until(
            lambda: all(read_snapshot(self._paths).high_water[c].id >= id for c, id in newest.items()),
            "the server to fold",
        )

    def _posted(self, client: Client, one: Post) -> bool:
        with suppress(ConnectionLost):
            post(client, self._ledger, one)
            return True
        return False
