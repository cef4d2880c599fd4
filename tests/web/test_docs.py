"""The API page: it shows the whole OpenAPI document, and all of its examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from sigdir.serve.core import openapi
from tests.serve.support import HOST, Application, Place, get
from tests.web.conftest import Open

EXAMPLES = {
    "abi.json": '[{"type": "function", "name": "fromDocs", "inputs": []}]',
    "Token.sol": "contract Token { function fromTheDocs() external {} }",
    "calldata.hex": "0xa9059cbb",
}
"""The files that the curl commands name."""


@pytest.fixture
def document(app: Application) -> Any:
    return get(app, "/api/v1/openapi.json").json()


def body_of(at: Place) -> str:
    answer = get(at, "/docs/")
    assert answer.status == 200
    return answer.body.decode()


def test_every_operation_is_on_the_page(app: Application, document: Any) -> None:
    """With its path, parameters and answers; each operation has a tag with a description."""
    body = body_of(app)
    tags = {tag["name"] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method in ("get", "post"):
            if method not in item:
                continue
            operation = item[method]
            assert set(operation["tags"]) <= tags
            part = body.partition(f'<section class="operation" aria-labelledby="{operation["operationId"]}-name">')[2]
            part = part.partition("</details>")[0]
            assert f'<span class="text">{path}</span>' in part
            for parameter in (*item.get("parameters", []), *operation.get("parameters", [])):
                assert f"<code>{openapi.resolve(parameter)['name']}</code>" in part
            for status in operation["responses"]:
                assert f"<dt>{status}</dt>" in part
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in body
    assert not re.search(r"<style|\sstyle=|<script(?! src=)|\son[a-z]+=|javascript:", body)


def test_every_curl_command_runs(port: int, tmp_path: Path) -> None:
    """Unchanged, with the address under which the page was requested; a link to try it has the same address."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    tries = body_of(port).split('<div class="try"')[1:]
    assert len(tries) > 25
    for shown in tries:
        [line] = map(unescape, re.findall(r'aria-label="The curl command[^"]*">(.*?)</pre>', shown, re.DOTALL))
        words = shlex.split(line)
        assert words[0] == "curl"
        assert words[-1].startswith(f"http://{HOST}:{port}/")
        if shown.startswith(" data-try"):
            [link] = map(unescape, re.findall(r'<a href="([^"]+)">Try it', shown))
            assert words[-1] == f"http://{HOST}:{port}{link}"
        ran = subprocess.run(
            [*words, "-s", "-o", "/dev/null", "-w", "%{http_code}"], cwd=tmp_path, capture_output=True, check=True
        )
        assert ran.stdout in (b"200", b"201", b"302"), line


def test_the_page_is_cached(app: Application) -> None:
    answer = get(app, "/docs/")
    again = get(app, "/docs/", {"If-None-Match": answer.header("ETag")})
    assert (again.status, answer.header("Cache-Control")) == (304, "public, max-age=3600")


def test_an_example_runs_on_the_page(page_of: Open) -> None:
    """A link to an operation unfolds it, and its answer is shown below it; without a script the link opens the answer."""
    page = page_of("/docs/#decode")
    example = page.get_by_role("region", name="GET /api/v1/decode/", exact=True)
    example.get_by_role("link", name="Try it").click()
    expect(example.locator("output")).to_contain_text("200 OK")
    expect(example.locator("output")).to_contain_text('"text_signature": "transfer(address,uint256)"')
    assert "/docs/" in page.url
    expect(example.get_by_role("row", name=re.compile("^data required"))).to_be_visible()
    # For an answer that is not a page Chromium requests an icon.
    plain = page_of("/docs/", expected="404", java_script_enabled=False)
    folded = plain.get_by_role("region", name="GET /api/v1/decode/", exact=True)
    folded.locator("summary").click()
    folded.get_by_role("link", name="Try it").click()
    assert "/api/v1/decode/?data=0xa9059cbb" in plain.url
