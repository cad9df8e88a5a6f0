"""Certificates of running zones, which their operator asks for."""

from __future__ import annotations

import threading
from typing import Any

from hushgrid.files.deployment import Deployment
from hushgrid.stores.ledger import open_store


class Certificates:
    """Certificates of running zones, made on demand and kept until a record is added.

    Args:
        deployment: zones and ledger.
        key: public key of the ledger.
    """

    def __init__(self, deployment: Deployment, key: str) -> None:
        self._ledger, self._key = deployment.ledger, key
        self._zones = {zone.id: zone for zone in deployment.zones}
        self._cache: dict[str, tuple[str, dict[str, Any]]] = {}
        self._mutex = threading.Lock()

    def values(self, zone: str) -> dict[str, Any]:
        """Return a zone's certificate as `hushgrid audit --json` writes it. Takes seconds."""
        with self._mutex:
            with open_store(self._ledger, create=False) as store:
                newest = store.head(zone)
            head = "" if newest is None else newest.digest
            cached_head, values = self._cache.get(zone, (None, {}))
            if cached_head != head:
                values = self._certificate(zone)
                self._cache[zone] = (head, values)
            return values

    def _certificate(self, zone: str) -> dict[str, Any]:
        from hushgrid.audit.certificate import certify
        from hushgrid.operate.audit import load_ledger, terms_of
        from hushgrid.report.certificate import certificate_json

        evidence, chain = load_ledger(self._ledger, zone=zone, key=self._key, heads=())
        certificate = certify(
            evidence,
            [terms_of(self._zones[zone])],
            chain=chain,
            # as for an auditor who exported the ledger from /v1/ledger
            inputs={"file": "ledger.ndjson", "kind": "ledger", "config": ["service.toml"],
                    "digests": {}, "zone": zone, "key": self._key, "heads": []},
        )  # fmt: skip
        return certificate_json(certificate)
