"""Compiles or loads every kernel that a request may need, before the first request."""

from __future__ import annotations

import numpy as np

from sigdir.serve.bulk import dumps, resolve
from sigdir.serve.texts import canonical_text
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index import names
from sigdir.warehouse.index.records import render_lines, render_rows
from sigdir.warehouse.index.segment import Segment


def warm() -> None:
    [candidates] = pack([Entry(b"function warm(uint a)", 1)], 0)
    canonicalise(candidates)
    canonical_text(SIGNATURES, "warm(uint a)")
    text, hash = np.frombuffer(b"warm(uint256)", np.uint8), np.zeros((1, 4), np.uint8)
    numbers = np.zeros(1, np.int64)
    segment = Segment.of(1, numbers, numbers, np.array([0, len(text)]), text, hash, {})
    render_rows(segment, numbers)
    render_lines(segment, 0, 1)
    segment.with_text("uint"), segment.with_hex("0"), segment.like("w*", 1)
    resolve.warm()
    dumps.warm()
    names.warm()
