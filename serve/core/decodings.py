"""How a decoding ended, left with its request for the counts of the worker, whichever process decoded."""

from __future__ import annotations

from collections.abc import Sequence

import falcon

from sigdir.signatures.readings import Membership, Reading
from sigdir.signatures.returns import BUILT_IN

DECODED = "sigdir.decoded"
"""The key of a WSGI environment under which the outcomes are."""


def note_decoding(req: falcon.Request, readings: Sequence[Reading]) -> None:
    """Leave the outcome of an input, by the surest of its readings, and the hash that was looked up, unless it is built in."""
    hash = readings[0].hash
    if hash and hash not in BUILT_IN:
        req.context.looked_up = [*getattr(req.context, "looked_up", ()), hash]
    req.env[DECODED] = [*req.env.get(DECODED, ()), outcome(readings[0])]


def outcome(reading: Reading) -> str:
    """``contract``: by a text that the contract has. ``text``: by one of the directory or the request, or what is built in.
    ``ambiguous``: another is as likely. ``none fits``: no known text decodes the bytes. ``unknown``: there is no text.
    """
    best = reading.best
    if best is None:
        return "none fits" if reading.candidates else "unknown"
    if best.is_ambiguous:
        return "ambiguous"
    return "contract" if best.known.membership is Membership.HAS else "text"
