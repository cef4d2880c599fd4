"""Work on what is published: compaction and vacuum."""
