"""Search by structure over HTTP, on the page and on the command line, over files and staged rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import TestClient

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from tests.conftest import import_files, import_lines
from tests.pipeline.support import invoke
from tests.serve.support import application, post_text, selector, topic

PATH = "/api/v1/search/"
SWAPS = [f"swap{n}(uint256,address)" for n in range(30)]
TEXTS = [
    "aVeryLongNameThatIsLong(address,uint256)", "pay(address,uint256)", "transfer(address,uint256)",
    "send(address,uint256,bytes)", "fill((address,uint256),bytes32)", "stop()", *SWAPS,
]  # fmt: skip
ABI = [
    {"type": "error", "name": "Late", "inputs": [{"name": "at", "type": "uint256"}]},
    {"type": "event", "name": "Paid", "inputs": [{"name": "to", "type": "address", "indexed": True}]},
    {"type": "function", "name": "late", "inputs": [{"name": "at", "type": "uint256"}], "outputs": []},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    (folder / "abi.json").write_text(json.dumps(ABI))
    import_files([folder / "texts.txt", folder / "abi.json"], folder / "warehouse")
    used = {selector("transfer(address,uint256)"): 9000, selector("stop()"): 7, topic("Paid(address)"): 80}
    rows = [f"{hash},{count}\n" for hash, count in used.items()]
    (folder / "counts.csv").write_text("hash,count\n" + "".join(rows))
    assert invoke(folder / "warehouse", "import", folder / "counts.csv", "--usage").status == 0
    return folder / "warehouse"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with application(folder) as app:
        assert post_text(app, "staged(address,uint256)").status == 201
        yield app.client


def found(client: TestClient, query: str, collection: str = SIGNATURES, **parameters: str) -> list[str]:
    answer = client.simulate_get(PATH, params={"q": query} | parameters)
    assert answer.status_code == 200, answer.text
    matches: Any = answer.json[collection]
    return [row["text_signature"] for row in matches["results"]]


QUERIES = {
    "(address,uint256)": ["transfer(address,uint256)", "aVeryLongNameThatIsLong(address,uint256)", "pay(address,uint256)",
                          "staged(address,uint256)"],
    "type:uint256 params:1": ["Late(uint256)", "late(uint256)"],
    "(address to, uint amount, bytes)": ["send(address,uint256,bytes)"],
    "(*,bytes32)": ["fill((address,uint256),bytes32)"],
    "*TOP": ["stop()"],
    "s* params:0": ["stop()"],
    "pay (address,*)": ["pay(address,uint256)"],
    "kind:error": ["Late(uint256)"],
    "witness:declared": ["Late(uint256)", "late(uint256)"],
    "kind:function (uint256)": ["late(uint256)"],
    "standard:erc-20": ["transfer(address,uint256)"],
    "source:post": ["staged(address,uint256)"],
    "source:texts type:bytes": ["send(address,uint256,bytes)"],
    "usage:>7": ["transfer(address,uint256)"],
    "usage:1..7 s*": ["stop()"],
    "late* source:texts": [],
    "usage:0 (address,uint256)": ["aVeryLongNameThatIsLong(address,uint256)", "pay(address,uint256)",
                                  "staged(address,uint256)"],
    "before:2020-01-01 (address,*)": [],
    "since:2020-01-01 stage (address,*)": ["staged(address,uint256)"],
    "LongName": ["aVeryLongNameThatIsLong(address,uint256)"],
    "0xa9059cbb": ["transfer(address,uint256)"],
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_structure_is_found(client: TestClient, query: str) -> None:
    """In files and among staged rows, pieces and hashes too: standards first, then better evidence, then older ones."""
    assert found(client, query) == QUERIES[query]


def test_events_have_their_own_matches(client: TestClient) -> None:
    """By their parameters and their uses; an answer of events alone has no functions."""
    for query in ("(address)", "usage:80"):
        assert found(client, query, EVENT_SIGNATURES) == ["Paid(address)"]
    answer = client.simulate_get(PATH, params={"q": "kind:event", "in": "events"}).json
    assert answer.keys() & {SIGNATURES, EVENT_SIGNATURES} == {EVENT_SIGNATURES}
    assert answer[EVENT_SIGNATURES]["count"] == 1


def test_pages_have_exact_counts_and_all_matches(client: TestClient) -> None:
    """Each match is on one page, whatever their size; the answer says what was understood."""
    pages, link = [], f"{PATH}?q=swap*+(uint256,*)&page_size=6"
    understood = "signatures where the name is like swap*, and the parameters begin with (uint256)"
    while link:
        answer = client.simulate_get(link.removeprefix("http://falconframework.org")).json
        assert (answer["understood"], answer[SIGNATURES]["count"]) == (understood, len(SWAPS))
        pages.append([row["text_signature"] for row in answer[SIGNATURES]["results"]])
        link = answer["next"]
    assert [len(page) for page in pages] == [6, 6, 6, 6, 6]
    assert sorted(text for page in pages for text in page) == sorted(SWAPS)
    assert client.simulate_get(PATH, params={"q": "swap*", "page": "9"}).status_code == 404


@pytest.mark.parametrize(
    ("parameters", "name", "error"),
    [
        ({"q": "kind:x"}, "q", "at column 6"), ({}, "q", "A query of 1 to"),
        ({"q": "a" * 300}, "q", "a piece of a text has at most 256 characters here, and this has 300"),
        ({"q": "a", "in": "x"}, "in", "functions, events"), ({"q": "a", "page": "0"}, "page", "from 1"),
        ({"q": "a", "page_size": "101"}, "page_size", "to 100"), ({"q": "a", "x": "1"}, "x", "no such parameter"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(client: TestClient, parameters: dict[str, str], name: str, error: str) -> None:
    answer = client.simulate_get(PATH, params=parameters)
    assert (answer.status_code, list(answer.json)) == (400, [name])
    assert error in answer.json[name][0]


def test_the_page_says_what_it_understood(client: TestClient) -> None:
    page = client.simulate_get("/search/", params={"q": "pay (address,*)"}).text
    assert "Signatures where the name has pay, and the parameters begin with (address)" in page
    page = client.simulate_get("/search/", params={"q": "(uint7)"}).text
    assert '<p class="note none">This search cannot be read: bad width: ' in page  # and the styles hide the summary
    assert "Nothing found" not in page


def test_the_command_finds_the_same(folder: Path) -> None:
    """With the sentence on standard error; status 1 for nothing, 2 for what cannot be read."""
    result = invoke(folder, "search", "pay", "(address,*)")
    assert (result.status, b"pay(address,uint256)" in result.stdout) == (0, True)
    assert result.stderr == "signatures where the name has pay, and the parameters begin with (address)\n"
    answer = json.loads(invoke(folder, "search", "kind:error", "--json").stdout)
    assert answer[SIGNATURES]["results"][0]["declaration"] == "error Late(uint256 at)"
    assert invoke(folder, "search", "nothing* (bytes)").status == 1
    nothing = invoke(folder, "search", "transfer(uint7)")
    problem = "not a valid signature: not a valid width for this type, at column 10"
    assert (nothing.status, nothing.stderr.splitlines()[1:]) == (1, [f"nothing found; {problem}"])
    wrong = invoke(folder, "search", "(uint7)")
    assert (wrong.status, "at column 2" in wrong.stderr) == (2, True)


def test_the_texts_of_a_hash_have_their_rank_in_every_answer(tmp_path: Path) -> None:
    """The one that two sources name stands before an older one, also on pages of one."""
    older, named = "refundETHAll(address)", "changeKeeper(address)"
    import_lines(tmp_path / "warehouse", older, named, source="first")
    import_lines(tmp_path / "warehouse", named, source="second")
    with application(tmp_path / "warehouse") as app:
        assert found(app.client, "0x09779838") == [named, older]
        assert [found(app.client, "0x09779838", page=str(page), page_size="1") for page in (1, 2)] == [[named], [older]]
    printed = invoke(tmp_path / "warehouse", "search", "0x09779838").stdout.decode()
    assert printed == f"0x09779838  {named}\n0x09779838  {older}\n"
