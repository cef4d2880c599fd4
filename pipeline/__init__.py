"""Files to published rows: read, normalise, hash, dedupe, publish. Imports the warehouse floor."""
