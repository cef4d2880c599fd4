"""Small contracts, assembled by hand for the tests of bytecode."""

from __future__ import annotations

from collections.abc import Iterable

EQ, ISZERO, SHL, SHR, CALLDATALOAD, MSTORE, JUMPI, JUMPDEST, STOP, REVERT, LOG1, DUP1, DUP2, POP = (
    0x14, 0x15, 0x1B, 0x1C, 0x35, 0x52, 0x57, 0x5B, 0x00, 0xFD, 0xA1, 0x80, 0x81, 0x50,
)  # fmt: skip


def push(value: bytes) -> bytes:
    """PUSHn of these bytes; n is their number, and 0 for none."""
    return bytes([0x5F + len(value)]) + value


def dispatcher(
    selectors: Iterable[bytes], body: bytes = b"", function: bytes = bytes([STOP]), *, start: bytes = b""
) -> bytes:
    """A contract with a function for each selector, which stops; ``body`` follows and is reached by no function.

    ``start`` stands before it and is run first.
    """
    selectors = list(selectors)
    head = start + push(b"") + bytes([CALLDATALOAD]) + push(b"\xe0") + bytes([SHR])
    at = len(head) + 11 * len(selectors) + 4  # of the first function
    code = head
    for number, selector in enumerate(selectors):
        code += bytes([DUP1]) + push(selector) + bytes([EQ])
        code += push((at + (1 + len(function)) * number).to_bytes(2)) + bytes([JUMPI])
    code += push(b"") + push(b"") + bytes([REVERT, STOP])
    return code + (bytes([JUMPDEST]) + function) * len(selectors) + body


def reads_words(count: int) -> bytes:
    """A function that reads so many words of its arguments, and stops."""
    words = (push(bytes([4 + 32 * number])) + bytes([CALLDATALOAD, POP]) for number in range(count))
    return b"".join(words) + bytes([STOP])


def error_code(selector: bytes) -> bytes:
    """A revert with this selector, as solc writes it: the selector is shifted into place."""
    return push(selector) + push(b"\xe0") + bytes([SHL]) + push(b"") + bytes([MSTORE]) + _REVERT


def plain_error_code(selector: bytes) -> bytes:
    """A revert with this selector, as assembly of Solady writes it: the word is stored, and bytes 28 to 32 are given."""
    return push(selector) + push(b"") + bytes([MSTORE]) + push(b"\x04") + push(b"\x1c") + bytes([REVERT])


_REVERT = push(b"\x04") + push(b"") + bytes([REVERT])


def event_code(topic: bytes) -> bytes:
    """A log of this topic without data."""
    return push(topic) + push(b"") + push(b"") + bytes([LOG1])


def metadata(digest: bytes = bytes(32)) -> bytes:
    """What solc puts at the end of code: the hash of the metadata, and its own version."""
    cbor = b"\xa2\x64ipfs\x58\x22\x12\x20" + digest + b"\x64solc\x43\x00\x08\x1e"
    return cbor + len(cbor).to_bytes(2)


def creation_code(runtime: bytes) -> bytes:
    """Creation code around runtime code, as solc makes it without a constructor."""
    before = 14
    size, at = push(len(runtime).to_bytes(2)), push(before.to_bytes(2))
    head = size + bytes([DUP1]) + at + push(b"") + bytes([0x39]) + push(b"") + bytes([0xF3, 0xFE])
    assert len(head) == 12
    return head[:-1] + bytes([STOP, STOP, 0xFE]) + runtime
