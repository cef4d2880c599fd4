"""A server that follows a store as a read replica: by a real server, a store that is a folder, and S3 on loopback."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sigdir.serve.core.settings import Settings
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import working_copy
from sigdir.warehouse.transfer.backup import push
from sigdir.warehouse.transfer.working_copy import pull
from tests.conftest import command_line, import_lines
from tests.faulty_store import BUCKET, SECRET, s3_server
from tests.serve.support import (
    EVENT,
    HOST,
    SIGNATURES_PATH,
    SPAM,
    TOPIC,
    TRANSFER,
    Server,
    children_of,
    found,
    get,
    post,
    post_text,
    serving,
    until,
)
from tests.warehouse.support import publish

PUBLIC = "https://signatures.example.org"
PRIMARY = "https://primary.example.org"

PATHS = [
    "/api/v1/signatures/", "/api/v1/signatures/?text_signature=er", "/api/v1/signatures/1/evidence/",
    f"/api/v1/event-signatures/?hex_signature=0x{TOPIC}", "/api/v1/resolve/?hash=0xa9059cbb&full=1", "/api/v1/changes/",
    "/signature-database/v1/search?query=trans*", "/signatures/a9059cbb", "/", "/selector/0xa9059cbb/", "/browse/",
]  # fmt: skip


@pytest.fixture(scope="module")
def primary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a primary, with two imports."""
    folder = tmp_path_factory.mktemp("primary") / "warehouse"
    import_lines(folder, SPAM, TRANSFER, "error Broken(uint256)")
    return import_lines(folder, "function transfer(address to, uint256 value)", f"event {EVENT}", "under_score()")


@pytest.fixture(scope="module")
def store(primary: Path) -> Path:
    """The folder that is the store."""
    return primary.with_name("store")


@pytest.fixture(scope="module")
def replica(primary: Path, store: Path) -> Iterator[Server]:
    """A replica of what the primary has pushed."""
    url = f"file://{store}"
    push(Paths(primary), url)
    variables = {"AWS_SECRET_ACCESS_KEY": SECRET}
    options = ["--follow-store", url, "--primary-url", PRIMARY, "--public-url", PUBLIC]
    command = command_line()  # whose arguments the process list shows
    with serving(primary.with_name("replica"), *options, workers=1, command=command, variables=variables) as running:
        yield running


@pytest.mark.long
def test_answers_are_the_primary_s(primary: Path, replica: Server) -> None:
    """Byte for byte, with their ETags, for the same version and public address."""
    with serving(primary, "--public-url", PUBLIC, workers=1) as server:
        for path in PATHS:
            wanted, answer = get(server.port, path), get(replica.port, path)
            assert (answer.status, answer.body) == (wanted.status, wanted.body), path
            assert answer.header("ETag") == wanted.header("ETag"), path
            assert wanted.status == 200, path


def test_posts_are_sent_to_the_primary(replica: Server) -> None:
    """405, without POST in Allow, and with the address to POST to; decoding and resolving stay open."""
    answer = post_text(replica.port, "hello()")
    assert answer.status == 405
    assert answer.header("Allow") == "GET, HEAD, OPTIONS"
    assert answer.json() == {"detail": f"This server is a read replica: POST to {PRIMARY}{SIGNATURES_PATH}."}
    assert answer.header("Reject-Reason") == "replica"
    assert found(replica.port, "hello") == []
    assert post(replica.port, "/api/v1/resolve/", ["0xa9059cbb"]).status == 200


def test_a_pushed_version_is_shown(primary: Path, store: Path, replica: Server) -> None:
    """A new version, and a text that the primary hides, without a restart; also while the store has lost the list."""
    publish(Paths(primary), ["pushedLater(uint256)"])
    push(Paths(primary), f"file://{store}")
    until(lambda: found(replica.port, "pushedLater"), "the new version")
    (primary / "suppressed.txt").write_text("function pushedLater(uint256)\n")
    push(Paths(primary), f"file://{store}")
    until(lambda: not found(replica.port, "pushedLater"), "the suppress list")
    listed = (store / "suppressed.txt").read_bytes()
    (store / "suppressed.txt").unlink()
    until(lambda: "suppressed.txt: lost or damaged" in replica.stderr(), "the report")
    assert found(replica.port, "pushedLater") == []
    (store / "suppressed.txt").write_bytes(listed)
    (primary / "suppressed.txt").unlink()
    push(Paths(primary), f"file://{store}")
    until(lambda: found(replica.port, "pushedLater"), "the list to be empty")


