"""Keccak-256 over one text, by pycryptodome: numba, which ``keccak_rows.py`` needs for many, takes 0.2 s to load."""

from __future__ import annotations

from Crypto.Hash import keccak


def keccak256(text: bytes) -> bytes:
    """Digest one text: 32 bytes. One row is cheaper this way than as a batch."""
    return keccak.new(digest_bits=256, data=text).digest()
