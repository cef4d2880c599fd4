"""Query parameters to rows: parsing, filters, paging, links. No server, no files: segments in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sigdir.serve.http.answers import HttpError
from sigdir.serve.lists.paging import Filter, link, page_number, page_of, parse, parse_time
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.segment import Segment
from tests.examples import examples
from tests.serve.support import Row, segment_of, view_of

URL = "http://a.test/api/v1/signatures/"
NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOON_US = 1_769_860_800_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Rows, and segments of them in every shape that a view has.

letters = st.sampled_from("aAbBzZ_%[]{}@`^(),\\09")
texts = st.one_of(
    st.text(letters, min_size=1, max_size=8),
    st.text(letters, min_size=1, max_size=200),
    st.sampled_from(["transfer(address,uint256)", "TRANSFER(address)", "f()", "balanceOf(address)"]),
)


def hashes(width: int) -> st.SearchStrategy[bytes]:
    """Hashes that often share their first bytes, and often are the same."""
    head = st.one_of(st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xa9\x05\x9c\xbb", b"\xa9\x05\x9c\xbc"]),
                     st.binary(min_size=4, max_size=4))  # fmt: skip
    if width == 4:
        return head
    rest = st.one_of(st.just(bytes(width - 4)), st.binary(min_size=width - 4, max_size=width - 4))
    return st.builds(bytes.__add__, head, rest)


@st.composite
def rows_of(draw: st.DrawFn, width: int = 4, max_size: int = 40) -> list[Row]:
    """Rows with rising ids and times, both with gaps."""
    contents = draw(st.lists(st.tuples(texts, hashes(width), st.integers(1, 3)), max_size=max_size))
    rows, id, at = [], 0, NOON_US
    for text, hash, gap in contents:
        id, at = id + gap, at + gap * 500_000
        rows.append(Row(id, at, text, hash))
    return rows


@st.composite
def cuts(draw: st.DrawFn, rows: Sequence[Row], width: int = 4) -> list[Segment]:
    """The rows in one or several segments; the last may be of the kind that staged rows make."""
    places = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *places, len(rows)]
    segments = []
    for first, last in pairwise(edges):
        staged = last == len(rows) and draw(st.booleans())
        slack = draw(st.integers(1, 5)) if staged else 0
        segments.append(segment_of(rows[first:last], width=width, by_hash=not staged, slack=slack))
    return segments


def answer(segments: Sequence[Segment], query: str, collection: Collection = SIGNATURES) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(page_of(view_of(segments, collection), collection, parse(query), URL).body())
    return body


def walk(segments: Sequence[Segment], query: str, collection: Collection = SIGNATURES) -> list[dict[str, Any]]:
    """All pages, following ``next`` from the one that the query names."""
    pages = [answer(segments, query, collection)]
    while pages[-1]["next"] is not None:
        pages.append(answer(segments, urlsplit(pages[-1]["next"]).query, collection))
    return pages


def ids(pages: Sequence[dict[str, Any]]) -> list[int]:
    return [record["id"] for page in pages for record in page["results"]]


# Paging.


@given(st.data(), st.booleans(), st.integers(1, 10), st.integers(1, 12))
def test_any_page_is_its_slice(data: st.DataObject, oldest_first: bool, size: int, number: int) -> None:
    """A numbered page has its rows in order, and links only to the pages next to it."""
    rows = data.draw(rows_of(max_size=30))
    segments = data.draw(cuts(rows))
    pages = max(1, -(-len(rows) // size))
    order = "created_at" if oldest_first else "-created_at"
    query = f"ordering={order}&page_size={size}&page={number}"
    if number > pages:
        with pytest.raises(HttpError):
            answer(segments, query)
        return
    page = answer(segments, query)
    ordered = rows if oldest_first else rows[::-1]
    assert (ids([page]), page["count"]) == ([row.id for row in ordered][(number - 1) * size : number * size], len(rows))
    beside = [f"{URL}?ordering={order}&page={other}&page_size={size}" for other in (number - 1, number + 1)]
    assert page["previous"] == (beside[0] if number > 1 else None)
    assert page["next"] == (beside[1] if number < pages else None)


def test_a_link_keeps_the_page_size_that_was_asked_for() -> None:
    """Pages are cut at 1000 rows, and the link repeats the larger number."""
    segment = segment_of([Row(number + 1, NOON_US + number, "f()", b"abcd") for number in range(1001)])
    assert answer([segment], "page_size=5000")["next"] == f"{URL}?page=2&page_size=5000"


def test_a_list_without_rows_has_one_empty_page() -> None:
    """Without rows, page 1 and page=last are empty and page 2 does not exist."""
    for query in ("", "page=1", "page=last", "text_signature=x"):
        assert answer([], query) == {"count": 0, "next": None, "previous": None, "results": []}
    with pytest.raises(HttpError):
        answer([], "page=2")


GOOD_PAGES = {"1": 1, "  7\t": 7, "007": 7, "+3": 3, "last": 7, "0" * 99 + "5": 5}
BAD_PAGES = [
    "", " ", "0", "-1", "8", "1.0", "1e0", "abc", "LAST", " last", "0x1", "1 2", "+ 1", "++1", "1,", "1\0", "²", "½",
    "1" + "0" * 18, "9" * 5000, str(2**64 + 1),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "number"), GOOD_PAGES.items())
def test_pages_that_are(wanted: str, number: int) -> None:
    """A number with blanks around it, or the word last in lower case, is a page."""
    assert page_number(wanted, 7) == number


@pytest.mark.parametrize("wanted", BAD_PAGES, ids=lambda wanted: ascii(wanted)[:20])
def test_pages_that_are_not(wanted: str) -> None:
    """Anything that is not a number from 1 to the last page is an invalid page, and no other error."""
    with pytest.raises(HttpError):
        page_number(wanted, 7)


# Links.

names = st.one_of(st.sampled_from(["page", "page_size", "ordering", "foo", "a", "z"]), st.text(min_size=1, max_size=4))
parameters = st.lists(st.tuples(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=6)), max_size=6)


@given(parameters, st.integers(1, 10**18))
@example([("page", "5"), ("page", "7")], 6)
@example([("text_signature", "a(b,c:d e+f)")], 2)
def test_a_link_repeats_the_parameters_with_another_page(pairs: list[tuple[str, str]], number: int) -> None:
    """A link has every parameter that has a value, sorted by name, escaped as in a form, and the page."""
    kept = [(name, value) for name, value in pairs if value and name != "page"]
    expected = urlencode(sorted([*kept, ("page", str(number))], key=lambda pair: pair[0]))
    assert link(URL, parse(urlencode(pairs)).pairs, "page", number) == f"{URL}?{expected}"


# Understanding a query.

EARLY, LATE = "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("query", "same"),
    [
        (f"created_at__gte={EARLY}&created_at__gt={LATE}", f"created_at__gt={LATE}"),
        (f"created_at__lte={EARLY}&created_at__lt={LATE}", f"created_at__lte={EARLY}"),
    ],
)
def test_the_narrower_of_two_bounds_holds(query: str, same: str) -> None:
    """Filters combine with "and", also two bounds on the same side."""
    assert parse(query).filter == parse(same).filter


@pytest.mark.parametrize(
    ("value", "size"),
    [("1", 1), ("%205", 5), ("1000", 1000), ("1001", 1000), ("9" * 100, 1000), ("", 100), ("0", 100), ("-5", 100), ("5,", 100)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_page_sizes(value: str, size: int) -> None:
    """A positive whole number counts, at most 1000; anything else means 100."""
    assert parse(f"page_size={value}").page_size == size


@pytest.mark.parametrize(
    ("value", "oldest_first"),
    [
        ("", False), ("created_at", True), ("--created_at", False), ("%20created_at%20", True), ("%20-created_at%20", False),
        ("CREATED_AT", False), ("id,created_at", True), ("id,-created_at,created_at", False), ("created_at,-created_at", True),
        (",,created_at,", True), ("created_at;", False),
    ],
)  # fmt: skip
def test_orderings(value: str, oldest_first: bool) -> None:
    """The first part of the list that is created_at decides; parts that are not are ignored."""
    assert parse(f"ordering={value}").oldest_first == oldest_first


@pytest.mark.parametrize(
    ("query", "part", "value"),
    [
        ("page=2&page=3", "page", "3"),
        ("page_size=2&page_size=x", "page_size", 100),
        ("hex_signature=0a&hex_signature=", "filter", Filter()),
        ("text_signature=a&text_signature=b", "filter", Filter(text="b")),
        ("page", "page", ""),
        ("=&=1", "page", "1"),
        ("PAGE=5", "page", "1"),
        ("page==5", "page", "=5"),
        ("%70age=%35", "page", "5"),
        ("id=5", "filter", None),
    ],
)
def test_queries(query: str, part: str, value: Any) -> None:
    """Of a repeated parameter the last counts; unknown ones mean nothing; bad escapes stand for themselves."""
    assert getattr(parse(query), part) == value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("0X", Filter()), ("0xA9059CBB", Filter(hex="a9059cbb")), ("a90", Filter(hex="a90")), ("0x0x", Filter(never=True)),
        ("+a9", Filter(never=True)), ("a9%20", Filter(never=True)), ("a%0A", Filter(never=True)), ("_", Filter(never=True)),
        ("a" * 65, Filter(never=True)), ("%D9%A1", Filter(never=True)),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_hex_filters(value: str, wanted: Filter) -> None:
    """One leading 0x is dropped, case does not count, and what is not hex matches nothing."""
    assert (parse(f"hex_signature={value}").filter or Filter()) == wanted


# Moments.


@pytest.mark.parametrize(
    ("value", "shift"),
    [
        ("2026-01-31 12:00:00z", timedelta()),
        ("2026-01-31 12:00", timedelta()),
        (" 2026-01-31T12:00:00Z ", timedelta()),
        ("2026-01-31T14:00:00+0200", timedelta()),
        ("2026-01-31T14:00:00+02", timedelta()),
        ("2026-01-31T12:00:00 Z", timedelta()),
        ("2026-1-31T12:0:0Z", timedelta()),
        ("2026-01-31T12:00:00.5Z", timedelta(microseconds=500_000)),
        ("2026-01-31T12:00:00,1234569Z", timedelta(microseconds=123_456)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC) - NOON),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC) - NOON),
    ],
)
def test_moments(value: str, shift: timedelta) -> None:
    """A date and time, with T or a blank; seconds, decimals and zone may be missing, then it is UTC."""
    assert parse_time(value) == NOON_US + shift // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "value",
    [
        "", "garbage", "2026-01", "2026-01-31", "2026-01-31Z", "2026-01-31T12", "12:00:00", "2026-01-31T12:00:00+",
        "2026-01-31T12:00:00X", "2026-01-31T12:00:00Z+02:00", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:00:60Z",
        "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "26-01-31T12:00:00Z", "20260131T120000Z", "2026/01/31T12:00:00Z",
        "1769860800", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00Z\0", "٢٠٢٦-01-31T12:00:00Z", "2026-01-31  12:00:00Z",
        "2026-01-31T12:00:00+24:00",
    ],
    ids=ascii,
)  # fmt: skip
def test_invalid_moments(value: str) -> None:
    """Anything else, also a bare date or a zone that no clock has, is no moment."""
    assert parse_time(value) is None


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),
    st.integers(-14 * 60, 14 * 60),
)
def test_moments_are_datetime_s(at: datetime, minutes: int) -> None:
    """A moment written by isoformat, in any zone, parses to the same moment."""
    zoned = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (zoned - EPOCH) // timedelta(microseconds=1)
    assert parse_time(zoned.isoformat()) == expected
    assert parse_time(zoned.isoformat(" ")) == expected


# Filters.

fragments = st.one_of(texts, st.text(letters, min_size=1, max_size=3), st.sampled_from(["", "\t ", " a ", "é", "a\0"]))
hex_values = st.one_of(
    st.text("0123456789abcdefABCDEF", max_size=5),
    hashes(4).map(bytes.hex),
    hashes(32).map(bytes.hex),
    hashes(4).map(lambda hash: "0X" + hash.hex().upper()),
    st.sampled_from(["0x", "zz", " a9", "%", "\0", "0" * 64, "a" * 65]),
)
half_seconds = st.integers(-2, 80)


@st.composite
def filters(draw: st.DrawFn) -> dict[str, str]:
    """Some of the filters, with values that often match."""
    given_ = {}
    if draw(st.booleans()):
        given_["text_signature"] = draw(fragments)
    if draw(st.booleans()):
        given_["hex_signature"] = draw(hex_values)
    for name in ("created_at__gte", "created_at__gt", "created_at__lte", "created_at__lt"):
        if draw(st.integers(0, 3)) == 0:
            at = NOON + draw(half_seconds) * timedelta(milliseconds=500)
            given_[name] = draw(st.sampled_from([at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S.%f}", "never"]))
    return given_


def passes(row: Row, given_: dict[str, str]) -> bool:
    """The contract's filters in plain Python, one row at a time."""
    digits = given_.get("hex_signature", "").lower().removeprefix("0x")
    whole = row.hash.hex()
    if digits and not (digits == whole if len(digits) == len(whole) else digits in whole):
        return False
    if given_.get("text_signature", "").strip().lower() not in row.text.lower():
        return False
    at = EPOCH + timedelta(microseconds=row.created_at)
    for name, value in given_.items():
        if not name.startswith("created_at"):
            continue
        if value == "never":
            return False
        bound = datetime.fromisoformat(value)
        bound = bound if bound.tzinfo else bound.replace(tzinfo=UTC)
        good = {"gte": at >= bound, "gt": at > bound, "lte": at <= bound, "lt": at < bound}
        if not good[name.removeprefix("created_at__")]:
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("collection", [SIGNATURES, EVENT_SIGNATURES])
@settings(max_examples=examples(200))
@given(data=st.data(), given_=filters(), oldest_first=st.booleans())
def test_filters_pass_what_a_plain_predicate_passes(
    collection: Collection, data: st.DataObject, given_: dict[str, str], oldest_first: bool
) -> None:
    """All filters at once, over any segments, give the rows that pass one by one, counted and in order."""
    width = collection.hash_bytes
    rows = data.draw(rows_of(width))
    segments = data.draw(cuts(rows, width))
    query = urlencode({**given_, "page_size": "7", "ordering": "created_at" if oldest_first else ""})
    pages = walk(segments, query, collection)
    expected = [row.id for row in rows if passes(row, given_)]
    assert ids(pages) == (expected if oldest_first else expected[::-1])
    assert {page["count"] for page in pages} == {len(expected)}


