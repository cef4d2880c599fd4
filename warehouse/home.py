"""Where versions are committed: in the warehouse's folder, or in the store that the folder is a working copy of.

Invariants
    A version of a store is visible from the moment at which its log entry is created there. All files that it names
    are uploaded before. If several publishers create the same entry, exactly one succeeds.
    A working copy has no entry that its store has not.
    No object that a version names is ever replaced: names begin with the run's, and each attempt to commit is a run
    of its own.

A working copy is an ordinary warehouse folder with ``store.json`` in it, which names the store. So a publish into the
folder, by whatever command, commits to the store through this module. Pulls and uploads are further steps of a
publish, which do nothing for a folder that is no working copy.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from sigdir.warehouse import failpoints
from sigdir.warehouse.errors import CommitConflict, UnreadableWarehouse
from sigdir.warehouse.files import make_folder, sync, write_file
from sigdir.warehouse.parallel import for_each
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.stores import MissingObject, ObjectExists, Store, StoreError, open_store
from sigdir.warehouse.suppressed import sealed, sealed_version, unsealed

REQUESTS = 8
"""Files that are uploaded or fetched at the same time."""

_FOLDER = "SIGDIR_STORE_CACHE"

SWEEP_AGE = timedelta(hours=24)
"""Objects of a run that no version names are removed at this age: no lock shows whether the run still lives."""


def store_of(paths: Paths) -> Store | None:
    """The store that the folder is a working copy of; None for any other warehouse. Raises UnreadableWarehouse."""
    try:
        return open_store(str(json.loads(paths.store.read_bytes())["url"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableWarehouse(
            f"{paths.store}: damaged; remove the folder, which is only a copy of a warehouse in a store"
        ) from error


def working_copy(url: str, folder: Path | None = None) -> Paths:
    """The folder of a store's working copy, made where it is missing; raises StoreError, UnreadableWarehouse.

    Without ``folder`` it lies in the folder that SIGDIR_STORE_CACHE names, or in the user's cache.
    """
    store = open_store(url)
    paths = Paths((folder or _cache_folder() / sha256(store.url.encode()).hexdigest()[:16]).absolute())
    known = store_of(paths)
    if known is None:
        if paths.hold_warehouse():
            raise UnreadableWarehouse(f"{paths.root} is a warehouse of its own, not a copy of {store.url}")
        make_folder(paths.root)
        write_file(paths.store, json.dumps({"url": store.url}).encode() + b"\n")
    elif known.url != store.url:
        raise UnreadableWarehouse(f"{paths.root} is a copy of {known.url}, not of {store.url}")
    return paths


def _cache_folder() -> Path:
    named = os.environ.get(_FOLDER)
    if named:
        return Path(named)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sigdir"
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder


def place_entry(paths: Paths, version: int, entry: Path, run: str) -> None:
    """Give a synced log entry its name, which makes the version visible; ``run`` is the one that wrote its files.

    Raises CommitConflict if the version is there already, and StoreError. Some StoreErrors say that it is not known
    whether the version was committed; the next run finds out.
    """
    raw = entry.read_bytes()
    store = store_of(paths)
    if store is not None:
        _commit(paths, store, version, raw, run)
    try:
        os.link(entry, paths.log_entry(version))
    except FileExistsError:
        # Another process of this machine may have fetched the entry that we have just created.
        if store is None or paths.log_entry(version).read_bytes() != raw:
            raise CommitConflict(f"{paths.table} has a version {version} already") from None
    sync(paths.log)


def upload(paths: Paths, run: str) -> None:
    """Bring the files of a run to the store: Parquet files, then the documents that name them. Raises StoreError.

    Nothing is done for a warehouse that is a folder.
    """
    store = store_of(paths)
    if store is None or not run:
        return
    rejects = paths.rejects_file(run)
    files = [*paths.files_of_run(run), *paths.evidence_of_run(run), *([rejects] if rejects.exists() else [])]
    documents = [file for file in files if file.suffix != ".parquet"]
    there = dict(_uploaded(paths, store, run))

    def bring(file: Path) -> None:
        if there.get(paths.name(file)) != file.stat().st_size:
            store.put(paths.name(file), file)
            failpoints.reach("uploading")

    for_each(bring, [file for file in files if file not in documents], REQUESTS)
    for file in sorted(documents, key=lambda file: not file.name.endswith(".sources.json")):
        store.put(paths.name(file), file)


def upload_checkpoint(paths: Paths, version: int) -> None:
    """Bring the checkpoint of a version to the store, if there is one. A version is complete without it."""
    store = store_of(paths)
    files = paths.checkpoint_files(version) if store is not None else []
    if store is None or not files:
        return
    try:
        for file in [*files, paths.last_checkpoint]:
            store.put(paths.name(file), file)
    except StoreError:
        return  # the next one, a hundred versions later, comes by itself


def put_suppressed(paths: Paths, store: Store, raw: bytes) -> bytes:
    """Write a suppress list into the store, then into its identity that it has one; returns it sealed.

    From then on the store always has a list, and an empty one in place of none: whoever finds none knows that it is
    lost. Raises StoreError.
    """
    name = paths.name(paths.suppressed)
    try:
        before = store.read(name)
    except MissingObject:
        before = b""
    version = sealed_version(before)
    listed = sealed(raw, max(version + 1, int(time.time())))
    if version and unsealed(before) == unsealed(raw):
        listed = before
    else:
        store.put(name, listed)
    name = paths.name(paths.identity)
    identity = json.loads(store.read(name))
    if not identity.get("has_suppressed"):
        store.put(name, json.dumps(identity | {"has_suppressed": True}).encode() + b"\n")
    return listed


def _commit(paths: Paths, store: Store, version: int, raw: bytes, run: str) -> None:
    """Upload what is missing of the run and create the entry; raises CommitConflict, StoreError."""
    name = paths.name(paths.log_entry(version))
    if store.find(name) is not None:
        discard(paths, store, run)
        raise CommitConflict(f"{store.url} has a version {version} already")
    upload(paths, run)
    _require_young(paths, store, run)
    failpoints.reach("uploaded")
    try:
        store.create(name, raw)
    except ObjectExists:
        discard(paths, store, run)
        raise CommitConflict(f"{store.url} has a version {version} already") from None
    except StoreError as error:
        raise StoreError(
            f"{error}; whether version {version} was published is not known: run the command again, which finds out"
        ) from error
    failpoints.reach("created")


def discard(paths: Paths, store: Store, run: str) -> None:
    """Remove the objects of a run that has lost its version to another; what fails is left to the sweep."""
    try:
        store.delete(name for name, _ in _uploaded(paths, store, run))
    except StoreError:
        return


def _uploaded(paths: Paths, store: Store, run: str) -> list[tuple[str, int]]:
    """The objects of a run: names and sizes in bytes."""
    if not run:
        return []
    folders = {paths.name(file.parent) for file in (*paths.files_of_run(run), *paths.evidence_of_run(run))}
    if paths.rejects_file(run).exists():
        folders.add(paths.name(paths.rejects))
    # Names begin with the run's time, so what is listed is this run and the later ones.
    return [
        (each.name, each.size)
        for folder in folders
        for each in store.list(folder, after=f"{folder}/{run}")
        if each.name.startswith(f"{folder}/{run}")
    ]


def _require_young(paths: Paths, store: Store, run: str) -> None:
    """Raise StoreError where the run's first object is so old that another run may soon sweep it."""
    if not run:
        return
    found = [store.find(paths.name(file)) for file in (*paths.files_of_run(run), *paths.evidence_of_run(run))]
    times = [each.modified for each in found if each is not None]
    if len(times) < len(found):
        raise MissingObject(f"{store.url}: a file of this run is gone; run the command again")
    if times and max(times) - min(times) > SWEEP_AGE / 2:
        raise StoreError(f"{store.url}: the upload took over {SWEEP_AGE / 2}; run the command again")
