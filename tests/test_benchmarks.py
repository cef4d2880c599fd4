"""What the benchmarks print: the saved results, and what is bound by what."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.bounds import bound_by, limits, page
from benchmarks.goals import GOALS
from benchmarks.measure import Figure, compared, python


def figure(cores: float, seconds: list[float]) -> Figure:
    return Figure("import", 0.5, seconds, [2.0], cores)


def test_the_saved_results_end_with_what_is_bound_by_what() -> None:
    """docs/benchmarks.md has what --show prints; nothing is measured."""
    shown = CliRunner().invoke(main, ["--show"])
    assert shown.exit_code == 0, shown.output
    table, bounds = shown.output.split("## What is bound by what")
    assert table.startswith("| what | measured | ours | yardstick | spread | wanted | on |")
    assert f"| {GOALS['import'].what} |" in table
    assert f"- {GOALS['import'].what}: {GOALS['import'].changes}" in table
    assert "| bound by |" in bounds
    assert shown.output.partition("| what | of")[0] in Path("docs/benchmarks.md").read_text(), "paste it anew"


def test_a_miss_is_shown_as_a_miss() -> None:
    """A figure is judged by its goal alone, in the goal's direction and unit."""
    assert [Figure("import", value).holds for value in (1.6, 1.61)] == [True, False]
    assert [Figure("resolve", value).holds for value in (300_000, 299_999)] == [True, False]
    what, *shown = Figure("import", 1.64, [3.57, 3.6], [2.17]).row
    assert (what, shown) == (GOALS["import"].what, ["1.64x", "3.57 s", "2.17 s", "1 %", "<= 1.6x"])
    assert Figure("resolve", 212_345.6, [212_345.6]).row[1:] == ["212,346/s", "", "", "", ">= 300,000/s"]


def test_each_goal_is_measured_and_said_once() -> None:
    """The benchmarks name each goal, and no two goals read alike."""
    source = "".join(path.read_text() for path in Path("benchmarks").glob("bench_*.py"))
    cases = ("page 1", "deep pages", "oldest first", "hits", "misses", "posts")
    made = {f"{server} {case}" for server in ("waitress", "granian") for case in cases}
    assert [goal for goal in GOALS if f'"{goal}"' not in source and goal not in made] == []
    assert len({goal.what for goal in GOALS.values()}) == len(GOALS)


def test_the_page_says_what_each_figure_waits_for() -> None:
    """By the processors that it kept busy; a figure for which they were not counted is left out."""
    shown = page([figure(0, [1.0]), figure(1.96, [1.0, 1.1])], {"syncs": 2000.0}, cores=2)
    assert "- small synced writes a second: 2,000.0" in shown
    assert shown[-1] == f"| {GOALS['import'].what} | 1.96 | the processors: all cores work |"
    assert len([line for line in shown if GOALS["import"].what in line]) == 1
    reasons = [bound_by(figure(cores, []), 2).partition(":")[0] for cores in (1.4, 1.0, 0.3)]
    assert reasons == ["partly one thread", "one core", "waiting"]


def test_processors_and_spread_are_measured(tmp_path: Path) -> None:
    """Of work in this process and of its finished children."""
    found = compared("import", lambda number: float(sum(range(1_000_000)) > 0) + number, lambda: 1.0, rounds=2)
    assert found.cores > 0
    assert found.spread == 1.0
    assert all(value > 0 for value in limits(tmp_path, 1 << 20).values())


def test_the_peak_of_a_command_is_its_own() -> None:
    """The kernel would count what this process holds when the command starts."""
    held = bytearray(400 << 20)
    assert python("x = bytearray(50 << 20)").peak_mib < 200
    assert held
    with pytest.raises(RuntimeError, match="ended with status 3"):
        python("raise SystemExit(3)")
