"""`sigdir export pack`, and the commands that read a pack in place of a warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.cli.progress import Lines
from sigdir.pipeline.directory import PackSource, open_directory
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.export import Options, PackOptions, run_export
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.pack_file import INDEXED, PackColumns, pack_bytes
from tests.conftest import ROOT, import_files
from tests.pipeline.support import invoke

TRANSFER, SPAM = "transfer(address,uint256)", "many_msg_babbage(bytes1)"
HONEST = ("collate_propagate_storage(bytes16)", "burn(uint256)")
"""Texts with one selector, neither of which looks mined."""
TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
CALL = "0xa9059cbb" + "70997970C51812dc3A010C7d01b50e0d17dc79C8".rjust(64, "0") + "28".rjust(64, "0")


def export(warehouse: Path, collections: tuple[Collection, ...] | None = None, **options: Any) -> Path:
    target = warehouse.with_name("a.pack")
    pack = PackOptions(**options)
    run_export(Options("pack", str(target), warehouse, collections=collections, pack=pack), Reporter())
    return target


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, a text that was mined, one without a declaration, one nested too deeply for an ABI, a suppressed one."""
    folder = tmp_path_factory.mktemp("packed")
    deep = "deep(" + "(" * 40 + "bool" + ")" * 40 + ")"
    (folder / "list.txt").write_text("\n".join([SPAM, "undeclared(uint256)", deep, "hidden()", *HONEST]))
    import_files([folder / "list.txt"], folder / "warehouse")
    assert invoke(folder / "warehouse", "suppress", "hidden()").status == 0
    import_files([ROOT / "samples"], folder / "warehouse")
    return folder / "warehouse"


@pytest.mark.parametrize("indexed", [False, True], ids=["transport", "lookups"])
def test_a_pack_has_the_texts_of_the_warehouse_in_their_order(stored: Path, indexed: bool) -> None:
    """Of both collections, with their declarations; what looks mined, no ABI can have, or is suppressed stays out."""
    pack = sigdir.Pack(export(stored, declarations=True, indexed=indexed))
    rows = sigdir.open(stored).sql(
        "FROM ranked SELECT hash, text_signature, declaration, looks_mined ORDER BY position"
    )
    wanted: dict[bytes, list[tuple[str, str]]] = {}
    for hash, text, declaration, looks_mined in rows.rows():
        kept = [] if looks_mined or text.startswith(("deep(", "hidden(")) else [(text, declaration or "")]
        wanted.setdefault(hash, []).extend(kept)
    assert {hash: pack.entries(hash) for hash in wanted} == wanted
    assert len(pack) == sum(map(len, wanted.values())) == sum(map(pack.count, COLLECTIONS))
    assert pack.lookup("0xa9059cbb") == [TRANSFER]
    assert pack.form == ("indexed" if indexed else "texts")
    pack.check()


def test_the_texts_that_are_used_most_come_first(tmp_path: Path, warehouse: Path) -> None:
    """Those of standards, then by contracts, by sources, by the lists that their name has; each collection has so many."""
    (tmp_path / "a.txt").write_text("older()\nnamed()\nshared(bool)\nshared()\nevent A()\nevent B()\n")
    (tmp_path / "b.txt").write_text(f"named()\n{TRANSFER}\n")
    artifact = {"contractName": "C", "abi": [{"type": "function", "name": "used", "inputs": []}]}
    (tmp_path / "c.json").write_text(json.dumps(artifact))
    for name in ("a.txt", "b.txt", "c.json"):
        import_files([tmp_path / name], warehouse)
    found = [set(sigdir.Pack(export(warehouse, texts=number)).texts(SIGNATURES)) for number in range(1, 7)]
    assert [new - old for new, old in zip(found, [set(), *found], strict=False)] == [
        {TRANSFER}, {"used()"}, {"named()"}, {"shared(bool)"}, {"shared()"}, {"older()"}
    ]  # fmt: skip
    assert list(sigdir.Pack(export(warehouse, texts=1)).texts(EVENT_SIGNATURES)) == ["A()"]
    assert sigdir.Pack(export(warehouse, (EVENT_SIGNATURES,))).count(SIGNATURES) == 0


