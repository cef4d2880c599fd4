"""The front door: what `sigdir --help` tells, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

from sigdir.cli.main import main
from tests.conftest import ROOT, import_files


def test_help_tells_each_command_s_own_first_sentence() -> None:
    """As click would by loading the command."""
    said = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Commands:")[2].split())
    context = Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert f"{name} {command.get_short_help_str(limit=1000).rstrip('.')}" in said


def test_the_readme_has_every_command() -> None:
    """In its table, and none that is not there."""
    table = re.findall(r"^\| (`sigdir .*?) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`sigdir ([a-z]+)", " ".join(table))) == sorted(main.list_commands(Context(main)))


ENGINES = {"sigdir.pipeline", "numpy", "numba", "pyarrow", "deltalake", "duckdb", "falcon"}


@pytest.mark.parametrize(
    ("arguments", "loaded", "others"),
    [([], "click", {"sigdir.warehouse", "sigdir.serve"}), (["serve"], "sigdir.serve.servers.supervisor", set[str]())],
)
def test_help_loads_no_engine(arguments: list[str], loaded: str, others: set[str]) -> None:
    """It is there in a tenth of a second; so is what starts a server's workers and lives as long as they."""
    look = f"import sys\nfrom sigdir.cli.main import main\ntry: main([*{arguments}, '--help'])\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()
    assert loaded in modules
    assert not (ENGINES | others).intersection(modules)


def test_a_worker_loads_neither_duckdb_nor_pandas(tmp_path: Path) -> None:
    """Its start would take a third longer. pyarrow loads pandas by itself for some calls."""
    lines = tmp_path / "lines.txt"
    lines.write_text("transfer(address,uint256)\nevent Moved(uint256)\n")
    import_files([lines], tmp_path / "house")
    look = (
        "import sys; from pathlib import Path; from sigdir.serve.servers.startup import open_app; from sigdir.serve.settings import Settings\n"
        f"open_app(Settings(warehouse=Path({str(tmp_path / 'house')!r}))); print(*sys.modules, sep='\\n')"
    )
    for _ in range(2):  # the first builds the index
        done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()
    assert "sigdir.warehouse.index.view" in modules
    assert not {"duckdb", "pandas"}.intersection(modules)
