"""Object stores: S3, Google Cloud Storage, Azure, a folder or memory as one, by URL. Only this module names obstore.

How to use it::

    store = open_store("s3://bucket/prefix")      # no request yet; names below are relative to the URL
    store.read("a/b.json")                        # the bytes; MissingObject where there is none
    store.pieces("a/list.txt.gz")                 # the bytes as an iterator of pieces of about 1 MiB
    store.read_range("a/b.parquet", 4, 100)       # 100 bytes from byte 4 on
    store.download("a/b.parquet", path)           # into a file; gives its size and sha256
    store.put("a/b.parquet", path)                # or bytes; replaces what is there
    store.create("log/0001.json", data)           # raises ObjectExists unless this caller made the object
    store.find("a/b.json")                        # an Object (name, size, modified) or None
    store.list("a", after="a/b")                  # the objects of a folder, by name
    store.delete(["a/b.json"])                    # missing ones are no error
    objects_at("s3://bucket/lists")               # the store and its objects that an input's URL names

Invariants
    Of any number of callers that ``create`` one name, one returns; all others get ObjectExists.
    An object that is read is whole, or StoreError is raised: a body that ends early is never taken for one.
    A URL holds no credentials. They come from the environment (``AWS_ACCESS_KEY_ID`` and so on), from the profile
    that ``AWS_PROFILE`` names, or from the machine's role; obstore reads them, and no message contains them.

The usual variables say the rest: ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_VIRTUAL_HOSTED_STYLE_REQUEST``,
``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME``. A request is tried five times, for a minute at most.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from sigdir.signatures.errors import missing_package
from sigdir.signatures.interruption import check
from sigdir.warehouse.table.errors import WarehouseError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "file", "memory")

_UNQUOTED = "/!$&'()*+,:;=@"
"""What a URL's path may have beside letters and digits. A name's %, ? and # would mean something else in it."""
_PIECE_BYTES = 1 << 20
_CREATE_TRIES = 5
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_CLIENT: dict[str, Any] = {
    # obstore ends every request after 30 s by default, the download of a large object too.
    "timeout": timedelta(hours=1), "read_timeout": timedelta(seconds=30), "connect_timeout": timedelta(seconds=5),
}  # fmt: skip
_RETRY: dict[str, Any] = {"max_retries": 4, "retry_timeout": timedelta(minutes=1)}


class StoreError(WarehouseError):
    """A store cannot be reached, refuses the request, or gives something else than was written."""


class MissingObject(StoreError):
    """There is no such object."""


class ObjectExists(StoreError):
    """Another caller has created the object first."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object: its name below the store's URL, its size in bytes, and when it was written, by the store's clock."""

    name: str
    size: int
    modified: datetime


