"""The staging file: the sequences of ids and times, and POSTed rows that are not folded yet.

Invariants
    An id is given out once per collection, in order, and created_at rises with it.
    Every change is one transaction that is on stable storage when it returns (WAL, FULL); only the sighting of a
    text that was stored already may be lost with the power.
    A row is here with an id above the snapshot's watermark, or it is in the snapshot; never
    in neither. Rows at or below the watermark were left by a crash and count as folded.
    Damage is noticed when the file is opened: each row has a checksum, SQLite checks its pages and indexes, and
    the stamp has the highest ids that were given out. SQLite itself drops a write-ahead log from its first damaged
    frame on, without a word.

SQLite, because several processes write it at once and each commit is durable by itself
(0.15 ms an insert); a DuckDB file can be opened by one process only.

Modules, each above those that it imports: ``writer`` and ``reader`` (a process's handles), ``transaction`` (rows and
sequences, and their tables in SQL).
"""
