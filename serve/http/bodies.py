"""Request bodies: JSON, urlencoded and multipart forms, each bounded, with the errors of 4byte.directory's API.

Urlencoded names and values are those of query strings too. falcon decodes them: ``urllib.parse`` takes 750 MB for 15
MB of percent-escapes, a list item for each.

A multipart form (RFC 7578) is in memory, so a part is found by ``bytes.find``, which is linear. falcon's reader
buffers a stream, and copies its buffer at each piece of a delimiter: 15 MiB of them took minutes.

Answers that are written while they are sent, and how many of them a worker sends at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote

import falcon
from falcon.uri import decode

from sigdir.serve.http.answers import detail, field_error, packed, unavailable, unsupported
from sigdir.warehouse.index.view import this_takes_long


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Names and values of a query string or an urlencoded body in their order, blank ones too.

    An escape that is none stays as it is; what is not UTF-8 is replaced.
    """
    parts = (part.partition("=") for part in text.split("&") if part)
    return [(decode(name), decode(value)) for name, _, value in parts]


FAR = 2**62
"""Higher than every time and every page number."""
_MAX_DIGITS = 18


def whole_number(value: str) -> int | None:
    """A number of at most 18 digits; None for anything else."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS else None


def is_on(request: falcon.Request, name: str) -> bool:
    """Whether a parameter is there with another value than 0 and false; Python writes False."""
    return request.get_param(name, default="").lower() not in ("", "0", "false")


def positive(value: str) -> int | None:
    """A whole number above zero, with or without blanks around it; FAR if it has too many digits."""
    digits = value.strip().removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0")
    if not digits:
        return None
    return int(digits) if len(digits) <= _MAX_DIGITS else FAR


_PIECE = 1 << 20
_MAX_FIELDS = 1000
_MAX_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a multipart form, and its name at the client."""

    data: bytes
    name: str = ""


_CUTS_SHORT = "Granian"
"""This server passes a chunked body on as whole where its client hangs up in the middle (2.8)."""


def read_body(request: falcon.Request, limit: int) -> bytes:
    """The whole body; raises HttpError, 415 where it is packed, 413 where it is over ``limit`` bytes."""
    coding = request.get_header("Content-Encoding") or "identity"
    if coding.strip().lower() != "identity":
        problem = f'Unsupported content coding "{coding[:80]}" in request; send the body as it is.'
        raise detail(415, problem, {"Accept-Encoding": "identity"})
    length = request.content_length
    if length is None and request.get_header("Transfer-Encoding") and request.env.get("SERVER_SOFTWARE") == _CUTS_SHORT:
        raise detail(411, "Send the body with a Content-Length.")
    if length is not None and length > limit:
        raise detail(413, f"Request body over {limit} bytes.")
    stream = request.bounded_stream if length is not None else request.stream
    body: bytes = stream.read(limit + 1)
    if len(body) > limit:
        raise detail(413, f"Request body over {limit} bytes.")
    if length is not None and len(body) < length:
        raise detail(400, "Request body cut short.")
    return body