def is_url(text: str) -> bool:
    """Whether a text names a place in a store and not a local file."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.lower() in SCHEMES


def open_store(url: str) -> Store:
    """The store of a URL, without a request; raises StoreError for a URL that is none, or without the library."""
    checked = _checked(url)
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise StoreError(missing_package("a store", "obstore", "store")) from None
    return _open(checked)


def objects_at(url: str) -> tuple[Store, list[Object]]:
    """The one object that a URL names, or all below it, in the order of their names; raises StoreError.

    The store is the one that the names belong to.
    """
    above, _, name = _checked(url).rpartition("/")
    if name and not url.endswith("/") and not above.endswith("/"):
        store = open_store(above)
        found = store.find(unquote(name))
        if found is not None:
            return store, [found]
    store = open_store(url)
    return store, store.list()


def _checked(url: str) -> str:
    """The URL without a slash at its end; raises StoreError. No message quotes what may be a password."""
    try:
        parts = urlsplit(url)
        has_credentials = parts.username is not None or parts.password is not None or "@" in parts.netloc
    except ValueError:
        raise StoreError("a URL of a store that cannot be parsed; write s3://bucket/prefix") from None
    if has_credentials or parts.query or parts.fragment:
        raise StoreError(
            f"{parts.scheme}://...: a URL of a store has a bucket and a prefix and nothing else; credentials come from"
            " the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from AWS_PROFILE"
        )
    if not is_url(url):
        raise StoreError(f"{url}: not a URL of a store; they begin with {', '.join(f'{name}://' for name in SCHEMES)}")
    if any(part in (".", "..") for part in unquote(parts.path).split("/")):
        raise StoreError(f"{url}: a URL of a store has no . and .. in it")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise StoreError(f"{url}: write file:///absolute/path")
    if parts.scheme not in ("file", "memory") and not parts.netloc:
        raise StoreError(f"{url}: names no bucket; write {parts.scheme}://bucket/prefix")
    return url.rstrip("/")


@lru_cache(maxsize=16)
def _open(url: str) -> Store:
    return Store(url)


class Store:
    """The objects below one URL. Safe for use by several threads. Every method raises StoreError."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Without credentials, which a URL never has."""
        self._folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
        self._opened: ObjectStore | None = None

    def __str__(self) -> str:
        return self.url

    def where(self, name: str) -> str:
        """The URL of an object, which messages name it by."""
        return f"{self.url}/{quote(name, safe=_UNQUOTED)}"

    def read(self, name: str) -> bytes:
        """The whole object; raises MissingObject."""
        import obstore

        with self._naming(name):
            return bytes(obstore.get(self._store, name).bytes())

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from byte ``start`` on; raises MissingObject."""
        import obstore

        with self._naming(name):
            return bytes(obstore.get_range(self._store, name, start=start, length=length))

    def pieces(self, name: str) -> Iterator[bytes]:
        """The object from front to back; raises MissingObject, at the first piece too."""
        import obstore

        with self._naming(name):
            got = obstore.get(self._store, name)
            size, seen = got.meta["size"], 0
            for piece in got.stream(min_chunk_size=_PIECE_BYTES):
                check()
                seen += len(piece)
                yield bytes(piece)
        if seen != size:
            raise StoreError(f"{self.where(name)}: ends after {seen:,} of {size:,} bytes")

    def download(self, name: str, to: Path) -> tuple[int, str]:
        """Write the object into a file, and return its size and its sha256 in hex; raises MissingObject, OSError."""
        digest, size = hashlib.sha256(), 0
        with to.open("wb") as file:
            for piece in self.pieces(name):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
        return size, digest.hexdigest()

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object, whole or not at all; what has this name is replaced."""
        import obstore

        with self._naming(name):
            obstore.put(self._store_to_write(), name, content)

    def create(self, name: str, content: bytes) -> None:
        """Write an object that is not there yet; raises ObjectExists. ``content`` must differ from what others write.

        The answer to a request that succeeded may be lost, and the library then asks again: the object that is there
        may be our own. S3 also answers 409 where two requests meet and neither wins. So the object is read back.
        """
        import obstore

        problem: StoreError | None = None
        for _ in range(_CREATE_TRIES):
            try:
                with self._naming(name):
                    obstore.put(self._store_to_write(), name, content, mode="create", use_multipart=False)
                return
            except StoreError as error:
                problem = error
            try:
                found = self.read(name)
            except MissingObject:
                if _is_conflict(problem):
                    continue
                raise problem from None
            except StoreError:
                raise problem from None
            if found == content:
                return
            raise ObjectExists(f"{self.where(name)}: exists already") from None
        raise StoreError(f"{self.where(name)}: the store refused {_CREATE_TRIES} times to create it") from problem

    def find(self, name: str) -> Object | None:
        """The object of this name; None if there is none."""
        import obstore

        try:
            with self._naming(name):
                found = obstore.head(self._store, name)
        except MissingObject:
            return None
        return Object(name, found["size"], found["last_modified"])

    def list(self, folder: str = "", after: str = "") -> list[Object]:
        """The objects below a folder of the store whose names sort after ``after``, by name."""
        import obstore

        try:
            with self._naming(folder):
                chunks = obstore.list(self._store, folder or None, offset=after or None, chunk_size=1000)
                found = [
                    Object(each["path"], each["size"], each["last_modified"]) for chunk in chunks for each in chunk
                ]
        except MissingObject:
            return []
        return sorted((each for each in found if each.name > after), key=lambda each: each.name)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; one that is gone is no error."""
        import obstore

        listed = list(names)
        try:
            with self._naming(listed[0] if listed else ""):
                obstore.delete(self._store, listed)
        except MissingObject:
            for name in listed if len(listed) > 1 else ():  # a folder's store stops at the first that is gone
                self.delete([name])

    def sync(self) -> None:
        """What was put is safe already."""

    @property
    def _store(self) -> ObjectStore:
        """The library's store; raises FileNotFoundError for a folder that is not there."""
        if self._opened is None:
            if self._folder is not None and not self._folder.is_dir():
                raise FileNotFoundError(f"there is no folder {self._folder}")
            self._opened = _library_store(self.url, self._folder)
        return self._opened

    def _store_to_write(self) -> ObjectStore:
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        return self._store

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Turn the library's errors into StoreError, with the object and the reason in one line."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise MissingObject(f"{self.where(name)}: {_reason(error)}") from error
        except (BaseError, OSError) as error:
            raise StoreError(f"{self.where(name)}: {_reason(error)}") from error


