"""What is said of a text, over HTTP: its place with reasons, its declaration, and who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from falcon.testing import TestClient

from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options, run_import
from sigdir.serve.bulk import resolve
from sigdir.serve.bulk.resolve import MAX_FULL_HASHES
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.serve.support import (
    FORM,
    SIGNATURES_PATH,
    SPAM,
    TRANSFER,
    application,
    get,
    post,
    post_text,
    request,
    selector,
)
from tests.signatures.assembly import dispatcher

RESOLVE = "/api/v1/resolve/"
A9 = selector(TRANSFER)
DECLARED = "function transfer(address to, uint256 amount) returns (bool)"


def entry(*names: str) -> dict[str, Any]:
    """ERC-20's transfer as an ABI has it, with these parameter names."""
    inputs = [{"name": name, "type": kind} for name, kind in zip(names, ("address", "uint256"), strict=True)]
    outputs = [{"name": "", "type": "bool"}]
    return {
        "type": "function",
        "name": "transfer",
        "inputs": inputs,
        "outputs": outputs,
        "stateMutability": "nonpayable",
    }


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list has the spam first; then three contracts declare transfer, two of them with the same names."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "list.txt").write_text(f"{SPAM}\n{TRANSFER}\nplain(uint256)\n")
    (folder / "build").mkdir()
    for number, names in enumerate((("to", "amount"), ("to", "amount"), ("recipient", "value"))):
        artifact = {"contractName": f"Token{number}", "abi": [entry(*names)]}
        (folder / "build" / f"Token{number}.json").write_text(json.dumps(artifact))
    for path in ("list.txt", "build"):
        run_import(Options([str(folder / path)], folder / "warehouse"), Reporter())
    return folder / "warehouse"


@pytest.fixture(scope="module")
def client(warehouse: Path) -> Iterator[TestClient]:
    with application(warehouse) as app:
        yield app.client


def lines(client: TestClient, path: str) -> list[dict[str, Any]]:
    answer = client.simulate_get(path)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def full(client: TestClient, *hashes: str) -> list[dict[str, Any]]:
    return lines(client, f"{RESOLVE}?hash={','.join(hashes)}&full=1")


def test_texts_come_with_their_place_reasons_and_declaration(client: TestClient) -> None:
    """The standard's text is before the older spam, which looks mined."""
    [found] = full(client, A9)
    first, second = found["texts"]
    assert (first["text_signature"], first["position"], first["declaration"]) == (TRANSFER, 1, DECLARED)
    assert (first["kinds"], first["witness"], first["sources"], first["contracts"]) == (["function"], "declared", 4, 3)
    assert first["reasons"][:3] == ["text of ERC-20", "declared in 3 contracts", "named by 4 sources"]
    assert (second["text_signature"], second["position"], second["looks_mined"]) == (SPAM, 2, True)
    assert (second["declaration"], second["witness"], second["kinds"]) == (None, "listed", [])


def test_a_post_does_not_replace_the_names_that_a_source_declares(tmp_path: Path) -> None:
    """Whoever POSTs a known text is answered 400; the declaration of the POST comes after that of the ABI."""
    root = tmp_path / "warehouse"
    (tmp_path / "abi.json").write_text(json.dumps([entry("to", "amount")]))
    run_import(Options([str(tmp_path / "abi.json")], root), Reporter())
    posted = "function transfer(address yourWallet, uint256 youReceive)"
    with application(root) as app:
        answer = post(app, SIGNATURES_PATH, {"text_signature": posted})
        assert (answer.status, answer.header("Reject-Reason")) == (400, "duplicate")
    fold(Paths(root))
    with application(root) as app:
        [text] = full(app.client, A9)[0]["texts"]
        evidence = get(app, f"{SIGNATURES_PATH}{text['id']}/evidence/").json()
    assert text["declaration"] == DECLARED
    assert [(one["declaration"], one["count"]) for one in evidence["declarations"]] == [(DECLARED, 1), (posted, 1)]


