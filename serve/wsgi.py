"""The application for other WSGI servers: ``gunicorn sigdir.serve.wsgi:app``, settings from SIGDIR_ variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from sigdir.serve.budget import BudgetProcess
from sigdir.serve.servers.startup import open_app
from sigdir.serve.servers.supervisor import ensure_warehouse
from sigdir.serve.settings import Settings


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request. The first one opens the warehouse, in the process that serves it."""
    answer: Iterable[bytes] = _opened()(environ, start_response)
    return answer


@cache
def _opened() -> Any:
    settings = Settings.from_environment().as_the_medium_allows()
    ensure_warehouse(settings)
    return open_app(settings, budget=BudgetProcess(settings))
