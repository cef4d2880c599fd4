"""Dumps and private ranges: what is listed, files by ranges of bytes, collections whole, and packs of a prefix."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sigdir
from sigdir.pipeline.errors import BadTarget
from sigdir.pipeline.export import Options, run_export
from sigdir.pipeline.progress import Reporter
from sigdir.serve.bulk.dumps import byte_range
from sigdir.serve.http.answers import HttpError
from sigdir.serve.http.bodies import StreamLimit
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, import_files, import_lines
from tests.pipeline.support import invoke
from tests.serve.support import (
    EVENTS_PATH,
    SPAM,
    TRANSFER,
    Answer,
    Application,
    application,
    get,
    post_text,
    request,
    whole,
)
from tests.warehouse.support import remove_digests

ROWS = 5000
"""Of each file of signatures: more than a piece of a dump has."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Version 1 has one file a collection, version 2 two files of signatures; an event is POSTed and not folded."""
    folder = tmp_path_factory.mktemp("dumps")
    for number, more in enumerate((["event E(uint256)"], [])):
        import_lines(folder / "warehouse", *(f"f{number}_{n}(address,uint256)" for n in range(ROWS)), *more)
    with application(folder / "warehouse") as app:
        assert post_text(app, "Posted(uint256)", EVENTS_PATH).status == 201
        yield app


def listed(app: Application, version: str = "latest") -> dict[str, Any]:
    answer = followed(app, f"/dumps/{version}/")
    assert answer.status == 200
    document: dict[str, Any] = answer.json()
    return document


def followed(app: Application, path: str) -> Answer:
    """The answer after all redirections."""
    answer = get(app, path)
    while answer.status in (301, 302):
        answer = get(app, answer.header("Location"))
    return answer


def a_file(app: Application) -> tuple[str, bytes]:
    """The address of a file and its bytes."""
    file = read_snapshot(Paths(app.folder)).files[SIGNATURES][0]
    return f"/dumps/2/signatures/{file.path.name}", file.path.read_bytes()


def test_each_version_lists_its_files(app: Application) -> None:
    front = get(app, "/dumps/").json()
    assert [one["version"] for one in front["versions"]] == [2, 1]
    assert [one["kind"] for one in front["versions"]] == ["import", "import"]
    assert front["latest"] == listed(app) == listed(app, "2")
    for version, of_signatures in ((1, ROWS), (2, 2 * ROWS)):
        document = listed(app, str(version))
        assert (document["version"], document["rows"]) == (version, {SIGNATURES: of_signatures, EVENT_SIGNATURES: 1})
        snapshot = read_snapshot(Paths(app.folder), version)
        files = [file for collection in COLLECTIONS for file in snapshot.files[collection]]
        assert len(document["files"]) == len(files) == version + 1
        for one, file in zip(document["files"], files, strict=True):
            data = followed(app, one["url"]).body
            assert data == file.path.read_bytes()
            assert (one["bytes"], one["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
            assert (one["rows"], one["first_id"], one["last_id"]) == (file.rows, file.first_id, file.last_id)
            assert pq.read_table(io.BytesIO(data)).num_rows == one["rows"]


@pytest.mark.parametrize(
    "path",
    [
        "3/", "x/", "01/", "latest/x", "2/x.ndjson", "2/signatures.x", "2/signatures/x.parquet", "2/signatures/",
        "2/signatures/..%2F..%2F..%2Fstaging.sqlite", "2/../../../../etc/passwd", "9999999999999999999/",
    ],
)  # fmt: skip
def test_nothing_else_is_served(app: Application, path: str) -> None:
    assert followed(app, f"/dumps/{path}").status == 404


def test_a_file_is_served_for_the_versions_that_name_it(app: Application) -> None:
    newest = read_snapshot(Paths(app.folder)).files[SIGNATURES][1].path.name
    assert get(app, f"/dumps/2/signatures/{newest}").status == 200
    assert get(app, f"/dumps/1/signatures/{newest}").status == 404
    assert get(app, f"/dumps/2/event-signatures/{newest}").status == 404


def test_latest_leads_to_the_newest_version(app: Application) -> None:
    for path in ("", "signatures/x.parquet"):
        answer = get(app, f"/dumps/latest/{path}")
        assert (answer.status, answer.header("Location")) == (302, f"/dumps/2/{path}")
    assert get(app, "/dumps/latest").header("Location") == "/dumps/latest/"
    assert get(app, "/dumps").header("Location") == "/dumps/"


BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_a_browser_gets_a_page_with_all_of_it(app: Application) -> None:
    """Each version, and each file with its address, size, rows and digest; others get JSON at the same place."""
    for path, version in (("/dumps/", 2), ("/dumps/1/", 1)):
        answer = get(app, path, BROWSER)
        assert (answer.status, answer.header("Content-Type")) == (200, "text/html; charset=utf-8")
        assert "Accept" in answer.header("Vary")
        page = html.unescape(answer.body.decode())
        for file in listed(app, str(version))["files"]:
            assert f'href="{file["url"]}"' in page
            assert all(f">{text}<" in page for text in (file["sha256"], f"{file['rows']:,}", f"{file['bytes']:,}"))
        for collection in COLLECTIONS:
            for ending in ("csv", "ndjson"):
                assert get(app, f"/dumps/{version}/{collection}.{ending}").status == 200
                assert f'href="/dumps/{version}/{collection}.{ending}"' in page
        links = {link for link in re.findall(r'href="(/dumps/(?:[^"]*/)?)"', page) if "latest" not in link}
        assert links == ({"/dumps/", "/dumps/1/", "/dumps/2/"} if path == "/dumps/" else {"/dumps/"})
        assert get(app, f"{path}?format=json", BROWSER).json() == get(app, path).json()
    assert get(app, "/dumps/latest/", BROWSER).header("Location") == "/dumps/2/"
    assert get(app, "/dumps/9/", BROWSER).status == 404


# Ranges.


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-0", (0, 1)), ("bytes=99-", (99, 100)), ("bytes=10-19", (10, 20)), ("bytes = 10 - 1000", (10, 100)),
        ("bytes=-1", (99, 100)), ("bytes=-1000", (0, 100)), ("", None), ("bytes=", None), ("bytes=-", None),
        ("bytes=20-10", None), ("bytes=0-1,5-6", None), ("rows=0-1", None), ("bytes=\u0661-", None),
    ],
)  # fmt: skip
def test_a_range_header_is_one_range_or_nothing(header: str, wanted: tuple[int, int] | None) -> None:
    assert byte_range(header, 100) == wanted


