"""Forms: urlencoded ones beside the standard library's reader of them, multipart ones beside falcon's."""

from __future__ import annotations

import io
import tracemalloc
from urllib.parse import parse_qsl

import falcon
import pytest
from falcon.media import MultipartFormHandler
from hypothesis import example, given
from hypothesis import strategies as st

from sigdir.serve.http.bodies import Part, pairs_of, parts_of_form

MIB = 1 << 20
TYPE = "multipart/form-data; boundary=b"
HEAD = b'--b\r\nContent-Disposition: form-data; name="a"'

escapes = st.sampled_from(
    ["a", "%41", "%c3%a9", "%C3", "%", "%4", "%zz", "+", "=", "&", ";", "%26", "%3d", "%2B", "\u00e9", "%00"]
)
pieces = st.sampled_from(
    [b"--b", b"--b\r\n", b"\r\n--b\r\n", b"\r\n--b--", b"\r\n", b"--", b"\r\n\r\n", b"Content-Disposition: form-data; ",
     b'name="a"', b'; name="b"', b'; filename="x"', b"; filename*=utf-8''%C3%A9", b'; filename=""', b"content-disposition: ",
     b"Content-Type: text/plain\r\n", b"Content-Transfer-Encoding: base64\r\n", b"Content-Transfer-Encoding: binary\r\n", b"f()", b"\xff"]
)  # fmt: skip


@given(st.lists(escapes, max_size=20).map("".join))
def test_a_form_is_read_as_the_standard_library_reads_it(form: str) -> None:
    """Blank values, repeated names, escapes that are none, and escapes that are not UTF-8."""
    assert pairs_of(form) == parse_qsl(form, keep_blank_values=True, errors="replace")


@pytest.mark.parametrize(("unit", "first"), [("%41", "A"), ("%ff", "\ufffd"), ("%", "%")])
def test_the_memory_for_a_form_is_bounded(unit: str, first: str) -> None:
    """A megabyte of escapes takes less than 16 beside the body; the standard library's reader takes 36 to 50."""
    body = b"text=" + unit.encode() * (MIB // len(unit))
    pairs_of("warm=%41")
    tracemalloc.start()
    try:
        [(name, value)] = pairs_of(body.decode())
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    assert (name, value[:1]) == ("text", first)


@given(st.lists(pieces, max_size=20).map(b"".join))
@example(HEAD + b'; filename="x"\r\n\r\nf()\r\n--b\r\n' + HEAD[5:] + b"\r\n\r\n\r\n--b--\r\n")
@example(HEAD + b"; filename*=utf-8''%C3%A9\r\n\r\n\r\n--b--")
@example(HEAD + b"\r\nContent-Transfer-Encoding: base64\r\nContent-Transfer-Encoding: binary\r\n\r\nf()\r\n--b--")
def test_a_multipart_form_is_read_as_falcon_reads_it(body: bytes) -> None:
    """The same named parts, or both refuse it."""
    form = MultipartFormHandler().deserialize(io.BytesIO(body), TYPE, len(body))
    expected: list[Part] | None
    try:
        parts = [(part.name, part.filename, part.get_data()) for part in form]
        expected = [Part(name, file_name, memoryview(data)) for name, file_name, data in parts if name is not None]
    except (falcon.HTTPError, ValueError):
        expected = None
    try:
        found: list[Part] | None = list(parts_of_form(body, TYPE, 1000))
    except ValueError:
        found = None
    assert found == expected


BAD = [
    (b"", TYPE, "a boundary is missing"),
    (HEAD + b"\r\n\r\nf()", TYPE, "a boundary is missing"),
    (HEAD + b" " * 2048 + b"\r\n\r\n\r\n--b--", TYPE, "the headers of the part at byte 0 do not end within 1024 bytes"),
    (b"x--b y", TYPE, "no line end after the boundary at byte 1"),
    (b"--b--" + b"\r\n--b" * 1001, TYPE, "over 1000 parts"),
    (b"--b--", "multipart/form-data", "no boundary of 1 to 70 bytes in the content type"),
    (b"--b--", TYPE + " " * 2048, "no boundary of 1 to 70 bytes in the content type"),
]


@pytest.mark.parametrize(("body", "content_type", "message"), BAD)
def test_a_form_that_is_refused_says_why(body: bytes, content_type: str, message: str) -> None:
    """What is wrong, and at which byte."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        list(parts_of_form(body, content_type, 1000))
