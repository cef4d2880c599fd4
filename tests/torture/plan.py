"""What a round does, drawn from the seed and the round's number before anything runs.

Times are seconds from the start of the round. The seed decides which process is killed, when, and under what
load. At which instruction the kill arrives depends on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from tests.torture.contracts import ImportedContract
from tests.torture.points import COMMIT_POINTS, IMPORT_POINTS, STORE_POINTS, TASK_POINTS

CLIENTS = 4
ROUNDS_PER_WAREHOUSE = 25
"""After these a new warehouse starts, so that a late round of a long run takes no longer than an early one."""

MACHINES = 2
ENGINES = ("local", "sail", "server")
SHARED = 300
_OWN = (10, 3_000)
_STORE_CHANCE = 0.1
"""Of a round to have the part of ``stores``, which takes as long as ten others."""
POINTS = {
    "import": IMPORT_POINTS,
    "fold": COMMIT_POINTS,
    "compact": COMMIT_POINTS,
    "vacuum": ("vacuum_removing",),
    "backup": ("copied", "logged", "replaced"),
}
"""The failpoints of each command: see ``sigdir.warehouse.table.failpoints``."""

Text = tuple[Collection, str]


@dataclass(frozen=True, slots=True)
class Post:
    """A text to POST, as written and as stored."""

    at: float
    collection: Collection
    written: str
    text: str
    by_abi: bool
    """POSTed to import-abi, in one body with the texts that follow it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run. It may be killed at a failpoint, or after a number of seconds."""

    name: str
    at: float
    failpoint: str | None
    kill_after: float | None
    lines: tuple[str, ...] = ()
    brings: tuple[Text, ...] = ()
    """The texts of an import's lines."""
    rejects: int = 0
    contract: ImportedContract | None = None
    """An import of a contract, in place of lines; or of its use, where it brings no texts."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill -9 of a process of a server: ``supervisor``, ``worker``, ``folder`` (the fold process) or ``follower``."""

    at: float
    target: str
    number: int
    """Which of the workers. For a supervisor: its children are killed after this many quarters of a second."""


@dataclass(frozen=True, slots=True)
class StoreImport:
    """An import of some texts of its own and some that others bring too. It may be killed, or its executor may."""

    machine: int
    engine: str
    """One of ENGINES."""
    failpoint: str | None
    """Of the driver."""
    task_failpoint: str | None
    """Of the executor."""
    kill_after: float | None
    """Seconds after which the driver is killed."""
    own: int
    """How many texts nobody else brings."""
    shared: int
    """The first of the texts that others bring too."""