@pytest.mark.parametrize(("header", "size"), [("bytes=100-200", 100), ("bytes=-0", 100), ("bytes=0-", 0)])
def test_a_range_without_a_byte_is_an_error(header: str, size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        byte_range(header, size)


def test_a_range_of_a_file_is_its_bytes(app: Application) -> None:
    """One past the end is refused, by an answer that caches do not keep."""
    url, data = a_file(app)
    answer = get(app, url, {"Range": "bytes=1000-1099"})
    assert (answer.status, answer.body) == (206, data[1000:1100])
    assert answer.header("Content-Range") == f"bytes 1000-1099/{len(data)}"
    assert answer.header("Content-Length") == "100"
    beyond = get(app, url, {"Range": f"bytes={len(data)}-"})
    assert (beyond.status, beyond.header("Content-Range")) == (416, f"bytes */{len(data)}")
    assert "immutable" not in beyond.header("Cache-Control")


def test_a_range_holds_while_the_file_is_the_one_meant(app: Application) -> None:
    url, data = a_file(app)
    head = request(app, "HEAD", url)
    assert (head.status, head.body, head.header("Content-Length")) == (200, b"", str(len(data)))
    assert head.header("Accept-Ranges") == "bytes"
    tag, dated = head.header("ETag"), head.header("Last-Modified")
    assert parsedate_to_datetime(dated).tzinfo is not None
    for condition, status in ((tag, 206), (dated, 206), ('"other"', 200), (f"W/{tag}", 200)):
        answer = get(app, url, {"Range": "bytes=0-3", "If-Range": condition})
        assert (answer.status, answer.body) == (status, data[:4] if status == 206 else data)
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        assert get(app, url, {"If-None-Match": known}).status == 304
    assert request(app, "POST", url, b"").status == 405


# Whole collections.


def lines_of(app: Application, path: str) -> list[dict[str, Any]]:
    answer = followed(app, path)
    assert (answer.status, answer.header("Content-Type")) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


def test_a_collection_is_what_the_lists_have(app: Application) -> None:
    """As NDJSON, as CSV and as Parquet: one file is sent as it is, and of several one is written."""
    rows = whole(app)
    assert lines_of(app, "/dumps/latest/signatures.ndjson") == rows
    assert lines_of(app, "/dumps/1/signatures.ndjson") == rows[:ROWS]
    assert lines_of(app, "/dumps/0/signatures.ndjson") == []
    names = ["id", "created_at", "text_signature", "hex_signature"]
    answer = followed(app, "/dumps/latest/signatures.csv")
    assert (answer.status, answer.header("Content-Type")) == (200, "text/csv; charset=utf-8")
    header, *lines = csv.reader(io.StringIO(answer.body.decode(), newline=""))
    assert header == names
    assert lines == [[str(row[name]) for name in names] for row in rows]
    one, several = followed(app, "/dumps/1/signatures.parquet"), get(app, "/dumps/2/signatures.parquet")
    assert pq.read_table(io.BytesIO(one.body)).num_rows == ROWS
    assert pq.read_table(io.BytesIO(several.body))["id"].to_pylist() == [row["id"] for row in rows]


def test_a_dump_and_the_changes_after_it_are_everything(app: Application) -> None:
    """A POSTed row that is not folded is in no version, but after the cursor of the newest version."""
    after = listed(app)["changes_after"][EVENT_SIGNATURES]
    dumped = lines_of(app, "/dumps/latest/event-signatures.ndjson")
    answer = get(app, f"/api/v1/changes/?collection=event-signatures&after={after}")
    *rest, _ = [json.loads(line) for line in answer.body.splitlines()]
    assert (len(dumped), len(rest)) == (1, 1)
    assert dumped + rest == whole(app, EVENT_SIGNATURES)


def test_a_file_that_is_not_kept_any_more_is_gone(warehouse: Path) -> None:
    import_lines(warehouse, "f(uint256)")
    with application(warehouse) as app:
        file = read_snapshot(Paths(warehouse)).files[SIGNATURES][0].path
        file.unlink()
        for path in (f"signatures/{file.name}", "signatures.ndjson"):
            assert get(app, f"/dumps/1/{path}").status == 410


def test_digests_missing_in_the_commits_are_computed(tmp_path: Path) -> None:
    """Commits of other programs have no digests."""
    paths = Paths(import_lines(tmp_path / "warehouse", "f(uint256)", "event E(uint256)"))
    remove_digests(paths)
    entry = paths.log_entry(1)
    entry.write_text(entry.read_text().replace('"tags":', '"before":'))
    assert [file.sha256 for file in read_snapshot(paths).all_files()] == [None, None]
    with application(paths.root) as app:
        for _ in range(2):
            for one in listed(app)["files"]:
                assert one["sha256"] == hashlib.sha256(get(app, one["url"]).body).hexdigest()


def test_only_so_many_stream_at_once() -> None:
    """Half of the threads; a stream returns its permit once, at its end or when it is closed."""
    limit = StreamLimit(2)
    first, second = (limit.stream(iter([b"a", b"b"])) for _ in range(2))
    with pytest.raises(HttpError) as refused:
        limit.stream(iter([]))
    assert (refused.value.status, "Retry-After" in refused.value.headers) == (503, True)
    assert list(first) == [b"a", b"b"]  # its end returns the permit
    third = limit.stream(iter([b"c"]))
    second.close()
    second.close()  # once is enough
    fourth = limit.stream(iter([]))
    with pytest.raises(HttpError):
        limit.stream(iter([]))
    third.close()
    fourth.close()


def test_a_version_published_meanwhile_is_the_newest_at_once(tmp_path: Path) -> None:
    with application(tmp_path / "warehouse") as app:
        assert get(app, "/dumps/").json() == {"latest": None, "versions": []}
        assert "Nothing has been published yet" in get(app, "/dumps/", BROWSER).body.decode()
        assert get(app, "/dumps/latest/").status == 404
        assert post_text(app, "a()").status == 201
        fold(Paths(app.folder))
        assert listed(app)["rows"] == {SIGNATURES: 1, EVENT_SIGNATURES: 0}
        assert lines_of(app, "/dumps/latest/signatures.ndjson") == whole(app)


DEEP = "deep(" + "(" * 40 + "bool" + ")" * 40 + ")"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples with a text that was mined and one that no pack has, in two versions."""
    folder = tmp_path_factory.mktemp("ranges")
    warehouse = import_lines(folder / "warehouse", SPAM, DEEP)
    import_files([ROOT / "samples"], warehouse)
    return warehouse


@pytest.fixture(scope="module")
def ranges(stored: Path) -> Iterator[Application]:
    with application(stored) as app:
        yield app


def fetched(at: Application, path: str) -> Answer:
    """The answer after the redirect from the newest version."""
    first = get(at, path)
    assert (first.status, first.header("Cache-Control")) == (302, "public, max-age=60")
    return get(at, first.header("Location"))


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


def test_a_range_has_every_text_of_its_prefix(ranges: Application, stored: Path) -> None:
    """In the order of rank, mined ones too; one pack answers for all hashes of the prefix and no other."""
    wanted = ranked(stored)
    for collection, prefix in {(collection, hash[2:5]) for collection, hash in [*wanted][::10]}:
        pack = sigdir.Pack(fetched(ranges, f"/range/{collection}/{prefix}").body)
        of_prefix = {hash: texts for (of, hash), texts in wanted.items() if (of, hash[2:5]) == (collection, prefix)}
        assert {hash: pack.lookup(hash) for hash in of_prefix} == of_prefix
        assert (len(pack), pack.version) == (sum(map(len, of_prefix.values())), 2)
    assert wanted["signatures", "0xa9059cbb"] == [TRANSFER, SPAM]


def test_a_range_of_a_version_never_changes(ranges: Application) -> None:
    """Caches keep it for ever; another version's address and another spelling lead to the newest one."""
    answer = fetched(ranges, "/range/signatures/A90")
    assert answer.header("Cache-Control") == "public, max-age=31536000, immutable"
    again = get(ranges, "/range/signatures/a90/2", {"If-None-Match": answer.header("ETag")})
    assert (again.status, again.body) == (304, b"")
    for path in ("/range/signatures/a90/1", "/range/signatures/a90/3", "/range/signatures/A90/2"):
        assert get(ranges, path).header("Location") == "/range/signatures/a90/2"


def test_padded_ranges_have_one_size(ranges: Application) -> None:
    """So whoever sees their sizes cannot tell one from another, an empty one neither."""
    packs = [fetched(ranges, f"/range/signatures/{name}?padded=1").body for name in ("a90", "095", "000")]
    assert {len(pack) for pack in packs} == {8192}
    assert sigdir.Pack(packs[0]).lookup("0xa9059cbb")[0] == TRANSFER
    plain = "/range/signatures/a90"
    assert fetched(ranges, f"{plain}?padded=False").body == fetched(ranges, plain).body  # as Python writes it


@pytest.mark.parametrize("prefix", ["a9", "a905", "zzz", "-a9"])
def test_other_prefixes_are_refused_with_the_reason(ranges: Application, prefix: str) -> None:
    answer = get(ranges, f"/range/signatures/{prefix}")
    assert (answer.status, "the server would learn which text" in answer.json()["detail"]) == (400, True)
    assert get(ranges, "/range/other/a90").status == 404


def test_what_is_posted_or_suppressed_makes_another_version(warehouse: Path) -> None:
    """A staged text comes with the version that folds it; a suppressed one leaves under a new name."""
    import_lines(warehouse, TRANSFER)
    with application(warehouse) as app:
        assert post_text(app, SPAM).status == 201
        assert sigdir.Pack(fetched(app, "/range/signatures/a90").body).lookup("0xa9059cbb") == [TRANSFER]
        assert invoke(warehouse, "fold").status == invoke(warehouse, "suppress", TRANSFER).status == 0
    with application(warehouse) as app:
        assert get(app, "/range/signatures/a90").header("Location").startswith("/range/signatures/a90/2.")
        assert sigdir.Pack(fetched(app, "/range/signatures/a90").body).lookup("0xa9059cbb") == [SPAM]


@pytest.mark.parametrize(("collection", "padded"), [(SIGNATURES, True), (EVENT_SIGNATURES, False)])
def test_ranges_as_files_are_what_a_server_answers(
    ranges: Application, stored: Path, tmp_path: Path, collection: Collection, padded: bool
) -> None:
    """A file for each of the 4,096 prefixes of a collection, byte for byte."""
    options = Options("ranges", str(tmp_path / "out"), stored, collections=(collection,), padded=padded)
    run_export(options, Reporter())
    [folder] = (tmp_path / "out").iterdir()
    assert (folder.name, len(list(folder.iterdir()))) == (collection, 4096)
    for name in ("000", "a90", "095", "ddf", "fff"):
        assert (folder / name).read_bytes() == fetched(ranges, f"/range/{collection}/{name}?padded={padded:d}").body
    with pytest.raises(BadTarget, match="exists already"):
        run_export(Options("ranges", str(tmp_path / "out"), stored), Reporter())
    with pytest.raises(BadTarget, match="--padded is for ranges"):
        run_export(Options("csv", str(tmp_path / "x"), stored, padded=True), Reporter())
