"""The front door: what `sigdir --help` tells, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys

from click import Context
from click.testing import CliRunner

from sigdir import main
from tests.conftest import ROOT


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


def test_help_loads_no_engine() -> None:
    """None of the floors, nor what they stand on: it is there in a tenth of a second."""
    look = "import sys, sigdir\ntry: sigdir.main(['--help'])\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()
    assert "click" in loaded
    assert not {"warehouse", "pipeline", "serve", "numpy", "numba", "pyarrow", "duckdb"}.intersection(loaded)
