"""The seam to object stores: a folder, memory, and S3 by a real server on loopback."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sigdir.warehouse.table.stores import MissingObject, ObjectExists, Store, StoreError, is_url, objects_at, open_store
from tests.conftest import ROOT
from tests.faulty_store import BUCKET, KEY, S3, SECRET, Fault, Kind


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind, empty."""
    if request.param == "file":
        return Store(f"file://{tmp_path}/in%20a%20folder")
    if request.param == "memory":
        return Store("memory:///")
    request.getfixturevalue("s3")
    return Store(f"s3://{BUCKET}/{tmp_path.name}")


def test_what_is_written_is_read_back(store: Store, tmp_path: Path) -> None:
    """Bytes and files of any size, whole, in pieces, in ranges and as files."""
    large = bytes(range(256)) * (6 << 12)  # more than one part of an upload
    (tmp_path / "large").write_bytes(large)
    store.put("a/small", b"small")
    store.put("a/b/large", tmp_path / "large")
    store.put("a/empty", b"")
    assert store.read("a/small") == b"small"
    assert store.read("a/empty") == b""
    assert b"".join(store.pieces("a/b/large")) == large
    assert store.read_range("a/b/large", 1000, 7) == large[1000:1007]
    assert store.download("a/b/large", tmp_path / "copy") == (len(large), hashlib.sha256(large).hexdigest())
    assert (tmp_path / "copy").read_bytes() == large
    found = [(each.name, each.size) for each in store.list()]
    assert found == [("a/b/large", len(large)), ("a/empty", 0), ("a/small", 5)]
    assert [each.name for each in store.list("a", after="a/c")] == ["a/empty", "a/small"]
    assert store.list("a/s") == []
    assert getattr(store.find("a/small"), "size", None) == 5


def test_missing_objects(store: Store) -> None:
    """A store without an object says which one is missing."""
    for read in (store.read, lambda name: next(store.pieces(name)), lambda name: store.read_range(name, 0, 1)):
        with pytest.raises(MissingObject, match="no/such"):
            read("no/such")
    assert store.find("no/such") is None
    store.put("there", b"1")
    store.delete(["no/such", "there", "no/other"])
    assert store.list() == store.list("no") == []


def test_one_of_many_creates(store: Store) -> None:
    """Of sixteen callers that create one name, each with other bytes, one wins and the others are told so."""

    def create(number: int) -> int | None:
        try:
            store.create("log/1.json", b"%d" % number)
        except ObjectExists:
            return None
        return number

    with ThreadPoolExecutor(16) as pool:
        winners = [number for number in pool.map(create, range(16)) if number is not None]
    assert len(winners) == 1
    assert store.read("log/1.json") == b"%d" % winners[0]


def test_a_lost_answer_is_no_conflict(s3: S3) -> None:
    """The store made the object and the connection broke: the caller is the one that made it."""
    store = Store(f"s3://{BUCKET}/lost")
    s3.faults.append(Fault("lost answer", "PUT", "entry", times=1))
    store.create("entry", b"ours")
    with pytest.raises(ObjectExists):
        store.create("entry", b"theirs")
    assert store.read("entry") == b"ours"


@pytest.mark.parametrize("kind", ["500", "truncated"])
def test_a_short_failure_is_survived(s3: S3, kind: Kind) -> None:
    """One failed request is asked again."""
    store = Store(f"s3://{BUCKET}/short-{kind}")
    store.put("name", data := b"x" * 100_000)
    s3.faults.append(Fault(kind, "GET", "name", times=1))
    assert b"".join(store.pieces("name")) == data


def test_a_lasting_failure_is_named(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which object and why, in one line, and has no credentials in it; also where nothing listens."""
    store = Store(f"s3://{BUCKET}/lasting")
    store.put("name", b"1" * 1000)
    reasons: dict[Kind, str] = {"500": "InternalError", "expired": "ExpiredToken", "404": "NoSuchKey"}
    for kind, reason in reasons.items():
        s3.faults[:] = [Fault(kind, "GET", "name")]
        with pytest.raises(StoreError, match=rf"^s3://{BUCKET}/lasting/name: .*{reason}") as raised:
            store.download("name", tmp_path / "copy")
        assert not any(part in str(raised.value) for part in ("\n", KEY, SECRET))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StoreError, match=f"s3://{BUCKET}/away/name: "):
        Store(f"s3://{BUCKET}/away").read("name")


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:9000", "localhost:9000", "http://", "http://h:99999"])
def test_an_endpoint_that_is_no_url_is_named(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its variable alone, because its value may have a password; the library would panic."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StoreError, match=r"^AWS_ENDPOINT_URL: not the URL of an endpoint"):
        Store(f"s3://{BUCKET}/never").read("name")


def test_profiles_have_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys in the environment those of the profile are used; a missing profile is named."""
    (tmp_path / "credentials").write_text(f"[own]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_PROFILE", "own")
    store = Store(f"s3://{BUCKET}/profile")
    store.put("name", b"1")
    assert store.read("name") == b"1"
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreError, match="nobody"):
        Store(f"s3://{BUCKET}/profile").read("name")


REFUSED = {
    f"s3://{KEY}:{SECRET}@bucket/prefix": "environment", f"s3://{SECRET}@bucket": "environment",
    f"s3://bucket/prefix?X-Amz-Signature={SECRET}": "environment", f"s3://bucket/prefix#{SECRET}": "environment",
    "s3:///prefix": "names no bucket", "https://bucket/prefix": "begin with s3://",
    "file://host/folder": "file:///absolute/path", "s3://bucket/a/../b": "no . and ..", "s3://[bucket": "cannot be parsed",
}  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
def test_urls_that_are_refused(url: str) -> None:
    """The reason is named; what may be a password is not."""
    with pytest.raises(StoreError) as raised:
        open_store(url)
    assert REFUSED[url] in str(raised.value)
    assert SECRET not in str(raised.value)


def test_what_a_url_names(tmp_path: Path) -> None:
    """An object, or all below it in the order of their names. Local paths are none; nothing is asked before a read."""
    store = open_store(f"file://{tmp_path}")
    for name in ("lists/b.txt", "lists/a.txt", "lists-too.txt"):
        store.put(name, name.encode())
    assert [each.name for each in objects_at(f"file://{tmp_path}/lists")[1]] == ["a.txt", "b.txt"]
    folder, found = objects_at(f"file://{tmp_path}/lists/b.txt")
    assert [folder.read(each.name) for each in found] == [b"lists/b.txt"]
    assert objects_at(f"file://{tmp_path}/nothing")[1] == []
    for url in ("gs://bucket/prefix", "az://container/prefix"):
        assert open_store(f"{url}/").url == url
        assert open_store(url).where("a/b") == f"{url}/a/b"
    assert all(map(is_url, ("s3://bucket", "memory:///")))
    assert not any(map(is_url, ("data", "./s3:/bucket", "https://www.4byte.directory")))


def test_without_the_library() -> None:
    """A process without obstore is told how to install it; nothing of it is imported before."""
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from sigdir.warehouse.table.stores import open_store, StoreError\n"
        "try: open_store('s3://bucket')\n"
        "except StoreError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pip install 'signature-directory[store]'" in done.stdout
