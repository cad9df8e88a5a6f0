"""Many readings at once: aggregated by an engine, released by the curator (docs/batch.md).

readings x roster -> sums by zone and interval -> the curator's tick -> ledger
"""
