"""The suppress list: every route of the table hides its texts, and everything that is stored stays."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from falcon.testing import Result, TestClient

import sigdir
from sigdir.serve.app import create_app, routes
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.routing import methods_of
from sigdir.serve.pages.background import render
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse import UnreadableWarehouse, Warehouse
from sigdir.warehouse.index.view import Reader, tidy
from sigdir.warehouse.index.visible import change_list
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.suppressed import entries_of, read, sealed, sealed_version, unsealed
from sigdir.warehouse.verify import verify
from tests.conftest import import_lines
from tests.serve.support import EVENTS_PATH, FORM, SIGNATURES_PATH, opened, selector, topic

RUDE, RUDE_EVENT, RUDE_STAGED = "veryRude(uint256)", "VeryRude(uint256)", "rudeLater(uint256)"
"""The second half of each name is searched for; no request has the whole name."""

HIDDEN = (f"function {RUDE}", f"event {RUDE_EVENT}", f"function {RUDE_STAGED}")
OTHERS = 40
CALLDATA = selector(RUDE) + f"{7:064x}"
HASHES = f"{selector(RUDE)}\n{topic(RUDE_EVENT)}\n{selector(RUDE_STAGED)}\n"

ASKED: dict[str, list[str]] = {
    SIGNATURES_PATH: [
        "", "?page=last", "?ordering=created_at", "?cursor=", f"?hex_signature={selector(RUDE)}", "?text_signature=ude",
        f"?hex_signature={selector(RUDE)[2:9]}", f"?hex_signature__in={selector(RUDE)},{selector(RUDE_STAGED)}",
        "?created_at__gte=2000-01-01T00:00:00Z", "?page_size=7&page=3",
    ],
    "/api/v1/signatures/{id}/": ["1", "21", "41", "42"],
    EVENTS_PATH: ["", f"?hex_signature={topic(RUDE_EVENT)}", f"?hex_signature__in={topic(RUDE_EVENT)}"],
    "/api/v1/event-signatures/{id}/": ["1", "2", "3"],
    "/api/v1/decode/": [f"?data={CALLDATA}"],
    "/api/v1/resolve/": [f"?hash={selector(RUDE)},{topic(RUDE_EVENT)}", f"?hash={selector(RUDE)}&full=1"],
    "/api/v1/signatures/{id}/evidence/": ["21/evidence/", "42/evidence/"],
    "/api/v1/event-signatures/{id}/evidence/": ["2/evidence/"],
    "/api/v1/changes/": ["", "?collection=event-signatures", "?after=s13&limit=5"],
    "/api/v1/search/": ["?q=ude", "?q=(uint256)"],
    "/api/v1/contracts/{chain}/{address}/": [f"1/0x{20 * '11'}/"], "/contracts/{chain}/{contract}/": [f"1/0x{20 * '11'}/"],
    "/range/{collection}/{prefix}": [f"signatures/{selector(RUDE)[2:5]}", f"event-signatures/{topic(RUDE_EVENT)[2:5]}"],
    "/range/{collection}/{prefix}/{edition}": [f"signatures/{selector(RUDE)[2:5]}/0"],
    "/dumps/": [""],
    "/dumps/{version}/": ["1", "latest"],
    "/dumps/{version}/{name}": [
        f"{version}/{collection}.{ending}" for version in ("1", "latest")
        for collection in ("signatures", "event-signatures") for ending in ("ndjson", "csv", "parquet")
    ],
    "/dumps/{version}/{name}/{file}": [],  # the files of the table, as ``Served.shown`` finds them
    "/signature-database/v1/lookup": [f"?function={selector(RUDE)}&event={topic(RUDE_EVENT)}&filter=false"],
    "/signature-database/v1/search": ["?query=*ude*&filter=false"],
    "/signature-database/v1/stats": [""],
    "/signature-database/v1/export": [""],
    "/api/v1/signatures": [f"?function={selector(RUDE)}&all"],
    "/signatures/": [f"?bytes4_signature={selector(RUDE)}", "?query=ude"],
    "/event-signatures/": [f"?bytes_signature={topic(RUDE_EVENT)}"],
    "/signatures/{hash}": [selector(RUDE)[2:]],
    "/topic0/{hash}": [topic(RUDE_EVENT)[2:]],
    "/healthz": [""], "/readyz": [""], "/api/v1/openapi.json": [""], "/": [""], "/favicon.ico": [""], "/llms.txt": [""], "/robots.txt": [""],
    "/assets/{name}": ["site.css"],
    "/search/": ["?q=ude", f"?q={selector(RUDE)}", f"?q={topic(RUDE_EVENT)}", "?q=ude&in=functions"],
    "/search/results/": ["?q=ude", f"?q={CALLDATA}"],
    "/browse/": [""],
    "/browse/{collection}/": ["functions/", "functions/?before=25", "functions/?after=2", "events/"],
    "/selector/{hash}/": [f"{selector(RUDE)}/", f"{selector('other0(uint256)')}/"],
    "/topic/{hash}/": [f"{topic(RUDE_EVENT)}/"],
    "/submit/stored/": ["?functions=21-21,42-42&events=2-2"], "/metrics": [""], "/submit/": [""], "/decode/": [f"?data={CALLDATA}"], "/docs/": [""], "/statistics/": [""], "/status/": [""],
}  # fmt: skip
"""What is asked of each route that answers GET: what follows the part of the path without parameters."""

SHOWING_NOTHING = {
    "/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/", "/favicon.ico", "/llms.txt", "/robots.txt", "/assets/{name}", "/submit/", "/docs/",
    "/statistics/", "/status/", "/dumps/", "/dumps/{version}/", "/signature-database/v1/stats",
    # Of a contract that nothing is known of; test_stored_contracts.py has one with a suppressed text.
    "/api/v1/contracts/{chain}/{address}/", "/contracts/{chain}/{contract}/",
}  # fmt: skip
"""Routes that show no text of a row at all. Their counts are compared."""


class Served:
    """An application in this process over one import and one POSTed row that is not folded."""

    def __init__(self, root: Path, storage: tuple[Any, Any]) -> None:
        self.paths, self.storage = Paths(root), storage
        self.reader: Reader = storage[0]
        self.table = routes(Settings(root), *storage)
        self.client = TestClient(create_app(Settings(root), *storage))

    def suppress(self, *texts: str, remove: bool = False) -> None:
        entries = [entry for text in texts for entry in entries_of(text)]
        change_list(self.paths, add=() if remove else entries, remove=entries if remove else ())
        self.reader.refreshed()

    def get(self, path: str, **headers: str) -> Result:
        answer = self.client.simulate_get(path, headers=headers)
        while answer.status_code in (301, 302):
            answer = self.client.simulate_get(answer.headers["location"], headers=headers)
        return answer

    def shown(self, route: str) -> str:
        """All answers of a route, as JSON and as pages, in lower case."""
        start = route.partition("{")[0]
        paths = [start + rest for rest in ASKED[route]]
        if route == "/dumps/{version}/{name}/{file}":  # the data files of the table, and the ones that the dumps list
            files = [f"{file.parent.name.removeprefix('collection=')}/{file.name}" for file in self.paths.data_files()]
            paths = [f"/dumps/1/{file}" for file in files]
            paths += [file["url"] for file in self.get("/dumps/1/").json["files"]]
        kinds = ("*/*", "text/html")
        return "\n".join(text_of(self.get(path, Accept=kind)) for path in paths for kind in kinds).lower()

    def counts(self) -> list[tuple[int, int]]:
        """The rows of both collections, as each route that counts them says."""
        ready = self.get("/readyz").json["rows"]
        stats = self.get("/signature-database/v1/stats").json["result"]["count"]
        lists = [self.get(path).json["count"] for path in (SIGNATURES_PATH, EVENTS_PATH)]
        status = re.findall(r"<td[^>]*>([\d,]+)</td>", self.get("/status/").text)
        return [
            tuple(lists), (ready["signatures"], ready["event-signatures"]), (stats["function"], stats["event"]),
            (int(status[0]), int(status[3])),
        ]  # fmt: skip


def text_of(answer: Result) -> str:
    """A body as text; a Parquet file as its rows, a pack as its texts."""
    if answer.content.startswith(b"PAR1"):
        return json.dumps(pq.read_table(io.BytesIO(answer.content)).to_pylist(), default=str)
    if answer.content.startswith(b"sigpack"):
        pack = sigdir.Pack(answer.content)
        return str([list(pack.texts(collection)) for collection in COLLECTIONS])
    return answer.content.decode("utf-8", "replace")


@pytest.fixture
def served(warehouse: Path) -> Iterator[Served]:
    texts = [f"other{number}(uint256)" for number in range(OTHERS)]
    texts.insert(20, RUDE)
    import_lines(warehouse, *texts, "event Polite(uint256)", f"event {RUDE_EVENT}", "event Late(uint256)")
    with opened(warehouse) as storage:
        found = Served(warehouse, storage)
        posted = found.client.simulate_post(SIGNATURES_PATH, json={"text_signature": RUDE_STAGED})
        assert posted.status_code == 201
        yield found


def test_no_route_shows_a_suppressed_text(served: Served) -> None:
    """Every route of the table is asked in every way that showed a text before; then none does, and counts fit."""
    assert {path for path, resource in served.table.items() if "GET" in methods_of(resource)} == ASKED.keys()
    render(served.paths)
    shows = {route: "rude" in served.shown(route) for route in ASKED}
    assert {route for route, is_shown in shows.items() if not is_shown} == SHOWING_NOTHING
    assert set(served.counts()) == {(OTHERS + 2, 3)}
    served.suppress(*HIDDEN)
    render(served.paths)
    assert {route for route in ASKED if "rude" in served.shown(route)} == set()
    assert set(served.counts()) == {(OTHERS, 2)}
    totals = served.get("/statistics/").text
    assert re.findall(r"functions and errors</\w+>\s*<\w+[^>]*>(\d+)", totals) == [str(OTHERS)]
    fold(served.paths)  # version 1 is an older one from here on
    assert "2" in served.get("/dumps/latest/").json["files"][0]["url"]
    assert {route for route in ASKED if "rude" in served.shown(route)} == set()
    resolved = served.client.simulate_post("/api/v1/resolve/", body=HASHES, headers={"Content-Type": "text/plain"})
    assert [json.loads(line)["texts"] for line in resolved.text.splitlines()] == [[], [], []]
    for body in ({"data": CALLDATA}, {"data": CALLDATA + "00" * 3200}):
        assert served.client.simulate_post("/api/v1/decode/", json=body).json["candidates"] == []
        assert "rude" not in served.client.simulate_post("/decode/", json=body).text.lower()


def test_pages_have_no_holes(served: Served) -> None:
    """Each page but the last is full, the feed and the dumps agree; what is taken off the list is back as it was."""
    before = served.get(f"{SIGNATURES_PATH}?hex_signature={selector(RUDE)}").json
    served.suppress(*HIDDEN)
    rows = served.get(f"{SIGNATURES_PATH}?ordering=created_at&page_size=1000").json["results"]
    pages = [served.get(f"{SIGNATURES_PATH}?ordering=created_at&page_size=7&page={n}").json for n in range(1, 7)]
    assert [len(page["results"]) for page in pages] == [7, 7, 7, 7, 7, 5]
    assert [row for page in pages for row in page["results"]] == rows
    assert [row["id"] for row in rows] == [*range(1, 21), *range(22, 42)]
    feed = [json.loads(line) for line in served.get("/api/v1/changes/").text.splitlines()]
    dumped = [json.loads(line) for line in served.get("/dumps/1/signatures.ndjson").text.splitlines()]
    assert feed[:-1] == rows == dumped
    version = served.get("/dumps/1/").json
    assert version["rows"] == {"signatures": OTHERS, "event-signatures": 2}
    assert sum(file["rows"] for file in version["files"]) == OTHERS + 2
    assert served.get(f"{SIGNATURES_PATH}?hex_signature={selector(RUDE)}").json["count"] == 0
    served.suppress(*HIDDEN, remove=True)
    assert served.get(f"{SIGNATURES_PATH}?hex_signature={selector(RUDE)}").json == before
    tidy(served.paths)
    assert list(served.paths.visible.glob("*")) == []


def stored(served: Served) -> int:
    """Rows in files and in staging."""
    fold(served.paths)
    warehouse = Warehouse(served.paths.root)
    return warehouse.count(SIGNATURES) + warehouse.count(EVENT_SIGNATURES)


def test_a_post_of_a_suppressed_text_stores_nothing(served: Served) -> None:
    """400 by name, whether the text was ever stored or not; the imports leave it out."""
    served.suppress(RUDE, "never(uint256)")
    rows = stored(served)
    for text in (RUDE, "function never(uint amount)"):
        answer = served.client.simulate_post(SIGNATURES_PATH, json={"text_signature": text})
        assert (answer.status_code, answer.headers["reject-reason"]) == (400, "suppressed")
        assert answer.json == {"text_signature": ["This signature is suppressed."]}
    abi = [{"type": "function", "name": "never", "inputs": [{"type": "uint256", "name": ""}]}]
    counters = {"num_processed": 1, "num_imported": 0, "num_duplicates": 0, "num_ignored": 1}
    answer = served.client.simulate_post("/api/v1/import-abi/", json={"contract_abi": json.dumps(abi)})
    assert answer.json == counters
    source = "contract C { function never(uint a) public {} }"
    assert served.client.simulate_post("/api/v1/import-solidity/", json={"source_code": source}).json == counters
    for path, body in (
        ("/signature-database/v1/import", {"function": ["never(uint256)"]}),
        ("/api/v1/import", {"type": "raw", "data": {"function": ["never(uint256)"]}}),
    ):
        kinds = served.client.simulate_post(path, json=body).json["result"]
        reasons = {"never(uint256)": {"reason": "suppressed", "position": 0}}
        assert kinds["function"] == {"imported": {}, "duplicated": {}, "invalid": [*reasons], "reasons": reasons}
    preview = served.client.simulate_post("/submit/", body="text=never(uint256)", headers=FORM)
    assert "does not serve this signature" in preview.text
    page = served.client.simulate_post("/submit/store/", body="texts=function+never(uint256)", headers=FORM)
    assert page.headers["location"] == "/submit/stored/?others=1"
    assert stored(served) == rows


def test_a_file_of_suppressed_rows_alone_is_no_file(warehouse: Path) -> None:
    """Nor is a collection that has no other row: it is empty."""
    import_lines(warehouse, RUDE, f"event {RUDE_EVENT}")
    with opened(warehouse) as storage:
        served = Served(warehouse, storage)
        served.suppress(RUDE, f"event {RUDE_EVENT}")
        assert set(served.counts()[:3]) == {(0, 0)}
        assert served.get("/dumps/latest/").json["files"] == []
        assert served.get("/dumps/latest/signatures.ndjson").text == ""


def test_later_imports_and_compactions_are_masked_before_they_are_seen(served: Served) -> None:
    """An import stores a suppressed text, no server shows it, and the publisher has written what servers show."""
    served.suppress("function brandNewRude(uint256)")
    import_lines(served.paths.root, "brandNewRude(uint256)", "brandNew(uint256)")
    (folder,) = served.paths.visible.glob("*")
    written = sorted(entry.name for entry in folder.glob("*/*.parquet"))
    assert len(written) == 1
    page = served.get(f"{SIGNATURES_PATH}?text_signature=brandNew").json
    assert [row["text_signature"] for row in page["results"]] == ["brandNew(uint256)"]
    assert sorted(entry.name for entry in folder.glob("*/*.parquet")) == written


def test_a_damaged_visible_file_is_found_and_written_again(served: Served) -> None:
    """A server that starts writes one again that it cannot open; `sigdir verify` reads all of each, and the list."""
    served.suppress(RUDE)
    (visible,) = served.paths.visible.glob("*/*/*.parquet")
    whole = visible.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        visible.write_bytes(damaged)
        (finding,) = verify(served.paths, 1, "128MB", lambda *_: None, lambda _: None).findings
        assert (finding.what, finding.where) == ("visible", str(visible.relative_to(served.paths.root)))
    visible.write_bytes(whole[: len(whole) // 2])
    with closing(Reader(served.paths)):
        assert visible.read_bytes() == whole
    served.paths.suppressed.write_text("no signature\n")
    (finding,) = verify(served.paths, 1, "128MB", lambda *_: None, lambda _: None).findings
    assert (finding.what, finding.where) == ("suppressed", "suppressed.txt")


def test_the_list_is_lines_that_the_operator_keeps(served: Served) -> None:
    """Comments stay, a text without a keyword names both collections, and a broken line is named."""
    list_file = served.paths.suppressed
    list_file.write_text("# from a court order\nveryRude(uint)\nevent VeryRude(uint indexed a)\n")
    assert read(served.paths).entries == {
        (SIGNATURES, RUDE), (EVENT_SIGNATURES, RUDE), (EVENT_SIGNATURES, RUDE_EVENT),
    }  # fmt: skip
    change_list(served.paths, remove=entries_of(f"function {RUDE}"), add=entries_of("function f()"))
    assert list_file.read_text().splitlines() == [
        "# from a court order", f"event {RUDE}", "event VeryRude(uint indexed a)", "function f()",
    ]  # fmt: skip
    list_file.write_text("function f()\nno signature\n")
    with pytest.raises(UnreadableWarehouse, match=r"suppressed\.txt, line 2: .*no signature"):
        read(served.paths)


def test_a_list_that_breaks_keeps_hiding(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    """A server uses the last good list and says so once; none starts with a broken one."""
    served.suppress(RUDE)
    served.paths.suppressed.write_text("no signature\n")
    for _ in range(2):
        served.reader.refreshed()
        assert served.get(f"{SIGNATURES_PATH}?hex_signature={selector(RUDE)}").json["count"] == 0
    assert capfd.readouterr().err.count("line 1") == 1
    with pytest.raises(UnreadableWarehouse, match=r"suppressed\.txt, line 1"):
        Reader(served.paths)


def test_a_sealed_list_is_whole_or_none() -> None:
    """Any byte that is another, any end that is missing and a list without its seal are noticed."""
    listed = sealed(b"# why\nfunction hidden(uint256)\n", 7)
    assert sealed_version(listed) == 7
    assert unsealed(listed) == b"# why\nfunction hidden(uint256)\n"
    assert sealed(listed, 8) == sealed(unsealed(listed), 8)
    for at in range(len(listed)):
        for bit in range(8):
            flipped = listed[:at] + bytes([listed[at] ^ 1 << bit]) + listed[at + 1 :]
            assert sealed_version(flipped) == 0, flipped
        assert sealed_version(listed[:at]) == 0
    assert sealed_version(unsealed(listed)) == 0
    assert sealed_version(sealed(b"", 1)) == 1
