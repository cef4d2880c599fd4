"""The file shapes that an import reads; see ``table`` for the list."""
