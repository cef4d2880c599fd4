"""Archives and trees: many inputs in one file, and one input of many files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

import sigdir
from sigdir.pipeline.archive import tar_members
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hash_lines import HASH_NAMED_BYTES
from sigdir.pipeline.formats.registry import detect
from sigdir.pipeline.inputs import find, open_each
from sigdir.pipeline.report import ImportReport, Unread, UnreadInputs
from sigdir.pipeline.source import BLOCK_BYTES, DOCUMENT_BYTES, PieceStream
from sigdir.signatures.collections import COLLECTIONS
from tests.conftest import import_files
from tests.pipeline.support import texts, write_files
from tests.pipeline.test_formats import MOVED, TOPIC, TRANSFER

# As ethereum-lists/4bytes has them: no line end, several with `;`, named ones with a blank in places.
LEAVES = {
    "signatures/18160ddd": "totalSupply()",
    "signatures/a9059cbb": "transfer(address,uint256);many_msg_babbage(bytes1)",
    "signatures/a9059cbc": "transfer(address,uint256)",
    "with_parameter_names/a9059cbb": "transfer(address _to,uint256 _value);transfer(address to,uint val)",
    f"topic0/{TOPIC}": "Transfer(address indexed from, address indexed to, uint value)\n",
}


def all_texts(warehouse: Path) -> list[str]:
    return [text for collection in COLLECTIONS for text in texts(warehouse, collection)]


def inputs(report: ImportReport, folder: Path) -> list[tuple[str, str, int]]:
    """Name, format and candidates of each input."""
    return [(file.path.removeprefix(f"{folder}/"), file.format, file.read) for file in report.files]


def rejects(warehouse: Path) -> list[tuple[str, str, str, int]]:
    rows = sigdir.open(warehouse).sql("SELECT reason, text, file, line FROM rejects ORDER BY file, line").rows()
    return [(reason, text, file, line) for reason, text, file, line in rows]


# Trees.


def test_tree(tmp_path: Path, warehouse: Path) -> None:
    """A folder of hash-named files is one input, a reject names its file, and line breaks separate texts as `;` does."""
    more = {
        "more/18160DDD": "totalSupply()\r\n",
        "more/a9059cbb": f"\n{TRANSFER}\nx();;y(uint7) ; ",
        "more/ffffffff": "",
    }
    files = LEAVES | more | {"README.md": "# 4bytes", "signatures/notes.txt": "note(uint)\n"}
    folder = tmp_path / "in"
    write_files(folder, files)
    report = import_files([folder], warehouse)
    assert inputs(report, folder) == [
        ("more", "tree", 4), ("signatures", "tree", 4), ("signatures/notes.txt", "text", 1), ("topic0", "tree", 1),
        ("with_parameter_names", "tree", 2),
    ]  # fmt: skip
    assert all_texts(warehouse) == ["totalSupply()", TRANSFER, "many_msg_babbage(bytes1)", "note(uint256)", MOVED]
    assert rejects(warehouse) == [
        ("hash_mismatch", "x()", f"{folder}/more/a9059cbb", 1),
        ("bad_width", "y(uint7)", f"{folder}/more/a9059cbb", 1),
        ("hash_mismatch", TRANSFER, f"{folder}/signatures/a9059cbc", 1),
    ]
    assert report.totals() == {"read": 12, "imported": 5, "duplicate": 4, "rejected": 3}
    assert report.skipped == [Unread(f"{folder}/README.md", "name")]
    # Anyone can compute its sha256: over lines of name and content.
    lines = [f"{Path(name).name},{text}\n" for name, text in LEAVES.items() if name.startswith("signatures/")]
    assert report.files[1].sha256 == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_what_only_looks_like_a_tree(tmp_path: Path, warehouse: Path) -> None:
    """Hash-named files, in a folder or in an archive, are a tree only if their content hashes to their names."""
    folders: list[tuple[dict[str, str], list[str]]] = [
        ({"deadbeef": "a()\nb()\n", "deadbeee": "c()\nd()\n"}, ["text", "text"]),
        ({"deadbeef": '[{"type": "function", "name": "f", "inputs": []}]', "e": "a()\n"}, ["text", "abi"]),
        ({"a9059cbb": f"{TRANSFER}\n" + "a()\n" * HASH_NAMED_BYTES}, ["text"]),
        ({"a9059cbb.txt": TRANSFER, "a9059cbb0": TRANSFER, "0xa9059cbb": TRANSFER}, ["text"] * 3),
        ({"a9059cbb": TRANSFER, "00000000": "a()"}, ["tree"]),
        ({"a9059cbb": TRANSFER, "00000000": "a()", "00000001": "a()"}, ["text"] * 3),
    ]
    for number, (files, _) in enumerate(folders):
        write_files(tmp_path / "in" / str(number), files)
        (tmp_path / "in" / f"{number}.zip").write_bytes(zipped(dict(sorted(files.items()))))
    formats: list[list[str]] = [[] for _ in folders]
    for path, format, _ in inputs(import_files([tmp_path / "in"], warehouse, dry_run=True), tmp_path / "in"):
        formats[int(path[0])].append(format)
    assert list(map(sorted, formats)) == [sorted(2 * expected) for _, expected in folders]


def test_format_of_a_tree_may_be_named(tmp_path: Path, warehouse: Path) -> None:
    """--format tree reads every hash-named file as one tree; another format reads each file by itself."""
    folder = tmp_path / "in"
    write_files(folder, {"00000000": "a()", "a9059cbb": TRANSFER})
    assert [(file.read, file.rejected) for file in import_files([folder], warehouse, format="tree").files] == [(2, 1)]
    report = import_files([folder], warehouse, format="text", dry_run=True)
    assert [(*one, file.rejected) for one, file in zip(inputs(report, folder), report.files, strict=True)] == [
        ("00000000", "text", 1, 0), ("a9059cbb", "text", 1, 0),
    ]  # fmt: skip


def test_large_tree(tmp_path: Path, warehouse: Path) -> None:
    """A tree of several blocks is read completely, with the right file for every reject."""
    files = {f"{number:08x}": f"f{number}({'uint256,' * 5_000}uint256)" for number in range(60)} | {
        "a9059cbb": TRANSFER
    }
    assert sum(map(len, files.values())) > BLOCK_BYTES
    write_files(tmp_path / "in", files)
    report = import_files([tmp_path / "in"], warehouse, format="tree")
    assert (report.total("read"), report.total("imported")) == (61, 1)
    for number, (_, text, file, _) in enumerate(rejects(warehouse)):
        assert file == f"{tmp_path}/in/{number:08x}"
        assert text.startswith(f"f{number}(")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_file_of_a_tree_that_cannot_be_read(tmp_path: Path, scheme: str) -> None:
    """A file or an object that vanishes before it is read is a fault that names it once; the others keep their names."""
    folder = tmp_path / "in"
    write_files(folder, {"18160ddd": "totalSupply()", "a9059cbb": TRANSFER, "ffffffff": "x()"})
    report = ImportReport()
    unread = UnreadInputs(report)
    [source] = find([f"{scheme}{folder}"], unread)
    (folder / "18160ddd").unlink()
    [opened] = open_each([source], lambda _: None, "tree", unread)
    [fault] = report.faults
    assert fault.path == f"{scheme}{folder}/18160ddd"
    assert "file://" not in fault.reason
    assert fault.reason.startswith("Object at" if scheme else "No such file or directory")
    assert opened.file_names == ["18160ddd", "a9059cbb", "ffffffff"]
    [strict] = find([str(folder)])
    (folder / "a9059cbb").unlink()
    with pytest.raises(BadInput, match=r"in/a9059cbb: No such file or directory$"):
        list(open_each([strict], lambda _: None, None))


# Archives.


def zipped(files: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files: dict[str, Any], format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue()


ARCHIVES: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "zip": zipped,
    "lzma.zip": lambda files: zipped(files, zipfile.ZIP_LZMA),
    "zip.gz": lambda files: gzip.compress(zipped(files)),
    "tar": tarred,
    "old.tar": lambda files: tarred(files, tarfile.USTAR_FORMAT),
    "tar.xz": lambda files: lzma.compress(tarred(files)),
}
FILES: dict[str, Any] = {
    "README.md": "# read me",
    "list.txt": "a()\nb(uint7)\n",
    "abi/token.json": json.dumps([{"type": "function", "name": "c", "inputs": []}]),
    "abi/packed.json.gz": gzip.compress(b'{"0dbe671f": "a()"}'),
    "src/a.sol": 'import "./b.sol"; contract C { function d(S s) external {} }',
    "src/b.sol": "struct S { bool b; }",
    **LEAVES,
    "src/.hidden.txt": "no()\n",
    "__MACOSX/._list.txt": "no()\n",
    "nested.zip": zipped({"no.txt": "no()\n"}, zipfile.ZIP_STORED),
    "nested.tar": tarred({"no.txt": "no()\nno()\nno()\n"}),
}


@pytest.fixture(scope="module")
def sha256s(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of each input of the files in a folder."""
    folder = tmp_path_factory.mktemp("folder")
    write_files(folder, {name: content for name, content in FILES.items() if "nested" not in name})
    report = import_files([folder], folder / "warehouse", dry_run=True)
    return {file.path.removeprefix(f"{folder}/"): file.sha256 for file in report.files}


