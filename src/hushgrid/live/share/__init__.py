"""Several curators on one service: who runs which zone, and how the others follow.

    rules.py      who should take or give back what: pure
    leases.py     the leases in PostgreSQL
    following.py  what other curators record
    sharing.py    one curator among several

Safety is the ledger's: the lock of a zone, held by the session that appends, and one record for
each zone and step. Leases only say who tries.
"""
