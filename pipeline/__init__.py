"""Jobs that read or write files: import, export, mirror."""
