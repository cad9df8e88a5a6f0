"""The audit: what a ledger, a trace or a publisher shows of what it promises.

White box (`ledger.py`, `schedule.py`, `houses.py`): everything computed again from the public
terms. Black box (`events.py`, `blackbox.py`, `behaviour.py`): a publisher is run and watched.
`certificate.py` puts both together.
"""

from hushgrid.audit.bounds import CHECKS, Check
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import (
    Came,
    Evidence,
    Lost,
    RecordedEpoch,
    RecordedRelease,
    Terms,
    from_recording,
)

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
