"""Which representation a request gets."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.serve.http.answers import HTML, JSON, HttpError, coding_for, is_list_wanted, representation

FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
SAFARI = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

NEITHER = {"detail": "Could not satisfy the request Accept header."}
NOT_FOUND = {"detail": "Not found."}
UNKNOWN = ["xml", "JSON", "html", "api ", "csv", "\0", "é"]


@pytest.mark.parametrize(
    ("format", "kind", "accepts"),
    [
        ("", JSON, ["", "*/*", "application/*", "application/json", "application/json; indent=4", "APPLICATION/JSON"]),
        ("", JSON, ["application/json;charset=utf-8", " application/json ", "application/json, text/plain, */*"]),
        ("", JSON, ["application/xml, application/json", "application/json, text/html", "text/html, application/json"]),
        ("", JSON, ["application/json;q=0.5, */*;q=0.1", "text/html;q=0.5, application/json;q=0.9"]),
        ("", JSON, ["text/html;q=0, */*", "text/html;q=0.1, */*;q=0.9"]),
        ("", HTML, ["text/html", "TEXT/HTML", "text/*", "text/html, */*", "text/html;q=0.9, application/json;q=0.5"]),
        ("", HTML, ["application/json;q=0, */*", FIREFOX, SAFARI]),
        ("json", JSON, ["", "*/*", "application/json", FIREFOX, "text/html, */*;q=0.1", "application/*"]),
        ("api", JSON, ["", "*/*", "application/json", "application/json, text/html;q=0.9", "application/xml"]),
        ("api", HTML, [FIREFOX, "text/html", "text/html, application/json;q=0.9"]),
    ],
)
def test_what_an_accept_and_a_format_get(format: str, kind: str, accepts: list[str]) -> None:
    """JSON unless HTML is named more closely or wanted more; format=json is JSON alone, format=api JSON for all others."""
    for accept in accepts:
        assert representation(accept, format) == kind, accept


@pytest.mark.parametrize(
    ("formats", "status", "body", "accepts"),
    [
        ([""], 406, NEITHER, ["image/*", "application/xml, text/csv", "json", "*/json", ",", ";"]),
        ([""], 406, NEITHER, ["*/*;q=0", "application/json;q=0", "application/json;q=0, text/html;q=0.0"]),
        (["json"], 406, NEITHER, ["text/html", "application/xml", "text/*", "application/json;q=0"]),
        (UNKNOWN, 404, NOT_FOUND, ["", "application/json", "application/xml", FIREFOX]),
    ],
)
def test_what_is_refused(formats: list[str], status: int, body: dict[str, str], accepts: list[str]) -> None:
    """Who takes neither, or not the format that is asked for, is 406; an unknown format is 404 whatever Accept is."""
    for format, accept in product(formats, accepts):
        with pytest.raises(HttpError) as refused:
            representation(accept, format)
        assert (refused.value.status, refused.value.body) == (status, body), (format, accept)


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
