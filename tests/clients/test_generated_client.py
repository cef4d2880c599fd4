"""A client that openapi-python-client generates from the server's document has every operation of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.support import HERE, OPENAPI, Served, need
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import HOST, TRANSFER, get

DOCUMENT = "/api/v1/openapi.json"
CONFIGURATION = ROOT / "docs" / "openapi-python-client.yaml"


@pytest.fixture
def generated(server: Served, tmp_path: Path) -> Path:
    """The folder that has the generated package."""
    need(OPENAPI)
    (document := tmp_path / "openapi.json").write_bytes(get(server.port, DOCUMENT).body)
    generate: list[Path | str] = [
        OPENAPI.with_name("openapi-python-client"),
        "generate",
        "--path",
        document,
        "--meta",
        "none",
    ]
    done = _run([*generate, "--config", CONFIGURATION, "--output-path", tmp_path / "generated"])
    assert "will not be generated" not in done.stdout
    assert "omitted" not in done.stdout
    return tmp_path


def _run(command: Sequence[Path | str], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)), env=os.environ | ({"PYTHONPATH": str(path)} if path else {}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.long
def test_operations_answer_as_their_types(server: Served, generated: Path) -> None:
    """Each operation of the document is there, and what is called gives a parsed answer."""
    done = _run([OPENAPI, HERE / "generated_client.py", f"http://{HOST}:{server.port}"], generated)
    results = json.loads(done.stdout)
    operations = {
        re.sub("([A-Z])", r"_\1", operation["operationId"]).lower()
        for item in get(server.port, DOCUMENT).json()["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert results.keys() == operations
    called = [result for result in results.values() if result is not None]
    assert [status for status, _ in called] == [200] * 6
    assert all(parsed is not None for _, parsed in called)
    assert TRANSFER in [row["text_signature"] for row in results["list_signatures"][1]["results"]]
