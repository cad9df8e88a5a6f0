"""Audit of a ledger, a trace or a publisher against its public terms.

White box (`recompute.py`, `houses.py`): scales, rates and losses are computed again from the
public terms. Black box (`black_box.py`, `behaviour.py`): a publisher is run on chosen readings.
`bounds.py` holds the statistics, `evidence.py` what is read, `certificate.py` the result.
"""

from hushgrid.audit.bounds import CHECKS, Check
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import (
    ArrivedHouse,
    Evidence,
    LostSteps,
    RecordedEpoch,
    RecordedRelease,
    Terms,
    from_recording,
)

__all__ = [
    "CHECKS",
    "ArrivedHouse",
    "Certificate",
    "Check",
    "Evidence",
    "LostSteps",
    "RecordedEpoch",
    "RecordedRelease",
    "Terms",
    "certify",
    "from_recording",
]
