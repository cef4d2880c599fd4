"""Python's own parser, for one thread at a time.

In Python 3.11 a parse fails with SystemError if another thread begins one meanwhile. numpy reads the headers of its files
with this parser too.
"""

from threading import Lock

PARSER_LOCK = Lock()
