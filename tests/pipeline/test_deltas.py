"""A source that is imported in parts keeps what it said, through the command, its report, SQL and the routes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import TestClient

import sigdir
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.warehouse.table.paths import Paths
from tests.pipeline.support import invoke, write_files
from tests.serve.support import opened
from tests.warehouse.support import assert_clean

DAY_1 = """function place(address owner, uint256 amount) returns (bool done)
function known(uint256 first)
error Low(uint256 left)
event Placed(address indexed by)
"""
DAY_2 = """known(uint256)
function added(bytes data)
error Low(uint256 rest)
"""
BOTH = {
    ("place(address,uint256)", "function", "function place(address owner, uint256 amount) returns (bool done)", 1),
    ("known(uint256)", "function", "function known(uint256 first)", 1),
    ("Low(uint256)", "error", "error Low(uint256 rest)", 2),
    ("Placed(address)", "event", "event Placed(address indexed by)", 1),
    ("added(bytes)", "function", "function added(bytes data)", 2),
}
"""What each text's source says after both days, with the import that it is from: a name that changed is the newer one."""


def command(warehouse: Path, *arguments: str | Path) -> dict[str, Any]:
    """The report of an import."""
    done = invoke(warehouse, "import", *arguments, "--json")
    assert done.status == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Two days of a list, each a file of its own, in a warehouse; and the reports of both imports."""
    folder = tmp_path_factory.mktemp("deltas")
    files = write_files(folder, {"day1.txt": DAY_1, "day2.txt": DAY_2})
    return folder, [command(folder / "w", day, "--source", "daily") for day in files]


@pytest.fixture
def copied(days: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> Path:
    """A copy of the folder, to change it."""
    shutil.copytree(days[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def said(warehouse: Path, as_of: int | None = None) -> set[tuple[Any, ...]]:
    query = "SELECT text_signature, kind, declaration, import_id FROM sightings WHERE source = 'daily'"
    return set(sigdir.open(warehouse, as_of=as_of).sql(query).rows())


def test_a_part_of_a_source_adds_to_it(days: tuple[Path, list[dict[str, Any]]]) -> None:
    """Texts of the first day keep kind, declaration and names; one that is seen again is renewed, and none is lost."""
    folder, (first, second) = days
    assert (first["sightings"], second["sightings"]) == (4, 2)
    assert second["totals"] == {"read": 3, "imported": 1, "duplicate": 2, "rejected": 0}
    assert second["withdrawn"] == {"sightings": 0, "texts": 0}
    assert said(folder / "w") == BOTH
    assert {declaration for _, _, declaration, _ in said(folder / "w", as_of=1)} == set(DAY_1.splitlines())
    rows = sigdir.open(folder / "w").sql(
        "SELECT text_signature, unnest(kinds), declaration, sources, parameter_names FROM evidence JOIN declarations"
        " USING (collection, id, text_signature, declaration)"
    )
    assert {row[:4] for row in rows.rows()} == {(text, kind, declaration, 1) for text, kind, declaration, _ in BOTH}
    assert ["owner", "amount"] in [row[4] for row in rows.rows()]
    assert_clean(Paths(folder / "w"))


def test_upkeep_keeps_deltas(copied: Path) -> None:
    """After compaction and vacuum the same is said."""
    for upkeep in (("compact", "--all"), ("vacuum", "--keep", "0h")):
        assert invoke(copied / "w", *upkeep).status == 0
        assert said(copied / "w") == BOTH
    assert invoke(copied / "w", "verify").status == 0


def test_a_replaced_source_says_only_the_new(copied: Path) -> None:
    """The report counts the texts that the source names no more, also where its file says nothing new.

    They have no sighting then, not even a made-up one. The same file again withdraws nothing.
    """
    warehouse, day2 = copied / "w", copied / "day2.txt"
    arguments = day2, "--source", "daily", "--replace-source"
    shown = invoke(warehouse, "import", *arguments).stdout.decode()
    assert "withdrawn: 2 sightings; 2 texts no longer named by their source" in shown
    again = invoke(warehouse, "import", *arguments).stdout.decode()
    assert "nothing new, version 3 stays" in again
    assert "withdrawn" not in again
    assert command(warehouse, copied / "day1.txt", *arguments[1:])["withdrawn"] == {"sightings": 1, "texts": 1}
    assert command(warehouse, *arguments)["withdrawn"] == {"sightings": 2, "texts": 2}
    assert {row[0] for row in said(warehouse)} == {"known(uint256)", "added(bytes)", "Low(uint256)"}
    gone = "SELECT text_signature, sources, contracts FROM evidence WHERE sources = 0 ORDER BY 1"
    rows = [("Placed(address)", 0, 0), ("place(address,uint256)", 0, 0)]
    assert sigdir.open(warehouse).sql(gone).rows() == rows
    with opened(warehouse) as storage:
        client = TestClient(create_app(Settings(warehouse), *storage))
        evidence = client.simulate_get("/api/v1/signatures/1/evidence/").json
    assert (evidence["count"], evidence["results"], evidence["sources"]) == (0, [], 0)
    assert evidence["reasons"][0] == "named by 0 sources"
    assert invoke(warehouse, "verify").status == 0


def test_what_was_said_costs_nothing_again(tmp_path: Path) -> None:
    """A grown list brings a sighting for each new line; an old one, under whatever name, publishes nothing."""
    lines = [f"f{number}(uint256)" for number in range(500)]
    more = [*lines, "g(uint256 a)"]
    files = {"1.txt": "\n".join(lines), "2.txt": "\n".join(reversed(more)), "old.txt": "\n".join(lines[:9])}
    first, grown, old = write_files(tmp_path, dict(files))
    for file, published, brought in ((first, True, 500), (grown, True, 1), (grown, False, 0), (old, False, 0)):
        report = command(tmp_path / "w", file, "--source", "grows")
        assert (report["published"], report["sightings"]) == (published, brought)


def test_a_mistyped_name_can_be_mended_and_broken_again(tmp_path: Path) -> None:
    """The newest declaration of a source is the one that is shown, also if it was said before."""
    for name, brought in (("a", 2), ("b", 1), ("a", 1)):
        [file] = write_files(tmp_path, {"list.txt": f"f(uint256 {name})\ng()\n"})
        assert command(tmp_path / "w", file)["sightings"] == brought
        found = sigdir.open(tmp_path / "w").sql("SELECT declaration FROM declarations").rows()
        assert found == [(f"f(uint256 {name})",)]
    assert_clean(Paths(tmp_path / "w"))
