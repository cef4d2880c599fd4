"""What the pages say about a rejected signature, in words for somebody who typed or pasted it."""

from __future__ import annotations

import re

from sigdir.signatures.canonicalise import OTHER_COLLECTION
from sigdir.signatures.grammar import MAX_TEXT_BYTES

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
