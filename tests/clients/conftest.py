"""One server for all clients: the bundled samples, and texts that collide with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.support import Front, Served, fronted, need_namespace
from tests.conftest import ROOT, import_files
from tests.serve.support import application, listening

# Real ones, older here than what they collide with.
SPAM = ["many_msg_babbage(bytes1)", "gasprice_bit_ether(int128)"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("clients")
    (folder / "spam.txt").write_text("\n".join(SPAM))
    import_files([folder / "spam.txt", ROOT / "samples"], folder / "warehouse")
    with application(folder / "warehouse") as app, listening(app) as port:
        yield Served(port, app.folder)


@pytest.fixture(scope="session")
def front(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    need_namespace()
    with fronted(tmp_path_factory.mktemp("front"), server.port) as running:
        yield running
