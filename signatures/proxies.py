"""Patterns of proxies in runtime code: minimal proxies by their bytes, others by the slots and functions that they use.

Sources: ERC-1167; ERC-7511, the same with PUSH0; Solady's LibClone; Vyper's create_minimal_proxy_to; ERC-1967 for slots
and beacons; ERC-1822; ERC-2535; ERC-7702; the Safe's proxy, 1.0 to 1.5; Arbitrum's proxy with two implementations.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sigdir.signatures.bytecode import RuntimeCode
from sigdir.signatures.keccak import keccak256


@dataclass(frozen=True, slots=True)
class ProxyPattern:
    """A pattern that code shows. ``address`` is the implementation's where the code holds it, 20 bytes, else empty."""

    name: str
    source: str
    detail: str
    address: bytes = b""


_ADDRESS = rb"\x73(?P<address>.{20})"
_MINIMAL = tuple(
    (name, source, re.compile(pattern, re.DOTALL))
    for name, source, pattern in (
        ("EIP-1167 minimal proxy", "ERC-1167", rb"\x36\x3d\x3d\x37\x3d\x3d\x3d\x36\x3d" + _ADDRESS + rb"\x5a\xf4\x3d\x82\x80\x3e\x90\x3d\x91\x60\x2b\x57\xfd\x5b\xf3"),
        ("EIP-1167 minimal proxy, shorter address", "ERC-1167", rb"\x36\x3d\x3d\x37\x3d\x3d\x3d\x36\x3d[\x60-\x72](?P<address>.{1,19})\x5a\xf4\x3d\x82\x80\x3e\x90\x3d\x91\x60.\x57\xfd\x5b\xf3"),
        ("ERC-7511 minimal proxy", "ERC-7511", rb"\x36\x5f\x5f\x37\x5f\x5f\x36\x5f" + _ADDRESS + rb"\x5a\xf4\x3d\x5f\x5f\x3e\x5f\x3d\x91\x60\x2a\x57\xfd\x5b\xf3"),
        ("minimal proxy of Solady", "Solady LibClone", rb"\x3d\x3d\x3d\x3d\x36\x3d\x3d\x37\x36\x3d" + _ADDRESS + rb"\x5a\xf4\x3d\x3d\x93\x80\x3e\x60\x2a\x57\xfd\x5b\xf3"),
        ("minimal proxy of Vyper", "Vyper create_minimal_proxy_to", rb"\x36\x60\x00\x60\x00\x37\x61\x10\x00\x60\x00\x36\x60\x00" + _ADDRESS + rb"\x5a\xf4\x60\x2c\x57\x60\x00\x80\xfd\x5b\x61\x10\x00\x60\x00\xf3"),
        ("EIP-7702 delegation", "ERC-7702", rb"\xef\x01\x00(?P<address>.{20})\Z"),
    )
)  # fmt: skip
_OTHER_MINIMAL = re.compile(rb".{1,64}\x37.{1,24}" + _ADDRESS + rb"\x5a\xf4", re.DOTALL)
"""At the beginning of code CALLDATACOPY, PUSH20, GAS, DELEGATECALL, as 0xSplits, Uniswap v1, Solady with PUSH0, and clones
with immutable arguments write it.
"""


def slot(name: str, minus: int = 1) -> bytes:
    """The storage slot that a standard derives from a name."""
    return (int.from_bytes(keccak256(name.encode())) - minus).to_bytes(32)


