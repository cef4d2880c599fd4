"""A warehouse on a file system without locks can be read: strace answers every request for a lock as such a system does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.examples import long_except
from tests.warehouse.support import publish, stage

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


READERS = [
    ("sql", "SELECT count(*) FROM signatures"), ("sql", "SELECT count(*) FROM search('balance')"), ("verify",), ("stats",),
    ("decode", "auto", f"0x60fe47b1{7:064x}"),
]  # fmt: skip
BACKUP = ("backup", "{folder}/backup")
# All in one process, which takes a fifth of the time.
RUN = """
import json, sys
from click.testing import CliRunner
from sigdir.cli.main import main
for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, [word.replace("{folder}", sys.argv[2]) for word in arguments])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
"""


CASES = {"flock": READERS, "flock of a backup": [BACKUP], "fcntl": [*READERS, BACKUP]}


@pytest.mark.long
@pytest.mark.parametrize("case", long_except({"fcntl"}, CASES))
def test_readers_need_no_locks(tmp_path: Path, case: str) -> None:
    """Neither of whole files, as for spilling, nor of ranges, as for staging. A backup locks its target alone."""
    call, commands, paths = case.split(maxsplit=1)[0], CASES[case], Paths(tmp_path / "w")
    publish(paths, ["balanceOf(address)", "set(uint256)"])
    stage(paths, SIGNATURES, "staged(uint256)")
    staging = [paths.staging.with_name(f"{paths.staging.name}{end}") for end in ("", "-wal", "-shm")]
    files = staging if call == "fcntl" else [paths.staging_stamp] if commands == [BACKUP] else []
    named = [f"--trace-path={path}" for path in (paths.identity, *files)] if files else []
    strace = "strace", "-f", "--seccomp-bpf", "-qq", "-o", str(tmp_path / "calls"), *named, "-e", f"trace={call}"
    run = [sys.executable, "-c", RUN, json.dumps(commands), str(tmp_path)]
    with closing(Staging(paths.staging)):  # its write-ahead log is there, so readers would take locks
        done = subprocess.run(
            [*strace, "-e", f"inject={call}:error=ENOLCK", *run], cwd=ROOT, env=environment(paths.root),
            capture_output=True, timeout=SAFETY_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "INJECTED" in (tmp_path / "calls").read_text()
