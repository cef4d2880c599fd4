"""docs/analytics.ipynb runs on a warehouse of the bundled sample, and is committed without outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_files

NOTEBOOK = ROOT / "docs" / "analytics.ipynb"
# The notebook runs in a subprocess because the kernel's client gives warnings of its own.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


def outputs(cell: dict[str, Any]) -> str:
    """What a cell shows as text, without standard error."""
    shown = [output["data"]["text/plain"] for output in cell["outputs"] if "data" in output]
    return " ".join("".join(line for text in shown for line in text).split())


@pytest.mark.long
def test_the_notebook_runs(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel in the notebook's folder and shows what the sample contains."""
    import_files([ROOT / "samples"], tmp_path / "data")
    done = tmp_path / "done.ipynb"
    variables = environment(tmp_path) | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path), "SIGDIR_WAREHOUSE": ""}
    (folder := tmp_path / "docs").mkdir()
    subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK), str(folder), str(done)],
        env=variables, check=True, timeout=SAFETY_SECONDS, capture_output=True,
    )  # fmt: skip
    cells = [cell for cell in json.loads(done.read_text())["cells"] if cell["cell_type"] == "code"]
    version, transfer, types, longest, mine = map(outputs, cells)
    assert version.startswith("(1, ")
    assert "transfer(address,uint256)" in transfer
    assert "uint256" in types
    assert int(longest) > 20
    assert "'mine(uint256,bool)', 'known': False" in mine
    assert "'balanceOf(address)', 'known': True" in mine
    assert not any(output["output_type"] == "stream" for cell in cells for output in cell["outputs"])


def test_the_notebook_keeps_no_outputs() -> None:
    """The committed file has nothing of the machine that ran it."""
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert str(ROOT) not in NOTEBOOK.read_text()