def test_a_store_that_is_away(primary: Path, store: Path, replica: Server) -> None:
    """The version that is there is served on, after a restart too, which hides nothing; when the store is back its news are shown."""
    before = get(replica.port, PATHS[0]).body
    away = store.with_name("away")
    store.rename(away)
    try:
        until(lambda: "is served on" in replica.stderr(), "the report that the store is away")
        assert get(replica.port, PATHS[0]).body == before
        os.utime(Paths(replica.folder).last_pull, (1_700_000_000, 1_700_000_000))
        with serving(
            replica.folder, "--follow-store", f"file://{store}", "--public-url", PUBLIC, workers=1
        ) as restarted:
            assert get(restarted.port, PATHS[0]).body == before
            assert get(restarted.port, "/readyz").json()["store"] == "away since 2023-11-14T22:13:20Z"
    finally:
        away.rename(store)
    publish(Paths(primary), ["afterwards(uint256)"])
    push(Paths(primary), f"file://{store}")
    until(lambda: found(replica.port, "afterwards"), "the new version")
    assert replica.errors() == []


def damaged(file: Path) -> bytes:
    """Change a byte of a file; returns what it was."""
    before = file.read_bytes()
    file.unlink()
    file.write_bytes(before[:-9] + b"#" + before[-8:])
    return before


def test_a_damaged_log_is_mended(replica: Server) -> None:
    """A follower looks at the log every ten seconds, and fetches again what the store has."""
    file = Paths(replica.folder).log_entry(0)
    before = damaged(file)
    until(lambda: file.read_bytes() == before, "the file to be as it was written")
    assert get(replica.port, PATHS[0]).status == 200


def test_a_follower_that_is_killed_is_replaced(primary: Path, store: Path, replica: Server) -> None:
    """The next one goes on where it was, and mends what is damaged: it looks at each byte when it starts."""
    file = Paths(replica.folder).data_files()[0]
    before = damaged(file)
    for pid, name in children_of(replica.process.pid):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes(), "the process list has no credentials"
        if name == "sigdir-follow":
            os.kill(pid, signal.SIGKILL)
    until(lambda: file.read_bytes() == before, "the file to be as it was written")
    publish(Paths(primary), ["afterTheKill(uint256)"])
    push(Paths(primary), f"file://{store}")
    until(lambda: found(replica.port, "afterTheKill"), "the new version")
    assert get(replica.port, PATHS[0]).status == 200


@pytest.mark.long
def test_a_replica_of_s3_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--warehouse s3://...` is a replica too, with its copy in the user's cache; an import into the store is shown.

    Where the store accepts connections and answers nothing, the version that is there is served after ten seconds.
    """
    monkeypatch.setenv("SIGDIR_STORE_CACHE", str(tmp_path / "importer"))
    with s3_server() as s3:
        for name, value in s3.variables.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/replica"
        copy = working_copy(url)
        pull(copy, make=True)
        publish(copy, [TRANSFER])
        variables = {"SIGDIR_STORE_CACHE": str(tmp_path / "cache"), "SIGDIR_WAREHOUSE": url}
        with serving(tmp_path / "none", "--warehouse", url, workers=1, variables=variables) as server:
            assert [row["text_signature"] for row in found(server.port, "transfer")] == [TRANSFER]
            publish(copy, ["new(uint256)"])
            until(lambda: found(server.port, "new("), "the import into the store")
            assert post_text(server.port, "hello()").json() == {"detail": "This server is a read replica."}
    with socket.create_server((HOST, 0)) as silent:
        variables["AWS_ENDPOINT_URL"] = f"http://{HOST}:{silent.getsockname()[1]}"
        began = time.monotonic()
        with serving(tmp_path / "none", "--warehouse", url, workers=1, variables=variables) as server:
            assert time.monotonic() - began < 40
            assert [row["text_signature"] for row in found(server.port, "new(")] == ["new(uint256)"]


def test_a_replica_needs_a_version(tmp_path: Path) -> None:
    """A store without a warehouse, and no copy: the server ends and says why."""
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(AssertionError, match="no warehouse"),
        serving(tmp_path / "copy", "--follow-store", f"file://{tmp_path}/empty"),
    ):
        pass


def test_a_copy_takes_no_post_where_no_server_follows_the_store(tmp_path: Path) -> None:
    """A POSTed row would get an id that an import of another machine gives to another text, and be lost."""
    copy = working_copy(f"file://{tmp_path / 'store'}", tmp_path / "copy")
    pull(copy, make=True)
    settings = Settings(copy.root).as_the_medium_allows()
    assert (settings.read_only, settings.fold_every) == (True, 0)
