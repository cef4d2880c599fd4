"""Multipart forms, beside falcon's reader of them."""

from __future__ import annotations

import io

import falcon
import pytest
from falcon.media import MultipartFormHandler
from hypothesis import example, given
from hypothesis import strategies as st

from sigdir.serve.http.bodies import Part, parts_of_form

TYPE = "multipart/form-data; boundary=b"
pieces = st.sampled_from(
    [b"--b", b"--b\r\n", b"\r\n--b\r\n", b"\r\n--b--", b"\r\n", b"--", b"\r\n\r\n", b"Content-Disposition: form-data; ",
     b'name="a"', b'; name="b"', b'; filename="x"', b"; filename*=utf-8''%C3%A9", b'; filename=""', b"content-disposition: ",
     b"Content-Type: text/plain\r\n", b"Content-Transfer-Encoding: base64\r\n", b"Content-Transfer-Encoding: binary\r\n", b"f()", b"\xff"]
)  # fmt: skip
HEAD = b'--b\r\nContent-Disposition: form-data; name="a"'


@given(st.lists(pieces, max_size=20).map(b"".join))
@example(HEAD + b'; filename="x"\r\n\r\nf()\r\n--b\r\n' + HEAD[5:] + b"\r\n\r\n\r\n--b--\r\n")
@example(HEAD + b"; filename*=utf-8''%C3%A9\r\n\r\n\r\n--b--")
def test_a_form_is_read_as_falcon_reads_it(body: bytes) -> None:
    """The same named parts, or both refuse it."""
    assert _parts(body) == _parts_by_falcon(body)


def _parts(body: bytes) -> list[Part] | None:
    try:
        return list(parts_of_form(body, TYPE, 1000))
    except ValueError:
        return None


def _parts_by_falcon(body: bytes) -> list[Part] | None:
    form = MultipartFormHandler().deserialize(io.BytesIO(body), TYPE, len(body))
    try:
        parts = [(part.name, part.filename, part.get_data()) for part in form]
    except (falcon.HTTPError, ValueError):
        return None
    return [Part(name, file_name, memoryview(data)) for name, file_name, data in parts if name is not None]


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"", TYPE, "a boundary is missing"),
        (HEAD + b"\r\n\r\nf()", TYPE, "a boundary is missing"),
        (
            HEAD + b" " * 2048 + b"\r\n\r\n\r\n--b--",
            TYPE,
            "the headers of the part at byte 0 do not end within 1024 bytes",
        ),
        (b"x--b y", TYPE, "no line end after the boundary at byte 1"),
        (b"--b--" + b"\r\n--b" * 1001, TYPE, "over 1000 parts"),
        (b"--b--", "multipart/form-data", "no boundary of 1 to 70 bytes in the content type"),
        (b"--b--", TYPE + " " * 2048, "no boundary of 1 to 70 bytes in the content type"),
    ],
)
def test_a_form_that_is_refused_says_why(body: bytes, content_type: str, message: str) -> None:
    """What is wrong, and at which byte."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        list(parts_of_form(body, content_type, 1000))
