"""The application for other WSGI servers: ``gunicorn sigdir.serve.wsgi:app``, settings from SIGDIR_ variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from threading import Lock
from typing import Any

from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.start import ensure_warehouse
from sigdir.serve.servers.startup import open_app
from sigdir.signatures.open_files import allow_open_files

_settings = Settings.from_environment()  # a worker does not start with one that is wrong
_opening = Lock()


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request. The first one opens the warehouse, in the process that serves it."""
    with _opening:
        opened = _opened()
    answer: Iterable[bytes] = opened(environ, start_response)
    return answer


@cache
def _opened() -> Any:
    allow_open_files()
    settings = _settings.as_the_medium_allows()
    ensure_warehouse(settings)
    opened, _ = open_app(settings)
    return opened
