"""The proxies of docs/operations.md, by their snippets. A proxy that is not installed is skipped."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import HOST, SIGNATURES_PATH, application, get, is_ready, listening, post_text, until
from tests.serve.test_servers import FOLDERS

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
    with (
        application(tmp_path / "warehouse", trust_proxy=True) as app, listening(app) as upstream, socket.socket() as free,
    ):  # fmt: skip
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        free.close()
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
