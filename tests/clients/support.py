"""Real clients against a real server: their built-in hosts are this machine while they run.

A client is started in a mount namespace of its own, in which /etc/hosts names a loopback address for the
hosts it asks; there a TLS front with a certificate of a CA made for the test hands the bytes on to the
server. Nothing outside of that process changes. The clients themselves are installed beforehand, never by
a test: ``make -C tests/clients``.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import SAFETY_SECONDS
from tests.serve.support import HOST

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
CAST = MODULES / "@foundry-rs" / "cast-linux-amd64" / "bin" / "cast"
ANVIL = MODULES / "@foundry-rs" / "anvil-linux-amd64" / "bin" / "anvil"
FORGE = MODULES / "@foundry-rs" / "forge-linux-amd64" / "bin" / "forge"
WHATSABI = MODULES / "@shazow" / "whatsabi"
DUCKDB = HERE / "duckdb" / "bin" / "python"
LOAD_HTTPFS = """
import duckdb, duckdb_extension_httpfs, pathlib
(found,) = pathlib.Path(duckdb_extension_httpfs.__file__).parent.rglob("httpfs.duckdb_extension")
duckdb.execute(f"LOAD '{found}'")
"""
"""For a program that DUCKDB runs: it would fetch the extension from the network."""
OPENAPI = HERE / "openapi" / "bin" / "python"
HOSTS = ("api.4byte.sourcify.dev", "api.openchain.xyz", "www.4byte.directory")

_IN_NAMESPACE = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']


def need(client: Path, *programs: str) -> None:
    """Skip unless the client is installed, and what it runs on."""
    if not client.exists():
        pytest.skip(f"{client} is not installed: make -C tests/clients")
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")


def need_namespace() -> None:
    """Skip unless a process may be given an /etc/hosts of its own, and certificates can be made."""
    for program in ("openssl", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    if subprocess.run([*_IN_NAMESPACE, "/etc/hosts", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace with its own /etc/hosts needs root")


@dataclass(frozen=True, slots=True)
class Front:
    """Where the clients' hosts are: ``authority`` is the CA's certificate, ``hosts`` a hosts file."""

    authority: Path
    hosts: Path

    def run(self, *command: str | Path) -> str:
        """A client's standard output; it must end well."""
        done = self.tried(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tried(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """A client that has run to its end."""
        environment = os.environ | {
            "SSL_CERT_FILE": str(self.authority), "NODE_EXTRA_CA_CERTS": str(self.authority), "NO_COLOR": "1",
        }  # fmt: skip
        for name in [name for name in environment if name.lower().endswith("_proxy")]:
            del environment[name]
        return subprocess.run(
            [*_IN_NAMESPACE, str(self.hosts), *map(str, command)], cwd=HERE, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False,
        )  # fmt: skip


class _Relay(socketserver.BaseRequestHandler):
    """Hands bytes on both ways until either side has no more."""

    server: _Front

    def handle(self) -> None:
        # A client may close its connection at any time.
        with (
            suppress(OSError),
            self.server.context.wrap_socket(self.request, server_side=True) as client,
            socket.create_connection((HOST, self.server.port), timeout=SAFETY_SECONDS) as server,
        ):
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join(SAFETY_SECONDS)


class _Front(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    context: ssl.SSLContext
    port: int


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def fronted(folder: Path, port: int) -> Iterator[Front]:
    """A TLS front for HOSTS before the server on ``port``; its files are in ``folder``."""
    authority, certificate, key = certificates(folder)
    # Any loopback address will do: two test runs do not meet on one that is drawn.
    address = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(2, 254)}"
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host in HOSTS))
    try:
        server = _Front((address, 443), _Relay)
    except OSError as error:
        pytest.skip(f"port 443 of {address}: {error.strerror}")
    with server:
        server.context, server.port = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), port
        server.context.load_cert_chain(certificate, key)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Front(authority, folder / "hosts")
        server.shutdown()


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA of a day's life, and a certificate of its for HOSTS with the key."""
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    request = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    _openssl(folder, *request, "-x509", "-subj", "/CN=a test CA", "-keyout", "ca.key", "-out", "ca.pem")
    _openssl(
        folder, *request, "-x509", "-subj", "/CN=a test host", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE",
        "-keyout", "host.key", "-out", "host.pem",
    )  # fmt: skip
    return folder / "ca.pem", folder / "host.pem", folder / "host.key"


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Served(NamedTuple):
    """Where the directory is served, and its warehouse."""

    port: int
    folder: Path


@contextmanager
def chain() -> Iterator[str]:
    """The address of a local chain: anvil, while the block runs."""
    need(ANVIL)
    with subprocess.Popen(
        [ANVIL, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            listening = next(line for line in process.stdout if line.startswith("Listening on "))
            yield f"http://{listening.split()[-1]}"
        finally:
            process.terminate()
