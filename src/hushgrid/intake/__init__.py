"""Meter data in common formats to canonical readings; deterministic, no file, no clock.

Each format has a function `x_batches`, which yields an input in batches with bounded memory;
`readings.collect` makes one of them. Malformed rows are counted and reported by position and
reason, never by value, and do not affect the other rows. An input that is not of the format raises
one `IntakeError`.
"""
