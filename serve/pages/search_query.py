"""What a search box contains: a selector, a topic, calldata, a signature or a part of one. Knows nothing of HTTP.

What the pages say about a rejected signature, in words for somebody who typed or pasted it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sigdir.signatures.canonicalise import OTHER_COLLECTION
from sigdir.signatures.grammar import MAX_TEXT_BYTES, GrammarError, is_signature, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.search_terms import BadSearch, SearchTerms, is_structured, parse_terms
from sigdir.warehouse.table.fields import MAX_SEARCHED

QueryKind = Literal["nothing", "selector", "topic", "calldata", "address", "hex", "text", "fragment", "terms"]

MAX_CHARACTERS = 8000

_SELECTOR, _ADDRESS, _TOPIC, _WORD = 8, 40, 64, 64  # hex digits
_HEX = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_KEYWORD = re.compile(r"(function|event|error)\s+(?=\S)")
_QUOTED = re.compile(r"""(["'`])(.*)\1,?""", re.DOTALL)  # as in JSON or Markdown
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search.

    ``entered`` is the trimmed input, without quotes around it. ``digits`` are the digits of a hash, or a part of them;
    ``fragment`` is the part of a text to find. A complete signature has ``canonical`` and ``digest``, the whole 32-byte
    hash. ``problem`` says why an input that looks like a complete signature is not valid. ``may_be_submitted`` is false
    if no signature can be what was entered.
    """

    entered: str
    kind: QueryKind
    digits: str = ""
    fragment: str = ""
    canonical: str = ""
    digest: bytes = b""
    problem: str = ""
    may_be_submitted: bool = True
    terms: SearchTerms | None = None
    """Of a search by structure. One that cannot be read is a search for nothing, and ``problem`` says why."""


def parse_search(entered: str) -> SearchQuery:
    """Classify an input, without quotes around it. Never fails."""
    entered = entered.strip()[:MAX_CHARACTERS]
    quoted = _QUOTED.fullmatch(entered)
    if quoted:
        entered = quoted[2].strip()
    if not entered:
        return SearchQuery("", "nothing")
    compact = _SPACE.sub("", entered)
    hex = _HEX.fullmatch(compact)
    if hex and (hex[1] or _is_whole(len(hex[2]))):
        return _hex_query(entered, hex[2].lower())
    if compact.lower() == "0x":
        return SearchQuery(entered, "nothing")
    return _terms_query(entered) if is_structured(entered) else _text_query(entered)


def _terms_query(entered: str) -> SearchQuery:
    try:
        return SearchQuery(entered, "terms", may_be_submitted=False, terms=parse_terms(entered))
    except BadSearch as error:
        return SearchQuery(entered, "nothing", problem=str(error), may_be_submitted=False)


def _is_whole(digits: int) -> bool:
    """Whether this many digits without 0x are a hash or calldata. Fewer may be part of a name, such as `dead`."""
    return (digits >= _SELECTOR and (digits - _SELECTOR) % _WORD == 0) or digits == _TOPIC


def _hex_query(entered: str, digits: str) -> SearchQuery:
    if len(digits) < _SELECTOR:
        return SearchQuery(entered, "hex", digits)
    if len(digits) == _TOPIC:
        return SearchQuery(entered, "topic", digits)
    if len(digits) == _ADDRESS:
        return SearchQuery(entered, "address", digits[:_SELECTOR], may_be_submitted=False)
    return SearchQuery(entered, "selector" if len(digits) == _SELECTOR else "calldata", digits[:_SELECTOR])


def _text_query(entered: str) -> SearchQuery:
    # Stored texts contain no spaces, so the spaces of an unfinished declaration are dropped.
    fragment = _SPACE.sub("", _KEYWORD.sub("", entered, count=1)) if entered.isascii() else entered
    if "(" not in entered:
        return _fragment_query(entered, fragment, "", f"{entered}()")
    try:
        text = normalise(entered).text
    except GrammarError as error:
        # Without a closing parenthesis the user is still typing: no message yet.
        is_complete = entered.endswith((")", ";"))
        problem = (
            message_for_text(error.reason, entered.encode("utf-8", "replace"), error.column) if is_complete else ""
        )
        return _fragment_query(entered, fragment, problem, entered + ")" * (entered.count("(") - entered.count(")")))
    return SearchQuery(entered, "text", fragment=text, canonical=text, digest=keccak256(text.encode()))


def _fragment_query(entered: str, fragment: str, problem: str, closed: str) -> SearchQuery:
    if len(fragment) > MAX_SEARCHED:
        too_long = f"a piece of a text has at most {MAX_SEARCHED} characters here, and this has {len(fragment)}"
        return SearchQuery(entered, "nothing", problem=problem or too_long)
    return SearchQuery(entered, "fragment", "", fragment, problem=problem, may_be_submitted=is_signature(closed))


SUPPRESSED = "suppressed"

_STORAGE = re.compile(rb"\bstorage\b")

_MESSAGES = {
    "empty": "it is empty",
    "too_long": f"longer than {MAX_TEXT_BYTES:,} bytes",
    "bad_name": "expected a name",
    "unknown_type": "not a type that signatures can contain",
    "bad_width": "not a valid width for this type",
    "bad_array": "expected an array length",
    "unbalanced": "the parentheses do not match",
    "library_type": "a type that only library functions accept; it has no canonical text",
    "too_many_indexed": "more than three indexed parameters",
    "bad_entry": "not a valid ABI entry",
    "no_parenthesis": "expected ( after the name, as in name(types)",
    "trailing_text": "unexpected text after the signature",
    "undeclared_type": "a contract declares this type: submit the file that declares it too",
    "encoding": "not UTF-8",
    "placeholder": "a decompiler's placeholder, not a name",
    "hash_mismatch": "the declared hash does not match the text",
    "syntax": "the Solidity parser cannot place this statement",
    "import_not_found": "the imported file was not given",
    OTHER_COLLECTION: "its keyword says that it belongs to the other collection",
    SUPPRESSED: "the operator of this directory does not serve this signature",
}
"""By reject reason: the grammar's, the three of ``_reason`` here, of the collection, and of the suppress list."""


def message(reason: str) -> str:
    """The message of a reject reason, as the end of a sentence."""
    return _MESSAGES.get(reason, reason)


def message_for_text(reason: str, text: bytes, column: int) -> str:
    """Why the grammar rejects a text; ``column`` counts from 1, 0 is the whole text."""
    found = message(_reason(reason, text))
    return f"{found}, at column {column}" if column else found


def _reason(reason: str, text: bytes) -> str:
    """The grammar's reason, or a more helpful one for text that somebody typed or pasted."""
    if reason in ("bad_entry", "bad_name") and b"(" not in text:
        return "no_parenthesis"
    if reason == "bad_entry":
        return "trailing_text"
    # Library functions write `storage`. A qualified type without it is most likely declared in a file not submitted.
    return "undeclared_type" if reason == "library_type" and not _STORAGE.search(text) else reason