def _library_store(url: str, folder: Path | None) -> ObjectStore:
    from obstore.store import LocalStore, MemoryStore, S3Store, from_url

    parts = urlsplit(url)
    if folder is not None:
        return LocalStore(folder)
    if parts.scheme == "memory":
        return MemoryStore()
    client: Any = _CLIENT
    retry: Any = _RETRY
    if parts.scheme == "s3":
        # Plain HTTP is allowed only where the environment names an endpoint with http://.
        client = client | {"allow_http": _endpoint().startswith("http://")}
        return S3Store(
            parts.netloc, prefix=unquote(parts.path).strip("/") or None, client_options=client, retry_config=retry,
            **_aws_profile(),
        )  # fmt: skip
    return from_url(url, client_options=client, retry_config=retry)


def _endpoint() -> str:
    """The endpoint that the environment names, or nothing; raises StoreError for one at which the library would panic."""
    endpoints = [(name, os.environ[name]) for name in _ENDPOINTS if name in os.environ]
    for name, endpoint in endpoints:
        if not is_http_url(endpoint):
            raise StoreError(f"{name}: not the URL of an endpoint; write http://host:port or https://host, or unset it")
    return endpoints[0][1] if endpoints else ""


def is_http_url(url: str) -> bool:
    """Whether a URL begins with http:// or https:// and a host, and its port can be one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _aws_profile() -> dict[str, Any]:
    """The provider of a profile's credentials, where the environment has none itself.

    boto3 knows all kinds of profiles (keys, roles, SSO, programs), and takes 0.2 s to load.
    """
    folder = Path.home() / ".aws"
    files = [os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"]
    files.append(os.environ.get("AWS_CONFIG_FILE") or folder / "config")
    has_profile = "AWS_PROFILE" in os.environ or any(Path(file).is_file() for file in files)
    if "AWS_ACCESS_KEY_ID" in os.environ or not has_profile:
        return {}
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return {"credential_provider": Boto3CredentialProvider()}
    except (BotoCoreError, ValueError) as error:
        if "AWS_PROFILE" not in os.environ:
            return {}  # a file without keys; obstore looks for the machine's role
        raise StoreError(f"AWS profile {os.environ['AWS_PROFILE']!r}: {' '.join(str(error).split())[:300]}") from None


def _is_conflict(error: StoreError) -> bool:
    """Whether the store says that the object exists, or that another request for it is in work."""
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    return isinstance(error.__cause__, AlreadyExistsError | PreconditionError)


_XML = re.compile(r"<Code>([^<]{1,100})</Code>(?:\s*<Message>([^<]{0,300})</Message>)?")

_REFUSED = ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired")
"""What S3 says of credentials with the status of a bad request."""


def _reason(error: Exception) -> str:
    """What a user needs of the library's message, which is followed by a dump of its structures."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    text = str(error).partition("\n\nDebug source")[0]
    found = _XML.search(text)
    if found:
        reason = f"{found[1]}: {found[2]}" if found[2] else found[1]
    else:
        reason = getattr(error, "strerror", None) or " ".join(text.split())[:300] or type(error).__name__
    is_refused = found is not None and found[1] in _REFUSED
    if is_refused or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return f"access denied ({reason}); check the credentials in the environment or the profile"
    return str(reason)
