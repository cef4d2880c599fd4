"""The JavaScript reader of packs in Node: it finds what the Python reader finds, and refuses what that one refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import INDEXED, MAGIC, TEXTS, BadPack, PackColumns, PrivateKey, pack_bytes
from sigdir.signatures.pack_texts import PackRow, encoded
from sigdir.signatures.types import parse_declaration
from tests.conftest import ROOT, SAFETY_SECONDS, import_files
from tests.examples import examples
from tests.pipeline.test_export_pack import export
from tests.serve.support import SPAM, TRANSFER, digest
from tests.signatures.strategies import valid

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")

SCRIPT = Path(__file__).with_name("pack.mjs")
INDEX = ROOT / "clients" / "js" / "index.js"


def in_node(folder: Path, packs: Iterable[bytes], hashes: Iterable[str] = (), **key: str | None) -> Any:
    """What Node finds for the hashes in each pack, or why it refuses it."""
    asked = []
    for number, content in enumerate(packs):
        (path := folder / f"{number}.pack").write_bytes(content)
        asked.append({"path": str(path), "hashes": list(hashes), **key})
    done = subprocess.run(
        ["node", "--no-warnings", SCRIPT], input=json.dumps(asked).encode(), capture_output=True,
        timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def refused_by_node(folder: Path, packs: Iterable[bytes]) -> list[str | None]:
    return [found.get("refused") for found in in_node(folder, packs)]


def refused_here(content: bytes) -> str | None:
    try:
        Pack(content)
    except BadPack:
        return "BadPack"
    return None


def expected(content: bytes, hashes: list[str]) -> dict[str, Any]:
    pack = Pack(content)
    declared = [pack.declarations(hash) for hash in hashes]
    return {
        "size": len(pack), "texts": [pack.lookup(hash) for hash in hashes], "declarations": declared,
        "abi": [[parse_declaration(one).abi_entry() for one in some] for some in declared],
    }  # fmt: skip


def row(text: str, kind: Kind) -> PackRow:
    return PackRow(text, 1, canonicalise_one(f"{kind.name.lower()} {text}", kind.collection, kind).declaration)


def test_node_finds_what_a_warehouse_has(tmp_path: Path) -> None:
    """Every hash of the samples, in both forms, with declarations and entries of an ABI."""
    (tmp_path / "spam.txt").write_text(f"{SPAM}\ncollate_propagate_storage(bytes16)\nburn(uint256)\n")
    import_files([tmp_path / "spam.txt", ROOT / "samples"], tmp_path / "warehouse")
    packs = [
        export(tmp_path / "warehouse", declarations=True, indexed=indexed).read_bytes() for indexed in (False, True)
    ]
    rows = sigdir.open(tmp_path / "warehouse").sql("SELECT DISTINCT hash FROM ranked").rows()
    hashes = [*(f"0x{hash.hex()}" for (hash,) in rows), "0x00000000", "0x" + "0" * 64]
    found = in_node(tmp_path, packs, hashes)
    assert found == [expected(pack, hashes) for pack in packs]
    assert [TRANSFER] in found[0]["texts"]


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(valid().map(lambda one: one.canonical), unique=True, max_size=30), min_size=1, max_size=8))
def test_node_finds_any_texts(tmp_path: Path, lists: list[list[str]]) -> None:
    """Texts that the grammar accepts, in both collections and in any number."""
    kinds = {SIGNATURES: Kind.FUNCTION, EVENT_SIGNATURES: Kind.EVENT}
    packs = [
        pack_bytes(TEXTS, 0, [encoded(one, [row(text, kinds[one]) for text in texts]) for one in COLLECTIONS])
        for texts in lists
    ]
    digests = [digest(text) for texts in lists for text in texts]
    hashes = [f"0x{one.hex()}" for digest in digests for one in (digest[:4], digest, digest[:4] + bytes(28))]
    assert in_node(tmp_path, packs, hashes) == [expected(pack, hashes) for pack in packs]


def test_node_takes_the_keyword_of_the_other_collection_as_a_name(tmp_path: Path) -> None:
    """As the grammar does: a function may be called event, an event function, and none by its own keyword."""
    packs = [
        pack_bytes(TEXTS, 0, [PackColumns(collection, 1, [b"\0", name, b"()\n", b"\0", b""])])
        for collection in COLLECTIONS
        for name in (b"function\n", b"event\n")
    ]
    refused = ["BadPack", None, None, "BadPack"]
    assert refused_by_node(tmp_path, packs) == refused
    assert [refused_here(pack) for pack in packs] == refused


def column_packs() -> list[bytes]:
    """Packs whose frame is right, each with something in its columns that no pack has."""
    good = [b"\0", b"f\n", b"()\n", b"\0", b""]
    wrong: list[tuple[int, bytes]] = [
        (0, b"\1"), (0, b"\0\0"), (1, b"9f\n"), (1, b"f g\n"), (1, b"function\n"), (1, b"\xff\n"), (1, b"\n"), (1, b"f\ng\n"),
        (2, b"()\n()\n"), (2, b"()"), (3, b"\0\0"), (3, b""), (4, b"a\nb\n"),
        *((2, text + b"\n") for text in (
            b"(uint)", b"(uint256) view", b"(" * 33 + b")" * 33, b"", b"(", b")", b"(uint256", b"uint256)", b"(uint256,)",
            b"(,uint256)", b"(uint256)()", b"(uint256)[]", b"([])", b"(uint256[0])", b"(uint256[01])", b"(uint256 [])", b"(uint7)",
            b"(bytes33)", b"(bytes0)", b"(fixed128x81)", b"(fixed128x0)", b"(fixed)", b"(tuple)", b"(tuple(bool))", b"(address a)",
            b"(address indexed)", b"((bool)(bool))", b"(bool[)", b"(a.b)", b"(bool)x",
        )),
    ]  # fmt: skip
    packs = [
        pack_bytes(TEXTS, 0, [PackColumns(SIGNATURES, 1, [*good[:at], bad, *good[at + 1 :]])]) for at, bad in wrong
    ]
    return [
        *packs,
        pack_bytes(TEXTS, 0, [PackColumns(SIGNATURES, 2, [b"\0\1", b"f\n\n", b"()\n()\n", b"\0\0", b""])]),
    ]


def test_node_refuses_what_python_refuses(tmp_path: Path) -> None:
    """Cut, changed, foreign and of another format; texts that are not canonical; a text twice. Each with BadPack."""
    whole = pack_bytes(TEXTS, 7, [encoded(SIGNATURES, [PackRow(TRANSFER), PackRow("a()")])])
    flipped = [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(0, len(whole) - 96, 3)]
    cut = [whole[:length] for length in range(0, len(whole), 7)]
    bad = [*flipped, *cut, b"", MAGIC, whole + b"\0", *column_packs()]
    assert refused_by_node(tmp_path, bad) == [refused_here(pack) for pack in bad] == ["BadPack"] * len(bad)


def test_node_reads_a_line_once(tmp_path: Path) -> None:
    """A pack whose numbers all have one long text, or one long declaration, is refused as soon as it is asked."""
    long, declared = f"f({','.join(['uint256'] * 500)})", f"function f() returns ({', '.join(['uint256'] * 500)})\n"
    for text, copies, declarations in ((long, 1, [b"", b""]), ("f()", 1000, [bytes(4000), declared.encode()])):
        starts = b"".join((at % copies * (len(text) + 1)).to_bytes(4, "little") for at in range(1000))
        hash = digest(text)[:4]
        columns = [hash[::-1] * 1000, starts, f"{text}\n".encode() * copies, *declarations]
        pack = pack_bytes(INDEXED, 0, [PackColumns(SIGNATURES, 1000, columns)])
        [found] = in_node(tmp_path, [pack], [f"0x{hash.hex()}"])
        assert found.get("message") == "it has a text twice"


def test_node_returns_no_text_of_another_hash(tmp_path: Path) -> None:
    """Nor one that is not canonical, whatever its hash: the form for lookups is not hashed when it is opened."""
    claim = "claimNFT(address,uint256)"
    for text, number, told in (
        (claim, "a9059cbb", f"it has {claim} under 0xa9059cbb, which is not of its hash"),
        *((bad, digest(bad)[:4].hex(), "no") for bad in ("f(uint)", "9f()", "f", "f()\x1b", "pay alice()")),
    ):
        columns = [bytes.fromhex(number)[::-1], bytes(4), f"{text}\n".encode(), b"", b""]
        for collection, asked in ((SIGNATURES, f"0x{number}"), (EVENT_SIGNATURES, f"0x{number}{'0' * 56}")):
            pack = pack_bytes(INDEXED, 0, [PackColumns(collection, 1, columns)])
            [found] = in_node(tmp_path, [pack], [asked])
            assert (found.get("refused"), told in found["message"]) == ("BadPack", True)


@pytest.mark.parametrize(
    "declaration", ["f(uint256 6)", "f(uint256) returns (uint7)", "f(uint256) returns (]ool)", "g(uint256)"]
)
def test_node_refuses_a_declaration_that_is_none_of_its_text(tmp_path: Path, declaration: str) -> None:
    """Its parameters have names, and what it returns has types, as viem and ethers want them."""
    text = "f(uint256)"
    pack = pack_bytes(TEXTS, 0, [encoded(SIGNATURES, [PackRow(text, 1, f"function {declaration}")])])
    [found] = in_node(tmp_path, [pack], [hash := f"0x{digest(text)[:4].hex()}"])
    assert found["refused"] == "BadPack"
    with pytest.raises(BadPack):
        Pack(pack).declarations(hash)


def test_node_checks_signatures(tmp_path: Path) -> None:
    """A pack is refused that is not signed, signed by another key, or whose signature is wrong, where a key is given."""
    key, rows = PrivateKey.generate(), [encoded(SIGNATURES, [PackRow(TRANSFER)])]
    signed, unsigned = pack_bytes(TEXTS, 7, rows, key), pack_bytes(TEXTS, 7, rows)
    other, wrong = pack_bytes(TEXTS, 7, rows, PrivateKey.generate()), signed[:-1] + bytes([signed[-1] ^ 1])
    hashes, mine = ["0xa9059cbb"], key.public.hex()
    first, *refused = in_node(tmp_path, [signed, unsigned, other, wrong], hashes, key=mine)
    assert first["texts"] == [[TRANSFER]]
    told = ["it is not signed", "it is signed by another key", "its signature is wrong"]
    for one, part in zip(refused, told, strict=True):
        assert one["refused"] == "BadPack"
        assert part in one["message"]
    for no_key in ("12", None):
        [found] = in_node(tmp_path, [signed], key=no_key)
        assert found["refused"] == "TypeError"
        assert "64 hex digits" in found["message"]


def test_the_module_is_small_and_stands_alone() -> None:
    """At most 300 lines of code, one file, no imports; what it exports is typed."""
    lines = [line.strip() for line in INDEX.read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith(("//", "/**", "*"))]) <= 300
    assert not [line for line in lines if line.startswith("import ") or "require(" in line]
    manifest = json.loads(INDEX.with_name("package.json").read_text())
    assert {"index.js", "index.d.ts"} == set(manifest["files"])
    assert "dependencies" not in manifest
