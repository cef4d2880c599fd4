"""Files that belong to nothing: data files, rejects, evidence, indexes and run folders that a killed process left."""

from __future__ import annotations

from contextlib import suppress

from sigdir.warehouse.log.entry import read_entries
from sigdir.warehouse.log.evidence import manifest_of_entry
from sigdir.warehouse.log.manifest import manifest_of, sources_paths
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import dead_runs
from sigdir.warehouse.table.paths import index_name, index_of_entry
from sigdir.warehouse.verify.files import Verification


def note_leftovers(work: Verification) -> None:
    """Note the files that nothing names. Lists them first and reads the log afterwards: others may publish."""
    paths, report = work.paths, work.report
    listed = [*paths.data_files(), *paths.rejects.glob("*"), *paths.evidence_files()]
    indexes = [path for path in paths.cache.glob("*") if path.is_dir()]
    unfinished: list[str] = []
    with suppress(UnreadableWarehouse), open_read_only(paths.staging) as staging:
        unfinished = staging.unfinished()
    newest = read_snapshot(paths)
    try:
        entries = list(read_entries(paths, newest.version))
    except UnreadableWarehouse:
        return  # a finding already
    named = {file.path for entry in entries for file in entry.added}
    named |= {paths.rejects_file(entry.summary["run"]) for entry in entries if entry.summary is not None}
    for manifest in {found for entry in entries if (found := manifest_of_entry(paths, entry)) is not None}:
        named.add(manifest.path)
        with suppress(UnreadableWarehouse):  # vacuumed, or a finding already
            evidence = manifest_of(manifest)
            named |= {*sources_paths(paths, evidence), *(file.path for file in evidence.all_files())}
    for path in sorted(listed):
        if path not in named and not path.name.startswith(tuple(unfinished)) and path.exists():
            report.note(path, "no version names it")
    used = {index_name(file.collection, file.path) for file in newest.all_files()}
    for path in sorted(indexes):
        if index_of_entry(path) not in used and path.exists():
            report.note(path, "an index of no data file of the newest version")
    for path in dead_runs(paths.tmp):
        report.note(path, "left by an import that was killed")
