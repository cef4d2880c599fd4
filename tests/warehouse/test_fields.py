"""What people read of a row's fields names each of them, as the table of fields has them."""

from __future__ import annotations

import re

import orjson
import pytest

from sigdir.cli.sql import sql
from sigdir.serve.core import openapi
from sigdir.warehouse.index.template import csv_head, csv_line, render_record
from sigdir.warehouse.table.fields import FIELDS, PARTITION, RECORD_FIELDS, STORED
from sigdir.warehouse.table.parquet import FILE_SCHEMA
from tests.conftest import ROOT


def test_documents_have_the_fields() -> None:
    """DESIGN.md's data model each stored column with its type, SQL's help those of its views, the page on HTTP a record's."""
    (table,) = re.findall(r"\| column \| type \| rule \|\n.*\n((?:\|.*\n)+)", (ROOT / "DESIGN.md").read_text())
    types = {field.name: field.type.arrow for field in STORED}
    assert dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE)) == types
    assert types == {column.name: str(column.type) for column in FILE_SCHEMA}
    (listed,) = re.findall(r"event_signatures \(([^)]*)\)", sql.help or "")
    assert sorted(re.split(r",\s+", listed)) == sorted(field.name for field in FIELDS)
    named = (ROOT / "docs" / "http.md").read_text()
    assert [field.name for field in RECORD_FIELDS if f"`{field.name}`" not in named] == []


@pytest.mark.parametrize("name", ["Signature", "EventSignature"])
def test_the_openapi_document_has_the_fields_of_a_record(name: str) -> None:
    """A record's members, in its order, and a sentence for each; with evidence they come first."""
    record = orjson.loads(render_record(1, 0, "f()", b"abcd"))
    schemas = openapi.document()["components"]["schemas"]
    plain, with_evidence = schemas[name], schemas[f"{name}WithEvidence"]
    assert list(plain["properties"]) == plain["required"] == list(record)
    assert list(with_evidence["properties"])[: len(record)] == list(record)
    assert list(with_evidence["properties"]) == with_evidence["required"]
    assert all(member["description"].endswith(".") for member in plain["properties"].values())


def test_a_line_of_csv_has_the_fields_of_its_head() -> None:
    """No name is there twice."""
    names = [field.name for field in FIELDS if field.csv]
    assert csv_head(names) == "id,created_at,text_signature,hex_signature\n"
    assert csv_line(names) == '{id},{created_at}Z,"{text_csv}",0x{hash}\n'
    assert len({field.name for field in (PARTITION, *FIELDS)}) == 1 + len(FIELDS)
