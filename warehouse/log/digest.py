"""The digest that a file of the log holds of its own bytes.

Each file of ours, entry or checkpoint, has in FIELD the sha256 of its bytes without the 64 digits themselves. So a
flipped bit is found by whoever reads the file. Another whole file in its place is not found by it.

Delta lets a writer put anything into an entry's ``commitInfo`` and into the metadata of a checkpoint's footer. Files of
other programs have no digest.
"""

from __future__ import annotations

import hashlib
import secrets

FIELD = "sigdirSha256"


def new_mark() -> str:
    """What stands in the place of the digits until they are known: no other part of a file is like it."""
    return secrets.token_hex(32)


def with_digest(raw: bytes, mark: str) -> bytes:
    """The bytes of a file with its digest in the place of the mark."""
    return raw.replace(mark.encode(), _digest(raw, mark).encode())


def is_whole(raw: bytes, digest: str) -> bool:
    """Whether the bytes of a file are those that were written; ``digest`` is the one that it holds."""
    return _digest(raw, digest) == digest


def _digest(raw: bytes, digits: str) -> str:
    return hashlib.sha256(raw.replace(digits.encode(), b"")).hexdigest()
