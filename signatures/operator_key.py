"""The key of whoever publishes packs: Ed25519, by the package cryptography, which is an extra."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

from sigdir.signatures.errors import SigdirError, missing_package

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
