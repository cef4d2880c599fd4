"""The digests by which log entries guard themselves and each other.

Invariants
    An entry of ours holds the sha256 of its own bytes, and that of the entry before it. So a changed byte is found
    in the entry itself, and an entry that was replaced or lost by the one after it. Staging has the digest of the
    newest entry, which has none after it.
    The first entry after a checkpoint holds the sha256 of the checkpoint's file.
    Entries of other programs have no digests. Our next entry holds theirs, back to the last checkpoint.

Delta lets a writer put anything into ``commitInfo``, and readers ignore what they do not know there. Ours is the
field ``sigdirDigests``, a text of JSON. An entry's own digest is that of its bytes without the 64 digits themselves.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FIELD = "sigdirDigests"

ENGINE = "signature-directory"
"""The ``engineInfo`` of our entries, which all have digests."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Broken(Exception):
    """The entry of ``version``, or its checkpoint, is not as it was written; the message says why."""

    def __init__(self, version: int, why: str, is_checkpoint: bool = False) -> None:
        super().__init__(why)
        self.version = version
        self.is_checkpoint = is_checkpoint


@dataclass(frozen=True, slots=True)
class Vouched:
    """What an entry says of those before it: sha256 in hex by version, of entries and of the last checkpoint."""

    entries: Mapping[int, str]
    checkpoints: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Chain:
    """The end of a log: the digests that its next entry will record. Empty for a log that does not exist yet."""

    entries: Mapping[int, str] = field(default_factory=dict)
    checkpoints: Mapping[int, str] = field(default_factory=dict)

    def after(self, version: int, sha256: str, vouched: Vouched | None) -> Chain:
        """The end of the log with one more entry, the next version; raises Broken if the two do not fit.

        ``sha256`` is the digest of the entry's file, ``vouched`` what it says, None for another program's entry.
        """
        if vouched is None:
            return Chain({**self.entries, version: sha256}, self.checkpoints)
        require_same(vouched.entries, self.entries, f"version {version} has another digest of it")
        require_same(vouched.checkpoints, self.checkpoints, f"version {version} has another digest of it", True)
        if version - 1 in self.entries and version - 1 not in vouched.entries:
            raise Broken(version, f"it does not continue version {version - 1}")
        left = {number: digest for number, digest in self.checkpoints.items() if number not in vouched.checkpoints}
        return Chain({version: sha256}, left)

    def to_field(self) -> str:
        """The value of FIELD in the next entry, with a mark in the place of its own digest: see ``sealed``."""
        return json.dumps({
            "sha256": secrets.token_hex(32), "entries": dict(self.entries), "checkpoints": dict(self.checkpoints),
        })  # fmt: skip


def require_same(vouched: Mapping[int, str], found: Mapping[int, str], why: str, are_checkpoints: bool = False) -> None:
    """Raise Broken for the first version whose digest was recorded and is another one now."""
    for version in sorted(vouched.keys() & found.keys()):
        if vouched[version] != found[version]:
            raise Broken(version, why, are_checkpoints)


def sha256_of_entry(raw: bytes) -> str:
    """The digest of an entry's file, in hex."""
    return hashlib.sha256(raw).hexdigest()


def sealed(raw: bytes, field_value: str) -> bytes:
    """An entry's bytes with its own digest in the place of the mark that ``to_field`` made."""
    mark = json.loads(field_value)["sha256"].encode()
    return raw.replace(mark, _own_digest(raw, mark))


def read_vouched(version: int, raw: bytes, commit: Mapping[str, Any]) -> Vouched | None:
    """What an entry says of those before it; None for another program's.

    ``commit`` is the parsed ``commitInfo`` of ``raw``. Raises Broken where the bytes are not those that were written.
    """
    if FIELD not in commit:
        if commit.get("engineInfo") == ENGINE:
            raise Broken(version, "it has no digests")
        return None
    try:
        document = json.loads(commit[FIELD])
        own = document["sha256"]
        if not _DIGEST.fullmatch(own) or _own_digest(raw, own.encode()) != own.encode():
            raise Broken(version, "not the bytes that were written")
        return Vouched(_by_version(document["entries"]), _by_version(document["checkpoints"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(version, "its digests cannot be read") from error


def _own_digest(raw: bytes, digits: bytes) -> bytes:
    """The digest, in hex, of an entry's bytes without these digits."""
    return hashlib.sha256(raw.replace(digits, b"")).hexdigest().encode()


def _by_version(digests: Mapping[str, str]) -> dict[int, str]:
    return {int(version): digest for version, digest in digests.items()}
