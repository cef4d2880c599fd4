"""The settings of a server, read once from options of the command line or from SIGDIR_ variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import click

from sigdir.warehouse.table.files import is_read_only
from sigdir.warehouse.table.paths import Paths

if TYPE_CHECKING:  # `sigdir serve --help` does without
    import falcon

MIB = 1 << 20

COUNTS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which processes keep their counts."""

SCHEMES = ("http", "https")
HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
"""A name, an IPv4 or a bracketed IPv6 address, with a port or without one."""


def _boolean(value: str) -> bool:
    """As the command reads it; raises ValueError."""
    try:
        return bool(click.BOOL.convert(value, None, None))
    except click.BadParameter as error:
        raise ValueError(error.message) from None


_READERS: dict[Any, Callable[[str], Any]] = {bool: _boolean, Path | None: Path}
"""How the value of a variable is read, for types that do not read it themselves."""


class ThreadShares(NamedTuple):
    """Threads for answers that are streams, for costly requests, and for those that take seconds."""

    streams: int
    costly: int
    patient: int


@dataclass(frozen=True, slots=True)
class Settings:
    """``max_body`` bounds a POST, ``max_import_body`` the two imports; both in bytes.

    Links begin with ``public_url`` (scheme and host); without it with what the request or a trusted proxy names.
    ``read_only`` refuses each POST that would store; with a ``write_token`` such a POST must name it.
    """

    warehouse: Path = Path("data")
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    threads: int = 8
    max_body: int = MIB
    max_import_body: int = 16 * MIB
    fold_every: float = 60.0
    trust_proxy: bool = False
    public_url: str = ""
    log_requests: bool = True
    read_only: bool = False
    write_token: str = field(default="", repr=False)
    silent_seconds: float = 10.0
    """A worker of waitress whose loop has not run for so long is replaced; 0 for never."""
    cache: Path | None = None
    """Where a server over a read-only warehouse keeps what it derives; a temporary folder if it is None."""
    follow_store: str = ""
    """The URL of a store. The warehouse is then the working copy of the one in the store, and the server a replica."""
    primary_url: str = ""
    """Scheme and host of the server that takes the POSTs which a replica refuses."""
    rank_lists: bool = False
    """Whether a lookup of whole hashes in 4byte.directory's lists answers in the order of rank, filtered."""
    rpc: str = field(default="", repr=False)
    """The URL of a node that the decode page asks for transactions; it may hold a key."""
    mcp: bool = False
    """Whether agents may ask by the Model Context Protocol."""
    sql: bool = False
    """Whether anybody may run SQL that reads, in a process of its own."""
    sql_seconds: float = 1.0
    """How long a query may take; a request may ask for less."""
    sql_queries: Path | None = None
    """A file of named queries."""
    solve: bool = False
    """Whether a page looks for texts of hashes that nobody knows."""
    count_misses: bool = False
    """Whether lookups that find nothing are counted by hash."""

    @property
    def is_patient(self) -> bool:
        """Whether some requests may take seconds, in a process of their own."""
        return self.sql or self.solve

    @property
    def thread_shares(self) -> ThreadShares:
        """How many of a worker's threads may be held at once by what takes long; from five on, one is left for the others."""
        patient = max(1, self.threads // 4) if self.is_patient else 0
        costly = self.threads // 2 - patient - bool(self.rpc)
        return ThreadShares(max(1, self.threads // 2 - 1), max(1, costly), patient)

    @property
    def paths(self) -> Paths:
        """Those of the warehouse, with the folder of what is derived from it where the medium is read-only."""
        return Paths(self.warehouse.absolute(), self.cache if self.on_read_only_media else None)

    @property
    def on_read_only_media(self) -> bool:
        """Whether the warehouse is there and cannot be written."""
        return is_read_only(self.warehouse)

    def as_the_medium_allows(self) -> Settings:
        """The same settings; on read-only media, and for the copy of a store, without POST and without folding."""
        if not self.on_read_only_media and not self.follow_store and not self.paths.store.exists():
            return self
        return replace(self, read_only=True, fold_every=0.0)

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings that the variables name, the defaults for others and for empty ones, as with the command.

        Raises ValueError, which names the variable.
        """
        kinds = get_type_hints(cls)
        given: dict[str, Any] = {}
        for each in fields(cls):
            variable, kind = f"SIGDIR_{each.name.upper()}", kinds[each.name]
            if value := os.environ.get(variable):
                try:
                    given[each.name] = _READERS.get(kind, kind)(value)
                except ValueError as error:
                    raise ValueError(f"{variable}: {error}") from None
        settings = cls(**given | {"write_token": write_token()})
        for name, url in (("SIGDIR_PUBLIC_URL", settings.public_url), ("SIGDIR_PRIMARY_URL", settings.primary_url)):
            if url and not is_origin(url):
                raise ValueError(f"{name}: {url!r} is not a scheme and a host, as https://example.org")
        return settings


def is_origin(url: str) -> bool:
    """Whether ``url`` is a scheme and a host, as ``https://example.org:8443``, and nothing more."""
    scheme, _, host = url.partition("://")
    return scheme in SCHEMES and HOST_PATTERN.fullmatch(host) is not None


_WRITE_TOKEN = "SIGDIR_WRITE_TOKEN"  # noqa: S105 - the name of the variable


def write_token() -> str:
    """The token of the variable SIGDIR_WRITE_TOKEN, empty if there is no such variable.

    Raises ValueError if it is empty or cannot be sent in a header: a server that then took every POST would
    surprise its operator. It is a variable and not an option, because other users see the options of a process.
    """
    token = os.environ.get(_WRITE_TOKEN)
    if token is not None and not re.fullmatch("[!-~]+", token):
        problem = "must be ASCII characters without spaces" if token else "is empty"
        raise ValueError(f"{_WRITE_TOKEN} {problem}; unset it to take every POST")
    return token or ""


def base_url(req: falcon.Request, settings: Settings) -> str:
    """Scheme and host that links begin with: the public URL of the settings, else the client's request.

    Of a trusted proxy we read X-Forwarded-Proto and X-Forwarded-Host alone. Many proxies pass the client's own
    Forwarded header on, so it is not read. A value that is not a scheme or a host counts as not sent.
    """
    if settings.public_url:
        return settings.public_url
    if not settings.trust_proxy:
        return f"{req.scheme}://{req.netloc}"
    scheme = req.env.get("HTTP_X_FORWARDED_PROTO", "").lower()
    host = req.env.get("HTTP_X_FORWARDED_HOST", "")
    return f"{scheme if scheme in SCHEMES else req.scheme}://{host if HOST_PATTERN.fullmatch(host) else req.netloc}"
