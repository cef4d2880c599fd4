"""The application gets requests that the OpenAPI document allows and requests that it does not, and every answer is
checked against the document.

Schemathesis makes the requests; each run makes the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from falcon.inspect import inspect_routes
from falcon.testing import closed_wsgi_iterable
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sigdir.serve.api import decode
from sigdir.serve.bulk import changes, resolve
from sigdir.serve.core import openapi, sql_runner
from sigdir.serve.lists import resources
from sigdir.serve.lists.paging import DEFAULT_PAGE_SIZE, FILTERS, MAX_PAGE_SIZE, cursor_at
from sigdir.signatures.abi_decoder import MAX_BYTES, REASONS
from sigdir.signatures.bytecode import Fit
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.decode_input import FORMS
from sigdir.signatures.grammar import MAX_TEXT_BYTES
from sigdir.warehouse.table.fields import MAX_SEARCHED
from tests.conftest import ROOT, import_lines
from tests.examples import examples, long_except
from tests.serve.support import (
    EVENT,
    EVENTS_PATH,
    LISTS,
    SIGNATURES_PATH,
    TOPIC,
    TRANSFER,
    Application,
    application,
    get,
    post_text,
    request,
)

DOCUMENT = "/api/v1/openapi.json"
EXAMPLES = examples(12)
"""Of each operation and mode."""
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    folder = import_lines(tmp_path_factory.mktemp("openapi") / "warehouse", TRANSFER, f"event {EVENT}", "error Late()")
    with application(folder, count_misses=True, sql=True) as app:
        for number in range(3):
            assert post_text(app, f"row{number}(uint256)").status == 201
            assert post_text(app, f"Row{number}(uint256)", EVENTS_PATH).status == 201
        yield app


@pytest.fixture(scope="module")
def schema(app: Application) -> Any:
    def answer(environ: Any, start_response: Any) -> list[bytes]:
        """Schemathesis closes no answer that it has read, and unpacks none."""
        environ.pop("HTTP_ACCEPT_ENCODING", None)
        return [b"".join(closed_wsgi_iterable(app.client.app(environ, start_response)))]

    return schemathesis.openapi.from_wsgi(DOCUMENT, answer)


OPERATIONS = [
    f"{method.upper()} {path}"
    for path, item in openapi.document()["paths"].items()
    for method in item
    if path != DOCUMENT and method != "parameters"
]
"""All but those of the document itself, which Schemathesis leaves out."""

QUICK = [label for label in OPERATIONS if not label.startswith("HEAD") and label != "GET /api/v1/decode/"]
"""To draw texts that are hex digits, of up to 256 KB, takes a second; ``FOUND`` has that route's answers too."""

NOT_ROUTES = {"/api/v1/signatures"}
"""Paths of the document that the application's sinks answer."""

PAGES = "/serve/pages/"
"""The folder of the pages for people, which the document leaves out."""

SELECTOR = "a9059cbb"


@pytest.fixture(scope="module")
def described(schema: Any) -> dict[str, Any]:
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def test_a_route_of_the_application_is_in_the_document(app: Application) -> None:
    """With its methods; only the pages for people are left out."""
    routes = {
        route.path: {method.method.lower() for method in route.methods if not method.internal}
        for route in inspect_routes(app.client.app)
        if PAGES not in route.source_info and not route.class_name.endswith("Page")
    }
    document = get(app, DOCUMENT).json()
    known = {path: item.keys() - {"parameters"} for path, item in document["paths"].items() if path not in NOT_ROUTES}
    assert routes == known


def test_the_docs_have_every_route(app: Application) -> None:
    """docs/http.md names each, pages for people too, up to the first part that varies."""
    text = (ROOT / "docs" / "http.md").read_text()
    assert [route.path for route in inspect_routes(app.client.app) if route.path.partition("{")[0] not in text] == []


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", long_except(QUICK, OPERATIONS))
def test_answers_are_as_described(described: dict[str, Any], label: str, mode: GenerationMode) -> None:
    """Status, type, headers and body of every answer are among those that the document names.

    In the negative mode requests break the document somewhere. The server may accept them: the contract lets it
    ignore invalid values of some parameters.
    """
    operation = described[label]
    if mode.is_negative and not (operation.query or operation.path_parameters or operation.body):
        return  # nothing in the request can be invalid

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def hold(case: Any) -> None:
        case.validate_response(case.call(), checks=CHECKS)

    hold()


