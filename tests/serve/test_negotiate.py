"""Which representation a request gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.serve.http.bodies import format_of
from sigdir.serve.http.errors import HttpError
from sigdir.serve.http.negotiate import HTML, JSON, coding_for, is_list_wanted, representation

FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"
SAFARI = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

NEITHER = {"detail": "Could not satisfy the request Accept header."}
NOT_FOUND = {"detail": "Not found."}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("application/json; indent=4", JSON),
        ("application/json;charset=utf-8", JSON),
        ("APPLICATION/JSON", JSON),
        (" application/json ", JSON),
        ("application/json, text/plain, */*", JSON),
        ("application/xml, application/json", JSON),
        ("application/json, text/html", JSON),
        ("text/html, application/json", JSON),
        ("application/json;q=0.5, */*;q=0.1", JSON),
        ("text/html;q=0.5, application/json;q=0.9", JSON),
        ("text/html;q=0, */*", JSON),
        ("text/html;q=0.1, */*;q=0.9", JSON),
        ("text/html", HTML),
        ("TEXT/HTML", HTML),
        ("text/*", HTML),
        ("text/html, */*", HTML),
        ("text/html;q=0.9, application/json;q=0.5", HTML),
        ("application/json;q=0, */*", HTML),
        (FIREFOX, HTML),
        (CHROME, HTML),
        (SAFARI, HTML),
    ],
)
def test_what_an_accept_gets(accept: str, kind: str) -> None:
    """JSON unless HTML is named more closely or wanted more."""
    assert representation(accept, "") == kind


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml", "text/plain", "image/*", "application/xml, text/csv", "application/json;q=0",
        "text/html;q=0", "*/*;q=0", "application/json;q=0, text/html;q=0.0", "json", "application", ",", ";", "*/json",
    ],
)  # fmt: skip
def test_who_takes_neither_is_refused(accept: str) -> None:
    """An Accept that allows neither JSON nor HTML is 406."""
    with pytest.raises(HttpError) as refused:
        representation(accept, "")
    assert (refused.value.status, refused.value.body) == (406, NEITHER)


@pytest.mark.parametrize(
    ("accept", "format", "kind"),
    [
        ("", "json", JSON), ("*/*", "json", JSON), ("application/json", "json", JSON), (FIREFOX, "json", JSON),
        ("text/html, */*;q=0.1", "json", JSON), ("application/*", "json", JSON),
        ("", "api", JSON), ("*/*", "api", JSON), ("application/json", "api", JSON), (FIREFOX, "api", HTML),
        ("text/html", "api", HTML), ("text/html, application/json;q=0.9", "api", HTML),
        ("application/json, text/html;q=0.9", "api", JSON), ("application/xml", "api", JSON),
    ],
)  # fmt: skip
def test_what_a_format_gets(accept: str, format: str, kind: str) -> None:
    """format=json is JSON alone; format=api is HTML for who prefers it and JSON for all others."""
    assert representation(accept, format) == kind


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "text/*", "application/json;q=0"])
def test_format_json_refuses_who_does_not_take_json(accept: str) -> None:
    """format=json does not overrule an Accept that leaves JSON out."""
    with pytest.raises(HttpError) as refused:
        representation(accept, "json")
    assert (refused.value.status, refused.value.body) == (406, NEITHER)


@pytest.mark.parametrize("format", ["xml", "JSON", "html", "api ", "csv", "\0", "é"])
@pytest.mark.parametrize("accept", ["", "application/json", "application/xml", FIREFOX])
def test_an_unknown_format_is_not_found(accept: str, format: str) -> None:
    """Any other format is 404, whatever Accept is."""
    with pytest.raises(HttpError) as refused:
        representation(accept, format)
    assert (refused.value.status, refused.value.body) == (404, NOT_FOUND)


@pytest.mark.parametrize(
    ("query", "format"),
    [
        ("", ""), ("page=2", ""), ("format=json", "json"), ("page=2&format=api", "api"), ("format", ""),
        ("format=json&format=api", "api"), ("%66ormat=json", "json"), ("format=%6Ason", "json"),
        ("formats=json", ""), ("text_signature=format", ""),
    ],
)  # fmt: skip
def test_the_format_of_a_query(query: str, format: str) -> None:
    """Escaped names and values count; of repeated ones the last."""
    assert format_of(query) == format


@given(
    st.one_of(st.text("ahjlmnoptx/*;q=01.9, ", max_size=40), st.text(max_size=40)), st.sampled_from(["", "json", "api"])
)
def test_any_accept_is_answered_or_refused(accept: str, format: str) -> None:
    """Whatever an Accept holds, the outcome is one of the two kinds or 406."""
    try:
        outcome: str | int = representation(accept, format)
    except HttpError as refused:
        outcome = refused.status
    assert outcome in (JSON, HTML, 406)


@pytest.mark.parametrize("filling", [",", "a,", ";", "text/html;q=0.1,"])
def test_what_follows_a_thousand_characters_is_not_read(filling: str) -> None:
    """Of Accept and Accept-Encoding: a header of 60 kB took 0.1 s, and each was kept."""
    beyond = filling * 1000
    assert representation("application/json," + beyond + ",text/html", "") == JSON
    assert is_list_wanted("application/x-ndjson," + beyond + ",application/json", "") is False
    assert coding_for("gzip," + beyond + ",zstd") == "gzip"
    assert coding_for(beyond + ",gzip") == ""
