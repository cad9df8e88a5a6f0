"""The audit: what a ledger, a trace or a publisher shows of what it promises.

White box (`ledger.py`, `schedule.py`, `houses.py`): everything computed again from the public
terms. Black box (`events.py`, `blackbox.py`, `behaviour.py`): a publisher is run and watched.
`certificate.py` puts both together.
"""

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.audit.evidence import Came, Entry, Epoch, Evidence, Lost, from_recording
from hushgrid.audit.findings import CHECKS, Check
from hushgrid.audit.terms import Terms

__all__ = [
    "CHECKS",
    "Came",
    "Certificate",
    "Check",
    "Entry",
    "Epoch",
    "Evidence",
    "Lost",
    "Terms",
    "certify",
    "from_recording",
]
