"""The certificate of a running zone, made from its ledger beside the writer."""

from __future__ import annotations

import threading
from typing import Any

from hushgrid import report
from hushgrid.audit.certificate import certify
from hushgrid.live.audit import load_ledger, terms_of
from hushgrid.live.deployment import Deployment
from hushgrid.live.ledger.records import schedule_digest
from hushgrid.live.ledger.stores import open_store


class Certificates:
    """One for each state of a ledger: made when it is asked for, kept until a record is added."""

    def __init__(self, deployment: Deployment, key: str) -> None:
        self._ledger, self._key = deployment.ledger, key
        self._zones = {zone.id: zone for zone in deployment.zones}
        self._kept: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = threading.Lock()

    def values(self, zone: str) -> dict[str, Any]:
        """Its figures, as `hushgrid audit --json` writes them. Takes seconds."""
        with self._mutex:
            with open_store(self._ledger, create=False) as store:
                newest = store.head(zone)
            head = "" if newest is None else newest.digest
            known, values = self._kept.get(zone, (None, {}))
            if known != head:
                values = self._made(zone)
                self._kept[zone] = (head, values)
            return values

    def _made(self, zone: str) -> dict[str, Any]:
        evidence, chain = load_ledger(self._ledger, zone=zone, key=self._key, heads=())
        found = certify(
            evidence,
            [terms_of(self._zones[zone])],
            chain=chain,
            commit=schedule_digest,
            # as somebody would ask who has exported the ledger from /v1/ledger
            inputs={"file": "ledger.ndjson", "kind": "ledger", "config": ["service.toml"],
                    "digests": {}, "zone": zone, "key": self._key, "heads": []},
        )  # fmt: skip
        return report.certificate_json(found)