def test_hashes_may_be_mixed_unknown_and_wrong(client: TestClient) -> None:
    """Each has its line, in the order of the request; by POST too."""
    plain = selector("plain(uint256)")
    found = full(client, "zz", "00000000", plain)
    assert found[0] == {"hash": "zz", "error": "neither 8 nor 64 hex digits"}
    assert found[1] == {"hash": "0x00000000", "texts": []}
    assert [one["reasons"][0] for one in found[2]["texts"]] == ["named by 1 source"]
    posted = client.simulate_post(f"{RESOLVE}?full=1&format=json", body=f"zz\n00000000\n{plain}")
    assert posted.json == found


def test_what_a_lookup_by_get_refuses(client: TestClient) -> None:
    """No hash, and more hashes than a full answer has."""
    assert client.simulate_get(RESOLVE).json.keys() == {"hash"}
    many = "\n".join(f"{number:08x}" for number in range(MAX_FULL_HASHES + 1))
    answer = client.simulate_post(f"{RESOLVE}?full=1", body=many)
    assert (answer.status_code, str(MAX_FULL_HASHES) in answer.json["detail"]) == (413, True)


@pytest.mark.parametrize(("most", "status"), [(1, 413), (2, 200)])
def test_a_full_answer_has_a_number_of_texts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, most: int, status: int
) -> None:
    """Of all its hashes together: the selector of transfer has two."""
    monkeypatch.setattr(resolve, "MAX_FULL_TEXTS", most)
    for path in (f"{RESOLVE}?hash={A9}&full=1", f"{RESOLVE}?hash={A9},00000001&full=1"):
        answer = client.simulate_get(path)
        assert (answer.status_code, f"more than {most} texts" in answer.text) == (status, status == 413)


def test_everything_about_one_text(client: TestClient) -> None:
    """Its summary, its declarations with their counts, and each sighting, in pages."""
    id = full(client, A9)[0]["texts"][0]["id"]
    path = f"{SIGNATURES_PATH}{id}/evidence/"
    found = client.simulate_get(f"{path}?page_size=3").json
    assert {name: found[name] for name in ("text_signature", "hex_signature", "texts", "count", "declarations_count")} == {
        "text_signature": TRANSFER, "hex_signature": A9, "texts": 2, "count": 4, "declarations_count": 2,
    }  # fmt: skip
    other = DECLARED.replace("to,", "recipient,").replace("amount", "value")
    assert found["declarations"] == [{"declaration": DECLARED, "count": 2}, {"declaration": other, "count": 1}]
    listed, first, _ = found["results"]
    assert (listed["source"], listed["witness"], listed["declaration"]) == ("list.txt", "listed", None)
    assert (first["source"], first["witness"], first["kind"]) == ("build/Token0.json", "declared", "function")
    assert (first["contract"], first["declaration"]) == ("Token0", DECLARED)
    assert (found["previous"], "page=2&page_size=3" in found["next"]) == (None, True)
    rest = client.simulate_get(f"{path}?page_size=3&page=2").json
    assert [one["source"] for one in rest["results"]] == ["build/Token2.json"]
    for wrong in (f"{path}?page=3", f"{SIGNATURES_PATH}99/evidence/", f"{SIGNATURES_PATH}x/evidence/"):
        assert client.simulate_get(wrong).status_code == 404


def test_a_post_is_a_sighting_with_its_declaration(tmp_path: Path) -> None:
    """Of a new text and of a known one, which is answered as a duplicate; all POSTs of a text are one source."""
    (tmp_path / "list.txt").write_text(f"{TRANSFER}\nplain(uint256)\n")
    run_import(Options([str(tmp_path / "list.txt")], tmp_path / "warehouse"), Reporter())
    posts = {
        "function transfer(address to, uint256 amount) external returns (bool)": (400, TRANSFER, DECLARED, "function"),
        "function fresh(uint value) payable": (
            201,
            "fresh(uint256)",
            "function fresh(uint256 value) payable",
            "function",
        ),
        "error Denied(address who)": (201, "Denied(address)", "error Denied(address who)", "error"),
        "plain(uint256)": (400, "plain(uint256)", None, "unknown"),
    }
    for is_known in (False, True):
        with application(tmp_path / "warehouse") as app:  # at its end everything is staged
            for posted, (status, *_) in posts.items():
                assert post(app, SIGNATURES_PATH, {"text_signature": posted}).status == (400 if is_known else status)
        fold(Paths(tmp_path / "warehouse"))
    with application(tmp_path / "warehouse") as app:
        for _, text, declaration, kind in posts.values():
            [found] = full(app.client, selector(text))
            sightings = get(app, f"{SIGNATURES_PATH}{found['texts'][0]['id']}/evidence/").json()["results"]
            [said] = [one for one in sightings if one["source"] == "POST"]
            assert (said["witness"], said["kind"], said["declaration"]) == ("listed", kind, declaration)
            assert found["texts"][0]["declaration"] == declaration


