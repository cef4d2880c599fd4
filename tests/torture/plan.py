"""What a round does, drawn from the seed and the round's number before anything runs.

Times are seconds from the start of the round. The seed decides which process is killed, when, and under what
load. At which instruction the kill arrives depends on the machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from tests.serve.support import selector
from tests.torture.points import COMMIT_POINTS, IMPORT_POINTS, STORE_POINTS, TASK_POINTS

CLIENTS = 4
MACHINES = 2
ENGINES = ("local", "sail", "server")
SHARED = 300
_OWN = (10, 3_000)
_FUNCTIONS = 20
_STORE_CHANCE = 0.1
"""Of a round to have the part of ``stores``, which takes as long as ten others."""
POINTS: Mapping[str, Sequence[str]] = {
    "import": IMPORT_POINTS,
    "fold": COMMIT_POINTS,
    "compact": COMMIT_POINTS,
    "vacuum": ("vacuum_removing",),
    "backup": ("copied", "logged", "replaced"),
}
"""The failpoints of each command: see ``sigdir.warehouse.table.failpoints``."""
UPKEEP: Mapping[str, Sequence[str]] = {"compact": (), "vacuum": ("--keep", "10s"), "verify": (), "backup": ("backup",)}
"""The commands besides import and fold, with their arguments. They run in the folder that contains the warehouse."""

Text = tuple[Collection, str]


@dataclass(frozen=True, slots=True)
class Post:
    """A text to POST, as written and as stored."""

    at: float
    collection: Collection
    written: str
    text: str
    by_abi: bool = False
    """POSTed to import-abi, in one body with the texts that follow it."""


@dataclass(frozen=True, slots=True)
class ImportedContract:
    """The contract of a round. How often a function is used is ``count`` and its number."""

    round: int
    count: int

    @property
    def address(self) -> str:
        return f"0x{self.round:040x}"

    @property
    def texts(self) -> list[str]:
        return [f"c{self.round}x{number}(address,uint256)" for number in range(_FUNCTIONS)]

    def abi_files(self) -> dict[str, str]:
        """An ABI that the contract's address names, and a descriptor of its first function."""
        inputs = [{"name": "to", "type": "address"}, {"name": "amount", "type": "uint256"}]
        outputs = [{"name": "left", "type": "uint256"}]
        names = (text.partition("(")[0] for text in self.texts)
        abi = [{"type": "function", "name": name, "inputs": inputs, "outputs": outputs} for name in names]
        described = self.texts[0].replace("address,uint256", "address to,uint256 amount")
        fields = [{"path": "amount", "label": "Amount", "format": "raw"}]
        document = {
            "$schema": "https://eips.ethereum.org/assets/eip-7730/erc7730-v2.schema.json",
            "context": {"contract": {"deployments": [{"chainId": 1, "address": self.address}]}},
            "display": {"formats": {described: {"intent": f"Round {self.round}", "fields": fields}}},
        }
        return {f"{self.address}.json": json.dumps(abi), "descriptor.json": json.dumps(document)}

    def usage_files(self) -> dict[str, str]:
        lines = (f"{selector(text)},{self.count + number}\n" for number, text in enumerate(self.texts))
        return {"usage.csv": "".join(["selector,count\n", *lines])}


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run. It may be killed at a failpoint, or after a number of seconds."""

    name: str
    at: float
    failpoint: str | None
    kill_after: float | None
    options: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """What an import reads."""
    brings: Sequence[Text] = ()
    """The texts of these files."""
    rejects: int = 0
    """How many lines of theirs are none."""
    contract: ImportedContract | None = None
    """Whose files these are, or whose use, which brings no texts."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill -9 of a process of a server: ``supervisor``, ``worker``, ``fold`` or ``follow``."""

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
    imports: Sequence[StoreImport]
    kills: Sequence[Kill]


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    round: int
    fold_every: float
    reads_all: bool
    """At its end every worker reads all pages, not only those of new rows."""
    posts: Sequence[Sequence[Post]]
    """Of each client."""
    commands: Sequence[Command]
    kills: Sequence[Kill]
    stores: StorePlan | None
    """What happens to a warehouse in a store."""


