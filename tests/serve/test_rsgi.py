"""The WSGI environ that the application gets for a request of granian."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from sigdir.serve.servers.rsgi import RsgiApp, environ_of
from sigdir.serve.settings import Settings


def environ(*headers: tuple[str, str], **more: str) -> dict[str, Any]:
    scope = {"method": "GET", "path": "/", "query_string": "", "http_version": "1.1", "scheme": "http"}
    scope |= {"client": "192.0.2.1:50000"} | more
    return environ_of(SimpleNamespace(**scope, headers=dict_of(headers)))


def dict_of(headers: tuple[tuple[str, str], ...]) -> Any:
    """Headers as RSGI gives them: a repeated one is there twice."""
    return SimpleNamespace(items=lambda: list(headers))


def test_a_request_has_the_names_of_wsgi() -> None:
    """Method, path, query and version; the two headers that have other names in WSGI."""
    given = environ(
        ("host", "a"), ("content-type", "text/plain"), ("content-length", "5"), ("if-none-match", '"x"'),
        method="POST", path="/p/", query_string="q=1", http_version="1",
    )  # fmt: skip
    assert given == {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/p/", "QUERY_STRING": "q=1", "SERVER_PROTOCOL": "HTTP/1.0",
        "REMOTE_ADDR": "192.0.2.1", "wsgi.url_scheme": "http", "HTTP_HOST": "a", "CONTENT_TYPE": "text/plain", "CONTENT_LENGTH": "5",
        "HTTP_IF_NONE_MATCH": '"x"',
    }  # fmt: skip


def test_text_is_bytes_as_latin_1() -> None:
    """PEP 3333 requires strings of bytes decoded as Latin-1."""
    assert environ(path="/\u20ac/")["PATH_INFO"] == "/\u20ac/".encode().decode("latin-1")


def test_repeated_headers_are_joined() -> None:
    """Repeated headers are joined by commas, cookies by semicolons."""
    given = environ(("accept", "a/b"), ("accept", "c/d"), ("cookie", "e=f"), ("cookie", "g=h"))
    assert (given["HTTP_ACCEPT"], given["HTTP_COOKIE"]) == ("a/b,c/d", "e=f;g=h")


def test_a_header_with_an_underscore_passes_for_no_other() -> None:
    """A proxy that sets X-Forwarded-Host does not remove X_Forwarded_Host."""
    given = environ(("x_forwarded_host", "evil.test"), ("x_a", "b"))
    assert not [name for name in given if name.startswith("HTTP_")]


def test_a_client_has_an_address_without_its_port() -> None:
    assert environ(client="[2001:db8::1]:50000")["REMOTE_ADDR"] == "2001:db8::1"


@pytest.mark.parametrize("is_short", [True, False])
def test_a_short_request_is_answered_on_the_event_loop(is_short: bool) -> None:
    """Any other is answered by a thread."""
    threads = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        threads.append(threading.get_ident())
        start_response("200 OK", [])
        return []

    async def ask() -> int:
        scope = SimpleNamespace(
            method="GET", path="/", query_string="", http_version="1.1", scheme="http", client="192.0.2.1:5",
            headers=dict_of(()),
        )  # fmt: skip
        protocol = SimpleNamespace(response_bytes=lambda *_: None)
        await RsgiApp(app, Settings(threads=2), lambda *_: is_short).__rsgi__(scope, protocol)
        return threading.get_ident()

    with ThreadPoolExecutor(1) as pool:  # a test of the pages may have left a running loop in this thread
        loop = pool.submit(lambda: asyncio.run(ask())).result()
    assert (threads == [loop]) is is_short
