"""Audit of a ledger, a trace or a publisher against its public terms.

White box (`recompute.py`, `houses.py`): scales, rates and losses are computed again from the
public terms. Black box (`behaviour.py`, `lab/black_box.py`): a publisher is run on chosen readings.
`bounds.py` holds the statistics, `evidence.py` what is read, `certificate.py` the result.
"""
