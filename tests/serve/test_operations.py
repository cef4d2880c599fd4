"""docs/operations.md: the systemd unit, as nearly as a machine without systemd can run it, and the proxies by their snippets."""

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
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, empty_warehouse
from tests.serve.support import (
    HOST,
    SIGNATURES_PATH,
    TRANSFER,
    application,
    free_port,
    get,
    is_ready,
    listening,
    post_text,
    serving,
    until,
)
from tests.serve.test_servers import FOLDERS

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


DOCUMENT = (ROOT / "docs" / "operations.md").read_text()
TEMPORARY = "".join(f"{name}_temp_path {name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


def nginx(port: int, upstream: int, folder: Path) -> list[str]:
    """nginx with all of its snippets, each in the block that it names."""
    parts: dict[str, list[str]] = {"http": [TEMPORARY, "access_log off;\n"], "server": [f"listen {HOST}:{port};\n"]}
    block = "server"
    for snippet in re.findall(r"```nginx\n(.*?)```", DOCUMENT, re.DOTALL):
        for line in snippet.splitlines(keepends=True):
            named = re.match("# In the (http|server) block", line)
            block = named[1] if named else block
            parts[block].append(line.replace("8000", str(upstream)))
        block = "server"
    common = [line for line in parts["server"] if re.match(" +proxy_(set_header|http_version)", line)]
    (folder / "proxy.conf").write_text("".join(common))
    inner = "".join(parts["http"]) + f"server {{\n{''.join(parts['server'])}}}\n"
    (folder / "nginx.conf").write_text(f"daemon off;\npid nginx.pid;\nevents {{}}\nhttp {{\n{inner}}}\n")
    return ["-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def caddy(port: int, upstream: int, folder: Path) -> list[str]:
    """Caddy with its snippet, without TLS."""
    [snippet] = re.findall(r"```\n(sigs\.example\.org .*?)```", DOCUMENT, re.DOTALL)
    text = snippet.replace("sigs.example.org", f"http://{HOST}:{port}").replace("8000", str(upstream))
    (folder / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
    return ["run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES = {"nginx": nginx, "caddy": caddy}


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_by_its_snippet(tmp_path: Path, name: str) -> None:
    """Rows are stored and listed through it, and links have the address that the client used."""
    found = shutil.which(name, path=f"{FOLDERS}:/usr/sbin:/usr/bin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    with application(tmp_path / "warehouse", trust_proxy=True) as app, listening(app) as upstream:
        port = free_port()
        process = subprocess.Popen([found, *PROXIES[name](port, upstream, tmp_path)], env={"HOME": str(tmp_path)})
        try:
            until(lambda: process.poll() is not None or is_ready(port), "the proxy")
            assert process.poll() is None
            assert [post_text(port, text).status for text in ("first(uint8)", "second()")] == [201, 201]
            page = get(port, f"{SIGNATURES_PATH}?page_size=1").json()
            assert (page["count"], page["next"]) == (2, f"http://{HOST}:{port}{SIGNATURES_PATH}?page=2&page_size=1")
        finally:
            process.terminate()
            process.wait(SAFETY_SECONDS)
