"""Copies of versions: backups, working copies of stores, and which files versions name."""
