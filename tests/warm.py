"""Loads all that a server loads. ``FORKED`` preloads it."""

import os
from tempfile import TemporaryDirectory

from sigdir.serve.core.settings import COUNTS_FOLDER, Settings

# The metrics look for a folder as they are loaded, and again in each process that is forked.
with TemporaryDirectory() as counts:
    os.environ[COUNTS_FOLDER] = counts
    from sigdir.serve.servers import waitress_worker  # noqa: F401
    from sigdir.serve.servers.startup import load

    load(Settings())
    del os.environ[COUNTS_FOLDER]
