"""What came of decoding calldata with one text."""

from __future__ import annotations

from typing import Any, NamedTuple

from sigdir.signatures.types import Type

SELECTOR_BYTES = 4
WORD_BYTES = 32  # the ABI's unit, and the width of a topic

SHORT, OFFSET, PADDING, UTF8, WORK, TYPE = "too_short", "bad_offset", "bad_padding", "bad_utf8", "too_much", "bad_type"
TOPICS = "topic_count"  # of logs alone
REASONS = (SHORT, OFFSET, PADDING, UTF8, WORK, TYPE, TOPICS)


class DecodeAttempt(NamedTuple):
    """A text, and the values that it gives the data.

    ``values`` belong to ``types`` one by one, as Python values: int, bool, str, bytes, Decimal, and tuples of those.
    ``exact`` is true where encoding them gives the data again; ``left_over`` counts the bytes after the last one
    that was read. Where the text does not decode, ``values`` is None, ``reason`` one of REASONS and ``detail`` a
    sentence.
    """

    text: str
    types: tuple[Type, ...] = ()
    values: tuple[Any, ...] | None = None
    exact: bool = False
    left_over: int = 0
    reason: str = ""
    detail: str = ""
