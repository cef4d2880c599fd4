"""The interface of a contract as the decode page shows it: every list is cut, every text is short."""

from __future__ import annotations

from dataclasses import dataclass

from sigdir.serve.pages.abi import indented
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.argument_shapes import Fit
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.contract import ContractInterface, Member
from sigdir.signatures.evidence import Kind
from sigdir.signatures.solidity_interface import abi_of, solidity_of

_MAX_MEMBERS = 500
_MAX_TEXTS = 20


@dataclass(frozen=True, slots=True)
class ShownMember:
    """A function, an event or an error: its best declaration, why, and its other texts with their reasons.

    ``text`` is empty where no text is known; ``shape`` are the arguments that the code reads then.
    """

    hash: str
    address: str
    text: str
    payable: str
    is_sure: bool
    reasons: str
    others: tuple[tuple[str, str], ...]
    more: int
    shape: str


@dataclass(frozen=True, slots=True)
class ShownMembers:
    """The members of one kind; ``count`` is their number, of which ``shown`` are on the page."""

    title: str
    id: str
    count: int
    unknown: int
    shown: tuple[ShownMember, ...]


@dataclass(frozen=True, slots=True)
class ShownContract:
    """A contract; ``abi`` and ``solidity`` are whole."""

    found: ContractInterface
    members: tuple[ShownMembers, ...]
    abi: str
    solidity: str


def shown_contract(found: ContractInterface) -> ShownContract:
    """A contract as the page shows it."""
    members = (
        _members("Functions", "functions", found.functions),
        _members("Events", "events", found.events),
        _members("Errors", "errors", found.errors),
    )
    return ShownContract(found, members, indented(abi_of(found)), solidity_of(found))


def _members(title: str, id: str, members: tuple[Member, ...]) -> ShownMembers:
    unknown = sum(member.best is None for member in members)
    return ShownMembers(title, id, len(members), unknown, tuple(map(_member, members[:_MAX_MEMBERS])))


def _member(member: Member) -> ShownMember:
    collection = EVENT_SIGNATURES if member.kind is Kind.EVENT else SIGNATURES
    best = member.best
    others = tuple((one.known.text, "; ".join(one.reasons)) for one in member.texts[1 : 1 + _MAX_TEXTS])
    return ShownMember(
        hash="0x" + member.hash.hex(),
        address=hash_address(collection, member.hash),
        text=str(best.declaration or best.known.text) if best else "",
        payable=member.payable,
        is_sure=best is not None and best.fit in (Fit.SAME, Fit.ALIKE),
        reasons="; ".join(best.reasons) if best else "",
        others=others,
        more=max(0, len(member.texts) - 1 - _MAX_TEXTS),
        shape=member.shape if member.kind is Kind.FUNCTION else "",
    )
