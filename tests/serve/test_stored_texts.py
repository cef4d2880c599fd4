"""Texts that the grammar accepts and nothing can declare are stored, and every route shows them.

They are as long, as deep and as wide as texts can be, listed and declared. No answer is a 500.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import sigdir
from tests.conftest import import_files
from tests.pipeline.support import invoke
from tests.serve.support import (
    EVENTS_PATH,
    SIGNATURES_PATH,
    TRANSFER,
    Answer,
    Application,
    application,
    get,
    post,
    selector,
    topic,
)
from tests.signatures.assembly import dispatcher, error_code, event_code, reads_words

HTML = {"Accept": "text/html"}
LARGEST = 512 << 10
"""Bytes of an answer: no answer to one of these requests is larger."""


def _deep(levels: int) -> str:
    return "(" * levels + "uint8" + ")" * levels


PARAMETERS = {
    "31 tuples deep": _deep(31),
    "32 tuples deep": _deep(32),
    "300 tuples deep": _deep(300),
    "as deep as there is room": _deep(32_700),
    "wide and 15 tuples deep": "(" * 15 + ",".join(["uint8"] * 1300) + ")" * 15,
    "wide and 31 tuples deep": "(" * 31 + ",".join(["uint8"] * 2000) + ")" * 31,
    "thousands of parameters": ",".join(["uint8"] * 10_000),
    "arrays of arrays": "uint8" + "[]" * 30_000,
    "a length of many digits": f"uint8[{'9' * 60_000}]",
    "a length of more digits than Python reads": f"uint8[{'9' * 5000}]",
    "empty tuples": "(),()[2]",
}
FUNCTIONS = {name: f"f{number}({types})" for number, (name, types) in enumerate(PARAMETERS.items())}
FUNCTIONS |= {"a long name": "a" * 65_000 + "()"}
ERRORS = {name: f"E{number}({types})" for number, (name, types) in enumerate(PARAMETERS.items())}
DECLARED = f"declared({', '.join(f'uint8 parameter{number}' for number in range(600))})"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Over these texts as functions, errors and events. Not one of them is rejected."""
    folder = tmp_path_factory.mktemp("stored")
    lines = [*FUNCTIONS.values(), *(f"error {text}" for text in ERRORS.values())]
    lines += [f"event {text}" for text in ERRORS.values()]
    lines += [f"{kind} {DECLARED}" for kind in ("function", "event")] + [TRANSFER, "multicall(bytes[])"]
    (source := folder / "texts.txt").write_text("\n".join(lines))
    report = import_files([source], folder / "warehouse")
    assert [sum(file.new.values()) for file in report.files] == [len(lines)]
    with application(folder / "warehouse") as app:
        yield app


def answered(app: Application, path: str, body: object = None) -> Answer:
    """The answer to a GET of a browser, or to a POST: it is no error, and within bounds."""
    answer = get(app, path, HTML) if body is None else post(app, path, body)
    assert answer.status == 200, answer.body[:400]
    assert len(answer.body) <= LARGEST
    return answer


def _walk(app: Application, collection: str, text: str, hash: str) -> None:
    """Each route that finds a text by its hash, its id or its name, as JSON and as a page."""
    path = EVENTS_PATH if collection == "topic" else SIGNATURES_PATH
    name = quote(text[:40])
    [row] = [row for row in get(app, f"{path}?hex_signature={hash}").json()["results"] if row["text_signature"] == text]
    files, kind = ("topic0", "event") if collection == "topic" else ("signatures", "function")
    routes = [
        f"{path}?hex_signature={hash}", f"{path}{row['id']}/", f"{path}{row['id']}/evidence/", f"{path}?text_signature={name}",
        f"/api/v1/resolve/?hash={hash}", f"/api/v1/resolve/?hash={hash}&full=1", f"/{files}/{hash[2:]}",
        f"/{collection}/{hash}/", f"/search/?q={hash}", f"/search/?q={name}", f"/search/results/?q={name}",
        f"/signature-database/v1/lookup?{kind}={hash}", f"/signature-database/v1/lookup?{kind}={hash}&filter=false",
        f"/signature-database/v1/search?query={name}", f"/submit/?text={name}",
    ]  # fmt: skip
    for route in routes:
        for headers in ({}, HTML):
            answer = get(app, route, headers)
            assert answer.status < 500, (route, answer.body[:400])
            assert len(answer.body) <= LARGEST, route
    answered(app, "/api/v1/resolve/", [hash])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_any_text_is_shown(app: Application, name: str) -> None:
    text = FUNCTIONS[name]
    _walk(app, "selector", text, selector(text))
    for words in (0, 40):
        data = selector(text) + f"{32:064x}" * words
        answer = answered(app, f"/api/v1/decode/?data={data}")
        assert answer.json()["candidates"][0]["text_signature"] == text
        answered(app, f"/decode/?data={data}")
    inner = selector("multicall(bytes[])") + f"{32:064x}{1:064x}{32:064x}{len(data) // 2 - 1:064x}" + data[2:]
    answered(app, f"/api/v1/decode/?data={inner + '00' * 28}")


