"""Power loss, simulated: a command's system calls are traced and replayed on a disk that forgets.

The disk of this model keeps everything that was synced and may keep or lose everything else. A file's
bytes are safe once the file is synced; a name (made, renamed or removed) is safe once its folder is
synced. Power can be cut before any call; ``Disk.restore`` then writes the files that the next start finds.

A trace does not show writes through a mapping. A file that is mapped for writing has its size until its
sync, and its real bytes from then on.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import pytest

Kept = Literal["synced", "names", "some"]
"""What survives a power cut besides synced data: nothing, all names, or a random part."""

_CALLS = (
    "openat,open,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,fsync,fdatasync,"
    "sync_file_range,msync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,"
    "symlinkat,mmap,copy_file_range,sendfile"
)
_NAMING = ("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir")
_LONGEST = 1 << 26
_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (\d+|0x[0-9a-f]+)(?:<(.*)>)?(?: .*)?")
_HEX = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that succeeded: its arguments as strace shows them, its result and the result's path."""

    at: str
    name: str
    arguments: list[str]
    result: int
    path: str

    def bytes_of(self, argument: int) -> bytes:
        quoted = self.arguments[argument]
        assert not quoted.endswith("..."), "strace has left bytes out"
        return bytes.fromhex(quoted.strip('"').replace("\\x", ""))

    def paths(self) -> list[str]:
        """The path arguments of a call that names something, absolute: each may follow the folder that it is relative to."""
        found, folder = [], ""
        for number, argument in enumerate(self.arguments):
            if argument.startswith('"'):
                found.append(os.path.join(folder, self.bytes_of(number).decode()))
            folder = self.file(number)[1]
        return found

    def file(self, argument: int) -> tuple[int, str]:
        """A descriptor's number and path."""
        number, _, path = self.arguments[argument].partition("<")
        return (int(number) if number.isdigit() else -1), _plain(path.removesuffix(">"))


def _plain(escaped: str) -> str:
    return _HEX.sub(lambda found: chr(int(found[1], 16)), escaped)


def trace(command: Sequence[str], root: Path, folder: Path, environment: dict[str, str], cwd: Path) -> list[Call]:
    """Run a command; the calls of its threads on ``root`` and its output, by time. Skips the test without strace."""
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode:
        pytest.skip("power loss is simulated from a trace of system calls: needs strace")
    folder.mkdir()
    options = ["-ff", "-y", "-xx", "-s", str(_LONGEST), "--absolute-timestamps=unix,ns", "--seccomp-bpf"]
    options += ["-e", f"trace={_CALLS}", "-e", "signal=none", "-o", str(folder / "trace")]
    line = ["strace", *options, *command]
    done = subprocess.run(line, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for file in folder.iterdir() for line in file.read_text().splitlines()]
    hidden = "".join(f"\\x{byte:02x}" for byte in str(root).encode())
    calls = [call for line in lines if hidden in line or " write(1<" in line if (call := _call(line)) is not None]
    return sorted(calls, key=lambda call: call.at)


def _call(line: str) -> Call | None:
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    # Strings are in hex digits, so a comma separates arguments in all calls that the model knows.
    return Call(found[1], found[2], found[3].split(", "), int(found[4], 0), _plain(found[5] or ""))


@dataclass(slots=True, eq=False)
class File:
    data: bytearray
    synced: bytes | None = None
    mapped: bool = False


