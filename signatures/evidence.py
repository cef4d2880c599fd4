"""Evidence: what a source says about a text. A ``Sighting`` is what one source says about one text."""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Self

from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN

MAX_NAME = 256
MOST_CONTRACTS = (1 << 31) - 1
"""A sighting counts at most so many contracts."""


class Kind(IntEnum):
    """What a text was declared as. The numbers are those of the sightings at rest."""

    UNKNOWN = 0
    FUNCTION = 1
    EVENT = 2
    ERROR = 3

    @property
    def collection(self) -> int:
        """The number of the collection that its texts are in: EVENTS, FUNCTIONS or UNKNOWN."""
        return EVENTS if self is Kind.EVENT else FUNCTIONS if self else UNKNOWN


class Witness(IntEnum):
    """How well a source knows that a text is in use; a higher number is better. The numbers are those at rest."""

    SOLVED = 0
    """A search found it: a name and parameters that give the hash. That they are meant is a guess."""
    LISTED = 1
    """A list names it."""
    DECLARED = 2
    """An ABI or a source declares it."""
    COMPILED = 3
    """An ABI declares it, and its runtime bytecode holds the selector or the topic: checked by us."""
    DESCRIBED = 4
    """A descriptor for clear signing (ERC-7730) says what a call of it means to whoever signs."""


class Deployed(NamedTuple):
    """Where a contract is: the chain, 0 where the source does not say, the address, and the one that it delegates to."""

    chain: int
    address: bytes
    target: bytes = b""


class Contract(NamedTuple):
    """A contract that declares a text. Two with the same ``key`` count as one."""

    name: str
    key: bytes
    """8 bytes: of the runtime code's hash without its metadata, else of the path and the name."""
    code_hash: bytes = b""
    """Keccak-256 of its runtime code as a node has it; empty where it is not known."""
    deployed: Deployed | None = None

    @classmethod
    def at(cls, path: str, name: str) -> Self:
        """A contract by the file that declares it, where its runtime code is not known.

        A path in a package counts from the package: the same contract in `a/node_modules/p` and `b/node_modules/p` is
        one. A name of over MAX_NAME characters is cut.
        """
        below = path.rpartition("node_modules/")[2]
        key = blake2b(f"{below}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return cls(name[:MAX_NAME].encode("utf-8", "replace").decode(), key)


class Sighting(NamedTuple):
    """What one source says about one text; the import and the file are known to whoever reads the file."""

    kind: Kind = Kind.UNKNOWN
    witness: Witness = Witness.LISTED
    declaration: str = ""
    """As declared, canonically spelled: ``function transfer(address to, uint256 amount) returns (bool)``; "" for none."""
    contract: Contract | None = None
    contracts: int = 0
    """How many contracts a source counts that does not name them (Sourcify's compilations)."""
    verified: bool = False
    """Whether a source that compiles contracts itself vouches for it (Sourcify)."""
    display: str = ""
    """How a call is shown to whoever signs it, as JSON (``clear_signing.py``); "" where the source does not say so."""


SOLVED_SOURCE = "solved"
"""The label of the source whose texts a search found."""
LISTED = Sighting()
"""What a plain list says: the text alone."""
LISTED_EVENT = Sighting(Kind.EVENT)
"""What a plain list says of an event. A list that knows a selector does not know whether it is a function's or an error's."""
