"""A range: all texts whose hashes begin with the same three hex digits, as a pack.

Whoever asks for a range tells the server one of 4,096 prefixes, and not which of the texts is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sigdir.signatures.collections import Collection
from sigdir.signatures.pack_file import TEXTS, PackColumns, pack_bytes
from sigdir.signatures.pack_texts import PackRow, encoded, readable

DIGITS = 3
"""At a million texts two digits are 70 kB a range, four are 17 texts, which hides little, and five are one."""
COUNT = 16**DIGITS
_PREFIX = re.compile(f"[0-9a-fA-F]{{{DIGITS}}}")


def is_prefix(text: str) -> bool:
    return _PREFIX.fullmatch(text) is not None


def range_bytes(collection: Collection, version: int, rows: Sequence[PackRow], *, padded: bool) -> bytes:
    """The pack of a range; ``padded`` to a size that many ranges share. The same rows give the same bytes."""
    kept = readable(rows)
    return pack_bytes(TEXTS, version, [PackColumns(collection, len(kept), encoded(kept))], padded=padded)