@dataclass(slots=True, eq=False)
class Folder:
    """The names as processes see them, and as they are on the disk."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)


class Disk:
    """The files and names of one folder, as processes see them and as they were synced."""

    def __init__(self, root: Path) -> None:
        """Everything in the folder now counts as synced, and so does the folder's own name."""
        self._root = root
        self._tree = _load(root) if root.is_dir() else Folder()
        self._offsets: dict[tuple[int, str], int] = {}
        self.output = b""
        """What was written to standard output."""
        self.named_early: list[str] = []
        """Paths that a rename or a link gave their name before their bytes were synced."""

    def replay(self, calls: Sequence[Call]) -> Iterator[Call]:
        """Apply the calls. Yields each call that syncs or names something just before it is applied."""
        finals = _load(self._root)  # the real bytes of mapped files, which are written once and kept
        for call in calls:
            if call.name in ("fsync", "fdatasync"):
                if self._inside(call.file(0)[1]) is not None:
                    yield call
                    self._sync(call, finals)
                continue
            name = call.name.rstrip("0123456789")
            apply: Callable[[Call], None] | None = getattr(self, f"_{name.removesuffix('at')}", None)
            assert apply is not None, f"the model does not know {call.name}"
            if call.name in _NAMING:
                yield call
            apply(call)

    def unsync(self, path: Path) -> None:
        """Forget that this existing name was synced."""
        place = self._place(str(path))
        assert place is not None
        del place[0].synced[place[1]]

    def _inside(self, path: str) -> str | None:
        """The path relative to the root; None for a path elsewhere or a deleted file."""
        root = str(self._root)
        if path == root:
            return ""
        return path.removeprefix(f"{root}/") if path.startswith(f"{root}/") and "(deleted)" not in path else None

    def _node(self, path: str) -> File | Folder | None:
        """What has this path; None where nothing of the root has it."""
        inside = self._inside(path)
        node: File | Folder | None = self._tree if inside is not None else None
        for name in inside.split("/") if inside else ():
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _file(self, path: str) -> File | None:
        node = self._node(path)
        return node if isinstance(node, File) else None

    def _place(self, path: str) -> tuple[Folder, str] | None:
        """The folder of a path, and its name there."""
        above, _, name = path.rpartition("/")
        folder = self._node(above)
        return (folder, name) if isinstance(folder, Folder) else None

    # Calls.

    def _open(self, call: Call) -> None:
        flags = call.arguments[2]
        place = self._place(call.path)
        if place is None:
            return
        folder, name = place
        if "O_CREAT" in flags and name not in folder.names:
            folder.names[name] = File(bytearray())
        file = folder.names.get(name)
        if isinstance(file, File):
            if "O_TRUNC" in flags:
                file.data.clear()
            self._offsets[call.result, call.path] = -1 if "O_APPEND" in flags else 0

    def _write(self, call: Call) -> None:
        number, path = call.file(0)
        if number == 1:
            self.output += call.bytes_of(1)
        file = self._file(path)
        if file is not None:
            at = self._offsets.get((number, path), 0)
            at = len(file.data) if at < 0 else at
            _put(file, at, call.bytes_of(1)[: call.result])
            self._offsets[number, path] = at + call.result

    def _pwrite(self, call: Call) -> None:
        file = self._file(call.file(0)[1])
        if file is not None:
            _put(file, int(call.arguments[3]), call.bytes_of(1)[: call.result])

    def _lseek(self, call: Call) -> None:
        if self._file(call.file(0)[1]) is not None:
            self._offsets[call.file(0)] = call.result

    def _ftruncate(self, call: Call) -> None:
        file = self._file(call.file(0)[1])
        if file is not None:
            size = int(call.arguments[1])
            file.data[size:] = bytes(max(0, size - len(file.data)))

    def _fallocate(self, call: Call) -> None:
        file = self._file(call.file(0)[1])
        if file is not None:
            _put(file, int(call.arguments[2]) + int(call.arguments[3]), b"")

    def _mmap(self, call: Call) -> None:
        if "MAP_SHARED" in call.arguments[3] and "PROT_WRITE" in call.arguments[2] and "<" in call.arguments[4]:
            file = self._file(call.file(4)[1])
            if file is not None:
                file.mapped = True

    def _msync(self, call: Call) -> None:
        pass

    def _sync(self, call: Call, finals: Folder) -> None:
        path = call.file(0)[1]
        node = self._node(path)
        if isinstance(node, Folder):
            node.synced = dict(node.names)
        elif isinstance(node, File):
            if node.mapped:
                node.data = bytearray(_real(finals, self._inside(path) or ""))
            node.synced = bytes(node.data)

    def _rename(self, call: Call) -> None:
        source = self._link(call)
        if source is not None:
            del source[0].names[source[1]]

    def _link(self, call: Call) -> tuple[Folder, str] | None:
        """Returns the place of the old name, if both names are inside."""
        old, new = call.paths()
        source, target = self._place(old), self._place(new)
        if source is None or target is None:
            return None
        node = target[0].names[target[1]] = source[0].names[source[1]]
        if not _is_synced(node):
            self.named_early.append(new)
        return source

    def _unlink(self, call: Call) -> None:
        place = self._place(*call.paths())
        if place is not None:
            place[0].names.pop(place[1], None)

    _rmdir = _unlink

    def _mkdir(self, call: Call) -> None:
        place = self._place(*call.paths())
        if place is not None:
            place[0].names[place[1]] = Folder()

    # The next start.

    def restore(self, root: Path, kept: Kept, chance: random.Random, folder: Folder | None = None) -> None:
        """Write the files that the next start finds."""
        folder = folder or self._tree
        root.mkdir()
        seen = kept == "names" or (kept == "some" and chance.random() < 0.5)
        for name, node in (folder.names if seen else folder.synced).items():
            if isinstance(node, Folder):
                self.restore(root / name, kept, chance, node)
            else:
                (root / name).write_bytes(_bytes(node, kept, chance))


def _is_synced(node: File | Folder) -> bool:
    if isinstance(node, File):
        return node.synced is not None and node.synced == bytes(node.data)
    return node.synced == node.names and all(map(_is_synced, node.names.values()))


def _put(file: File, at: int, data: bytes) -> None:
    file.data.extend(bytes(max(0, at - len(file.data))))
    file.data[at : at + len(data)] = data


def _load(root: Path) -> Folder:
    folder = Folder()
    for entry in root.iterdir() if root.is_dir() else ():
        if entry.is_dir():
            folder.names[entry.name] = _load(entry)
        else:
            data = entry.read_bytes()
            folder.names[entry.name] = File(bytearray(data), data)
    folder.synced = dict(folder.names)
    return folder


def _real(tree: Folder, path: str) -> bytes:
    """The real bytes of a file, also if its folder was renamed: from a leading dot, and from ``new`` to a digest."""
    node: File | Folder = tree
    for name in path.split("/"):
        assert isinstance(node, Folder)
        final = name.removeprefix(".").replace(".new.", ".*.")
        node = node.names.get(name) or next(found for key, found in node.names.items() if fnmatch(key, final))
    assert isinstance(node, File)
    return bytes(node.data)


def _bytes(file: File, kept: Kept, chance: random.Random) -> bytes:
    """A file after the cut: its bytes as synced, as written, as synced with the new size, or a mix of sectors."""
    synced = file.synced if file.synced is not None else b""
    now = bytes(file.data)
    if kept != "some" or synced == now:
        return synced
    old = synced + bytes(max(0, len(now) - len(synced)))
    sectors = [chance.choice((old, now))[at : at + 512] for at in range(0, len(now), 512)]
    return chance.choice((synced, now, old, b"".join(sectors)))