@dataclass(frozen=True, slots=True)
class StorePlan:
    imports: tuple[StoreImport, ...]
    kills: tuple[Kill, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    round: int
    starts_warehouse: bool
    fold_every: float
    reads_all: bool
    """At its end every worker reads all pages, not only those of new rows."""
    posts: tuple[tuple[Post, ...], ...]
    commands: tuple[Command, ...]
    kills: tuple[Kill, ...]
    readers: tuple[int, ...]
    """One seed per reader."""
    stores: StorePlan | None
    """What happens to a warehouse in a store; drawn by itself, so that the rest of a round is as it was without it."""


def draw(seed: int, round_number: int, upkeep: Sequence[str], first_round: int = 1) -> Plan:
    """The plan of a round; ``upkeep`` are the available commands besides import and fold."""
    chance = random.Random(f"{seed}:{round_number}")
    return Plan(
        seed,
        round_number,
        (round_number - first_round) % ROUNDS_PER_WAREHOUSE == 0,
        chance.choice((0.2, 0.5, 1.0)),
        chance.random() < 0.1,
        tuple(_posts(chance, round_number) for _ in range(CLIENTS)),
        (
            *_commands(chance, round_number, upkeep),
            *_contract(random.Random(f"{seed}:{round_number}:contract"), round_number),
        ),
        tuple(_kills(chance)),
        tuple(chance.getrandbits(32) for _ in range(2)),
        _stores(random.Random(f"{seed}:{round_number}:stores")),
    )


def _function(round_number: int, number: int) -> str:
    return f"f{round_number}x{number}({'address,' * (number % 4)}uint256)"


def _event(round_number: int, number: int) -> str:
    return f"E{round_number}x{number}(address)"


def _posts(chance: random.Random, round_number: int) -> tuple[Post, ...]:
    """One client's POSTs. All clients draw from the same few texts; imports bring some of them too."""
    seconds = chance.uniform(1.5, 3.0)
    count = chance.randint(100, 300)
    posts = []
    for n in range(count):
        by_abi = chance.random() < 0.05
        if chance.random() < 0.25:
            text = _event(round_number, chance.randrange(300))
            posts.append(Post(n * seconds / count, EVENT_SIGNATURES, f"event {text};", text, by_abi))
        else:
            raced = chance.random() < 0.5
            text = _function(round_number, chance.randrange(500) if raced else 50_000 + chance.randrange(1_500))
            written = text if chance.random() < 0.5 else f"function {text.replace('uint256', 'uint a')} external;"
            posts.append(Post(n * seconds / count, SIGNATURES, written, text, by_abi))
    return tuple(posts)


def _commands(chance: random.Random, round_number: int, upkeep: Sequence[str]) -> list[Command]:
    rows = chance.choice((300, 2_000, 2_000, 20_000))
    commands = [
        _import(chance, round_number, range(rows * 2 // 3), range(200)),
        _import(chance, round_number, range(rows // 3, rows), range(100, 400)),
    ]
    commands += [_command(chance, "fold") for _ in range(chance.randint(0, 2))]
    for name in upkeep:
        if chance.random() < 0.4:
            commands.append(_command(chance, name))
    return commands


def _command(chance: random.Random, name: str) -> Command:
    how = chance.random()
    failpoint = chance.choice(POINTS[name]) if how < 0.3 and name in POINTS else None
    kill_after = chance.uniform(0.3, 2.5) if 0.3 <= how < 0.6 else None
    return Command(name, chance.uniform(0.0, 1.5), failpoint, kill_after)


def _import(chance: random.Random, round_number: int, functions: range, events: range) -> Command:
    """An import of this round's texts, some texts of the previous round, and some lines that are rejected."""
    plain = _command(chance, "import")
    brings: list[Text] = [(SIGNATURES, _function(round_number, n)) for n in functions]
    brings += [(SIGNATURES, _function(round_number - 1, n)) for n in range(0, 200, 7)]
    brings += [(EVENT_SIGNATURES, _event(round_number, n)) for n in events]
    lines = [f"event {text};" if collection == EVENT_SIGNATURES else text for collection, text in brings]
    rejected = [f"{round_number}bad{n}(" for n in range(chance.randint(0, 3))]
    lines += rejected
    chance.shuffle(lines)
    return Command("import", plain.at, plain.failpoint, plain.kill_after, tuple(lines), tuple(brings), len(rejected))


def _contract(chance: random.Random, round_number: int) -> list[Command]:
    """An import of the round's contract, and one of its use."""
    contract = ImportedContract(round_number, chance.randrange(1, 1_000_000))
    brings = tuple((SIGNATURES, text) for text in contract.texts)
    whole, use = _command(chance, "import"), _command(chance, "import")
    return [replace(whole, brings=brings, contract=contract), replace(use, contract=contract)]


def _kills(chance: random.Random) -> list[Kill]:
    targets = chance.choices(("worker", "folder", "supervisor"), (5, 3, 2), k=chance.randint(0, 3))
    kills = [Kill(chance.uniform(0.2, 3.0), target, chance.randrange(4)) for target in targets]
    return sorted(kills, key=lambda kill: kill.at)


def _stores(chance: random.Random) -> StorePlan | None:
    return draw_stores(chance) if chance.random() < _STORE_CHANCE else None


def draw_stores(chance: random.Random) -> StorePlan:
    """What happens to a warehouse in a store."""
    imports = tuple(_store_import(chance, number % MACHINES) for number in range(2 * MACHINES))
    targets = chance.choices(("worker", "follower", "supervisor"), k=chance.randint(1, 3))
    kills = (Kill(chance.uniform(0.5, 12.0), target, chance.randrange(4)) for target in targets)
    return StorePlan(imports, tuple(sorted(kills, key=lambda kill: kill.at)))


def _store_import(chance: random.Random, machine: int) -> StoreImport:
    engine = chance.choice(ENGINES)
    how = chance.random()
    driver_points = [*IMPORT_POINTS, *STORE_POINTS, *(TASK_POINTS if engine == "sail" else ())]
    failpoint = chance.choice(driver_points) if how < 0.5 else None
    task_failpoint = chance.choice(TASK_POINTS) if engine == "server" and how >= 0.5 else None
    kill_after = chance.uniform(0.5, 6.0) if 0.5 <= how < 0.8 and task_failpoint is None else None
    return StoreImport(
        machine, engine, failpoint, task_failpoint, kill_after, chance.randint(*_OWN), chance.randrange(SHARED)
    )
