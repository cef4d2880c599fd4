"""`sigdir solve`: texts of hashes that the directory does not know."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sigdir
from sigdir.pipeline.directory import opened
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.solve import SolveOptions, SolveReport, solve_hashes
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.solve import CHANCE, UNLISTED, Targets, discounted, new_names, posteriors
from tests.conftest import import_files
from tests.pipeline.support import invoke, keccak256, write_files

SEEN = [
    "deposit(address,uint256)", "deposit(uint256)", "withdraw(address)", "transferFrom(address,address,uint256)",
    "depositFrom(address)", "burnFrom(address)", "burnAll(uint256)", "transferAll(address)", "transfer()",
    "event Deposited(address)", "event Withdrawn(address,uint256)",
]  # fmt: skip
HIDDEN, NEW_NAME, TOPIC_TEXT = "withdraw(address,uint256)", "withdrawFrom(uint256)", "Deposited(address,uint256)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path, {"seen.txt": "\n".join([*SEEN, "withdrawFrom2(uint256)"])})
    import_files([tmp_path / "seen.txt"], tmp_path / "warehouse")
    return tmp_path / "warehouse"


def selector(text: str) -> bytes:
    return keccak256(text)[:4]


def solved(folder: Path, hashes: Mapping[bytes, str | None], **options: Any) -> SolveReport:
    with opened(folder) as directory:
        return solve_hashes(directory.texts, SolveOptions(hashes, **options), Reporter())


def test_every_candidate_is_tried_and_nothing_else_is_found() -> None:
    """Names and lists of every length around a block, in all lanes; the digests are pycryptodome's."""
    names = pa.array([f"{'n' * size}{size}" for size in range(1, 135, 7)])
    lists = pa.array(sorted(("()", "(a)", *(f"({'b' * size})" for size in range(2, 134, 3))), key=len))
    texts = {f"{name}{one}" for name in names.to_pylist() for one in lists.to_pylist() if len(f"{name}{one}") < 136}
    wanted = [keccak256(text)[:4] for text in sorted(texts)[::3]] + [keccak256(text) for text in sorted(texts)[1::3]]
    found = {(hash, f"{names[name]}{lists[one]}") for hash, name, one in Targets(wanted).search(names, lists)}
    assert found == {
        (hash, text) for text in texts for hash in (keccak256(text)[:4], keccak256(text)) if hash in wanted
    }


def test_a_directory_closes_the_database_of_staged_rows(folder: Path) -> None:
    """At its end. Mapped columns are freed with what refers to them."""
    with opened(folder) as directory:
        assert list(directory.texts(SIGNATURES))
    targets = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert [target for target in targets if target.startswith(f"{folder}/staging.sqlite")] == []


def test_a_known_name_with_a_known_list_is_found(folder: Path) -> None:
    """With its posterior; a topic is certain, and a hash of nothing has no text."""
    report = solved(folder, {selector(HIDDEN): None, keccak256(TOPIC_TEXT): None, b"\0\0\0\1": None})
    assert [one.text for one in report.solutions] == [HIDDEN, TOPIC_TEXT]
    assert 0.99 < report.solutions[0].posterior < 1 == report.solutions[1].posterior
    assert [one.rounded for one in report.solutions] == ["0.999", "1"]
    assert report.ended
    assert report.tried > 0
    assert report.effort.startswith(f"{report.tried:,} texts tried in ")


def test_an_end_before_the_first_text_says_so(folder: Path) -> None:
    """Reading what is known may take all of the time."""
    report = solved(folder, {selector(HIDDEN): None}, seconds=0)
    assert (report.tried, report.ended) == (0, False)
    assert report.effort.startswith("none was tried: reading the known names took all of ")


def test_a_topic_is_tried_first_and_with_all_lists(folder: Path) -> None:
    """Its hit is proof, and each list more is one more chance of a false hit of a selector."""
    topics = [TOPIC_TEXT, "Withdrawn(address)"]
    wanted = {selector(HIDDEN): None} | {keccak256(text): None for text in topics}
    assert [one.text for one in solved(folder, wanted, most_lists=1).solutions] == topics


def test_the_code_says_which_lists_are_tried(folder: Path) -> None:
    """Other lists are not, for that hash; the list that the code shows is, though no text has it."""
    wanted = {selector(HIDDEN): "bool", selector("withdraw(bytes4,bool)"): "bytes4,bool"}
    assert [one.text for one in solved(folder, wanted).solutions] == ["withdraw(bytes4,bool)"]


def test_new_names_are_made_of_words_that_stand_together(folder: Path) -> None:
    """A name that no text has, whose pairs of words occur twice; a pair that occurs once is left out."""
    names = ("payBack", "payBackNow", "sendBackAll", "moveBackAll", "moveOut")
    write_files(folder.parent, {"more.txt": "\n".join(f"{name}(uint256)" for name in names)})
    import_files([folder.parent / "more.txt"], folder)
    wanted = {selector("payBackAll(uint256)"): "uint256", selector("moveOutAll(uint256)"): "uint256"}
    assert solved(folder, wanted).solutions == []
    assert [one.text for one in solved(folder, wanted, pairs=1000).solutions] == ["payBackAll(uint256)"]


FORMS = ["maxFee()", "getMaxFee()", "setMaxFee()", "isMaxFee()", "MaxFee()", "MAX_FEE()", "_maxFee()", "maxFees()"]


