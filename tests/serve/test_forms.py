"""Urlencoded forms, beside the standard library's reader of them."""

from __future__ import annotations

import tracemalloc
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.serve.http.bodies import pairs_of_form

MIB = 1 << 20

pieces = st.sampled_from(
    ["a", "%41", "%c3%a9", "%C3", "%", "%4", "%zz", "+", "=", "&", "%26", "%3d", "%2B", "\u00e9", "%00"]
)


@given(st.lists(pieces, max_size=20).map("".join))
def test_a_form_is_read_as_the_standard_library_reads_it(form: str) -> None:
    """Blank values, repeated names, escapes that are none, and escapes that are not UTF-8."""
    assert list(pairs_of_form(form.encode())) == parse_qsl(form, keep_blank_values=True, errors="replace")


@pytest.mark.parametrize("unit", [b"%41", b"+", b"%ff", b"%", b"a"])
def test_the_memory_for_a_form_is_bounded(unit: bytes) -> None:
    """15 MB of escapes take less than 64 MiB beside the body; the standard library's reader takes 550 to 750 MB."""
    body = b"text=" + unit * (15 * MIB // len(unit))
    list(pairs_of_form(b"warm=%41"))
    tracemalloc.start()
    try:
        [(name, value)] = pairs_of_form(body)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    assert (name, value[:1]) == ("text", {b"%41": "A", b"+": " ", b"%ff": "\ufffd"}.get(unit, unit.decode()))
