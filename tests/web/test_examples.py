"""docs/examples: what the README says of them holds for the command and for one POST."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conftest import ROOT
from tests.pipeline.support import invoke
from tests.serve.support import Application, post

FOLDER = ROOT / "docs" / "examples"
README = (ROOT / "README.md").read_text()

NAMES = ("multicall.hex", "transfer.json", "error.hex", "token.hex")


def test_code_is_explained_by_the_command(app: Application, tmp_path: Path) -> None:
    """Its shape says that it is code; all of its functions are known. An editor may have added a byte order mark."""
    (file := tmp_path / "token.hex").write_text((FOLDER / "token.hex").read_text(), "utf-8-sig")
    ran = invoke(app.folder, "decode", "auto", f"@{file}")
    assert (ran.status, ran.stderr) == (0, "")
    assert "transfer(address,uint256)" in ran.stdout.decode()


def test_the_four_are_explained_by_one_post(app: Application) -> None:
    """As in docs/examples/all.json, which has the contents of the other files."""
    inputs = json.loads((FOLDER / "all.json").read_text())
    files = [(FOLDER / name).read_text() for name in NAMES]
    assert inputs == [files[0].strip(), json.loads(files[1]), files[2].strip(), {"code": files[3].strip()}]
    call, log, error, contract = post(app, "/api/v1/decode/", inputs).json()
    assert [one["kind"] for one in (call, log, error, contract)] == ["calldata", "log", "revert", "contract"]
    for one in (call, log, error):
        assert one["candidates"][0]["reasons"]
    assert len(call["candidates"][0]["nested"]) == 2
    assert {function["texts"][0]["text_signature"] for function in contract["functions"]} == {
        "balanceOf(address)", "totalSupply()", "transfer(address,uint256)", "multicall(bytes[])",
    }  # fmt: skip
    assert [event["texts"][0]["text_signature"] for event in contract["events"]] == [
        "Transfer(address,address,uint256)"
    ]
    assert len(contract["errors"]) == 1


def test_the_readme_shows_what_is_printed(app: Application) -> None:
    """Line by line; dots stand for what is left out."""
    (shown,) = re.findall(
        r"^\$ [^\n]*decode auto @docs/examples/multicall.hex\n(.*?)^\$ ", README, re.DOTALL | re.MULTILINE
    )
    ran = invoke(app.folder, "decode", "auto", f"@{FOLDER / 'multicall.hex'}")
    printed = ran.stdout.decode().splitlines()
    for line, ours in zip(shown.splitlines(), printed, strict=True):
        assert re.fullmatch(re.escape(line).replace(r"\.\.\.", ".*"), ours), ours
    assert f"standard error adds `{ran.stderr.strip()}`" in README


def test_the_readme_names_files_that_exist() -> None:
    named = set(re.findall(r"@(docs/examples/[\w.]+)", README))
    assert len(named) == len(NAMES) + 1
    assert all(Path(ROOT / name).is_file() for name in named)
