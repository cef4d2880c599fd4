"""Who may store, and what a refused request is told."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from falcon.testing import TestClient

from sigdir.cli.serve import serve
from sigdir.serve.app import create_app, routes
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.http.routing import methods_of
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.view import Reader
from tests.pipeline.support import invoke
from tests.serve.support import (
    ABI_PATH,
    EVENTS_PATH,
    FORM,
    SIGNATURES_PATH,
    SOLIDITY_PATH,
    TRANSFER,
    Application,
    get,
    opened,
    post_text,
    request,
    selector,
    serving,
)

TOKEN = "kE3-secret"  # noqa: S105 - of the tests
IMPORT, OLDER_IMPORT, STORE = "/signature-database/v1/import", "/api/v1/import", "/submit/store/"

STORING: dict[str, dict[str, Any]] = {
    SIGNATURES_PATH: {"json": {"text_signature": "stored()"}},
    EVENTS_PATH: {"json": {"text_signature": "Stored()"}},
    ABI_PATH: {"json": {"contract_abi": '[{"type": "function", "name": "stored", "inputs": []}]'}},
    SOLIDITY_PATH: {"json": {"source_code": "contract C { function stored() public {} }"}},
    IMPORT: {"json": {"function": ["stored()"]}},
    OLDER_IMPORT: {"json": {"type": "raw", "data": {"function": ["stored()"]}}},
    STORE: {"body": "texts=function+stored()"},
}
"""A body that each route would store."""

READING: dict[str, dict[str, Any]] = {
    "/api/v1/decode/": {"json": {"data": "0xa9059cbb"}},
    "/api/v1/contract/": {"json": {"code": "0x5f3560e01c8063a9059cbb14610014575f5ffd005b00"}},
    "/api/v1/resolve/": {"json": ["0xa9059cbb"]},
    "/submit/": {"body": "text=function+stored()"},
    "/decode/": {"body": "data=0xa9059cbb"},
}
"""A body of each POST that stores nothing."""


@dataclass(frozen=True, slots=True)
class Served:
    """An application over a warehouse of its own, in this process."""

    root: Path
    storage: tuple[Reader, Writer]

    def client(self, **settings: Any) -> TestClient:
        return TestClient(create_app(Settings(self.root, **settings), *self.storage))

    def rows(self) -> int:
        return sum(map(self.storage[0].current().count, COLLECTIONS))


@pytest.fixture
def served(warehouse: Path) -> Iterator[Served]:
    with opened(warehouse) as storage:
        yield Served(warehouse, storage)


def sent(client: TestClient, path: str, body: dict[str, Any], **headers: str) -> Any:
    return client.simulate_post(path, headers=headers | (FORM if "body" in body else {}), **body)


def test_every_post_of_the_table_is_known_here(served: Served) -> None:
    """A new route that takes POST belongs to one of the two lists."""
    table = routes(Settings(served.root), *served.storage)
    posts = {path for path, resource in table.items() if "POST" in methods_of(resource)}
    assert posts == STORING.keys() | READING.keys()
    assert {path for path, resource in table.items() if getattr(resource, "stores", False)} == STORING.keys()


@pytest.mark.parametrize("path", STORING)
def test_who_may_store(served: Served, path: str) -> None:
    """Nobody on a read-only server; else who sends the token, which a browser's password may hold on pages alone."""
    body = STORING[path]
    refused = sent(served.client(read_only=True, write_token=TOKEN), path, body, Authorization=f"Bearer {TOKEN}")
    assert (refused.status_code, refused.headers["reject-reason"]) == (403, "read_only")
    assert path != IMPORT or refused.json == {"ok": False, "error": "This directory is read-only."}
    client = served.client(write_token=TOKEN)
    for authorization in ("", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Token {TOKEN}", "Bearer \xff", "Basic !"):
        refused = sent(client, path, body, Authorization=authorization)
        assert (refused.status_code, refused.headers["reject-reason"]) == (401, "no_token")
        assert refused.headers["www-authenticate"].startswith("Basic" if path == STORE else "Bearer")
    assert served.rows() == 0
    assert sent(client, path, body, Authorization=f"bearer {TOKEN}").status_code in (200, 201, 303)
    assert served.rows() == 1
    basic = "Basic " + base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    assert sent(client, path, body, Authorization=basic).status_code == (303 if path == STORE else 401)


@pytest.mark.parametrize("settings", [{"read_only": True}, {"write_token": TOKEN}], ids=["read-only", "token"])
def test_posts_that_store_nothing_stay_open(served: Served, settings: dict[str, Any]) -> None:
    """Decoding, resolving and the preview."""
    client = served.client(**settings)
    for path, body in READING.items():
        assert sent(client, path, body).status_code in (200, 303), path


def test_the_preview_says_that_nothing_can_be_stored(served: Served) -> None:
    """Without the form that would store; with a token the form says what the browser asks for."""
    read_only, with_token = (
        sent(served.client(**settings), "/submit/", READING["/submit/"]).text
        for settings in ({"read_only": True}, {"write_token": TOKEN})
    )
    assert "read-only" in read_only
    assert f'action="{STORE}"' not in read_only
    assert f'action="{STORE}"' in with_token
    assert "write token" in with_token


@pytest.mark.parametrize("token", ["", " ", "two words", "caf\u00e9"])
def test_a_token_that_nobody_can_send_is_an_error(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """An empty variable does not open the server."""
    monkeypatch.setenv("SIGDIR_WRITE_TOKEN", token)
    with pytest.raises(ValueError, match="SIGDIR_WRITE_TOKEN"):
        Settings.from_environment()
    done = CliRunner().invoke(serve, [])
    assert done.exit_code == 2
    assert "SIGDIR_WRITE_TOKEN" in done.stderr
    assert not token.strip() or token not in done.stderr


@pytest.mark.parametrize("url", ["javascript://a", "https://a.test/path", "a.test", "https://a b"])
def test_a_public_url_that_is_no_origin_is_an_error(monkeypatch: pytest.MonkeyPatch, warehouse: Path, url: str) -> None:
    """Of the variable too, which other WSGI servers read; links of every page begin with it."""
    refused = invoke(warehouse, "serve", "--public-url", url)
    assert refused.status == 2
    assert f"{url!r} is not a scheme and a host, as https://example.org." in refused.stderr
    monkeypatch.setenv("SIGDIR_PUBLIC_URL", url)
    with pytest.raises(ValueError, match="SIGDIR_PUBLIC_URL"):
        Settings.from_environment()
    monkeypatch.setenv("SIGDIR_PUBLIC_URL", "https://a.test:8443")
    assert Settings.from_environment().public_url == "https://a.test:8443"


def test_settings_are_read_from_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """By other servers, as the command reads them; each that has no variable, or an empty one, is the default."""
    settings = Settings(
        Path("/w"), public_url="https://a.test", read_only=True, write_token=TOKEN, workers=7, max_body=8,
        cache=Path("/c"), rank_lists=True, fold_every=0.5,
    )  # fmt: skip
    values = {
        "WAREHOUSE": "/w", "PUBLIC_URL": "https://a.test", "READ_ONLY": "true", "WRITE_TOKEN": TOKEN, "WORKERS": "7",
        "MAX_BODY": "8", "CACHE": "/c", "RANK_LISTS": "Yes", "FOLD_EVERY": "0.5",
        "LOG_REQUESTS": "", "SQL": "off",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"SIGDIR_{name}", value)
    assert Settings.from_environment() == settings
    assert TOKEN not in repr(settings)
    for name, value in (("SQL", "maybe"), ("THREADS", "x")):
        monkeypatch.setenv(f"SIGDIR_{name}", value)
        with pytest.raises(ValueError, match=f"SIGDIR_{name}: .*'{value}'"):
            Settings.from_environment()
        monkeypatch.delenv(f"SIGDIR_{name}")


@pytest.mark.long
def test_the_command_passes_the_token_to_its_workers(warehouse: Path) -> None:
    """By its variable; standard error says how to send it, without it. A mistyped variable is named."""
    variables = {"SIGDIR_WRITE_TOKEN": TOKEN, "SIGDIR_READONLY": "1"}
    authorization = {"Authorization": f"Bearer {TOKEN}"}
    with serving(warehouse, workers=1, variables=variables) as server:
        assert post_text(server.port, TRANSFER).status == 401
        body = f"text_signature={TRANSFER}".encode()
        assert request(server.port, "POST", SIGNATURES_PATH, body, FORM | authorization).status == 201
        assert TOKEN not in server.stderr()
        assert "Bearer $SIGDIR_WRITE_TOKEN" in server.stderr()
        assert "warning: SIGDIR_READONLY is no variable of sigdir serve" in server.stderr()


# What a refusal says.


@pytest.mark.parametrize(
    ("text", "reason", "position"), [("f(uint", "unbalanced", "7"), ("event e(uint256)", "other_collection", "1")]
)
def test_a_refused_text_says_why_and_where(app: Application, text: str, reason: str, position: str) -> None:
    """The reason is a word of the grammar's list, the position counts from 1; the body is the contract's."""
    answer = post_text(app, text)
    assert (answer.status, answer.json()) == (400, {"text_signature": ["Unknown signature format"]})
    assert (answer.header("Reject-Reason"), answer.header("Reject-Position")) == (reason, position)


def test_a_duplicate_names_the_row_that_has_the_text(app: Application) -> None:
    """For a row of a file and for a staged one, in any spelling."""
    assert post_text(app, "duplicated(uint256)").status == 201
    for written in ("duplicated(uint amount)", "function set(bytes a, tuple(uint8 b, string c)[] d)"):
        answer = post_text(app, written)
        assert (answer.status, answer.header("Reject-Reason")) == (400, "duplicate")
        row = get(app, f"{SIGNATURES_PATH}{answer.header('Existing-Id')}/").json()
        canonical = {"d": "duplicated(uint256)", "f": "set(bytes,(uint8,string)[])"}[written[0]]
        assert (row["text_signature"], row["hex_signature"]) == (canonical, selector(canonical))


@pytest.mark.parametrize(
    ("query", "unknown"),
    [
        ("text=transfer&limit=5", "limit, text"), ("page=1&page_size=3&ordering=created_at&format=json", ""),
        ("cursor=&hex_signature=a9&created_at__lt=2000-01-01T00:00:00Z&hex_signature__in=", ""), ("x" * 5000, "x" * 40),
        ("a%0d%0aSet-Cookie:%20x=1", "a%0D%0ASet-Cookie%3A%20x"), ("caf%C3%A9=1", "caf%C3%A9"),
        ("&".join(f"p{number:02}=1" for number in range(50)), ", ".join(f"p{number:02}" for number in range(10))),
    ],
)  # fmt: skip
def test_parameters_that_a_list_does_not_have_are_named(app: Application, query: str, unknown: str) -> None:
    """They are ignored, as the contract says, and a header names them."""
    answer = get(app, f"{SIGNATURES_PATH}?{query}")
    assert (answer.status, answer.header("Unknown-Parameters")) == (200, unknown)
    assert answer.header("Set-Cookie") == ""


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_method_that_a_route_lacks_is_refused_in_one_shape(served: Served, method: str) -> None:
    """Every route of the table: 405, Allow, and the sentence in the shape of the route."""
    client = served.client()
    for template, resource in routes(Settings(served.root), *served.storage).items():
        if callable(resource):
            continue
        path = re.sub("{[^}]*}", "1", template)
        answer = client.simulate_request(method, path)
        sentence = f'Method "{method}" not allowed.'
        assert answer.status_code == 405, path
        assert set(answer.headers["allow"].split(", ")) == set(methods_of(resource))
        if getattr(resource, "kind", "") == "text/html":
            assert "Method not allowed" in answer.text
        elif path.startswith("/signature-database/") or path == OLDER_IMPORT:
            assert answer.json == {"ok": False, "error": sentence}
        else:
            assert answer.json == {"detail": sentence}