def draw(seed: int, round_number: int) -> Plan:
    """The plan of a round."""
    chance = random.Random(f"{seed}:{round_number}")
    return Plan(
        seed,
        round_number,
        chance.choice((0.2, 0.5, 1.0)),
        chance.random() < 0.1,
        [_posts(chance, round_number) for _ in range(CLIENTS)],
        [*_commands(chance, round_number), *_contract(chance, round_number)],
        _kills(chance, {"worker": 5, "fold": 3, "supervisor": 2}, chance.randint(0, 3), 3.0),
        draw_stores(chance) if chance.random() < _STORE_CHANCE else None,
    )


def _function(round_number: int, number: int) -> str:
    return f"f{round_number}x{number}({'address,' * (number % 4)}uint256)"


def _event(round_number: int, number: int) -> str:
    return f"E{round_number}x{number}(address)"


def _posts(chance: random.Random, round_number: int) -> Sequence[Post]:
    """One client's POSTs. All clients draw from the same few texts; imports bring some of them too."""
    seconds, count = chance.uniform(1.5, 3.0), chance.randint(100, 300)
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
    return posts


def _commands(chance: random.Random, round_number: int) -> list[Command]:
    rows = chance.choice((300, 2_000, 2_000, 20_000))
    return [
        _import(chance, round_number, range(rows * 2 // 3), range(200)),
        _import(chance, round_number, range(rows // 3, rows), range(100, 400)),
        *(_command(chance, "fold") for _ in range(chance.randint(0, 2))),
        *(_command(chance, name, options) for name, options in UPKEEP.items() if chance.random() < 0.4),
    ]


def _command(chance: random.Random, name: str, options: Sequence[str] = ()) -> Command:
    how = chance.random()
    failpoint = chance.choice(POINTS[name]) if how < 0.3 and name in POINTS else None
    kill_after = chance.uniform(0.3, 2.5) if 0.3 <= how < 0.6 else None
    return Command(name, chance.uniform(0.0, 1.5), failpoint, kill_after, options)


def _import(chance: random.Random, round_number: int, functions: range, events: range) -> Command:
    """An import of this round's texts, some texts of the previous round, and some lines that are rejected."""
    brings: list[Text] = [(SIGNATURES, _function(round_number, n)) for n in functions]
    brings += [(SIGNATURES, _function(round_number - 1, n)) for n in range(0, 200, 7)]
    brings += [(EVENT_SIGNATURES, _event(round_number, n)) for n in events]
    rejected = [f"{round_number}bad{n}(" for n in range(chance.randint(0, 3))]
    lines = [f"event {text};" if collection == EVENT_SIGNATURES else text for collection, text in brings] + rejected
    chance.shuffle(lines)
    files = {"lines.txt": "\n".join(lines)}
    return replace(_command(chance, "import"), files=files, brings=brings, rejects=len(rejected))


def _contract(chance: random.Random, round_number: int) -> list[Command]:
    """An import of the round's contract, and one of its use."""
    contract = ImportedContract(round_number, chance.randrange(1, 1_000_000))
    brings = [(SIGNATURES, text) for text in contract.texts]
    whole, use = _command(chance, "import"), _command(chance, "import", ["--usage"])
    return [
        replace(whole, contract=contract, files=contract.abi_files(), brings=brings),
        replace(use, contract=contract, files=contract.usage_files()),
    ]


def _kills(chance: random.Random, targets: Mapping[str, int], count: int, most_seconds: float) -> Sequence[Kill]:
    """Kills of these targets, each as often as its weight says."""
    drawn = chance.choices(list(targets), list(targets.values()), k=count)
    kills = [Kill(chance.uniform(0.2, most_seconds), target, chance.randrange(4)) for target in drawn]
    return sorted(kills, key=lambda kill: kill.at)


def draw_stores(chance: random.Random) -> StorePlan:
    """What happens to a warehouse in a store."""
    imports = [_store_import(chance, number % MACHINES) for number in range(2 * MACHINES)]
    return StorePlan(imports, _kills(chance, {"worker": 1, "follow": 1, "supervisor": 1}, chance.randint(1, 3), 12.0))


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
