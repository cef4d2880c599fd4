"""Private ranges: every text of a prefix as a pack, over HTTP and as files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import falcon.testing
import pytest

import sigdir
from sigdir.pipeline.errors import BadTarget
from sigdir.pipeline.export import Options, run_export
from sigdir.pipeline.progress import Reporter
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.page_cache import PageCache
from sigdir.serve.servers.short_requests import ShortRequests
from sigdir.signatures.collections import COLLECTIONS
from tests.conftest import ROOT, import_files, import_lines
from tests.pipeline.support import invoke
from tests.serve.support import opened

TRANSFER, SPAM = "transfer(address,uint256)", "many_msg_babbage(bytes1)"
DEEP = "deep(" + "(" * 40 + "bool" + ")" * 40 + ")"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples with a text that was mined and one that no pack has, in two versions."""
    folder = tmp_path_factory.mktemp("ranges")
    warehouse = import_lines(folder / "warehouse", SPAM, DEEP)
    import_files([ROOT / "samples"], warehouse)
    return warehouse


@pytest.fixture(scope="module")
def client(stored: Path) -> Iterator[falcon.testing.TestClient]:
    with opened(stored) as storage:
        yield falcon.testing.TestClient(create_app(Settings(stored), *storage))


def fetched(client: falcon.testing.TestClient, path: str, query: str = "") -> Any:
    """The answer after the redirect from the newest version."""
    first = client.simulate_get(path, query_string=query)
    assert (first.status_code, first.headers["cache-control"]) == (302, "public, max-age=60")
    place, _, rest = first.headers["location"].partition("?")
    return client.simulate_get(place, query_string=rest)


def ranked(stored: Path) -> dict[tuple[str, str], list[str]]:
    """The texts of each hash in their order, without the one that is nested too deeply."""
    rows = sigdir.open(stored).sql(
        "SELECT collection, hex_signature, text_signature FROM ranked WHERE text_signature != ? ORDER BY position",
        [DEEP],
    )
    found: dict[tuple[str, str], list[str]] = {}
    for collection, hash, text in rows.rows():
        found.setdefault((collection, hash), []).append(text)
    return found


def test_a_range_has_every_text_of_its_prefix(client: Any, stored: Path) -> None:
    """In the order of rank, mined ones too; one pack answers for all hashes of the prefix and no other."""
    wanted = ranked(stored)
    for collection, prefix in {(collection, hash[2:5]) for collection, hash in wanted}:
        pack = sigdir.Pack(fetched(client, f"/range/{collection}/{prefix}").content)
        of_prefix = {hash: texts for (of, hash), texts in wanted.items() if (of, hash[2:5]) == (collection, prefix)}
        assert {hash: pack.lookup(hash) for hash in of_prefix} == of_prefix
        assert (len(pack), pack.version) == (sum(map(len, of_prefix.values())), 2)
    assert wanted["signatures", "0xa9059cbb"] == [TRANSFER, SPAM]


def test_a_range_of_a_version_never_changes(client: Any) -> None:
    """Caches keep it for ever; another version's address and another spelling lead to the newest one."""
    answer = fetched(client, "/range/signatures/A90")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = client.simulate_get("/range/signatures/a90/2", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/range/signatures/a90/1", "/range/signatures/a90/3", "/range/signatures/A90/2"):
        assert client.simulate_get(path).headers["location"] == "/range/signatures/a90/2"


def test_a_range_is_made_once(stored: Path) -> None:
    """Then the thread that read the request answers it, in each size."""
    pages = PageCache(1 << 20, lambda _: None)
    with opened(stored) as (reader, writer):
        client, is_short = (
            falcon.testing.TestClient(create_app(Settings(stored), reader, writer, pages=pages)),
            ShortRequests(reader, pages),
        )
        for query in ("", "padded=1"):
            asked = ("GET", "/range/signatures/a90/2", query, "", "gzip")
            assert not is_short(*asked)
            made = fetched(client, "/range/signatures/A90", query)
            assert is_short(*asked)
            assert client.simulate_get(asked[1], query_string=query).content == made.content


def test_padded_ranges_have_one_size(client: Any) -> None:
    """So whoever sees their sizes cannot tell one from another, an empty one neither."""
    sizes = {len(fetched(client, f"/range/signatures/{name}", "padded=1").content) for name in ("a90", "095", "000")}
    assert sizes == {8192}
    assert sigdir.Pack(fetched(client, "/range/signatures/a90", "padded=1").content).lookup("0xa9059cbb")[0] == TRANSFER


@pytest.mark.parametrize("prefix", ["a9", "a905", "a9059cbb", "zzz", "-a9", "0xa"])
def test_other_prefixes_are_refused_with_the_reason(client: Any, prefix: str) -> None:
    answer = client.simulate_get(f"/range/signatures/{prefix}")
    assert (answer.status_code, "the server would learn which text" in answer.json["detail"]) == (400, True)
    assert client.simulate_get("/range/other/a90").status_code == 404


def test_what_is_posted_or_suppressed_makes_another_version(tmp_path: Path, warehouse: Path) -> None:
    """A staged text comes with the version that folds it; a suppressed one leaves under a new name."""
    import_lines(warehouse, TRANSFER)
    with opened(warehouse) as storage:
        client = falcon.testing.TestClient(create_app(Settings(warehouse), *storage))
        client.simulate_post("/api/v1/signatures/", json={"text_signature": SPAM})
        assert sigdir.Pack(fetched(client, "/range/signatures/a90").content).lookup("0xa9059cbb") == [TRANSFER]
        assert invoke(warehouse, "fold").status == invoke(warehouse, "suppress", TRANSFER).status == 0
    with opened(warehouse) as storage:
        client = falcon.testing.TestClient(create_app(Settings(warehouse), *storage))
        assert client.simulate_get("/range/signatures/a90").headers["location"].startswith("/range/signatures/a90/2.")
        assert sigdir.Pack(fetched(client, "/range/signatures/a90").content).lookup("0xa9059cbb") == [SPAM]


@pytest.mark.parametrize("padded", [False, True])
def test_ranges_as_files_are_what_a_server_answers(client: Any, stored: Path, tmp_path: Path, padded: bool) -> None:
    """A file for each of the 4,096 prefixes of a collection, byte for byte."""
    run_export(Options("ranges", str(tmp_path / "out"), stored, padded=padded), Reporter())
    for collection in COLLECTIONS:
        assert len(list((tmp_path / "out" / collection).iterdir())) == 4096
        for name in ("000", "a90", "095", "ddf", "fff"):
            content = (tmp_path / "out" / collection / name).read_bytes()
            assert content == fetched(client, f"/range/{collection}/{name}", f"padded={padded:d}").content
    with pytest.raises(BadTarget, match="exists already"):
        run_export(Options("ranges", str(tmp_path / "out"), stored), Reporter())
    with pytest.raises(BadTarget, match="--padded is for ranges"):
        run_export(Options("csv", str(tmp_path / "x"), stored, padded=True), Reporter())
