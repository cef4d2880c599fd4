"""`sigdir clashes`: selectors that two texts of some inputs share, or that two parts of one contract both answer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from sigdir.pipeline.clashes import PARTS, TEXTS, find_clashes
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.types import parse_declaration
from tests.conftest import ROOT
from tests.pipeline.support import invoke, write_files

BURN, OTHER = "burn(uint256)", "collate_propagate_storage(bytes16)"  # both are 0x42966c68


def abi(*functions: str) -> str:
    """An ABI with functions of the form ``name(type)`` or ``name()``."""
    return json.dumps([parse_declaration(f"function {text}").abi_entry() for text in functions])


def test_two_texts_of_one_selector_clash_across_files_and_formats(tmp_path: Path) -> None:
    """An ABI, a Solidity source and a list; each place is named. Events do not clash: a topic is a whole hash."""
    write_files(tmp_path, {
        "a.json": abi(OTHER, "owner()"), "V.sol": "contract V { function burn(uint x) external {} }",
        "l.txt": "f()\nevent A(uint256)\nevent B(uint256)\n",
    })  # fmt: skip
    [clash], report = find_clashes([str(tmp_path)], together=False, progress=Reporter())
    assert (clash.selector, clash.why, clash.texts) == ("0x42966c68", TEXTS, [BURN, OTHER])
    places = {(one.text, one.kind, Path(one.file).name, one.contract) for one in clash.declared}
    assert places == {(OTHER, "function", "a.json", "a"), (BURN, "function", "V.sol", "V")}
    assert report.totals()["read"] == 6
    assert find_clashes([str(tmp_path / "l.txt")], together=True, progress=Reporter())[0] == []


def test_parts_of_one_contract_clash_where_both_have_a_function(tmp_path: Path) -> None:
    """Facets with the same file name are two facets; errors are no functions; without `together` it is no clash."""
    error = '{"type": "error", "name": "Bad", "inputs": []}'
    write_files(tmp_path, {
        "a/Facet.json": abi("owner()", "mine()")[:-1] + f", {error}]", "b/Facet.json": abi("owner()")[:-1] + f", {error}]",
    })  # fmt: skip
    paths = [str(tmp_path / "a/Facet.json"), str(tmp_path / "b/Facet.json")]
    assert find_clashes(paths, together=False, progress=Reporter())[0] == []
    [clash], _ = find_clashes(paths, together=True, progress=Reporter())
    assert (clash.why, clash.texts, [one.file for one in clash.declared]) == (PARTS, ["owner()"], paths)


def test_the_command_ends_with_a_status_for_ci(tmp_path: Path) -> None:
    """1 for a clash, 0 for none, 2 for what cannot be read; a line for editors, an annotation for GitHub, JSON."""
    fine, clash = write_files(tmp_path, {"a.txt": f"{BURN}\nowner()\n", "b.txt": f"{BURN}\n{OTHER}\n"})
    run = partial(invoke, tmp_path / "none", "clashes")
    found = run(clash)
    line = f"{clash}: 0x42966c68 is {BURN} in {clash}, {OTHER} in {clash}\n"
    assert (found.status, found.stdout.decode()) == (1, line)
    assert found.stderr.splitlines()[-1] == "1 clash: 2 candidates in 1 file"
    annotated = run(clash, "--github", "--quiet")
    assert annotated.stdout.decode().startswith(f"::error file={clash},title=selector clash::0x42966c68 is ")
    assert annotated.stderr == ""
    [one] = json.loads(run(clash, "--json").stdout)["clashes"]
    assert (one["selector"], one["why"]) == ("0x42966c68", TEXTS)
    assert run(fine)[:2] == (0, b"")
    write_files(tmp_path, {"c.json": "[1,"})
    for path, why in ((tmp_path / "missing", "no such file or folder"), (tmp_path, "c.json: line 1 column 4")):
        broken = run(path)
        assert (broken.status, why in broken.stderr) == (2, True)


def test_the_hook_reads_a_project_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pre-commit runs finds a clash with a file that is not in the commit, and passes over a file of no known format."""
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    for line in ("entry: sigdir clashes --quiet\n", 'args: ["."]\n', "pass_filenames: false "):
        assert line in hook
    write_files(tmp_path, {"package.json": '{"private": true}', "abi/Burn.json": abi(BURN)})
    monkeypatch.chdir(tmp_path)
    assert invoke(tmp_path / "none", "clashes", "--quiet", ".").status == 0
    write_files(tmp_path, {"abi/Other.json": abi(OTHER)})
    annotated = invoke(tmp_path / "none", "clashes", "--quiet", "--github", ".")
    assert (annotated.status, annotated.stdout.startswith(b"::error file=abi/")) == (1, True)