RANGE = {"collection": "signatures", "prefix": "a90"}
FOUND: list[tuple[str, dict[str, str], dict[str, str], int]] = [
    ("/signatures/{hash}", {"hash": SELECTOR}, {}, 200),
    ("/topic0/{hash}", {"hash": TOPIC.upper()}, {}, 200),
    ("/signature-database/v1/lookup", {}, {"function": f"0x{SELECTOR},0x00000000", "event": f"0x{TOPIC}"}, 200),
    ("/signature-database/v1/search", {}, {"query": "*ransfer(*"}, 200),
    ("/api/v1/signatures", {}, {"function": f"0x{SELECTOR}", "all": ""}, 200),
    ("/api/v1/signatures", {}, {}, 301),
    ("/api/v1/decode/", {}, {"data": f"0x{SELECTOR}{'ab' * 20:0>64}{1000:064x}"}, 200),
    ("/api/v1/decode/", {}, {"data": f"0x{SELECTOR}"}, 200),
    ("/api/v1/decode/", {}, {"data": "0x1"}, 400),
    ("/api/v1/search/", {}, {"q": "trans* (address,*)"}, 200),
    ("/api/v1/resolve/", {}, {"hash": f"0x{SELECTOR},zz,0x00000000", "format": "json"}, 200),
    ("/api/v1/resolve/", {}, {"hash": f"0x{SELECTOR},0x{TOPIC}", "full": "1", "format": "json"}, 200),
    ("/api/v1/sql/", {}, {"sql": "SELECT 1 AS a"}, 200),
    ("/api/v1/changes/", {}, {"collection": "event-signatures", "limit": "2"}, 200),
    ("/api/v1/changes/", {}, {"limit": "2", "evidence": "true"}, 200),
    ("/dumps/{version}/", {"version": "VERSION"}, {}, 200),
    ("/dumps/{version}/", {"version": "latest"}, {}, 302),
    ("/dumps/{version}/{name}", {"version": "VERSION", "name": "signatures.ndjson"}, {}, 200),
    ("/dumps/{version}/{name}", {"version": "VERSION", "name": "event-signatures.csv"}, {}, 200),
    ("/dumps/{version}/{name}", {"version": "VERSION", "name": "signatures.parquet"}, {}, 302),
    ("/dumps/{version}/{name}/{file}", {"version": "VERSION", "name": "signatures", "file": "FILE"}, {}, 200),
    ("/range/{collection}/{prefix}", RANGE, {}, 302),
    ("/range/{collection}/{prefix}/{edition}", RANGE | {"edition": "VERSION"}, {}, 200),
]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "parameters", "query", "status"), FOUND)
def test_answers_of_what_is_there_are_as_described(
    app: Application, described: dict[str, Any], path: str, parameters: dict[str, str], query: dict[str, str],
    status: int, method: str,
) -> None:  # fmt: skip
    """Hashes, versions and files that no generator would guess."""
    dump = get(app, "/dumps/").json()["latest"]
    known = {"VERSION": str(dump["version"]), "FILE": dump["files"][0]["url"].rpartition("/")[2]}
    place = {name: known.get(value, value) for name, value in parameters.items()}
    case = described[f"{method} {path}"].Case(path_parameters=place, query=query)
    answer = case.call_and_validate(checks=CHECKS)
    assert answer.status_code == status


def test_a_range_of_a_file_is_as_described(app: Application, described: dict[str, Any]) -> None:
    """206 for a part, 416 for a range outside the file."""
    file = get(app, "/dumps/").json()["latest"]["files"][0]
    version, name, file_name = file["url"].removeprefix("/dumps/").split("/")
    place = {"version": version, "name": name, "file": file_name}
    for wanted, status in (("bytes=0-3", 206), (f"bytes={file['bytes']}-", 416)):
        case = described["GET /dumps/{version}/{name}/{file}"].Case(path_parameters=place, headers={"Range": wanted})
        assert case.call_and_validate(checks=CHECKS).status_code == status


def test_a_validator_finds_nothing_wrong_with_the_document(app: Application, schema: Any) -> None:
    """It is OpenAPI 3.1 by the official schema, its references lead somewhere, and no component is without use."""
    schema.validate()
    answer = get(app, DOCUMENT)
    assert answer.json()["openapi"] == "3.1.0"
    components = answer.json()["components"].items()
    known = {f"#/components/{kind}/{name}" for kind, named in components for name in named}
    assert set(re.findall(r'"\$ref":"([^"]*)"', answer.body.decode())) == known