@pytest.mark.parametrize(
    ("kind", "stdin"), [("zip", False), ("zip.gz", False), ("lzma.zip", True), ("tar", False), ("tar.xz", True)]
)
def test_archive(
    tmp_path: Path, warehouse: Path, sha256s: dict[str, str], kind: str, stdin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The members of an archive are read like the same files in a folder."""
    path = tmp_path / f"in.{kind}"
    path.write_bytes(ARCHIVES[kind](FILES))
    is_published = kind in ("zip", "tar.xz")
    with path.open("rb") as file, io.TextIOWrapper(file) as text:
        monkeypatch.setattr("sys.stdin", text)
        report = import_files(["-" if stdin else path], warehouse, dry_run=not is_published)
    name = "standard input" if stdin else str(path)
    assert [(file.path.removeprefix(f"{name}:"), file.format, file.read) for file in report.files] == [
        ("list.txt", "text", 2), ("abi/token.json", "abi", 1), ("abi/packed.json.gz", "map", 1),
        ("src/a.sol", "solidity", 1), ("src/b.sol", "solidity", 0), ("signatures", "tree", 4),
        ("with_parameter_names", "tree", 2), ("topic0", "tree", 1),
    ]  # fmt: skip
    assert {unread.path.removeprefix(f"{name}:"): unread.reason for unread in report.skipped} == {
        "README.md": "name", "src/.hidden.txt": "hidden", "__MACOSX/._list.txt": "hidden",
        "nested.zip": "nested_archive", "nested.tar": "nested_archive",
    }  # fmt: skip
    assert report.totals() == {"read": 12, "imported": 7, "duplicate": 3, "rejected": 2}
    assert sha256s == {file.path.removeprefix(f"{name}:"): file.sha256 for file in report.files}
    if is_published:
        functions = ["a()", "c()", "totalSupply()", TRANSFER, "many_msg_babbage(bytes1)", "d((bool))"]
        assert all_texts(warehouse) == [*functions, MOVED]
        assert rejects(warehouse) == [
            ("bad_width", "b(uint7)", f"{name}:list.txt", 2),
            ("hash_mismatch", TRANSFER, f"{name}:signatures/a9059cbc", 1),
        ]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_member_names_are_never_used_as_paths(tmp_path: Path, warehouse: Path, kind: str) -> None:
    """Whatever the name of a member, only the member is read and nothing is written."""
    files = {"../up.txt": "a()\n", "/etc/abs.txt": "b()\n", "x/../../y.txt": "c()\n", "\x1b[31m.txt": "d()\n"}
    path = tmp_path / "in" / f"odd.{kind}"
    path.parent.mkdir()
    path.write_bytes(ARCHIVES[kind](files))
    before = {str(found) for found in tmp_path.rglob("*")}
    report = import_files([path], warehouse, dry_run=True)
    assert [file.path for file in report.files] == [f"{path}:{name}" for name in files]
    assert {str(found) for found in tmp_path.rglob("*")} == before
    assert report.total("imported") == 4


def test_links_are_skipped(tmp_path: Path, warehouse: Path) -> None:
    """Links, devices and folders in an archive are ignored, whatever their targets."""
    (tmp_path / "secret.txt").write_text("secret()\n")
    with tarfile.open(tmp_path / "in.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE):
            header = tarfile.TarInfo("link.txt")
            header.type, header.linkname = kind, str(tmp_path / "secret.txt")
            archive.addfile(header)
        archive.addfile(tarfile.TarInfo("empty.txt"))
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as zip_archive:
        link = zipfile.ZipInfo("link.txt")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        zip_archive.writestr(link, str(tmp_path / "secret.txt"))
        zip_archive.writestr("folder/", "")
        zip_archive.writestr("empty.txt", "")
    report = import_files([tmp_path / "in.tar", tmp_path / "in.zip"], warehouse)
    assert [Path(file.path).name for file in report.files] == ["in.tar:empty.txt", "in.zip:empty.txt"]
    assert report.total("read") == 0
    assert report.skip_reasons() == {"link": 3, "special": 1, "sparse": 1}


def spoiled(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


SMALL = {"a.txt": "a()\n", "b.txt": "b()\n"}
PADDED = {"list.txt": "\n".join(os.urandom(30).hex() + "()" for _ in range(2_000)), "last.txt": "a()\n"}
BROKEN = {
    "cut.zip": (zipped(PADDED)[:-30], "in.cut.zip: broken zip: "),
    "inner.zip": (zipped(SMALL | {"in.zip": zipped(SMALL)}, zipfile.ZIP_STORED)[:-30], "in.inner.zip: broken zip: "),
    "data.zip": (spoiled(zipped(PADDED), 5_000), "in.data.zip:list.txt: "),
    "list.zip": (spoiled(zipped(PADDED), -100), "in.list.zip"),
    "cut.tar": (tarred(PADDED)[:20_000], "in.cut.tar:list.txt: unexpected end of data"),
    "header.tar": (spoiled(tarred(SMALL), 1024), "in.header.tar: broken tar: bad checksum"),
    "half.tar": (tarred(SMALL)[:1100], "in.half.tar: broken tar: truncated header"),
    "cut.tar.gz": (gzip.compress(tarred(FILES))[:-6], "in.cut.tar.gz: "),
    "data.tar.gz": (spoiled(gzip.compress(tarred(PADDED)), 5_000), "in.data.tar.gz"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_archive_is_an_error(tmp_path: Path, warehouse: Path, kind: str) -> None:
    """With --strict a broken archive is an error of one line that names it, and nothing is published."""
    data, message = BROKEN[kind]
    path = tmp_path / f"in.{kind}"
    path.write_bytes(data)
    with pytest.raises(BadInput) as raised:
        import_files([path], warehouse, strict=True)
    assert str(raised.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(raised.value)
    assert sigdir.open(warehouse).version == -1


def test_damaged_archives_are_read_or_refused(tmp_path: Path) -> None:
    """A cut or changed archive gives candidates or an error of one line."""
    dice = random.Random(5)
    archives = [pack(FILES) for pack in ARCHIVES.values()]
    path = tmp_path / "damaged"
    problems = []
    for _ in range(200):
        data = bytearray(dice.choice(archives))
        at = dice.randrange(len(data))
        put = dice.choice([b"", b"\xff\xff\xff\xff", bytes(4), b"7777", dice.randbytes(4)])
        data[at : at + dice.choice([4, 600, len(data)])] = put
        path.write_bytes(data)
        try:
            for source in open_each(find([str(path)]), lambda _: None, None):
                detect(source)
                source.finish()
        except BadInput as error:
            problems.append(str(error))
    assert {len(problem.splitlines()) for problem in problems} == {1}
    assert 10 < len(problems) < 190


def test_encrypted_members_are_faults(tmp_path: Path, warehouse: Path) -> None:
    """A file and a file of a tree are named with their reason, and the others are imported."""
    data = bytearray(zipped({"18160ddd": "totalSupply()", "a9059cbb": TRANSFER, "a.txt": "a()\n", "b.txt": "b()\n"}))
    for marker, name_at, at in ((b"PK\x03\x04", 30, 6), (b"PK\x01\x02", 46, 8)):  # in the member and in the list
        for name in (b"a9059cbb", b"b.txt"):
            data[data.index(marker, data.index(name, data.index(marker)) - name_at) + at] |= 1
    (tmp_path / "in.zip").write_bytes(data)
    report = import_files([tmp_path / "in.zip"], warehouse)
    why = "encrypted; unpack the archive first"
    assert {(fault.path, fault.reason) for fault in report.faults} == {
        (f"{tmp_path}/in.zip:{name}", why) for name in ("a9059cbb", "b.txt")
    }
    assert sorted(all_texts(warehouse)) == ["a()", "totalSupply()"]


def test_bombs_are_refused(tmp_path: Path, warehouse: Path) -> None:
    """An archive that decompresses to over 200 times its size is refused before it is decompressed."""
    bomb = bytearray(zipped({f"{number}.txt": "a()\n" for number in range(3)}))
    at = bomb.index(b"PK\x01\x02") + 24  # the unpacked size, in the list
    bomb[at : at + 4] = DOCUMENT_BYTES.to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(bomb)
    header = tarfile.TarInfo("bomb.txt")
    header.size = 1 << 40
    zeros = bytes(1 << 20)
    with zstd.open(tmp_path / "bomb.tar.zst", "wb") as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(DOCUMENT_BYTES // len(zeros) + 1):
            out.write(zeros)
    for name in ("bomb.zip", "bomb.tar.zst"):
        with pytest.raises(BadInput, match=rf"{name}(:bomb.txt)?: .*unpacks to over 200 times its size"):
            import_files([tmp_path / name], warehouse)


@pytest.mark.parametrize(
    ("size", "message"), [(1 << 33, "a header with a size of 8,589,934,592 bytes$"), (0, "attributes without a member")]
)
def test_tar_of_hostile_headers(tmp_path: Path, warehouse: Path, size: int, message: str) -> None:
    """A header whose declared size would fill the memory is refused, as are attribute headers alone."""
    header = tarfile.TarInfo("a.txt")
    header.type, header.size = tarfile.XHDTYPE, size
    (tmp_path / "in.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) * 50 + bytes(2048))
    with pytest.raises(BadInput, match=f"in.tar: broken tar: {message}"):
        import_files([tmp_path / "in.tar"], warehouse)


def test_tar_with_a_sparse_map_is_read(tmp_path: Path, warehouse: Path) -> None:
    """A sparse member is skipped without its map, however long that says it is. tarfile never ends at this archive."""
    numbers = b"9" * 8_000
    header = tarfile.TarInfo("s.txt")
    header.size = len(numbers)
    header.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s.txt", "GNU.sparse.realsize": "9",
    }  # fmt: skip
    member = header.tobuf(tarfile.PAX_FORMAT) + numbers + bytes(-len(numbers) % tarfile.BLOCKSIZE)
    (tmp_path / "in.tar").write_bytes(member + tarred({"a.txt": "a()\n"}))
    (tmp_path / "end.tar").write_bytes(member)
    report = import_files([tmp_path / "in.tar", tmp_path / "end.tar"], warehouse)
    assert report.skipped == [Unread(f"{tmp_path}/{name}.tar:s.txt", "sparse") for name in ("in", "end")]
    assert all_texts(warehouse) == ["a()"]


def test_old_sparse_members_are_skipped_with_their_maps(tmp_path: Path, warehouse: Path) -> None:
    """The map of an old GNU sparse member goes on in blocks after its header; the next member is found after them."""
    header = tarfile.TarInfo("s.txt")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 5
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[482] = 1
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 0x20 + sum(block[156:]))
    map_blocks = (bytes(504) + b"\1" + bytes(7)) * 3 + bytes(512)
    data = bytes(block) + map_blocks + b"data!".ljust(512, b"\0") + tarred({"a.txt": "a()\n"})
    (tmp_path / "in.tar").write_bytes(data)
    assert import_files([tmp_path / "in.tar"], warehouse).skip_reasons() == {"sparse": 1}
    (tmp_path / "cut.tar").write_bytes(data[: 512 * 3])
    with pytest.raises(BadInput, match=r"cut.tar: broken tar: unexpected end of data$"):
        import_files([tmp_path / "cut.tar"], warehouse)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_tar_reader_equals_tarfile(format: int) -> None:
    """Names, sizes and data of random members are those that tarfile reads; so is the end. A second tar behind it is read."""
    dice = random.Random(format)
    files = {}
    for number in range(120):
        folder = "/".join("d" * dice.randrange(1, 30) for _ in range(dice.randrange(4)))
        name = f"{folder}/{number}{dice.choice(['', 'ä', ' x', chr(0x1F600)])}.txt"
        files[name[-98:] if format == tarfile.USTAR_FORMAT else name * dice.choice([1, 1, 9])] = dice.randbytes(
            dice.choice([0, 1, 511, 512, 513, 20_000])
        )
    data = tarred(files, format)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = [(member.name, member.size, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]
    assert len(expected) == len(files)
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    members = tar_members(PieceStream(pieces))
    assert [(member.name, member.size, member.open().read()) for member in members] == expected
    twice = [member.size for member in tar_members(PieceStream([*pieces, data, b"padding"]))]
    assert twice == [size for _, size, _ in expected] * 2


def test_broken_member_does_not_disturb_the_next(tmp_path: Path, warehouse: Path) -> None:
    """A member that is broken in its middle is a fault; the members after it are read from their beginning."""
    broken = 'text_signature,x\na(),"' + ("b" * 999 + '\n","') * (6 * BLOCK_BYTES // 1_000)  # a row of over 8 MiB
    files = {"a.csv": broken, "b.txt": "b()\n", "c.json": "[1,", "d.txt": "d()\n"}
    for kind, pack in (("tar", tarred), ("zip", zipped)):
        path = tmp_path / f"in.{kind}"
        path.write_bytes(pack(files))
        report = import_files([path], warehouse, dry_run=True)
        assert [unread.path.removeprefix(f"{path}:") for unread in report.faults] == ["a.csv", "c.json"]
        read = [(file.path.removeprefix(f"{path}:"), file.format, file.read) for file in report.files]
        assert read == [("a.csv", "csv", 0), ("b.txt", "text", 1), ("d.txt", "text", 1)]


def test_archive_of_nothing_known(tmp_path: Path, warehouse: Path) -> None:
    """An archive without a file of a known format is an error if it is the only input."""
    (tmp_path / "in.zip").write_bytes(zipped({"README.md": "# read me", "x.bin": b"\0"}))
    with pytest.raises(BadInput, match=r"in.zip: no file of a known format \(skipped: 1 .*, 1 .*\)$"):
        import_files([tmp_path / "in.zip"], warehouse)
