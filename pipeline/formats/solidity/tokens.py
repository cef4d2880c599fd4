"""The bounds on the tokens of a source, which bound the memory of the parser: up to 830 bytes a token."""

from __future__ import annotations

import numpy as np

from sigdir.pipeline.formats.solidity.outline import outline_of

MAX_TOKENS = 1 << 20
"""Words and punctuation marks, those in comments too. As many as 5 MiB of real code; the largest contracts have 1 MiB."""

MAX_POSTED_TOKENS = 1 << 16
"""Those outside of bodies and comments in a source that a stranger sends: 1.6 MiB of real code, 52 MiB of the parser."""

# The kind of each byte: 0 space, 1 part of a word, 2 punctuation.
_KINDS = np.full(256, 2, np.uint8)
_KINDS[np.frombuffer(b"\t\n\v\f\r ", np.uint8)] = 0
_KINDS[[byte for byte in range(256) if byte >= 0x80 or chr(byte).isalnum() or byte in b"_$"]] = 1


def has_too_many_tokens(code: bytes) -> bool:
    """Whether a source has more than MAX_TOKENS."""
    return len(code) > MAX_TOKENS and _tokens(code) > MAX_TOKENS


def is_too_long_to_post(code: bytes) -> bool:
    """Whether a source has more than MAX_POSTED_TOKENS outside of bodies and comments."""
    return len(code) > MAX_POSTED_TOKENS and _tokens(outline_of(code).masked) > MAX_POSTED_TOKENS


def _tokens(code: bytes) -> int:
    count = 0
    for at in range(0, len(code), MAX_TOKENS):
        kinds = _KINDS[np.frombuffer(code[at : at + MAX_TOKENS], np.uint8)]
        words = kinds == 1
        count += int(np.count_nonzero(kinds == 2) + np.count_nonzero(words[1:] & ~words[:-1]) + words[0])
    return count
