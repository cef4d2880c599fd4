"""Torture: real processes over one warehouse, killed at moments drawn from a seed, and a ledger.

::

    python -m tests.torture --seed 7 --rounds 200 --minutes 30

Everything a round does is drawn from ``random.Random(f"{seed}:{round}")`` before it begins (``plan``).
What was acknowledged is kept in a ledger (``ledger``), to which the warehouse is held by HTTP, by SQL
and by its files (``checks``). The processes are the real commands (``processes``).
"""
