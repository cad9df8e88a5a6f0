"""An app whose clients have scopes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import httpx

from hushgrid.audit.certificate import certify
from hushgrid.curator.ingest import Ingest
from hushgrid.files.settings import Http
from hushgrid.operate.audit import terms_of
from hushgrid.report.certificate import certificate_json
from hushgrid.stores.clients import SCOPES, Client, ClientStore
from hushgrid.web.http.app import make_app
from hushgrid.web.tokens import Access, make_token
from tests.curator.worlds import service
from tests.web.http.credentials import KEPT, KEY
from tests.web.http.faces import DIGEST, Face, Still
from tests.web.http.ways import Way
from tests.web.releases import release

NOW = int(Still().now())


WHO: dict[str, str | None] = {scope: f"client-{scope}" for scope in SCOPES}


@cache
def certificate() -> dict[str, Any]:
    return certificate_json(certify(terms=[terms_of(service(houses=2))]))


class Guarded(Face):
    """A face with a client for each scope."""

    def __init__(self, folder: Path, **http: Any) -> None:
        super().__init__()
        self.http = Http(tokens=(DIGEST,), rate_limit=1e9, **http)
        self.clients = ClientStore(str(folder / "clients.sqlite"))
        for scope, name in WHO.items():
            self.clients.add(Client(str(name), (scope,), KEPT, 1))
        self.history.publish(self.zone, release(0))
        self.app = make_app(
            Ingest([self.zone], self.meters),
            self.board,
            self.metrics,
            self.http,
            history=self.history,
            access=Access(self.clients, KEY, Still(), static=self.http.tokens),
            clock=Still(),
            lines=lambda zone: iter([f'{{"zone":"{zone}"}}\n']),
            certify=lambda _: certificate(),
        )

    def header(self, scope: str, *, expires: int = NOW + 60, key: bytes = KEY) -> str:
        return f"Bearer {make_token(key, str(WHO[scope]), [scope], expires, b'n')}"

    def status(self, way: Way, authorization: str | None) -> httpx.Response:
        headers = {} if authorization is None else {"Authorization": authorization}
        if way.path == "/v1/stream":  # endless: a wrong zone shows who gets in
            return self.call(way.method, way.path + "?zone=none", headers=headers)
        return self.call(way.method, way.path, headers=headers)