@pytest.mark.parametrize("name", list(PARAMETERS)[1::2])
def test_an_event_of_any_text_is_shown(app: Application, name: str) -> None:
    text = ERRORS[name]
    _walk(app, "topic", text, topic(text))
    for words in (0, 3):
        log = {"topics": [topic(text), "0x" + f"{1:064x}"], "data": "0x" + f"{32:064x}" * words}
        answer = answered(app, "/api/v1/decode/", log)
        assert answer.json()["candidates"][0]["text_signature"] == text
        answered(app, f"/decode/?data={quote(json.dumps(log))}")


def _code() -> bytes:
    """A contract that has all of the texts, and a function that is known to everybody."""
    functions = [bytes.fromhex(selector(text)[2:]) for text in (TRANSFER, *FUNCTIONS.values())]
    errors = b"".join(error_code(bytes.fromhex(selector(text)[2:])) for text in ERRORS.values())
    events = b"".join(event_code(bytes.fromhex(topic(text)[2:])) for text in ERRORS.values())
    return dispatcher(functions, body=errors + events, function=reads_words(2))


def test_a_contract_with_all_of_them_is_explained(app: Application) -> None:
    """The function beside them is whole; what has no room is counted, what cannot be declared has its text."""
    code = _code().hex()
    found = answered(app, "/api/v1/contract/", {"code": code}).json()
    texts = [one for each in ("functions", "events", "errors") for member in found[each] for one in member["texts"]]
    by_text = {one["text_signature"]: one["declaration"] for one in texts}
    assert by_text[TRANSFER].startswith("function transfer(address to, uint256 value)")
    assert by_text[FUNCTIONS["32 tuples deep"]] is None
    assert "transfer" in [entry["name"] for entry in found["abi"]]
    assert "known texts left out" in found["note"]
    assert f"{FUNCTIONS['32 tuples deep']}: too long or nested too deeply to declare" in found["solidity"]
    answered(app, "/api/v1/decode/", {"code": code})
    for path in (f"/decode/?data=0x{code}", "/statistics/", "/browse/functions/", "/browse/events/", "/"):
        answered(app, path)


def test_the_commands_and_sql_take_all_of_them(app: Application, tmp_path: Path) -> None:
    """Decoding, contracts, declarations and their names in SQL, and the export of an ABI."""
    for text in FUNCTIONS.values():
        assert invoke(app.folder, "decode", selector(text) + f"{32:064x}").status in (0, 1)
    for form in ([], ["--abi"], ["--solidity"]):
        assert invoke(app.folder, "decode", "contract", _code().hex(), *form).status == 1
    opened = sigdir.open(app.folder)
    for view in ("signatures", "event_signatures"):
        query = f"SELECT count(*) FROM (SELECT parameter_types(text_signature) AS types FROM {view})"
        [[count]] = opened.sql(query).rows()
        assert count >= len(PARAMETERS)
    for text in FUNCTIONS.values():
        [[document]] = opened.sql(f"SELECT decode_calldata('{selector(text)}')").rows()
        assert json.loads(document)["candidates"][0]["text_signature"] == text
    for view in ("declarations", "evidence", "ranked", "sightings", "names"):
        assert opened.sql(f"SELECT * FROM {view}").rows()
    hashes, target = tmp_path / "hashes.txt", tmp_path / "abi.json"
    hashes.write_text("\n".join(map(selector, [TRANSFER, *FUNCTIONS.values()])))
    made = invoke(app.folder, "export", "abi", target, "--hashes", hashes)
    assert made.status == 0, made.stderr
    names = [entry["name"] for entry in json.loads(target.read_text())]
    assert names[0] == "transfer"
    assert "too long or nested too deeply for an ABI" in made.stderr