@pytest.mark.parametrize("hidden", FORMS)
def test_a_known_name_is_tried_in_other_forms(hidden: str) -> None:
    """As another case, with or without a prefix, as a plural: as far as known names have such forms."""
    others = [text.replace("ax", "in").replace("AX", "IN") for text in FORMS]
    names = [text[:-2] for text in [*others, "fee()", (hidden == "maxFee()" and "MaxFee()") or "maxFee()"]]
    known = discounted(pa.array(names), np.ones(len(names), np.int64))
    assert hidden[:-2] in new_names(known, 1000).texts.to_pylist()


def test_new_names_take_what_the_known_ones_leave(folder: Path) -> None:
    """Of few names that have many forms too; so a selector is never certain."""
    names = [
        *(text[:-2].replace("ax", "in").replace("AX", "IN") for text in FORMS),
        "topTip",
        "lowTip",
        "topGas",
        "lowGas",
    ]
    known = discounted(pa.array(names), np.ones(len(names), np.int64))
    assert known.weights.sum() + new_names(known, 1000).weights.sum() == pytest.approx(1)
    write_files(folder.parent, {"few.txt": "\n".join(f"{name}()" for name in names)})
    import_files([folder.parent / "few.txt"], folder.parent / "few")
    [found] = solved(folder.parent / "few", {selector("getTopTip()"): ""}, pairs=1000).solutions
    assert (found.text, found.rounded) == ("getTopTip()", "0.999")
    assert found.posterior < 1


def test_a_posterior_is_the_share_of_all_that_may_be_meant() -> None:
    """Bayes' rule by hand: two hits share what the texts that were not tried leave."""
    assert posteriors([], 0.5) == []
    assert posteriors([0.25], 1.0)[0] < 1
    rest = (UNLISTED - 0.3) * CHANCE
    assert posteriors([0.2, 0.1], 0.3) == pytest.approx([0.2 / (0.3 + rest), 0.1 / (0.3 + rest)])
    assert posteriors([CHANCE], 0.0) == pytest.approx([1 / (1 + UNLISTED)])


def test_a_search_goes_on_where_it_ended(folder: Path, tmp_path: Path) -> None:
    """Its state has what was found; that of another search is refused, and so is any other file."""
    state, wanted = tmp_path / "state.json", {selector(HIDDEN): None}
    first = solved(folder, wanted, state=state)
    again = solved(folder, wanted, state=state)
    assert (again.solutions, again.tried) == (first.solutions, first.tried)
    with pytest.raises(BadInput, match="another search"):
        solved(folder, {selector(NEW_NAME): None}, state=state)
    state.write_text("{}")
    with pytest.raises(BadInput, match="no file that --state has written"):
        solved(folder, wanted, state=state)


def test_the_command_prints_each_text_with_its_posterior(folder: Path, tmp_path: Path) -> None:
    """Names and lists of a file are tried too; the status says whether each hash has a text."""
    write_files(tmp_path, {"names.txt": "rescue\n", "lists.txt": "(bytes4 id, bool)\n"})
    given = ("--names", tmp_path / "names.txt", "--lists", tmp_path / "lists.txt")
    ran = invoke(folder, "solve", f"0x{selector('rescue(bytes4,bool)').hex()}", *given, "--json")
    document = json.loads(ran.stdout)
    assert (ran.status, [one["text"] for one in document["solutions"]]) == (0, ["rescue(bytes4,bool)"])
    assert document["solutions"][0]["posterior"] > 0.99
    ran = invoke(folder, "solve", f"0x{selector(HIDDEN).hex()}", "0x00000001")
    assert ran.status == 1
    assert b"  0.999  withdraw(address,uint256)\n0x00000001  no text was found" in ran.stdout
    assert "texts tried in" in ran.stderr
    for option, line in (("--names", "9lives"), ("--lists", "rescue(bytes4)")):  # the second one is a whole text
        (tmp_path / "bad.txt").write_text(f"{'ok' if option == '--names' else '(bool)'}\n{line}\n")
        ran = invoke(folder, "solve", "0x00000001", option, tmp_path / "bad.txt")
        assert (ran.status, "bad.txt: line 2" in ran.stderr) == (2, True)
    assert invoke(folder, "solve").status == 2
    assert invoke(folder, "solve", "0x123").status == 2


def test_what_a_search_found_is_stored_as_such(folder: Path, tmp_path: Path) -> None:
    """It has the lowest witness and says so, packs leave it out, filters hide it, until a source names it."""
    write_files(tmp_path, {"found.txt": f"{HIDDEN}\ndeposit(uint256)\n"})
    import_files([tmp_path / "found.txt"], folder, source="solved")
    with sigdir.open(folder) as warehouse:
        ranked = dict(
            warehouse.sql("SELECT text_signature, witness FROM ranked WHERE collection = 'signatures'").rows()
        )
    assert (ranked[HIDDEN], ranked["deposit(uint256)"]) == ("solved", "listed")
    assert invoke(folder, "export", "pack", tmp_path / "a.pack").status == 0
    with sigdir.Pack(tmp_path / "a.pack") as pack:
        assert (pack.lookup(f"0x{selector(HIDDEN).hex()}"), pack.lookup(f"0x{selector('deposit(uint256)').hex()}")) == (
            [],
            ["deposit(uint256)"],
        )
    assert b"a search found it; no source names it" in invoke(folder, "resolve", f"0x{selector(HIDDEN).hex()}").stdout
    write_files(tmp_path, {"list.txt": HIDDEN})
    import_files([tmp_path / "list.txt"], folder)
    with sigdir.open(folder) as warehouse:
        assert warehouse.sql("SELECT witness FROM ranked WHERE text_signature = ?", [HIDDEN]).rows() == [("listed",)]
