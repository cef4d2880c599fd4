"""docs/clients.md: every command prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.support import CAST, WHATSABI, Front, need
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import Server

PAGE = (ROOT / "docs" / "clients.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


def sessions() -> list[tuple[str, str]]:
    """Each command of the page, in order, and what it prints there."""
    blocks: list[str] = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    found = [session.partition("\n") for block in blocks for session in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    return [(command, printed.strip()) for command, _, printed in found if command]


@pytest.mark.parametrize(("command", "printed"), sessions())
def test_a_command_prints_what_the_page_says(
    command: str, printed: str, server: Server, request: pytest.FixtureRequest
) -> None:
    """With the server's own port for the page's."""
    if command.startswith("cast "):
        need(CAST)
        front: Front = request.getfixturevalue("front")
        said = front.run("sh", "-c", str(CAST) + command.removeprefix("cast"))
    else:
        need(ROOT, "curl")
        line = command.replace(ADDRESS, f"http://127.0.0.1:{server.port}")
        said = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True
        ).stdout
    assert said.strip() == printed


def test_whatsabis_lookup(server: Server, front: Front, tmp_path: Path) -> None:
    """The page's program runs as it stands."""
    need(WHATSABI, "node")
    (program,) = re.findall(r"^```js\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    program = program.replace(ADDRESS, f"http://127.0.0.1:{server.port}")
    program = program.replace("@shazow/whatsabi", (WHATSABI / "lib.esm" / "index.js").as_uri())
    (tmp_path / "lookup.mjs").write_text(program)
    assert front.run("node", tmp_path / "lookup.mjs").strip() == "[ 'transfer(address,uint256)' ]"
