"""The fuzz targets with inputs by Hypothesis: any bytes, mutated samples, damaged compressed files."""

from __future__ import annotations

from base64 import b85decode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzz.targets import TARGETS, seeds
from tests.pipeline.support import COMPRESSORS

FOUND: list[tuple[str, bytes]] = [
    # Parquet with level statistics of a wrong size: Arrow raises an exception that is not an ArrowException.
    (
        "readers",
        b85decode(
            "08l|vF%<+A>H!s~0ZbJN6#x<d04TLD{UCK+0sulp4;PTd83RNF_Bj|t0&FBy7>}x<GhQOT6y`G19|8aX00SEW1B3t-1Q|Rz02l^yV`yb<VHE@b6$~W;7!Gu0cywQLX=iR>bairNB>+qu0000L3?&8_1ZH7#XaE)p85|ibCIB223>h^51`rt-4s>OBbYF96XKrD1b#i4D3>FF&$^#af118V`CI}oh04N!Ba$#<BW@U0HVPs@-Wpi^Zb!l#NGBq|S7$H=0VQzC~WpXHCWMpz>b8{?VWMpz>b8{?pX>N2iFgYm^5dax16$BLk6#@Vi02L4w0suS~!T}iu872S<0000c02~zz88rX~5E&Q*Xkl|`6$};%7Lo!MwgM)t1SX;b95w<dAl>p(tsCOVn`y$ZX#6*gs+B9J@ngiH7AW;vP4y$Q?-&CyGBXho02wS51Qh@k0ss{N6%Z8y06Z2}83q|90tf&A02bT@778W^7SII%85|f4K~hprS2}ZJXk~3-80-NrFE1}IHfKRWK|xVLK|w)5K|xDFL3cqyXF*0mL1#fjXF)+hK|w-7K|xJHK|w)7K|x7DK|w)6K|x7DK|w)6K|w)5K}kVDK|(=6K|w)6K|w)5PHHbNFE~L#K}AJHK|w)5LT5oiK|w`9K|w)5K|w)5K~X_LK|*g?SWa(2K|w)5O++s*FE~*_LQz3OK|x1BL1RHgK|w)5LP0@AK|w)5K|w)5QB_evK|w)EK|w)5K~X_LK|w)5K|w)8XF)+hNK$NNNK$5FGHh;QZALI;SW0X`K|w`9K~X_MK|w)5K|w)5K|wtL7$9(Aa&dKKbS-0Wa4lhSa&LDac4cyNX>V>IGBz$SE-@J_8~^|u0001J0ssI|K~ga"
        ),
    ),
]
"""Inputs that once broke a target, each with the defect that it showed."""

thorough = settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def mutated(draw: st.DrawFn, name: str) -> bytes:
    """A seed with up to four pieces replaced by other bytes or by another piece; the end may be cut."""
    data = draw(st.sampled_from(list(seeds(name))))
    for _ in range(draw(st.integers(0, 4))):
        at, length, other = (draw(st.integers(0, most)) for most in (len(data), 40, len(data)))
        piece = draw(st.binary(max_size=8) | st.just(data[other : other + length]))
        data = data[:at] + piece + data[at + draw(st.integers(0, 40)) :]
    return data[: draw(st.none() | st.integers(1, len(data) + 1))]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.long
def test_any_bytes(name: str) -> None:
    """No input makes a target fail."""

    @thorough
    @given(st.one_of(mutated(name), mutated(name), st.binary(max_size=200)))
    def check(data: bytes) -> None:
        TARGETS[name](data)

    check()


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_damaged_compressed_files(compressor: str) -> None:
    """With any one bit flipped, or cut after any byte, a small file is read or refused in one line."""
    compressed = COMPRESSORS[compressor](b"function f(uint a)\n" * 3)
    for at in range(len(compressed)):
        TARGETS["readers"](b"\x80" + compressed[:at])
        for bit in range(8):
            TARGETS["readers"](b"\x80" + compressed[:at] + bytes([compressed[at] ^ 1 << bit]) + compressed[at + 1 :])


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_earlier_findings(name: str, data: bytes) -> None:
    """Inputs that once broke a target no longer do."""
    TARGETS[name](data)