def rows_with(segment: Segment, fragment: str) -> list[int]:
    rows: list[int] = segment.with_text(fragment).tolist()
    return rows


def test_the_work_of_a_search_is_bounded() -> None:
    """2 MB of one letter, and a fragment that almost fits at each place."""
    segment = segment_of([Row(number, number, "a" * 65_000, b"abcd") for number in range(1, 31)])
    rows_with(segment, "warm")
    began = time.process_time()
    assert rows_with(segment, "a" * 127 + "e" + "a" * 128) == []
    assert rows_with(segment, "a" * 255 + "A") == list(range(30))
    assert rows_with(segment, "a" * 9999 + "e" + "a" * 9999) == []
    assert time.process_time() - began < 5


def test_a_long_page_comes_in_chunks_of_a_megabyte() -> None:
    """The chunks are the body. Pages of up to a hundred rows, and of short texts, are whole."""
    long = [Row(number, NOON_US + number, f"{'a' * 65_000}{number}()", bytes(4)) for number in range(1, 121)]
    short = [Row(number, NOON_US + number, f"f{number}()", bytes(4)) for number in range(121, 900)]
    view = view_of([segment_of(long), segment_of(short)])
    page = page_of(view, SIGNATURES, parse("page_size=1000"), URL)
    chunks = list(page.chunks())
    assert b"".join(chunks) == page.body()
    assert max(map(len, chunks)) < 1.1 * (1 << 20)
    for query, is_long in (("page_size=1000", True), ("page_size=100&page=last", False), ("page_size=700", False)):
        assert page_of(view, SIGNATURES, parse(query), URL).is_longer_than(1 << 20) == is_long


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_fragment_is_found_at_either_end_of_texts_of_any_length(length: int, where: str) -> None:
    """The block-wise scan misses nothing at the edges of its blocks, of a text or of all texts."""
    place = {"first": 0, "middle": length // 2, "last": length}[where]
    texts_ = ["x" * length] * 3 + ["x" * place + "Qq" + "x" * (length - place)] + ["x" * length] * 3
    rows = [Row(number, NOON_US + number, text, b"abcd") for number, text in enumerate(texts_, 1)]
    for position in range(7):
        turned = rows[position:] + rows[:position]
        assert rows_with(segment_of(turned), "qQ") == [turned.index(rows[3])]


def test_more_matches_than_one_turn_of_the_scan_takes() -> None:
    """If more rows match than one turn of the scan returns, the next turn continues after them."""
    rows = [Row(number, NOON_US + number, f"f{number}(aab)", b"abcd") for number in range(1, 20_001)]
    segment = segment_of(rows)
    assert rows_with(segment, "AAB") == list(range(20_000))
    assert rows_with(segment, "9(a") == [number - 1 for number in range(1, 20_001) if number % 10 == 9]


def test_a_filter_that_is_exact_and_one_of_text_agree_over_many_rows() -> None:
    """A common hash with a fragment gives the same rows whether few or thousands share the hash."""
    rows = [Row(number, NOON_US + number, f"f{number}()", b"abcd") for number in range(1, 3001)]
    segments = [segment_of(rows, by_hash=True)]
    expected = [row.id for row in rows if "7(" in row.text]
    pages = walk(segments, "hex_signature=61626364&text_signature=7%28&ordering=created_at")
    assert ids(pages) == expected


@given(rows_of(), st.integers(-1, 140))
def test_a_row_is_found_by_its_id_and_no_other_is(rows: list[Row], id: int) -> None:
    """row_of_id finds the ids that are there, and nothing in the gaps between or beyond them."""
    expected = next((number for number, row in enumerate(rows) if row.id == id), None)
    assert segment_of(rows, slack=2).row_of_id(id) == expected
