"""docs/clients.md: every command and every program prints what the page says."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from tests.clients.support import CAST, DUCKDB, LOAD_HTTPFS, MODULES, WHATSABI, Front, Served, need
from tests.conftest import ROOT, SAFETY_SECONDS

PAGE = (ROOT / "docs" / "clients.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def sessions() -> list[tuple[str, str]]:
    """Each command of the page, in order, and what it prints there."""
    blocks: list[str] = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    found = [session.partition("\n") for block in blocks for session in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    return [(command, printed.strip()) for command, _, printed in found if command]


@pytest.mark.parametrize(("command", "printed"), sessions())
def test_a_command_prints_what_the_page_says(
    command: str, printed: str, server: Served, request: pytest.FixtureRequest
) -> None:
    """The server's port stands in for the page's."""
    if command.startswith("cast "):
        need(CAST)
        front: Front = request.getfixturevalue("front")
        output = front.run("sh", "-c", str(CAST) + command.removeprefix("cast"))
    else:
        need(ROOT, "curl")
        line = command.replace(ADDRESS, f"http://127.0.0.1:{server.port}")
        output = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True
        ).stdout
    assert output.strip() == printed


def programs(language: str) -> list[tuple[str, str]]:
    """Each program of the page in this language, and what it prints there."""
    return re.findall(rf"^```{language}\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def printed_by(command: list[str | Path], folder: Path) -> tuple[str, str]:
    """What a program writes to both outputs."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False)
    return done.stdout, done.stderr


@pytest.mark.parametrize(("program", "printed"), programs("js"))
def test_a_program_of_node_prints_what_the_page_says(
    program: str, printed: str, server: Served, tmp_path: Path
) -> None:
    """viem, ethers, whatsabi, and a Safe's batch. The server's address stands in for the page's."""
    for package in re.findall(r'from "(.+?)"', program):
        need(MODULES / package)
    need(MODULES, "node")
    program = program.replace("@shazow/whatsabi", (WHATSABI / "lib.esm" / "index.js").as_uri())
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "program.mjs").write_text(program.replace(ADDRESS, f"http://127.0.0.1:{server.port}"))
    assert printed_by(["node", "program.mjs"], tmp_path) == (printed, "")


@pytest.mark.parametrize(("program", "printed"), programs("python"))
def test_a_program_prints_what_the_page_says(
    program: str,
    printed: str,
    server: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server's address and folder stand in for the page's."""
    is_remote = "import duckdb" in program and ADDRESS in program
    (tmp_path / "data").symlink_to(server.folder)
    file = tmp_path / "program.py"
    file.write_text(LOAD_HTTPFS * is_remote + program.replace(ADDRESS, f"http://127.0.0.1:{server.port}"))
    if is_remote:
        need(DUCKDB)
        assert printed_by([DUCKDB, file], tmp_path) == (printed, "")
    else:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(file))
        assert capsys.readouterr() == (printed, "")


def test_all_programs_of_the_page_are_run() -> None:
    assert len(programs("python")) == PAGE.count("```python") == 5
    assert len(programs("js")) == PAGE.count("```js") == 5
