"""Resolve, the OpenChain dialect that cast reads, the pages and SQL give the texts of a hash in one order, for the same reasons."""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from falcon.testing import TestClient

import sigdir
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.signatures.standards import NO_TEXT, canonical
from sigdir.warehouse import Warehouse
from tests.conftest import ROOT, import_files
from tests.pipeline.support import CORPORA
from tests.serve.support import SPAM, TRANSFER, opened, selector
from tests.signatures.assembly import dispatcher

MINED = [
    line.split(" ", 1)[1]
    for line in (ROOT / "tests" / "signatures" / "mined.txt").read_text().splitlines()
    if not line.startswith("#")
]


class Directory:
    """A warehouse, as SQL reads it and as a server answers."""

    def __init__(self, warehouse: Path, client: TestClient) -> None:
        self.sql: Warehouse = sigdir.open(warehouse)
        self.client = client

    def ranked(self, hashes: list[str]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
        """By hash the texts with their reasons, in the order of SQL."""
        query = """SELECT hex_signature, list((text_signature, reasons) ORDER BY position) FROM ranked
                   WHERE list_contains($1, hex_signature) GROUP BY hex_signature"""
        rows = self.sql.sql(query, [hashes]).rows()
        return {hex: [(text, tuple(reasons)) for text, reasons in map(dict.values, texts)] for hex, texts in rows}

    def get(self, path: str) -> Any:
        answer = self.client.simulate_get(path)
        assert answer.status_code == 200, answer.text
        return answer


@pytest.fixture(scope="module", params=["mined", pytest.param("corpora", marks=pytest.mark.long)])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    folder = tmp_path_factory.mktemp("agreement")
    if request.param == "mined":
        import_files(write_sources(folder), folder / "warehouse")
    elif CORPORA.is_dir():
        import_files([CORPORA], folder / "warehouse")
    else:
        pytest.skip(f"no real data: {CORPORA} is not there")
    with opened(folder / "warehouse") as storage:
        yield Directory(folder / "warehouse", TestClient(create_app(Settings(folder / "warehouse"), *storage)))


def write_sources(folder: Path, seed: int = 15) -> list[Path]:
    """Two lists and twenty contracts, half of them with bytecode, of mined texts and of some that they collide with."""
    chance = random.Random(seed)
    standard = [text for hash, text in canonical().items() if len(hash) == 4 and text != NO_TEXT and hash[0] % 2]
    texts = [SPAM, TRANSFER, *MINED, *standard]
    (folder / "all.txt").write_text("\n".join(texts))
    (folder / "some.txt").write_text("\n".join(chance.sample(texts, len(texts) // 2)))
    for number in range(20):
        declared = [text for text in texts if chance.random() < 0.1]
        code = dispatcher(bytes.fromhex(selector(text)[2:]) for text in declared) if number % 2 else b""
        artifact = {
            "contractName": f"C{number}", "abi": [f"function {text}" for text in declared], "deployedBytecode": code.hex()
        }  # fmt: skip
        (folder / f"C{number}.json").write_text(json.dumps(artifact))
    return sorted(folder.glob("*.*"))


def test_all_places_agree(directory: Directory) -> None:
    """For transfer and for fifty other selectors with several texts, or all that there are."""
    several = directory.sql.sql("SELECT hex_signature FROM collisions ORDER BY texts DESC, hash LIMIT 50").rows()
    hashes = sorted({selector(TRANSFER), *(hex for (hex,) in several)})
    assert len(hashes) > 30
    wanted = directory.ranked(hashes)
    assert [text for text, _ in wanted[selector(TRANSFER)]][:2] == [TRANSFER, SPAM]
    plain = directory.get(f"/api/v1/resolve/?hash={','.join(hashes)}").text.splitlines()
    explained = directory.get(f"/api/v1/resolve/?hash={','.join(hashes)}&full=1").text.splitlines()
    lookup = f"/signature-database/v1/lookup?function={','.join(hashes)}&filter="
    every, shown = (directory.get(f"{lookup}{filter}").json["result"]["function"] for filter in ("false", "true"))
    for hex, resolved, full in zip(hashes, map(json.loads, plain), map(json.loads, explained), strict=True):
        texts = [text for text, _ in wanted[hex]]
        assert resolved == {"hash": hex, "texts": texts}
        assert [(one["text_signature"], tuple(one["reasons"])) for one in full["texts"]] == wanted[hex]
        assert [one["position"] for one in full["texts"]] == list(range(1, len(texts) + 1))
        assert [one["name"] for one in every[hex]] == texts
        visible = [one["name"] for one in shown[hex]]
        assert visible == [text for text in texts if text in visible]
        if canonical().get(bytes.fromhex(hex[2:])) == texts[0]:
            assert visible == texts[:1]
        assert pages_of(directory, hex, full["texts"]) == wanted[hex]


def pages_of(directory: Directory, hex: str, texts: list[dict[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """The texts of a hash with their reasons, in the places that their pages give them; the page of the hash is the first's."""
    found = {}
    for id in ("", *(f"?id={text['id']}" for text in texts)):
        page = html.unescape(directory.get(f"/selector/{hex}/{id}").text.replace("<wbr>", ""))
        (text,) = re.findall(r'<h1 class="signature text">(.*)</h1>', page)
        ((position, count, reasons),) = re.findall(r"<dd>(\d+) of (\d+) with this selector: (.*)</dd>", page)
        assert int(count) == len(texts)
        assert id or position == "1"
        found[int(position)] = (text, tuple(reasons.split("; ")))
    return [found[position] for position in sorted(found)]


def test_a_page_of_a_search_has_the_order(directory: Directory) -> None:
    """A selector that is searched gives its texts by rank."""
    (hex, texts), *_ = directory.sql.sql(
        "SELECT hex_signature, text_signatures FROM collisions ORDER BY texts DESC, hash"
    ).rows()
    page = html.unescape(directory.get(f"/search/?q={hex}").text.replace("<wbr>", ""))
    places = [page.index(f">{text}</a>") for text in texts]
    assert places == sorted(places)
