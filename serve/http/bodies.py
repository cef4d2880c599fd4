"""Request bodies: JSON, urlencoded and multipart forms, each bounded, with the errors of 4byte.directory's API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import falcon

from sigdir.serve.http.errors import detail, field_error
from sigdir.serve.http.forms import pairs_of_form
from sigdir.serve.http.multipart import parts_of_form

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
    """The whole body; raises HttpError, 413 where it is over ``limit`` bytes."""
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
    return _as_fields(fields_or_list(request, limit))


def fields_or_list(request: falcon.Request, limit: int) -> dict[str, Any] | list[Any]:
    """The same, or the values of a JSON list."""
    body = read_body(request, limit)
    content_type = request.content_type or ""
    media_type = content_type.partition(";")[0].strip().lower()
    if not body and (media_type == "" or media_type in _READERS):
        return {}
    reader = _READERS.get(media_type)
    if reader is None:
        raise detail(415, f'Unsupported media type "{content_type}" in request.')
    return reader(body, content_type)


def loads(text: str) -> Any:
    """The JSON value of a text; raises ValueError, RecursionError.

    Too many values are a ValueError: 16 MiB of ``[],`` would take half a gigabyte.
    """
    if len(text) > _MAX_VALUES and sum(map(text.count, ",[{")) > _MAX_VALUES:
        raise ValueError(f"over {_MAX_VALUES} values")
    return json.loads(text)


def _json(body: bytes, _: str) -> dict[str, Any] | list[Any]:
    value = _json_value(body)
    return value if isinstance(value, list) else _as_fields(value)


def _json_value(body: bytes) -> Any:
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
    return dict(pairs_of_form(body))


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


_READERS: dict[str, Callable[[bytes, str], dict[str, Any] | list[Any]]] = {
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
    text = (value if isinstance(value, str) else str(value)).strip()
    if not text:
        raise field_error(name, "This field may not be blank.")
    return text
