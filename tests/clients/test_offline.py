"""Clients without a network: Foundry's own cache, written by `sigdir export foundry`; and the proxies that docs/clients.md shows."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.clients.support import ANVIL, CAST, HOSTS, Served, certificates, need
from tests.clients.test_docs import ADDRESS, PAGE
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.pipeline.support import invoke
from tests.serve.support import application, listening

ERROR = "0xe450d38c" + "f39fd6e51aad88f6f4ce6ab8827279cfffb92266".zfill(64) + f"{1000:064x}{5000:064x}"
TRACE = """
ip link set lo up
"$1" --port 8545 > anvil.log & anvil=$!
trap 'kill $anvil' EXIT
until "$0" chain-id > chain.log 2>&1; do sleep 0.1; done
"$0" rpc anvil_setCode 0xa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 "$2" > rpc.log
sent=$("$0" send --unlocked --from 0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266 --gas-limit 200000 --json \
    0xa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 "$3" | grep -o '"transactionHash":"0x[0-9a-f]*"' | cut -d'"' -f4)
"$0" run "$sent"
"""


@pytest.fixture
def home(server: Served, tmp_path: Path) -> Path:
    (tmp_path / ".foundry" / "cache").mkdir(parents=True)
    cache = tmp_path / ".foundry" / "cache" / "signatures"
    assert invoke(server.folder, "export", "foundry", cache).status == 0
    return tmp_path


def cut_off(home: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that ran without any network, with this home."""
    need(CAST, "unshare")
    done = subprocess.run(
        ["unshare", "--net", *map(str, command)], cwd=home, env={"HOME": str(home), "PATH": "/usr/sbin:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("a network namespace needs root")
    return done


def test_cast_names_an_error_from_the_exported_cache(home: Path) -> None:
    """Without the cache it asks the network, which is not there."""
    done = cut_off(home, CAST, "decode-error", ERROR)
    assert done.stdout.splitlines()[0] == "ERC20InsufficientBalance(address,uint256,uint256)"
    (home / ".foundry" / "cache" / "signatures").unlink()
    assert "No matching error signature" in cut_off(home, CAST, "decode-error", ERROR).stderr


@pytest.mark.long
def test_a_trace_has_the_names_of_the_exported_cache(home: Path) -> None:
    """The calls inside of a batch are named; without the cache its function is four bytes."""
    need(ANVIL, "ip")
    code, call = ((ROOT / "docs" / "examples" / name).read_text().strip() for name in ("token.hex", "multicall.hex"))
    for named in (True, False):
        done = cut_off(home, "sh", "-c", TRACE, CAST, ANVIL, code, call)
        assert ("::multicall(" in done.stdout) == named, done.stdout + done.stderr
        (home / ".foundry" / "cache" / "signatures").unlink(missing_ok=True)


def test_nginx_adds_tls_as_the_page_says(server: Served, tmp_path: Path) -> None:
    """Ten lines; links of the answers begin with https."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("no nginx or no openssl on this machine")
    [block] = re.findall(r"^```nginx\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block.count("\n") == 10
    authority, certificate, key = certificates(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    block = block.replace("443", f"127.0.0.1:{port}")
    block = block.replace("/etc/ssl/directory.pem", str(certificate)).replace("/etc/ssl/directory.key", str(key))
    configuration = f"pid nginx.pid;\nevents {{}}\nhttp {{ access_log off;\n{block}}}\n"
    command = [nginx, "-p", str(tmp_path), "-c", "nginx.conf", "-e", "error.log", "-g", "daemon off;"]
    with application(server.folder, trust_proxy=True) as app, listening(app) as upstream:
        (tmp_path / "nginx.conf").write_text(configuration.replace(ADDRESS, f"http://127.0.0.1:{upstream}"))
        with subprocess.Popen(command) as running:
            try:
                where = ["--cacert", str(authority), "--resolve", f"{HOSTS[0]}:{port}:127.0.0.1"]
                wait = ["--retry", "60", "--retry-delay", "1", "--retry-connrefused"]
                path = f"https://{HOSTS[0]}:{port}/api/v1/signatures/?page_size=1"
                done = subprocess.run(["curl", "-s", *where, *wait, path], capture_output=True, check=True)
                assert json.loads(done.stdout)["next"].startswith(f"https://{HOSTS[0]}:{port}/")
            finally:
                running.terminate()
