"""Packs: what is written is read again by either way of reading, and what cannot be trusted is refused."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.signatures import pack_texts
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.pack_file import INDEXED, MAGIC, TEXTS, BadKey, BadPack, PackColumns, PrivateKey, pack_bytes
from sigdir.signatures.pack_texts import PackRow, encoded, range_bytes
from tests.conftest import ROOT
from tests.examples import examples
from tests.pipeline.support import keccak256

TRANSFER, SPAM = "transfer(address,uint256)", "many_msg_babbage(bytes1)"
DECLARED = "function transfer(address to, uint256 value) returns (bool)"
EVENT = "Transfer(address,address,uint256)"

_names = st.text("fg_", min_size=1, max_size=5) | st.sampled_from(["f" * 255, "f" * 256, "f" * 257 + "g"])
_lists = st.sampled_from(["()", "(uint256)", "(address,(bytes,bool[])[2])", "(function)"])
canonical_texts = st.lists(st.builds(str.__add__, _names, _lists), unique=True, max_size=30)
"""Texts that share names, beginnings of names, and lists."""


def packed(rows: list[PackRow], collection: Collection = SIGNATURES, key: PrivateKey | None = None) -> bytes:
    return pack_bytes(TEXTS, 7, [encoded(collection, rows)], key)


def remade(columns: list[bytes], rows: int = 1, form: str = TEXTS) -> bytes:
    """A pack of these columns, whose frame is right."""
    return pack_bytes(form, 0, [PackColumns(SIGNATURES, rows, columns)])


@pytest.fixture(params=["plain", "kernels"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small packs are read by the kernels too."""
    if request.param == "kernels":
        monkeypatch.setattr(pack_texts, "KERNEL_ROWS", 1)


@settings(max_examples=examples(60))
@given(texts=canonical_texts)
def test_every_text_is_found_by_its_hash(texts: list[str]) -> None:
    """In both forms and by both ways of reading, with the other texts of its selector and nothing else."""
    for collection, rows in product((SIGNATURES, EVENT_SIGNATURES), (1, 1 << 30)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pack_texts, "KERNEL_ROWS", rows)
            pack = sigdir.Pack(packed([PackRow(text) for text in texts], collection))
            again = sigdir.Pack(pack.indexed())
            again.check()
            assert sorted(pack.texts(collection)) == sorted(texts) == sorted(again.texts(collection))
            for text in texts:
                hash = keccak256(text)[: collection.hash_bytes]
                same = {one for one in texts if keccak256(one)[: collection.hash_bytes] == hash}
                assert set(pack.lookup(hash)) == set(again.lookup("0x" + hash.hex())) == same


def test_the_texts_of_a_selector_are_in_their_places() -> None:
    """With their declarations; a topic's text is found by the whole hash."""
    pack = sigdir.Pack(packed([PackRow(SPAM, 2), PackRow(TRANSFER, 1, DECLARED)]))
    assert pack.lookup("0xa9059cbb") == [TRANSFER, SPAM]
    assert pack.declarations("A9059CBB") == [DECLARED]
    assert pack.lookup("0x00000000") == pack.lookup(bytes(32)) == []
    pack = sigdir.Pack(packed([PackRow(SPAM), PackRow(TRANSFER, 300)]))
    assert pack.lookup("0xa9059cbb") == [SPAM, TRANSFER]
    events = sigdir.Pack(packed([PackRow(EVENT)], EVENT_SIGNATURES))
    topic = keccak256(EVENT)
    assert events.lookup(topic) == [EVENT]
    assert events.lookup(topic[:-1] + b"\0") == events.lookup(topic[:4]) == []
    assert (len(events), events.version, events.signed_by) == (1, 7, "")


@pytest.mark.parametrize("hash", ["", "zzzzzzzz", "0xa9059cbb00", b"\1\2\3", 0xA9059CBB, None])
def test_what_is_no_hash_is_named(hash: Any) -> None:
    with pytest.raises(ValueError, match=r"4 bytes|hex digits"):
        sigdir.Pack(packed([])).lookup(hash)


