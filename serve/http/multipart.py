"""Multipart forms (RFC 7578). The body is in memory, so a part is found by ``bytes.find``, which is linear.

falcon's reader buffers a stream, and copies its buffer at each piece of a delimiter: 15 MiB of them took minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

import falcon

_LINE_END = b"\r\n"
_MAX_HEAD = 1024
"""The most bytes of a content type, and of a part's headers: their parameters are parsed in quadratic time."""
_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1


class Part(NamedTuple):
    name: str
    file_name: str | None
    """None if the part is no file."""
    data: memoryview
    """Of the body, which may have 16 MiB."""


def parts_of_form(body: bytes, content_type: str, most: int) -> Iterator[Part]:
    """The named parts of a body in order; raises ValueError where it is no form, or has more than ``most`` boundaries."""
    boundary = _boundary(content_type)
    at = body.find(b"--" + boundary)
    delimiter = _LINE_END + b"--" + boundary
    if body.count(delimiter) > most:
        raise ValueError(f"over {most} parts")
    start = at + len(boundary) + 2
    while at >= 0 and not body.startswith(b"--", start):
        if not body.startswith(_LINE_END, start):
            raise ValueError(f"no line end after the boundary at byte {at}")
        start += 2
        head_end = body.find(2 * _LINE_END, start, start + _MAX_HEAD)
        if head_end < 0:
            raise ValueError(f"the headers of the part at byte {at} do not end within {_MAX_HEAD} bytes")
        data_start = head_end + 4
        at = body.find(delimiter, data_start)
        if at < 0:
            break
        disposition = _disposition(body[start:head_end])
        if (name := disposition.get("name")) is not None:
            yield Part(name, _file_name(disposition), memoryview(body)[data_start:at])
        start = at + len(delimiter)
    if at < 0:
        raise ValueError("a boundary is missing")


def _boundary(content_type: str) -> bytes:
    parameters = falcon.parse_header(content_type)[1] if len(content_type) <= _MAX_HEAD else {}
    boundary = parameters.get("boundary", "").rstrip().encode()
    if not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise ValueError(f"no boundary of 1 to {_MAX_BOUNDARY} bytes in the content type")
    return boundary


def _disposition(head: bytes) -> dict[str, str]:
    """The parameters of a part's Content-Disposition."""
    headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in head.split(_LINE_END))}
    if headers.get(b"content-transfer-encoding", b"binary") != b"binary":
        raise ValueError("Content-Transfer-Encoding is deprecated and not read")
    return falcon.parse_header(headers.get(b"content-disposition", b"").decode())[1]


def _file_name(disposition: dict[str, str]) -> str | None:
    """``filename*``, which RFC 7578 forbids and some clients send, is a charset, a language and an escaped name."""
    escaped = disposition.get("filename*")
    return disposition.get("filename") if escaped is None else unquote(escaped.rpartition("'")[2])
