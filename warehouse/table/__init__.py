"""What everything at rest is made of: names of files, locks, columns, Parquet, stores, and the places of versions."""