def test_the_page_of_a_text_says_who_says_so_and_why(client: TestClient) -> None:
    """The first by rank is shown, with its declaration, its place and its sources; the other one says that it looks mined."""
    page = client.simulate_get(f"/selector/{A9}/").text
    words = page.replace("<wbr>", "")
    assert f'<h1 class="signature text">{TRANSFER}</h1>' in words
    assert f'<p class="declared text">{DECLARED} ' in words
    assert "<dt>Kind</dt><dd>Function</dd>" in page
    assert "1 of 2 with this selector: text of ERC-20; declared in 3 contracts; named by 4 sources" in page
    assert "build/Token1.json" in page
    assert "an ABI or a source declares it" in page
    assert "&#34;name&#34;: &#34;amount&#34;" in page
    id = full(client, A9)[0]["texts"][1]["id"]
    other = client.simulate_get(f"/selector/{A9}/?id={id}").text
    assert "looks mined to collide with another signature" in other
    assert "2 of 2 with this selector: looks mined: many_msg_babbage in its name looks made up" in other
    assert "Function or error: no source says which" in other


def test_search_results_show_the_commonest_declaration(client: TestClient) -> None:
    """Of a hash in the order of rank, and of a fragment."""
    for query in (A9, "transfer"):
        page = client.simulate_get(f"/search/?q={query}").text.replace("<wbr>", "")
        assert f'<span class="declared text">{DECLARED}</span>' in page
    page = client.simulate_get(f"/search/?q={A9}").text.replace("<wbr>", "")
    assert page.index(f">{TRANSFER.replace('(', '(')}</a>") < page.index(f">{SPAM}</a>")
    assert '<span class="tag">looks mined to collide</span>' in page


@pytest.mark.parametrize(
    ("text", "rival"),
    [
        ("collate_propagate_storage(bytes16)", "burn(uint256)"),  # of a standard
        ("burn(uint256)", None),
        ("workMyDirefulOwner(uint256,uint256)", TRANSFER),
        ("harmless(bytes16)", None),
    ],
)
def test_a_post_is_told_of_a_well_known_text_of_its_selector(tmp_path: Path, text: str, rival: str | None) -> None:
    """In a header, so the body stays 4byte.directory's; the preview says it in a sentence."""
    with application(tmp_path) as app:
        page = request(app, "POST", "/submit/", urlencode({"text": text}).encode(), FORM)
        assert (b"a call cannot tell the two apart" in page.body) == (rival is not None)
        answer = post_text(app, text)
        assert (answer.status, answer.json()["text_signature"]) == (201, text)
        assert answer.headers.get("Clashes-With") == rival


def test_a_post_is_told_of_a_text_that_bytecode_has(tmp_path: Path) -> None:
    """f8491() and f130736() share a selector. A text that a list names is no such rival."""
    abi = [{"type": "function", "name": "f8491", "inputs": []}, {"type": "function", "name": "g", "inputs": []}]
    code = dispatcher(bytes.fromhex(selector(text)[2:]) for text in ("f8491()", "g()"))
    artifact = {"contractName": "Token", "abi": abi, "deployedBytecode": "0x" + code.hex()}
    (tmp_path / "Token.json").write_text(json.dumps(artifact))
    (tmp_path / "list.txt").write_text("f24151()\n")
    run_import(Options([str(tmp_path / "Token.json"), str(tmp_path / "list.txt")], tmp_path / "data"), Reporter())
    with application(tmp_path / "data") as app:
        rivals = [post_text(app, text).headers.get("Clashes-With") for text in ("f130736()", "f193033()")]
    assert rivals == ["f8491()", None]
