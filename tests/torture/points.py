"""The failpoints of an import that the torture run chooses from: see ``sigdir.warehouse.failpoints``."""

from __future__ import annotations

PUBLISH_POINTS = ("reserved", "evidence_written", "written", "manifest_written", "committed", "published")
IMPORT_POINTS = ("read", "locked", "deduped", *PUBLISH_POINTS)
STORE_POINTS = ("uploading", "uploaded", "created", "pulled")
"""Of a commit to a store, and of a pull."""
TASK_POINTS = ("task_begun", "task_written", "deduplicating")
"""Of an engine's tasks, in the process that runs them."""
