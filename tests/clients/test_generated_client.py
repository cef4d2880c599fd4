"""A client that openapi-python-client generates from the server's document calls every operation of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.generated_client import SELECTOR
from tests.clients.support import HERE, OPENAPI, need
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import HOST, TRANSFER, Server, get

DOCUMENT = "/api/v1/openapi.json"
CONFIGURATION = ROOT / "docs" / "openapi-python-client.yaml"


@pytest.fixture
def generated(server: Server, tmp_path: Path) -> Path:
    """The folder that has the generated package."""
    need(OPENAPI)
    (document := tmp_path / "openapi.json").write_bytes(get(server.port, DOCUMENT).body)
    command: list[Path | str] = [
        OPENAPI.with_name("openapi-python-client"),
        "generate",
        "--path",
        document,
        "--meta",
        "none",
    ]
    done = _run([*command, "--config", CONFIGURATION, "--output-path", tmp_path / "generated"])
    assert "will not be generated" not in done.stdout
    assert "omitted" not in done.stdout
    return tmp_path


def _run(command: list[Path | str], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)), env=os.environ | ({"PYTHONPATH": str(path)} if path else {}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.long
def test_every_operation_answers_as_its_type(server: Server, generated: Path) -> None:
    """Each GET and POST gives a parsed answer; each operation of the document is called once."""
    dump = get(server.port, "/dumps/").json()["latest"]
    [file, *_] = [file for file in dump["files"] if file["collection"] == "signatures"]
    address, version, name = f"http://{HOST}:{server.port}", str(dump["version"]), file["url"].rpartition("/")[2]
    done = _run([OPENAPI, HERE / "generated_client.py", address, version, name], generated)
    found = json.loads(done.stdout)
    results: dict[str, tuple[int, Any]] = found["results"]
    assert found["not called"] == []
    operations = {
        re.sub("([A-Z])", r"_\1", operation["operationId"]).lower(): method
        for item in get(server.port, DOCUMENT).json()["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert results.keys() == operations.keys()
    assert {name: status for name, (status, _) in results.items() if status not in (200, 201)} == {}
    silent = {name for name, (_, parsed) in results.items() if parsed is None}
    assert silent == {name for name, method in operations.items() if method == "head"}
    assert TRANSFER in [row["text_signature"] for row in results["list_signatures"][1]["results"]]
    [resolved, _, refused] = results["resolve"][1]
    assert (resolved["hash"], TRANSFER in resolved["texts"], "error" in refused) == (f"0x{SELECTOR}", True, True)
