"""What the benchmarks print: the saved results, and what is bound by what."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.bounds import bound_by, limits, page
from benchmarks.measure import Figure, compared, python


def figure(cores: float, seconds: list[float]) -> Figure:
    return Figure("an import", "1.00 s", "2.00 s", 0.5, "<= 1x", True, seconds, [], cores)


def test_the_saved_results_end_with_what_is_bound_by_what() -> None:
    """README's table is what --show prints; nothing is measured."""
    shown = CliRunner().invoke(main, ["--show"])
    assert shown.exit_code == 0, shown.output
    table, bounds = shown.output.split("## What is bound by what")
    assert table.startswith("| what | ours | spread | yardstick | ratio | wanted |")
    assert "import 10,000,000 distinct lines into an empty warehouse" in table
    assert "| bound by |" in bounds


def test_the_page_says_what_each_figure_waits_for() -> None:
    """By the processors that it kept busy; a figure for which they were not counted is left out."""
    shown = page([figure(0, [1.0]), figure(1.96, [1.0, 1.1])], {"syncs": 2000.0}, cores=2)
    assert "- small synced writes a second: 2,000.0" in shown
    assert shown[-1] == "| an import | 0.50x | 10 % | 1.96 | the processors: all cores work |"
    assert len([line for line in shown if "an import" in line]) == 1
    reasons = [bound_by(figure(cores, []), 2).partition(":")[0] for cores in (1.4, 1.0, 0.3)]
    assert reasons == ["partly one thread", "one core", "waiting"]


def test_processors_and_spread_are_measured(tmp_path: Path) -> None:
    """Of work in this process and of its finished children."""
    found = compared("work", lambda number: float(sum(range(1_000_000)) > 0) + number, lambda: 1.0, 2.0, rounds=2)
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
