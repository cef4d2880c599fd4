"""Torture test: real processes share a warehouse and are killed at random moments; a ledger shows what must be there.

::

    python -m tests.torture --seed 7 --rounds 200 --minutes 30

``plan`` draws everything that a round does from ``random.Random(f"{seed}:{round}")`` before the round starts.
``ledger`` records what was acknowledged. ``checks`` compares the warehouse with it by HTTP, by SQL and file by
file. ``processes`` starts and kills the real commands.
"""