_SLOTS = (
    ("EIP-1967 implementation", "ERC-1967", "eip1967.proxy.implementation", 1),
    ("Arbitrum second implementation", "Arbitrum AdminFallbackProxy", "eip1967.proxy.implementation.secondary", 1),
    ("EIP-1967 beacon", "ERC-1967", "eip1967.proxy.beacon", 1),
    ("EIP-1967 admin", "ERC-1967", "eip1967.proxy.admin", 1),
    ("EIP-1822 implementation", "ERC-1822", "PROXIABLE", 0),
    ("OpenZeppelin implementation", "OpenZeppelin SDK", "org.zeppelinos.proxy.implementation", 0),
    ("EIP-2535 diamond storage", "ERC-2535", "diamond.standard.diamond.storage", 0),
)
_PROXIABLE = bytes.fromhex("52d1902d")  # proxiableUUID()
_DIAMOND_CUT = bytes.fromhex("1f931c1c")
_LOUPE = frozenset(map(bytes.fromhex, ("7a0ed627", "adfca15e", "52ef6b2c", "cdffacc6")))
_MASTER_COPY = bytes.fromhex("a619486e")  # masterCopy(), which the Safe's proxy answers itself
_IMPLEMENTATION = bytes.fromhex("5c60da1b")  # implementation() of a beacon


_TARGET_FUNCTIONS = {
    _IMPLEMENTATION: "implementation()", _MASTER_COPY: "masterCopy()", bytes.fromhex("7a0ed627"): "facets()",
}  # fmt: skip


def target_function(selectors: Collection[bytes]) -> str:
    """The function among these by which a proxy says what it delegates to; "" without one."""
    return next((text for selector, text in _TARGET_FUNCTIONS.items() if selector in selectors), "")


def proxy_patterns(code: RuntimeCode) -> tuple[ProxyPattern, ...]:
    """The patterns that runtime code shows, minimal proxies first."""
    return (*_minimal(code.code), *_by_slots(code), *_by_functions(code)) or _by_delegation(code)


def _minimal(code: bytes) -> tuple[ProxyPattern, ...]:
    for name, source, pattern in _MINIMAL:
        found = pattern.match(code)
        if found is not None:
            address = found["address"].rjust(20, b"\0")
            behind = len(code) - found.end()
            detail = f"delegates every call to 0x{address.hex()}"
            if behind > 1:
                detail += f"; {behind} bytes of immutable arguments"
            return (ProxyPattern(name, source, detail, address),)
    return ()


def _by_slots(code: RuntimeCode) -> tuple[ProxyPattern, ...]:
    is_proxiable = _PROXIABLE in code.selectors
    found = []
    for name, source, label, minus in _SLOTS:
        if slot(label, minus) not in code.topics:
            continue
        if "implementation" in name and is_proxiable:
            detail = "the slot is used by an implementation that can be upgraded (UUPS)"
        else:
            detail = "the slot is used, and the code delegates calls" if code.delegates else "the slot is used"
        found.append(ProxyPattern(name, source, detail))
    return tuple(found)


def _by_functions(code: RuntimeCode) -> tuple[ProxyPattern, ...]:
    found = []
    if code.selectors >= _LOUPE or _DIAMOND_CUT in code.selectors:
        is_whole = code.selectors >= {_DIAMOND_CUT, *_LOUPE}
        detail = "diamondCut and the loupe" if is_whole else "some functions of a diamond"
        found.append(ProxyPattern("EIP-2535 diamond", "ERC-2535", detail))
    has_master_copy = (
        _MASTER_COPY + bytes(28) in code.topics if not code.selectors else code.selectors == {_MASTER_COPY}
    )
    if has_master_copy and code.delegates:
        found.append(ProxyPattern("Safe proxy", "Safe", "answers masterCopy() and delegates every other call"))
    return tuple(found)


def _by_delegation(code: RuntimeCode) -> tuple[ProxyPattern, ...]:
    """Code without functions that delegates."""
    if code.selectors or not code.delegates:
        return ()
    if found := _OTHER_MINIMAL.match(code.code):
        address = found["address"]
        return (ProxyPattern("minimal proxy", "EIP-7", f"delegates calls to 0x{address.hex()}", address),)
    if _IMPLEMENTATION in code.error_selectors:
        detail = "no function is found, and the code calls implementation() and delegates calls"
        return (ProxyPattern("beacon proxy", "OpenZeppelin 5", detail),)
    return (ProxyPattern("delegates calls", "EIP-7", "no function is found"),)
