"""Work on what is published: compaction, vacuum, the suppress list."""
