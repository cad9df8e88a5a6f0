"""The audit: what a ledger, a trace or a publisher shows of what it promises.

White box (`ledger.py`, `schedule.py`, `houses.py`): everything computed again from the public
terms. Black box (`events.py`, `blackbox.py`, `behaviour.py`): a publisher is run and watched.
`certificate.py` puts both together.
"""

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import (
    Came,
    Evidence,
    Lost,
    RecordedEpoch,
    RecordedRelease,
    from_recording,
)
from hushgrid.audit.findings import CHECKS, Check
from hushgrid.audit.terms import Terms

__all__ = [
    "CHECKS",
    "Came",
    "Certificate",
    "Check",
    "Evidence",
    "Lost",
    "RecordedEpoch",
    "RecordedRelease",
    "Terms",
    "certify",
    "from_recording",
]
