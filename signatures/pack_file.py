"""The bytes of a pack: a header, the columns of its collections, a digest and a signature. `docs/packs.md` has the format.

Nothing here knows what a column holds. Numbers are little-endian, and each column begins at a multiple of four bytes,
so that readers map it. Signatures are Ed25519, by the package cryptography, which is an extra.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.errors import SigdirError, missing_package

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAGIC = b"sigpack\n"
FORMAT = 1
COLUMNS = 5
"""Of a collection, in each form."""
MAX_BYTES = 1 << 30
"""Of a pack, of all its columns when they are unpacked, and of all texts of a collection."""
TEXTS: Final = "texts"
"""The form for transport: its columns are compressed."""
INDEXED: Final = "indexed"
"""The form for lookups: its columns are mapped."""

_FORMS = (TEXTS, INDEXED)
_HEAD = struct.Struct("<8s4I")  # magic, format, form, version, how many collections
_COLLECTION = struct.Struct(f"<2I{2 * COLUMNS}I")  # code, rows, and of each column the bytes in the file and unpacked
_PADDED = (1 << 13, 1 << 14, 1 << 15)
_DIGEST, _KEY, _SIGNATURE = 32, 32, 64
_TRAILER = _DIGEST + _KEY + _SIGNATURE
_UNSIGNED = bytes(_KEY + _SIGNATURE)


class BadPack(SigdirError, ValueError):
    """Bytes that are no pack, or one that cannot be trusted; the message says why."""


@dataclass(frozen=True, slots=True)
class PackColumns:
    """A collection of a pack: the number of its texts, and its columns, unpacked."""

    collection: Collection
    rows: int
    columns: Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack whose digest is right. ``version`` is that of the warehouse; ``key`` has signed it, empty for nobody."""

    form: str
    version: int
    collections: Mapping[Collection, PackColumns]
    key: bytes = b""


def pack_bytes(
    form: str, version: int, collections: Sequence[PackColumns], key: PrivateKey | None = None, *, padded: bool = False
) -> bytes:
    """Write a pack; raises BadPack if it would be too large.

    ``padded`` adds zeros up to 8, 16 or a multiple of 32 KiB.
    """
    parts, columns = [_HEAD.pack(MAGIC, FORMAT, _FORMS.index(form), version, len(collections))], []
    for each in collections:
        packed = [zlib.compress(column, 9) if form == TEXTS else bytes(column) for column in each.columns]
        sizes = (size for pair in zip(packed, each.columns, strict=True) for size in map(len, pair))
        parts.append(_COLLECTION.pack(each.collection.code, each.rows, *sizes))
        columns += [part + bytes(-len(part) % 4) for part in packed]
    body = b"".join([*parts, *columns])
    size = len(body) + _TRAILER
    body += bytes(-size % next(step for step in _PADDED if size <= step or step == _PADDED[-1]) if padded else 0)
    if max(size, sum(len(column) for each in collections for column in each.columns)) > MAX_BYTES:
        raise BadPack(f"a pack of more than {MAX_BYTES >> 20} MiB; choose fewer texts")
    digest = hashlib.sha256(body).digest()
    return body + digest + (_UNSIGNED if key is None else key.public + key.sign(MAGIC + digest))


def read_pack(data: bytes | memoryview, key: bytes | None = None) -> PackFile:
    """Check a pack's frame, digest and signature, and unpack its columns; raises BadPack.

    With ``key``, 32 bytes, it must be signed by that key. Columns of the indexed form are views of ``data``.
    """
    view = memoryview(data)
    form, version, count = _head(view)
    end = len(view) - _TRAILER
    signer = bytes(view[end + _DIGEST : end + _DIGEST + _KEY])
    digest = hashlib.sha256(view[:end]).digest()
    if digest != view[end : end + _DIGEST]:
        raise BadPack("its digest differs: it was cut short or changed")
    _check_signature(digest, signer, bytes(view[end + _DIGEST + _KEY :]), key)
    start = _HEAD.size + count * _COLLECTION.size
    if count > len(COLLECTIONS) or start > end or form >= len(_FORMS):
        raise BadPack("it has another form, or more collections than there are")
    collections, left = {}, MAX_BYTES
    for code, rows, *sizes in _COLLECTION.iter_unpack(view[_HEAD.size : start]):
        parts = []
        for packed, size in zip(sizes[::2], sizes[1::2], strict=True):
            left -= size
            if left < 0 or packed > end - start:
                raise BadPack("its columns are longer than it is, or than a reader allows")
            part = view[start : start + packed]
            parts.append(_unpacked(part, size) if form == _FORMS.index(TEXTS) else part)
            start += packed + -packed % 4
        collection = next((one for one in COLLECTIONS if one.code == code and one not in collections), None)
        if collection is None:
            raise BadPack("it has an unknown collection, or one twice")
        collections[collection] = PackColumns(collection, rows, parts)
    if start > end or any(view[start:end]):
        raise BadPack("its columns do not end where it ends")
    return PackFile(_FORMS[form], version, collections, signer if any(signer) else b"")


def _head(view: memoryview) -> tuple[int, int, int]:
    """The numbers of the form, the version and of collections."""
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise BadPack("it is no pack: it does not begin as one")
    if len(view) < _HEAD.size + _TRAILER:
        raise BadPack("it was cut short")
    if len(view) > MAX_BYTES:
        raise BadPack(f"it has more than {MAX_BYTES >> 20} MiB")
    _, format, form, version, count = _HEAD.unpack_from(view)
    if format != FORMAT:
        raise BadPack(f"its format has the number {format}; this reader knows {FORMAT}")
    return form, version, count


def _check_signature(digest: bytes, signer: bytes, signature: bytes, key: bytes | None) -> None:
    if key is None:
        return
    if not any(signer) and not any(signature):
        raise BadPack("it is not signed, and a key was given")
    if key != signer:
        raise BadPack(f"it is signed by another key, {signer.hex()}")
    if not is_signed_by(key, signature, MAGIC + digest):
        raise BadPack("its signature is wrong")


def _unpacked(part: memoryview, size: int) -> bytes:
    """A column of so many bytes. No more are unpacked, however many there are."""
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(part, size + 1)
    except zlib.error:
        raise BadPack("a column cannot be unpacked") from None
    if len(found) != size or not unpacker.eof or unpacker.unused_data:
        raise BadPack("a column has another length than the header says")
    return found


# The key of whoever publishes packs.

_MAX_PEM = 4096


class BadKey(SigdirError, ValueError):
    """A text that is no key, or not of the right kind."""


class PrivateKey:
    """A private key; ``public`` is the key that readers give, 32 bytes."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: bytes = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """Raises BadKey where cryptography is not installed."""
        _need_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def of_pem(cls, pem: bytes) -> Self:
        """The key of a PEM without a password, as ``pem`` and openssl write it; raises BadKey."""
        _need_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(pem[:_MAX_PEM], None)
        except (ValueError, TypeError) as error:
            raise BadKey(f"no private key in PEM: {str(error).partition('.')[0]}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("a private key of another kind than Ed25519")
        return cls(key)

    def pem(self) -> bytes:
        """The key as PKCS 8, without a password."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, message: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self._key.sign(message)


def public_key_of(text: str) -> bytes:
    """A public key from 64 hex digits; raises BadKey."""
    digits = text.strip().lower().removeprefix("0x")
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise BadKey("a public key has 64 hex digits")
    return bytes.fromhex(digits)


def is_signed_by(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the holder of ``key`` has signed a message; raises BadKey where cryptography is not installed."""
    _need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise BadKey(missing_package("A signature", "cryptography", "sign")) from None
