"""A mirrored, exported and imported warehouse has the rows of the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, import_files
from tests.second_machine import SHAPES, round_trips
from tests.warehouse.support import call_command


def in_this_process(*arguments: str) -> None:
    result = call_command(*arguments)
    assert result.exit_code == 0, result.stderr


@pytest.mark.long
def test_the_samples_come_back_through_every_shape(tmp_path: Path) -> None:
    """The rows of the samples survive each shape; `python -m tests.second_machine` tries the real corpora."""
    more = tmp_path / "more.txt"
    more.write_text("transfer(address,uint256)\nmany_msg_babbage(bytes1)\nf((uint256,bool)[3],$a())\n")
    import_files([more], tmp_path / "warehouse")
    import_files([ROOT / "samples"], tmp_path / "warehouse")
    assert len(list(round_trips(tmp_path / "warehouse", tmp_path, in_this_process))) == 1 + len(SHAPES)