def test_the_limits_in_the_document_are_those_of_the_code() -> None:
    document = openapi.document()
    parameters, schemas = document["components"]["parameters"], document["components"]["schemas"]
    resolve_post, changes_item = document["paths"]["/api/v1/resolve/"]["post"], document["paths"]["/api/v1/changes/"]
    feed = {parameter["name"]: parameter for parameter in changes_item["parameters"]}
    limit, evidence = feed["limit"], feed["evidence"]
    [pattern, _] = document["paths"]["/signature-database/v1/search"]["parameters"]
    assert document["info"]["version"] == openapi.package_version()
    assert schemas["NewSignature"]["properties"]["text_signature"]["maxLength"] == MAX_TEXT_BYTES
    event_text = schemas["NewEventSignature"]["properties"]["text_signature"]
    assert event_text["maxLength"] == resources._MAX_EVENT_CHARACTERS
    assert schemas["Calldata"]["maxLength"] == len("0x") + 2 * MAX_BYTES
    body = schemas["DecodeBody"]["properties"]
    assert (body["inputs"]["maxItems"], body["as"]["enum"]) == (decode.MAX_INPUTS, list(FORMS))
    assert schemas["ContractBody"]["properties"]["code"]["maxLength"] == len("0x") + 2 * MAX_BYTES
    assert schemas["ContractText"]["properties"]["fit"]["enum"] == [fit.name.lower() for fit in Fit]
    assert schemas["UndecodedText"]["properties"]["reason"]["enum"] == list(REASONS)
    assert resolve_post["requestBody"]["content"]["application/json"]["schema"]["maxItems"] == resolve.MAX_HASHES
    assert str(resolve.MAX_HASHES) in resolve_post["responses"]["413"]["description"]
    assert limit["schema"]["default"] == changes.DEFAULT_LIMIT
    assert str(changes.MAX_LIMIT) in limit["description"]
    assert str(changes.MAX_EVIDENCE_LIMIT) in evidence["description"]
    assert pattern["schema"]["maxLength"] == MAX_SEARCHED
    page_size = parameters["PageSize"]["schema"]
    assert page_size["default"] == DEFAULT_PAGE_SIZE
    assert page_size["maximum"] == MAX_PAGE_SIZE
    sql = {p.get("name"): p for p in document["paths"]["/api/v1/sql/"]["get"]["parameters"]}
    assert sql["sql"]["schema"]["maxLength"] == sql_runner.MAX_CHARACTERS
    assert schemas["SqlBody"]["properties"]["sql"]["maxLength"] == sql_runner.MAX_CHARACTERS
    assert sql["format"]["schema"]["enum"] == list(sql_runner.FORMATS)
    assert schemas["SqlRows"]["properties"]["rows"]["maxItems"] == sql_runner.MAX_ROWS
    for page in ("SignaturePage", "EventSignaturePage"):
        assert schemas[page]["properties"]["results"]["maxItems"] == page_size["maximum"]


def test_what_is_required_is_missed(app: Application) -> None:
    """A query without a required parameter is refused."""
    values = {"hash": SELECTOR, "data": f"0x{SELECTOR}", "q": "transfer", "query": "transfer*"}
    for path, item in openapi.document()["paths"].items():
        listed = map(openapi.resolve, item.get("parameters", []) + item.get("get", {}).get("parameters", []))
        required = [one["name"] for one in listed if one["in"] == "query" and one.get("required")]
        for missing in required:
            others = {name: values.get(name, "") for name in required if name != missing}
            assert get(app, f"{path}?{urlencode(others)}").status == 400, (path, missing)


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_the_document_has_every_parameter_of_a_list(collection: Collection) -> None:
    """Its filters and its pages, and the widths of its hashes; a cursor is as the server makes it."""
    path = LISTS[collection]
    listed = [openapi.resolve(parameter) for parameter in openapi.document()["paths"][path]["get"]["parameters"]]
    schemas = {parameter["name"]: parameter["schema"] for parameter in listed if parameter["in"] == "query"}
    assert schemas.keys() == {*FILTERS, "filter", "page", "page_size", "ordering", "cursor", "format"}
    hashes = ",".join(["ab" * collection.hash_bytes, "0x" + "CD" * collection.hash_bytes])
    assert re.fullmatch(schemas["hex_signature__in"]["pattern"], hashes)
    [after] = [p for p in openapi.document()["paths"]["/api/v1/changes/"]["parameters"] if p["name"] == "after"]
    for id in (0, 10, 2**60 - 1):
        assert re.fullmatch(schemas["cursor"]["pattern"], cursor_at(collection, id))
        assert re.fullmatch(after["schema"]["pattern"], cursor_at(collection, id))
    name = {SIGNATURES: "Signature", EVENT_SIGNATURES: "EventSignature"}[collection]
    part = {SIGNATURES: "SelectorPart", EVENT_SIGNATURES: "TopicPart"}[collection]
    components, digits = openapi.document()["components"], 2 * collection.hash_bytes
    row = components["schemas"][name]["properties"]
    assert row.keys() == set(components["schemas"][name]["required"])
    assert row["bytes_signature"]["minLength"] == row["bytes_signature"]["maxLength"] == collection.hash_bytes
    assert row["hex_signature"]["pattern"] == f"^0x[0-9a-f]{{{digits}}}$"
    assert components["parameters"][part]["schema"]["pattern"] == f"^(0x)?[0-9a-fA-F]{{1,{digits}}}$"


def test_the_document_can_be_kept(app: Application) -> None:
    """It has an ETag and a max-age, a client with the ETag gets 304, and a page for people links to it."""
    answer = get(app, DOCUMENT)
    tag = answer.header("ETag")
    assert answer.header("Cache-Control") == "public, max-age=3600"
    again = get(app, DOCUMENT, {"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    head = request(app, "HEAD", DOCUMENT)
    assert (head.status, head.body, head.header("ETag")) == (200, b"", tag)
    page = get(app, SIGNATURES_PATH, {"Accept": "text/html"})
    assert f'href="{DOCUMENT}"' in page.body.decode()
