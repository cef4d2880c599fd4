"""The whole directory against a plain-Python model of it: any order of POSTs, imports, folds and reads.

The application runs in this process, twice over one warehouse, as two workers do. What a model row is
was result by the answer that acknowledged it, or read once after the import that brought it; from then on
nothing about it may change.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import falcon.testing
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import sigdir
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.examples import examples
from tests.serve.support import (
    ABI_PATH,
    FORM,
    JSON,
    LISTS,
    digest,
    local,
    multipart,
)
from tests.signatures.strategies import (
    Broken,
    Valid,
    broken,
    valid,
)

Record = dict[str, Any]

KIND = {SIGNATURES: "Signature", EVENT_SIGNATURES: "EventSignature"}
BAD_LINES = ("foo(uint7)", "broken(", "f(UINT256)", "g(uint256[0])", "0xa9059cbb", "h(L.T)")

collections = st.sampled_from(COLLECTIONS)
short_texts = st.builds(
    lambda name, types: f"{name}({','.join(types)})",
    st.sampled_from("abcdefgh"),
    st.lists(st.sampled_from(["bool", "uint256", "bytes4[]", "(address,bool)"]), max_size=2),
)
"""Few texts, so that the same text often arrives in different ways."""


def expected_hash(text: str, collection: Collection) -> bytes:
    return digest(text)[: collection.hash_bytes]


@dataclass
class Model:
    """A collection: its rows, oldest first, as the wire shows them."""

    collection: Collection
    rows: list[Record] = field(default_factory=list)

    def has(self, text: str) -> bool:
        return any(row["text_signature"] == text for row in self.rows)

    def add(self, row: Record, text: str) -> None:
        """Take an acknowledged row, which must be well-formed and above all rows before it."""
        hash = expected_hash(text, self.collection)
        assert row["text_signature"] == text
        assert row["hex_signature"] == "0x" + hash.hex()
        assert row["bytes_signature"] == hash.decode("latin-1")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["created_at"])
        if self.rows:
            assert row["id"] > self.rows[-1]["id"]
            assert row["created_at"] > self.rows[-1]["created_at"]
        self.rows.append(row)


@dataclass(frozen=True)
class Worker:
    """The application with what it reads and writes through."""

    reader: Reader
    writer: Writer
    client: falcon.testing.TestClient

    @classmethod
    def of(cls, paths: Paths) -> Worker:
        reader = Reader(paths)
        writer = Writer(paths, reader)
        return cls(reader, writer, falcon.testing.TestClient(create_app(Settings(paths.root), reader, writer)))

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@st.composite
def queries(draw: st.DrawFn) -> dict[str, str]:
    """Filters and an ordering; values come from rows in ``asked``, filled in by the rule."""
    given = {}
    for name in ("text", "hex", "from", "to"):
        if draw(st.integers(0, 2)) == 0:
            given[name] = draw(st.sampled_from(["whole", "part", "odd"]))
    given["ordering"] = draw(st.sampled_from(["", "created_at", "-created_at"]))
    return given


class Directory(RuleBasedStateMachine):
    """Two workers over one warehouse, importers and folders beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sigdir-model-"))
        self.paths = Paths(self.folder / "warehouse")
        self.models = {collection: Model(collection) for collection in COLLECTIONS}
        self.workers: list[Worker] = []
        self.imports = 0
        self.turn = 0

    @initialize()
    def open(self) -> None:
        self.workers = [Worker.of(self.paths), Worker.of(self.paths)]

    def teardown(self) -> None:
        for worker in self.workers:
            worker.close()
        shutil.rmtree(self.folder)

    def client(self) -> falcon.testing.TestClient:
        """The workers answer in turn, so each step is seen by the one that did not make it."""
        self.turn += 1
        return self.workers[self.turn % 2].client

    def get(self, link: str) -> Any:
        parts = urlsplit(local(link))
        answer = self.client().simulate_get(parts.path, query_string=parts.query)
        assert answer.status_code == 200, answer.text
        return answer.json

    # Writing.

    @rule(collection=collections, written=valid(), form=st.sampled_from(["json", "form", "multipart"]))
    def post_any(self, collection: Collection, written: Valid, form: str) -> None:
        """A declaration in any spelling is stored once, or refused where its keyword is another's."""
        declared = collection.code
        if written.collection(declared, declared) == declared:
            self.post(collection, written.written, written.canonical, form)
        else:
            self.refuse(collection, written.written)

    @rule(collection=collections, text=short_texts, keyword=st.booleans())
    def post_short(self, collection: Collection, text: str, keyword: bool) -> None:
        word = "event" if collection == EVENT_SIGNATURES else "function"
        self.post(collection, f" {word}\n{text} " if keyword else text, text, "json")

    @precondition(lambda self: any(model.rows for model in self.models.values()))
    @rule(data=st.data())
    def post_again(self, data: st.DataObject) -> None:
        """A stored text is refused in any spelling, also after folds, imports and reopening."""
        model = data.draw(st.sampled_from([model for model in self.models.values() if model.rows]))
        text = data.draw(st.sampled_from(model.rows))["text_signature"]
        written = (
            text.replace("(", " ( ").replace(",", " ,\t").replace("uint256", "uint")
            if data.draw(st.booleans())
            else text
        )
        self.post(model.collection, written, text, "form")

    @rule(collection=collections, text=broken())
    def post_broken(self, collection: Collection, text: Broken) -> None:
        self.refuse(collection, text.written)

    def post(self, collection: Collection, written: str, text: str, form: str) -> None:
        model = self.models[collection]
        held = model.has(text)
        answer = self.client().simulate_post(LISTS[collection], **_body(written, form))
        if held:
            assert answer.status_code == 400
            words = f"{KIND[collection]} with this text signature already exists."
            assert answer.json == {"text_signature": [words]}
        else:
            assert answer.status_code == 201, answer.text
            model.add(answer.json, text)

    def refuse(self, collection: Collection, written: str) -> None:
        answer = self.client().simulate_post(LISTS[collection], **_body(written, "json"))
        assert answer.status_code == 400
        assert list(answer.json) == ["text_signature"]

    @rule(
        good=st.lists(st.tuples(collections, short_texts), max_size=6),
        more=st.integers(0, 120),
        bad=st.lists(st.sampled_from(BAD_LINES), max_size=3),
        data=st.data(),
    )
    def import_file(self, good: list[tuple[Collection, str]], more: int, bad: list[str], data: st.DataObject) -> None:
        """An import brings what is new, in its order, and accounts for every line of it."""
        self.imports += 1
        good = good + [(SIGNATURES, f"bulk{self.imports}_{number}(uint256)") for number in range(more)]
        if not good:
            return
        lines = [
            (collection, text, ("event " if collection == EVENT_SIGNATURES else "") + text) for collection, text in good
        ]
        lines += [(SIGNATURES, "", line) for line in bad]
        lines = data.draw(st.permutations(lines)) if len(lines) < 12 else lines
        source = self.folder / f"in{self.imports}.txt"
        source.write_text("\n".join(line for _, _, line in lines))

        report = import_files([source], self.paths.root, format="text", threads=1)

        fresh = self.fresh([(collection, text) for collection, text, _ in lines if text])
        imported = sum(map(len, fresh.values()))
        assert report.totals() == {
            "read": len(lines), "imported": imported, "duplicate": len(good) - imported, "rejected": len(bad),
        }  # fmt: skip
        self.take(fresh)
        if bad:
            self.assert_rejects(
                report.rejects_in, source, [(text, line) for line, (_, name, text) in enumerate(lines, 1) if not name]
            )

    def assert_rejects(self, number: int | None, source: Path, expected: Sequence[tuple[str, int]]) -> None:
        """Invariant 5: each reject can be looked up, with its reason, file and line."""
        assert number is not None
        query = "SELECT text, line, file, reason FROM rejects WHERE import_id = ? ORDER BY line"
        result = sigdir.open(self.paths.root).sql(query, [number]).arrow().to_pylist()
        assert [(row["text"], row["line"]) for row in result] == expected
        assert {row["file"] for row in result} == {str(source)}
        assert all(row["reason"] for row in result)

    @rule(entries=st.lists(st.tuples(collections, short_texts), max_size=6))
    def import_abi(self, entries: list[tuple[Collection, str]]) -> None:
        """An ABI over HTTP counts as an import does, and its rows are there at once."""
        abi = [_abi_entry(collection, text) for collection, text in entries]
        answer = self.client().simulate_post(ABI_PATH, json={"contract_abi": json.dumps(abi)})
        assert answer.status_code == 201
        fresh = self.fresh(entries)
        imported = sum(map(len, fresh.values()))
        assert answer.json == {
            "num_processed": len(entries), "num_imported": imported,
            "num_duplicates": len(entries) - imported, "num_ignored": 0,
        }  # fmt: skip
        self.take(fresh)

    def fresh(self, texts: Sequence[tuple[Collection, str]]) -> dict[Collection, list[str]]:
        """Those that are not stored, the first of each, in order."""
        return {
            collection: list(
                dict.fromkeys(t for c, t in texts if c == collection and not self.models[collection].has(t))
            )
            for collection in COLLECTIONS
        }

    def take(self, fresh: dict[Collection, list[str]]) -> None:
        """Read the rows that an import brought: they are the newest, in its order."""
        for collection, texts in fresh.items():
            if texts:
                page = self.get(f"{LISTS[collection]}?page_size={len(texts)}")
                for row, text in zip(reversed(page["results"]), texts, strict=True):
                    self.models[collection].add(row, text)

    @rule()
    def fold(self) -> None:
        """After a fold the table has every row, as it was."""
        fold(self.paths)
        warehouse = sigdir.open(self.paths.root)
        for collection, model in self.models.items():
            view = collection.replace("-", "_")
            result = (
                warehouse.sql(f"SELECT id, text_signature, hex_signature FROM {view} ORDER BY id").arrow().to_pylist()
            )
            assert result == [
                {name: row[name] for name in ("id", "text_signature", "hex_signature")} for row in model.rows
            ]

    @rule(which=st.sampled_from([0, 1]))
    def reopen(self, which: int) -> None:
        """A worker that ends and one that begins instead see the same."""
        self.workers[which].close()
        self.workers[which] = Worker.of(self.paths)

    @rule()
    def drop_the_cache(self) -> None:
        """The index can be deleted at any time; whoever opens next builds it again."""
        shutil.rmtree(self.paths.cache, ignore_errors=True)
        self.reopen(0)

    # Reading.

    @rule(collection=collections, wanted=queries(), size=st.integers(1, 40), data=st.data())
    def walk(self, collection: Collection, wanted: dict[str, str], size: int, data: st.DataObject) -> None:
        """Over all pages a list has the rows that pass its filters, each once, in order; so has any one page."""
        model = self.models[collection]
        query, rows = self.filtered(model, wanted, data)
        if wanted["ordering"] != "created_at":
            rows = rows[::-1]
        query |= {"ordering": wanted["ordering"], "page_size": str(size)}
        pages: list[Record] = []
        link: str | None = f"{LISTS[collection]}?{urlencode(query)}"
        while link is not None:
            pages.append(self.get(link))
            link = pages[-1]["next"]
        assert [row for page in pages for row in page["results"]] == rows
        assert {page["count"] for page in pages} == {len(rows)}
        assert len(pages) == max(1, -(-len(rows) // size))
        number = data.draw(st.integers(1, len(pages)))
        page = self.get(f"{LISTS[collection]}?{urlencode(query | {'page': str(number)})}")
        assert page["results"] == pages[number - 1]["results"]
        assert (page["previous"] is None) == (number == 1)
        answer = self.client().simulate_get(LISTS[collection], params=query | {"page": str(len(pages) + 1)})
        assert (answer.status_code, answer.json) == (404, {"detail": "Invalid page."})

    def filtered(
        self, model: Model, wanted: dict[str, str], data: st.DataObject
    ) -> tuple[dict[str, str], list[Record]]:
        """A query with filters made of the model's own rows, and the rows that it must give."""
        if not model.rows:
            return {}, []
        query, rows = {}, model.rows
        chosen = data.draw(st.sampled_from(model.rows))
        if "text" in wanted:
            text = chosen["text_signature"]
            value = {"whole": text.upper(), "part": text[1:4].swapcase(), "odd": "_%"}[wanted["text"]]
            query["text_signature"] = value
            rows = [row for row in rows if value.lower() in row["text_signature"].lower()]
        if "hex" in wanted:
            digits = chosen["hex_signature"][2:]
            value = {"whole": "0X" + digits.upper(), "part": digits[1:4], "odd": "xyz"}[wanted["hex"]]
            query["hex_signature"] = value
            part = value.lower().removeprefix("0x")
            rows = [row for row in rows if part in row["hex_signature"][2:]]
        bounds = {"whole": chosen["created_at"], "part": chosen["created_at"][:-1], "odd": "2026-01-31"}
        if "from" in wanted:
            query["created_at__gte"] = bounds[wanted["from"]]
            rows = [row for row in rows if wanted["from"] != "odd" and row["created_at"] >= chosen["created_at"]]
        if "to" in wanted:
            query["created_at__lt"] = bounds[wanted["to"]]
            rows = [row for row in rows if wanted["to"] != "odd" and row["created_at"] < chosen["created_at"]]
        return query, rows

    @rule(collection=collections, data=st.data())
    def detail(self, collection: Collection, data: st.DataObject) -> None:
        """A row is found by its id; an id in a gap or beyond the end is not."""
        rows = {row["id"]: row for row in self.models[collection].rows}
        id = data.draw(st.integers(0, max(rows, default=0) + 2))
        answer = self.client().simulate_get(f"{LISTS[collection]}{id}/")
        if id in rows:
            assert (answer.status_code, answer.json) == (200, rows[id])
        else:
            assert (answer.status_code, answer.json) == (404, {"detail": "Not found."})

    @invariant()
    def every_row_is_there_once_and_as_it_was(self) -> None:
        """Invariants 1 to 4: what was acknowledged is what a reader sees, unchanged, once, counted."""
        for collection, model in self.models.items():
            if self.workers:
                page = self.get(f"{LISTS[collection]}?page_size=1000")
                assert page["count"] == len(model.rows)
                assert page["results"] == model.rows[:-1001:-1]


def _body(text: str, form: str) -> dict[str, Any]:
    if form == "json":
        return {"body": json.dumps({"text_signature": text}).encode(), "headers": JSON}
    if form == "form":
        return {"body": urlencode({"text_signature": text}).encode(), "headers": FORM}
    body, headers = multipart({"text_signature": text})
    return {"body": body, "headers": headers}


def _abi_entry(collection: Collection, text: str) -> Record:
    """The entry of an ABI that stands for a short text."""
    name, _, rest = text.partition("(")
    inputs = [
        {"type": "tuple", "components": [{"type": "address"}, {"type": "bool"}]}
        if type.startswith("(")
        else {"type": type}
        for type in re.findall(r"\([^()]*\)|[^,()]+", rest[:-1])
    ]
    return {"type": "event" if collection == EVENT_SIGNATURES else "function", "name": name, "inputs": inputs}


TestDirectory = pytest.mark.long(Directory.TestCase)
TestDirectory.__doc__ = "The directory is what its model is, whatever is done to it in whatever order."
TestDirectory.settings = settings(
    max_examples=examples(15), stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
