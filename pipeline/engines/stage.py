"""The folder of a stage: it holds the input files of its tasks, and their results.

By default all processes see the run's folder under one path. Where the warehouse is in a store and the tasks are on other
machines, the store carries the files: ``StoreStage``. A task then works in a folder of its own machine, which is removed
at its end. It fetches its input files and shares its results.

Objects have the names that the files have below the warehouse's folder. Pickles hold these names in place of paths.
Each carries an HMAC that only the driver and the tasks can compute: unpickling runs code, and others may write into the
bucket.
"""

from __future__ import annotations

import hmac
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from sigdir.warehouse.files import RunFolder, own_temporary_folder
from sigdir.warehouse.home import REQUESTS
from sigdir.warehouse.parallel import for_each
from sigdir.warehouse.stores import StoreError, open_store

POLL_SECONDS, STORE_POLL_SECONDS = 0.2, 2.0
_DONE = ".done"
_CODE_BYTES = 32


class StageFiles:
    """A stage as one process sees it. ``folder`` is its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> Any:
        """What was put under this name."""
        return pickle.loads((self.folder / name).read_bytes())  # noqa: S301 - written by this import into its own folder

    def save(self, name: str, value: Any) -> None:
        """Put a value that other processes of the run load."""
        (self.folder / name).write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def fetch(self, files: Iterable[Path]) -> None:
        """Have files at hand that other processes of the run made."""

    def share(self, files: Iterable[Path]) -> None:
        """Let other processes of the run have these files."""

    def mark(self, number: int) -> None:
        """Say that a task is done."""
        (self.folder / f"{number:06d}{_DONE}").touch()

    def done(self) -> set[int]:
        """The numbers of the tasks that are done."""
        return {int(file.stem) for file in self.folder.glob(f"*{_DONE}")}


@dataclass(frozen=True)
class Stage:
    """A stage whose folder is at the same place for all. It can be pickled."""

    folder: Path
    poll_seconds: float = POLL_SECONDS

    def make(self) -> StageFiles:
        """Make the folder, for the driver."""
        self.folder.mkdir()
        return StageFiles(self.folder)

    @contextmanager
    def open(self) -> Iterator[StageFiles]:
        """The stage as a task sees it."""
        yield StageFiles(self.folder)


@dataclass(frozen=True)
class Places:
    """Which folders have which names in the store: the first one that fits counts."""

    folders: Sequence[tuple[str, Path]]

    def name(self, path: PurePath) -> str | None:
        for name, folder in self.folders:
            if path.is_relative_to(folder):
                return PurePath(name, path.relative_to(folder)).as_posix()
        return None

    def path(self, name: str) -> Path:
        path = PurePath(name)
        at, folder = next((at, folder) for at, folder in self.folders if path.is_relative_to(at))
        return folder / path.relative_to(at)


@dataclass(frozen=True)
class StoreStage(Stage):
    """A stage whose files the store carries. ``places`` are the driver's."""

    poll_seconds: float = STORE_POLL_SECONDS
    url: str = ""
    places: Places = Places(())
    secret: bytes = field(default=b"", repr=False)

    def make(self) -> StageFiles:
        self.folder.mkdir()
        return _StoreStageFiles(self.folder, self.url, self.places, self.secret)

    @contextmanager
    def open(self) -> Iterator[StageFiles]:
        with RunFolder(own_temporary_folder("sigdir-tasks")) as own:
            places = Places([("", own.path)])
            folder = places.path(self.places.name(self.folder) or "")
            folder.mkdir(parents=True)
            yield _StoreStageFiles(folder, self.url, places, self.secret)


class _StoreStageFiles(StageFiles):
    """What is saved is an object, and nothing else is seen by others before ``share``."""

    def __init__(self, folder: Path, url: str, places: Places, secret: bytes) -> None:
        super().__init__(folder)
        self._store, self._places, self._secret = open_store(url), places, secret

    def load(self, name: str) -> Any:
        object_name = self._name(self.folder / name)
        raw = self._store.read(object_name)
        code, content = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(object_name, content)):
            raise StoreError(f"{self._store.where(object_name)}: not what this import has written")
        return _Unpickler(content, self._places.path).load()

    def save(self, name: str, value: Any) -> None:
        object_name = self._name(self.folder / name)
        content = _pickled(value, self._places.name)
        self._store.put(object_name, self._code(object_name, content) + content)

    def fetch(self, files: Iterable[Path]) -> None:
        missing = [file for file in dict.fromkeys(files) if not file.exists()]
        for folder in {file.parent for file in missing}:
            folder.mkdir(parents=True, exist_ok=True)
        for_each(lambda file: self._store.download(self._name(file), file), missing, REQUESTS)

    def share(self, files: Iterable[Path]) -> None:
        for_each(lambda file: self._store.put(self._name(file), file), list(files), REQUESTS)

    def mark(self, number: int) -> None:
        self._store.put(self._name(self.folder / f"{number:06d}{_DONE}"), b"done")

    def done(self) -> set[int]:
        names = [each.name for each in self._store.list(self._name(self.folder))]
        return {int(PurePath(name).stem) for name in names if name.endswith(_DONE)}

    def _name(self, path: Path) -> str:
        name = self._places.name(path)
        assert name is not None, path
        return name

    def _code(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self._secret, name.encode() + b"\0" + content, "sha256")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, name_of: Callable[[PurePath], str | None]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._name_of = name_of

    def persistent_id(self, value: object) -> str | None:
        return self._name_of(value) if isinstance(value, PurePath) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, path_of: Callable[[str], Path]) -> None:
        super().__init__(io.BytesIO(content))
        self._path_of = path_of

    def persistent_load(self, name: str) -> Path:
        return self._path_of(name)


def _pickled(value: object, name_of: Callable[[PurePath], str | None]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, name_of).dump(value)
    return file.getvalue()
