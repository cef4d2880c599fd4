"""What tells the states of a file from each other."""

from __future__ import annotations

import os
from pathlib import Path

from sigdir.warehouse.table.files import file_identity, file_state


def test_a_state_changes_with_a_file(tmp_path: Path) -> None:
    """Reading changes nothing; writing changes the state, and another file in its place the identity too."""

    def identities(path: Path) -> tuple[bytes, bytes]:
        return file_state(os.fsencode(path)), file_identity(os.fsencode(path))

    path, other = tmp_path / "list.txt", tmp_path / "other"
    for each in (path, other):
        each.write_text("first")
        os.utime(each, (1, 2))  # read in 1970, before it was written: the next reading is noted
    state, identity = identities(path)
    assert identity == state[:16]
    path.read_text()
    assert identities(path) == (state, identity)
    path.write_text("again")
    os.utime(path, (1, 3))
    assert identities(path)[0] != state
    assert identities(path)[1] == identity
    other.replace(path)
    assert identities(path)[0] != state
    assert identities(path)[1] != identity
    assert file_state(os.fsencode(tmp_path / "missing")) == b""