def test_the_same_rows_give_the_same_bytes() -> None:
    """Whatever their order."""
    rows = [PackRow(TRANSFER, 1, DECLARED), PackRow("a()"), PackRow("a(uint256)"), PackRow("ab()")]
    assert packed(rows) == packed(rows[::-1])


# What is refused.


def test_a_pack_that_is_cut_or_changed_is_refused() -> None:
    """At any byte; a change of the key or the signature of an unsigned one is not looked at without a key."""
    whole = packed([PackRow(TRANSFER, 1, DECLARED), PackRow("a()")])
    for length in range(len(whole)):
        with pytest.raises(BadPack):
            sigdir.Pack(whole[:length])
    for at in range(len(whole) - 96):
        with pytest.raises(BadPack):
            sigdir.Pack(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
    with pytest.raises(BadPack):
        sigdir.Pack(whole + b"\0")


def test_a_pack_of_another_format_is_named() -> None:
    whole = packed([])
    with pytest.raises(BadPack, match="number 2; this reader knows 1"):
        sigdir.Pack(whole[:8] + struct.pack("<I", 2) + whole[12:])


def with_header(form: int, *collections: tuple[int, ...], columns: bytes = b"") -> bytes:
    """A pack with any header, whose digest is right."""
    body = MAGIC + numbers(1, form, 1, len(collections), *(number for one in collections for number in one)) + columns
    return body + hashlib.sha256(body).digest() + bytes(96)


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


EMPTY = [0] * 10


@pytest.mark.parametrize(
    "whole",
    [
        with_header(2), with_header(1 << 31), with_header(0, (0, 0, *EMPTY)), with_header(0, (3, 0, *EMPTY)),
        with_header(0, (1, 0, *EMPTY)), with_header(0, (1, 0, 9, 9, *EMPTY[2:])), with_header(1, (1, 2, *EMPTY)),
        with_header(1, (1, 0, *EMPTY), (1, 0, *EMPTY)), with_header(1, (1, 0, *EMPTY), (2, 0, *EMPTY), (1, 0, *EMPTY)),
        with_header(1, (1, 0)), with_header(0, columns=b"\0\0\0\1"), with_header(1, (1, 0, (1 << 32) - 1, 4, *EMPTY[2:])),
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_refused(whole: bytes) -> None:
    """A form or a collection that there is not or that is there twice, sizes that do not fit, bytes that are of no column."""
    with pytest.raises(BadPack):
        sigdir.Pack(whole)


def test_no_more_is_unpacked_than_the_header_says() -> None:
    """Not of a column that would fill the memory either; one that is shorter is refused too."""
    bomb = zlib.compress(bytes(5_000_000), 9)
    bomb += bytes(-len(bomb) % 4)
    for size in (10, 4_999_999, 5_000_001, 1 << 31):
        with pytest.raises(BadPack):
            sigdir.Pack(with_header(0, (1, 1, len(bomb), size, *EMPTY[2:]), columns=bomb))


def test_texts_that_are_too_long_are_not_made() -> None:
    """A text of more than 65,536 characters, though its name and its list are shorter; and more than 1 GiB of texts."""
    name, list = b"f" * 40_000 + b"\n", b"(" + b",".join([b"bool"] * 6_000) + b")\n"
    with pytest.raises(BadPack, match="longer than a reader allows"):
        sigdir.Pack(remade([b"\0", name, list, b"\0", b""]))
    rows = 4_300_000
    columns = [b"\0" + b"\xff" * (rows - 1), b"f" * 255 + b"\n" * rows, b"\n" * rows, bytes(rows), b""]
    with pytest.raises(BadPack, match="longer than a reader allows"):
        sigdir.Pack(remade(columns, rows))


def test_a_pack_leaves_out_what_no_abi_can_have() -> None:
    deep = [f"f{'(' * lists}{')' * lists}" for lists in (32, 33)]
    assert list(sigdir.Pack(range_bytes(SIGNATURES, 1, map(PackRow, deep), padded=False)).texts(SIGNATURES)) == deep[:1]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([b"\0", b"f\n", b"(uint)\n", b"\0", b""], "not canonical.*: f\\(uint\\)"),
        ([b"\0", b"f\n", b"(bytes33)\n", b"\0", b""], "not canonical"),
        ([b"\0", b"f\n", b"(uint256[0])\n", b"\0", b""], "not canonical"),
        ([b"\0", b"9f\n", b"()\n", b"\0", b""], "not canonical.*: 9f"),
        ([b"\0", b"function\n", b"()\n", b"\0", b""], "not canonical"),
        ([b"\0", b"\xff\n", b"()\n", b"\0", b""], "not canonical"),
        ([b"\0", b"\n", b"()\n", b"\0", b""], "not canonical"),
        ([b"\0", b"f\n", b"(" * 33 + b")" * 33 + b"\n", b"\0", b""], "no ABI can have"),
        ([b"\1", b"f\n", b"()\n", b"\0", b""], "shares more"),
        ([b"\0", b"f\n", b"()\n" * 2, b"\0", b""], "2 lines for 1"),
        ([b"\0", b"f\n", b"()\n", b"", b""], "names or places"),
        ([b"\0\0", b"f\n", b"()\n", b"\0", b""], "names or places"),
        ([b"\0", b"f\n", b"()\n)", b"\0", b""], "does not end"),
        ([b"\0", b"f\n", b"()\n", b"\0", b"a\nb\n"], "2 lines for 1"),
    ],
)
@pytest.mark.usefixtures("_way")
def test_columns_that_no_pack_has(columns: list[bytes], told: str) -> None:
    with pytest.raises(BadPack, match=told):
        sigdir.Pack(remade(columns))


def test_a_collection_without_texts_has_no_names_and_no_text_is_there_twice() -> None:
    with pytest.raises(BadPack, match="0 lines for 0 texts"):
        sigdir.Pack(remade([b"", b"f{", b"", b"", b""], 0))
    with pytest.raises(BadPack, match="twice"):
        sigdir.Pack(remade([b"\0\1", b"f\n\n", b"()\n()\n", b"\0\0", b""], 2))


def test_a_declaration_of_another_text_is_refused() -> None:
    """When it is asked for: a pack of declarations opens as fast as one without."""
    for declaration in ("function f(uint256 a)", "event transfer(address,uint256)", "no declaration", "function ("):
        pack = sigdir.Pack(packed([PackRow(TRANSFER, 1, declaration)]))
        with pytest.raises(BadPack, match="declares another text"):
            pack.declarations("0xa9059cbb")


@pytest.mark.parametrize(
    "columns",
    [
        [numbers(0xA9059CBC), numbers(0), b"transfer(address,uint256)\n", b"", b""],
        [numbers(0xA9059CBB), numbers(1), b"transfer(address,uint256)\n", b"", b""],
        [numbers(0xA9059CBB), numbers(0), b"transfer(address,uint)\n", b"", b""],
        [numbers(0xA9059CBB), numbers(0), b"transfer(address,uint256)\nf()\n", b"", b""],
        [numbers(0xA9059CBB), numbers(900), b"transfer(address,uint256)\n", b"", b""],
    ],
)
def test_the_form_for_lookups_is_checked_on_demand(columns: list[bytes]) -> None:
    """`check`, which `sigdir verify` calls, finds texts and numbers that do not belong together."""
    pack = sigdir.Pack(remade(columns, 1, INDEXED))
    with pytest.raises(BadPack):
        pack.check()


def test_a_lookup_returns_no_text_of_another_hash() -> None:
    """Of the form for lookups, which is not hashed when it is opened; nor one that is not canonical, whatever its hash."""
    for text, number, told in (
        ("claimNFT(address,uint256)", "a9059cbb", "it has claimNFT.* under 0xa9059cbb, which is not of its hash"),
        ("f(uint)", keccak256("f(uint)")[:4].hex(), "not canonical.*: f\\(uint\\)"),
    ):
        for collection, asked in ((SIGNATURES, number), (EVENT_SIGNATURES, number + "0" * 56)):
            columns = [numbers(int(number, 16)), numbers(0), f"{text}\n".encode(), b"", b""]
            pack = sigdir.Pack(pack_bytes(INDEXED, 0, [PackColumns(collection, 1, columns)]))
            with pytest.raises(BadPack, match=told):
                pack.lookup(asked)


def test_a_text_is_beside_one_number() -> None:
    """A pack whose numbers all have one long text, or one long declaration, is refused before that is read many times."""
    long, declared = f"f({','.join(['uint256'] * 500)})", f"function f() returns ({', '.join(['uint256'] * 500)})\n"
    for text, copies, declarations in ((long, 1, [b"", b""]), ("f()", 1000, [numbers(*[0] * 1000), declared.encode()])):
        hash = keccak256(text)[:4]
        starts = numbers(*(number % copies * (len(text) + 1) for number in range(1000)))
        columns = [hash[::-1] * 1000, starts, f"{text}\n".encode() * copies, *declarations]
        pack = sigdir.Pack(remade(columns, 1000, INDEXED))
        with pytest.raises(BadPack, match="a text twice"):
            pack.declarations(hash)


# Signatures.


def test_a_signed_pack_is_read_with_its_key_alone() -> None:
    """Without a key it is read as an unsigned one; a wrong or missing signature is told from another signer."""
    key, other = PrivateKey.generate(), PrivateKey.generate()
    signed, unsigned = packed([PackRow(TRANSFER)], key=key), packed([PackRow(TRANSFER)])
    assert sigdir.Pack(signed, key.public.hex()).signed_by == key.public.hex()
    assert sigdir.Pack(signed).lookup("0xa9059cbb") == [TRANSFER]
    with pytest.raises(BadPack, match="not signed"):
        sigdir.Pack(unsigned, key.public.hex())
    with pytest.raises(BadPack, match="another key"):
        sigdir.Pack(signed, other.public.hex())
    with pytest.raises(BadPack, match="its signature is wrong"):
        sigdir.Pack(signed[:-1] + bytes([signed[-1] ^ 1]), key.public.hex())
    moved = unsigned[:-96] + signed[-96:]
    assert sigdir.Pack(moved, key.public.hex())  # the same rows have the same digest
    with pytest.raises(BadPack, match="its signature is wrong"):
        sigdir.Pack(packed([PackRow("a()")])[:-96] + signed[-96:], key.public.hex())


@pytest.mark.parametrize("key", ["", "zz" * 32, "a" * 65])
def test_what_is_no_key_is_named(key: str) -> None:
    with pytest.raises(BadKey, match="64 hex digits"):
        sigdir.Pack(packed([]), key)


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_private_key_is_named(pem: bytes) -> None:
    with pytest.raises(BadKey, match="no private key"):
        PrivateKey.of_pem(pem)


def test_a_private_key_is_written_as_others_read_it() -> None:
    """PKCS 8 in PEM, which comes back the same."""
    key = PrivateKey.generate()
    assert key.pem().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert PrivateKey.of_pem(key.pem()).public == key.public


def test_a_pack_is_read_without_numba_and_without_a_warehouse(tmp_path: Path) -> None:
    """As in a program that has neither: no module of the warehouse is loaded."""
    path = tmp_path / "a.pack"
    path.write_bytes(packed([PackRow(TRANSFER, 1, DECLARED), *(PackRow(f"f{number}()") for number in range(60_000))]))
    code = f"""
import sys
sys.modules["numba"] = None
import sigdir
with sigdir.Pack({str(path)!r}) as pack:
    print(pack.lookup("0xa9059cbb"), pack.declarations("0xa9059cbb"), len(pack))
assert not [name for name in sys.modules if name.startswith(("sigdir.warehouse", "sigdir.pipeline"))]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{[TRANSFER]} {[DECLARED]} 60001\n", "")


def test_an_empty_file_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(BadPack, match="empty"):
        sigdir.Pack(tmp_path / "empty")
