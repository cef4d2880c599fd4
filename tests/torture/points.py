"""The failpoints that tests choose from: see ``sigdir.warehouse.table.failpoints``."""

from __future__ import annotations

BEFORE_THE_ENTRY = ("begun", "data_written", "written", "indexed")
AFTER_THE_ENTRY = ("committed", "checkpointed")
COMMIT_POINTS = (*BEFORE_THE_ENTRY, *AFTER_THE_ENTRY)
"""Of every commit, whatever the version changes, in the order in which it reaches them."""
PLACE_POINTS = ("uploading", "uploaded", "created")
"""Of every commit to a store, after the files are indexed; the entry is there at the last one."""
IMPORT_POINTS = ("read", "locked", "deduped", *COMMIT_POINTS)
STORE_POINTS = (*PLACE_POINTS, "copied", "logged")
"""Of a commit to a store, and of a pull."""
TASK_POINTS = ("task_begun", "task_written")
"""Of an engine's tasks, in the process that runs them."""
