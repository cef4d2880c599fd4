"""The table's log: the only package that knows Delta's JSON and checkpoints, reading and writing.

Invariants
    An entry is never changed, and its version number is never given twice: it is linked into place, and a link
    fails where the name is taken.
    An entry has its name only once its bytes are on stable storage: an entry without bytes would end the log.
    Entries are never cleaned up: they are the history of imports.
    Each file that is read is what was written: it holds a digest of its own bytes (``entry.py``).

The log follows version 1 of Delta's protocol for readers and 2 for writers: https://github.com/delta-io/delta,
PROTOCOL.md. An entry is one file of JSON lines, one action a line. We write four kinds:

- ``add``: a data file with its size, its partition, statistics (rows, smallest and largest id and time), and its
  sha256 among the ``tags``;
- ``remove``: a data file that compaction replaced;
- ``txn``: a collection's watermark, its highest id, under the name ``sigdir:<collection>``;
- ``commitInfo``: the time, our summary as JSON in the field ``sigdir``, and the digest of the entry.

Entry 0 makes the table (``protocol`` and ``metaData``) and has no summary. Other programs may commit to the table:
what they add and remove is read; a table that they have changed to a newer protocol is refused.
"""