def pieces_of(request: falcon.Request, limit: int) -> Iterator[bytes]:
    """The body in pieces, at most a byte more than ``limit``: so ``read_body`` of what was read says what it says here.

    Where the client goes away the pieces end.
    """
    stream = request.bounded_stream if request.content_length is not None else request.stream
    left = limit + 1
    with suppress(OSError):
        while left and (piece := stream.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def peeked(request: falcon.Request, limit: int) -> bytes:
    """The body, at most a byte more than ``limit``, before anything else reads it; what reads it later gets the same."""
    body, length = b"", request.content_length
    with suppress(OSError):
        body = request.stream.read(limit + 1 if length is None else min(length, limit + 1))
    request.stream = request.env["wsgi.input"] = BytesIO(body)
    return body


def fields_of(request: falcon.Request, limit: int) -> dict[str, Any]:
    """The fields of a body: JSON values as they are, form values as str, files as Upload.

    Of repeated fields the last one counts. Raises HttpError.
    """
    return _as_fields(_value_of(request, limit))


def fields_or_list(request: falcon.Request, limit: int) -> dict[str, Any] | list[Any]:
    """The same, or the values of a JSON list."""
    value = _value_of(request, limit)
    return value if isinstance(value, list) else _as_fields(value)


def _value_of(request: falcon.Request, limit: int) -> Any:
    body = read_body(request, limit)
    content_type = request.content_type or ""
    media_type = content_type.partition(";")[0].strip().lower()
    if not body and (media_type == "" or media_type in _READERS):
        return {}
    reader = _READERS.get(media_type)
    if reader is None:
        raise unsupported(content_type)
    return reader(body, content_type)


def loads(text: str) -> Any:
    """The JSON value of a text; raises ValueError, RecursionError.

    Too many values are a ValueError: 16 MiB of ``[],`` would take half a gigabyte.
    """
    if len(text) > _MAX_VALUES and sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise ValueError(f"over {_MAX_VALUES} values")
    return json.loads(text)


def _json(body: bytes, _: str) -> Any:
    try:
        return loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise detail(400, f"JSON parse error - not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise detail(400, "JSON parse error - nested too deeply") from None
    except ValueError as error:
        raise detail(400, f"JSON parse error - {error}") from None


def _as_fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        kind = "NoneType" if value is None else type(value).__name__
        raise field_error("non_field_errors", f"Invalid data. Expected a dictionary, but got {kind}.")
    return value


def _form(body: bytes, _: str) -> dict[str, Any]:
    if body.count(b"&") >= _MAX_FIELDS:
        raise detail(400, "Form parse error - Max number of fields exceeded")
    return dict(pairs_of(body.decode("utf-8", "replace")))


def _multipart(body: bytes, content_type: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    try:
        for part in parts_of_form(body, content_type, _MAX_FIELDS):
            is_file = part.file_name is not None
            fields[part.name] = (
                Upload(bytes(part.data), part.file_name or "") if is_file else str(part.data, "utf-8", "replace")
            )
    except ValueError as error:
        raise detail(400, f"Multipart form parse error - {error}") from None
    return fields


_READERS: dict[str, Callable[[bytes, str], Any]] = {
    "application/json": _json,
    "application/x-www-form-urlencoded": _form,
    "multipart/form-data": _multipart,
}


def text_field(fields: dict[str, Any], name: str) -> str:
    """A text field, trimmed; raises HttpError if it is missing, null or blank, as 4byte.directory does."""
    if name not in fields:
        raise field_error(name, "This field is required.")
    value = fields[name]
    if value is None:
        raise field_error(name, "This field may not be null.")
    if isinstance(value, Upload):
        value = value.data.decode("utf-8", "replace")
    if isinstance(value, dict | list):
        value = json.dumps(value)  # an ABI as it is, not as the text of one
    text = (value if isinstance(value, str) else str(value)).strip()
    if not text:
        raise field_error(name, "This field may not be blank.")
    return text


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
    lines = (line.partition(b": ") for line in head.split(_LINE_END))
    fields = [(name.lower(), value) for name, colon, value in lines if colon]
    if any(name == b"content-transfer-encoding" and value != b"binary" for name, value in fields):
        raise ValueError("Content-Transfer-Encoding is deprecated and not read")
    return falcon.parse_header(dict(fields).get(b"content-disposition", b"").decode())[1]


def _file_name(disposition: dict[str, str]) -> str | None:
    """``filename*``, which RFC 7578 forbids and some clients send, is a charset, a language and an escaped name."""
    escaped = disposition.get("filename*")
    return disposition.get("filename") if escaped is None else unquote(escaped.rpartition("'")[2])


WHOLE_BYTES = 1 << 20
"""The longest answer that is put together in memory; a longer one is a stream."""
SHORT_BYTES = 1 << 18
"""A longer answer takes long to render, a millisecond or more: lookups of the longest texts have megabytes."""


class StreamLimit:
    """Permits for streaming answers: a client that reads slowly holds a thread of the worker.

    One object serves all streaming routes.
    """

    def __init__(self, most: int) -> None:
        self._permits = threading.BoundedSemaphore(most)

    def stream(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that holds a permit until it ends or is closed; raises HttpError, 503."""
        this_takes_long()
        if not self._permits.acquire(blocking=False):
            raise unavailable("Too many downloads at once.")
        return Stream(chunks, lambda _: self._permits.release())

    def send(self, req: falcon.Request, resp: falcon.Response, chunks: Iterator[bytes], size: int) -> None:
        """Answer with chunks of ``size`` bytes or fewer. Raises as ``stream``.

        Up to WHOLE_BYTES they are one body, packed as the client takes it; beyond they are a stream, which is not packed.
        """
        if req.method == "HEAD":
            resp.stream = ()
        elif size <= WHOLE_BYTES:
            resp.data = packed(req, resp, b"".join(chunks))
        else:
            resp.stream = self.stream(chunks)


class Stream:
    """A streamed body. ``end`` gets the bytes that were taken, once: at the end, at an error, or when it is closed."""

    def __init__(self, chunks: Iterable[bytes], end: Callable[[int], object]) -> None:
        self._chunks, self._source = iter(chunks), chunks
        self._end: Callable[[int], object] | None = end
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except BaseException:
            self.close()
            raise
        self._size += len(chunk)
        return chunk

    def close(self) -> None:
        end, self._end = self._end, None
        if end is None:
            return
        try:
            getattr(self._source, "close", tuple)()
        finally:
            end(self._size)

    __del__ = close  # for servers that do not close what they were given