def test_more_texts_than_a_pack_takes_are_refused(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a number is chosen."""
    monkeypatch.setattr("sigdir.pipeline.export.MAX_ROWS", 2)
    with pytest.raises(BadTarget, match="at most 2 texts of a collection; choose some by --texts"):
        export(stored)
    assert len(sigdir.Pack(export(stored, texts=1))) == 2
    with pytest.raises(BadTarget, match="are for pack"):
        run_export(Options("csv", str(stored.with_name("x")), stored, pack=PackOptions(5)), Reporter())


# The commands.


@pytest.mark.parametrize(("format", "target"), [("ranges", "-"), ("dataset", "a.tar"), ("ranges", "a.tar.zst")])
def test_ranges_and_a_dataset_are_folders(stored: Path, tmp_path: Path, format: str, target: str) -> None:
    """A tar or standard output is refused: a folder of that name was made."""
    done = invoke(stored, "export", format, target if target == "-" else tmp_path / target, "-q")
    assert (done.status, done.stdout, "is written as a folder" in done.stderr) == (2, b"", True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["pack", "ranges", "dataset", "abis"])
def test_progress_shows_rows_or_no_share(stored: Path, tmp_path: Path, format: str) -> None:
    """A share that stays at 0 % to the end is none."""
    lines = Lines()
    run_export(Options(format, str(tmp_path / "target"), stored), lines)
    assert " 0 %" not in lines.line()


@pytest.fixture(scope="module")
def key(stored: Path) -> Path:
    """A key that `sigdir keygen` made; it overwrites nothing."""
    path = stored.with_name("operator.key")
    done = invoke(stored, "keygen", path)
    assert done.stdout.decode() == path.with_name("operator.key.pub").read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    done = invoke(stored, "keygen", path)
    assert (done.status, "is not overwritten" in done.stderr, path.read_bytes()) == (2, True, before)
    return path


@pytest.fixture(scope="module")
def pack(stored: Path, key: Path) -> Path:
    """A signed pack."""
    target = stored.with_name("signed.pack")
    assert invoke(stored, "export", "pack", target, "--with-declarations", "--sign", key, "-q").status == 0
    return target


NOWHERE = Path("/nowhere")


def test_verify_checks_a_pack(pack: Path, key: Path, tmp_path: Path) -> None:
    """Its texts and, with a key, its signature; status 2 and one line for one that fails."""
    done = invoke(NOWHERE, "verify", pack, "--key", f"{key}.pub")
    public = Path(f"{key}.pub").read_text().strip()
    assert (done.status, f"signed by {public}: clean" in done.stdout.decode()) == (0, True)
    assert b"was not checked" in invoke(NOWHERE, "verify", pack).stdout
    assert json.loads(invoke(NOWHERE, "verify", pack, "--json").stdout)["signed_by"] == public
    broken = tmp_path / "broken.pack"
    broken.write_bytes(pack.read_bytes()[:-1])
    for arguments, told in (
        ([broken], "its digest differs"), ([pack, "--key", "0" * 64], "another key"), ([pack, "--key", "x"], "64 hex digits"),
    ):  # fmt: skip
        done = invoke(NOWHERE, "verify", *arguments)
        assert (done.status, done.stderr.count("\n"), told in done.stderr) == (2, 1, True)
    assert "is of a pack" in invoke(NOWHERE, "verify", "--key", public).stderr


def test_resolve_shows_the_texts_and_their_reasons(stored: Path, pack: Path, key: Path) -> None:
    """Of a warehouse and of a pack; status 1 where a hash has none."""
    of_both = invoke(stored, "resolve", "0xa9059cbb", TOPIC, "--json"), invoke(
        NOWHERE, "resolve", "A9059CBB", TOPIC, "--pack", pack, "--key", f"{key}.pub", "--json"
    )  # fmt: skip
    for done in of_both:
        function, event = json.loads(done.stdout)
        assert (done.status, function["hash"], event["hash"]) == (0, "0xa9059cbb", TOPIC)
        assert function["texts"][0]["text_signature"] == TRANSFER
        assert function["texts"][0]["reasons"][0] == "text of ERC-20"
        assert event["texts"][0]["declaration"].startswith("event Transfer(address indexed")
    done = invoke(NOWHERE, "resolve", "-", "--pack", pack, stdin=b"0xa9059cbb\n\n0x00000001\n")
    first, last = done.stdout.decode().splitlines()
    assert (done.status, last) == (1, "0x00000001  no text is known")
    assert first.startswith("0xa9059cbb  function transfer(address to, uint256 value)")
    assert "text of ERC-20; text 1 of 1 in the pack" in first
    assert "neither a selector nor a topic" in invoke(NOWHERE, "resolve", "0x12", "--pack", pack).stderr
    both = invoke(NOWHERE, "resolve", "0xa9059cbb", "--pack", pack, "--warehouse", pack.parent)
    assert (both.status, "exclude each other" in both.stderr) == (2, True)


def test_a_pack_with_a_text_under_another_selector_is_named(tmp_path: Path) -> None:
    """By every command that asks it, though its digest is right. A search refuses a text that is not canonical."""
    forged = tmp_path / "forged.pack"
    for text in (b"claimNFT(address,uint256)\n", b"pay alice now\n"):
        columns = [bytes.fromhex("a9059cbb")[::-1], bytes(4), text, b"", b""]
        forged.write_bytes(pack_bytes(INDEXED, 1, [PackColumns(SIGNATURES, 1, columns)]))
        for command in (["resolve", "0xa9059cbb", "--pack"], ["decode", CALL, "--pack"], ["verify"]):
            done = invoke(NOWHERE, *command, forged)
            assert (done.status, done.stdout, f"Error: {forged}: " in done.stderr) == (2, b"", True)
    with pytest.raises(BadInput, match="not canonical"):
        open_directory(PackSource(forged)).containing([SIGNATURES], "alice", 10)


def test_decode_takes_a_pack_in_place_of_a_warehouse(stored: Path, pack: Path, tmp_path: Path) -> None:
    """Calldata, logs, reverts, code and files read the same as by the warehouse.

    A declaration may be from a list: neither says that contracts declare the text.
    """
    table = tmp_path / "calls.csv"
    table.write_text(f"input\n{CALL.replace('a9059cbb', '095ea7b3')}\n0x12345678\n")  # approve
    log = ROOT / "docs" / "examples" / "transfer.json"
    for arguments in (
        [CALL], [f"@{log}"], [f"@{ROOT / 'docs' / 'examples' / 'token.hex'}"], ["contract", ROOT / "docs" / "examples" / "token.hex"],
        ["calldata", CALL], ["revert", CALL], ["log", "--topic", TOPIC], ["--file", table],
    ):  # fmt: skip
        ours, theirs = invoke(stored, "decode", *arguments), invoke(NOWHERE, "decode", *arguments, "--pack", pack)
        assert (theirs.status, theirs.stdout.splitlines()[:1]) == (ours.status, ours.stdout.splitlines()[:1])
        assert theirs.stdout
        assert b"declared in contracts" not in ours.stdout + theirs.stdout
    [best, *_] = json.loads(invoke(NOWHERE, "decode", CALL, "--pack", pack, "--json").stdout)["candidates"]
    assert best["confidence"] == "high"
    returned = "0x" + "1".zfill(64), "--selector", "0xa9059cbb"
    sources = (NOWHERE, ("--pack", pack)), (stored, ())
    of_both = [invoke(where, "decode", "return", *returned, *source) for where, source in sources]
    assert [b"the values encode to the same bytes" in done.stdout for done in of_both] == [True, True]
    assert [b"declared 1 time" in done.stdout for done in of_both] == [False, True]
    assert "--pack FILE" in invoke(NOWHERE, "decode", CALL, "--key", "0" * 64).stderr


def test_export_reports_a_pack(stored: Path, tmp_path: Path) -> None:
    """And refuses a number or a key that is none before anything is written."""
    done = invoke(stored, "export", "pack", tmp_path / "p", "--texts", "10", "--json", "-q")
    report = json.loads(done.stdout)
    assert (report["format"], report["rows"]) == ("pack", {"signatures": 10, "event-signatures": 10})
    (tmp_path / "key").write_text("no key")
    for arguments, told in ((["--texts", "0"], "neither a number"), (["--sign", tmp_path / "key"], "no private key")):
        done = invoke(stored, "export", "pack", tmp_path / "q", *arguments)
        assert (done.status, told in done.stderr, (tmp_path / "q").exists()) == (2, True, False)
