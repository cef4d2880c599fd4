"""The exit status of an interrupted command, in a module that costs nothing to load."""

INTERRUPTED_STATUS = 130
