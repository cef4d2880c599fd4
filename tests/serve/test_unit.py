"""The systemd unit of docs/operations.md, as nearly as a machine without systemd can run it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from sigdir.serve.core.settings import Settings
from sigdir.serve.servers import startup
from tests.conftest import ROOT, command_line, empty_warehouse
from tests.serve.support import SIGNATURES_PATH, TRANSFER, get, post_text, serving

UNIT = re.search(r"```ini\n(\[Unit\].*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)

# The given folders stay writable, everything else is read-only, and root has no more rights than a user.
STRICT = """
folders=$1; shift
mount --make-rprivate /
mount --bind "$INSTALLATION" "$INSTALLATION"
for folder in $folders; do mount --bind "$folder" "$folder"; done
mount -o remount,bind,ro "$INSTALLATION"
mount -o remount,bind,ro /
! touch "$INSTALLATION/touched" "$HOME" 2>/dev/null || exit 9
exec setpriv --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
"""


def unit(key: str) -> list[str]:
    """The values of a key of the unit, in their order."""
    assert UNIT is not None
    return re.findall(rf"^{key}=(.*)$", UNIT[1], re.MULTILINE)


def can_mount() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return False
    remount = "mount --make-rprivate / && mount -o remount,bind,ro /"
    return subprocess.run(["unshare", "--mount", "sh", "-c", remount], capture_output=True, check=False).returncode == 0


@pytest.mark.long
def test_the_unit_serves_from_a_read_only_installation(tmp_path: Path) -> None:
    """Without a home, without rights, with its warehouse and its cache folder writable and nothing else."""
    if not can_mount():
        pytest.skip("needs root and mounts")
    assert (unit("ProtectSystem"), unit("ProtectHome"), unit("PrivateTmp")) == (["strict"], ["yes"], ["yes"])
    warehouse, cache, temporary = (tmp_path / name for name in ("warehouse", "cache", "tmp"))
    for folder in (cache, temporary):
        folder.mkdir()
    empty_warehouse(warehouse)
    places = {unit("ReadWritePaths")[0]: warehouse, f"/var/cache/{unit('CacheDirectory')[0]}": cache}
    settings = dict(line.split("=", 1) for line in unit("Environment"))
    variables = {name: str(places[value]) for name, value in settings.items()}
    arguments = shlex.split(unit("ExecStart")[0])[2:]
    command = [
        "unshare", "--mount", "sh", "-euc", STRICT, "sh", f"{warehouse} {cache} {temporary}", *command_line(),
    ]  # fmt: skip
    variables |= {"HOME": "/nonexistent", "TMPDIR": str(temporary), "INSTALLATION": str(ROOT)}
    with serving(warehouse, *arguments, command=command, variables=variables) as server:
        assert post_text(server.port, TRANSFER).status == 201
        assert get(server.port, f"{SIGNATURES_PATH}?hex_signature=0xa9059cbb").json()["count"] == 1
        assert get(server.port, "/").status == 200
        assert "Traceback" not in server.stderr()
    assert (cache / "signature-directory").is_dir()


def test_a_worker_s_memory_is_malloc_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own allocator keeps what it has freed; two arenas of malloc give it back."""

    def stop() -> None:
        raise InterruptedError("all that comes after it")

    monkeypatch.setattr(startup, "warm", stop)
    before = pa.default_memory_pool()
    try:
        with pytest.raises(InterruptedError):
            startup.open_app(Settings(empty_warehouse(tmp_path / "warehouse")))
        assert pa.default_memory_pool().backend_name == "system" != before.backend_name
    finally:
        pa.set_memory_pool(before)
