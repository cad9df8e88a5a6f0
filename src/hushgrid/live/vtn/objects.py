"""What clients keep here: vens, resources, subscriptions, reports.

A client sees its own objects. `read_all` (business logic) and `operate` see everybody's vens,
resources and subscriptions; reports carry raw usage and are for their owner and `operate` alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hushgrid.live.publish import utc
from hushgrid.live.vtn.answers import Call, Refused, nothing
from hushgrid.live.vtn.callbacks import ForbiddenTargetError, check_callback
from hushgrid.live.vtn.public import PublicObjects, page
from hushgrid.live.vtn.shapes import step_of
from hushgrid.live.vtn.store import StoredObject, TakenError, VtnStore
from hushgrid.live.vtn.store.ports import Kind

MOST = 10_000  # objects of one kind that one client may keep
KEYS: dict[Kind, str] = {
    "VEN": "venID", "RESOURCE": "resourceID",
    "SUBSCRIPTION": "subscriptionID", "REPORT": "reportID",
}  # fmt: skip
_FILTERS = {
    "venName": "name", "resourceName": "name", "clientName": "name",
    "programID": "program", "eventID": "event", "venID": "ven",
}  # fmt: skip
_METADATA = ("id", "createdDateTime", "modificationDateTime", "objectType", "clientID")

Tell = Callable[[str, str, dict[str, Any], str], None]  # kind, operation, object, its client


def _nobody(*_: Any) -> None:
    pass


class Objects:
    """The handlers of one store; `tell` is called for every change."""

    def __init__(
        self,
        store: VtnStore,
        public: PublicObjects,
        *,
        private_callbacks: bool = False,
        webhooks: bool = True,
        tell: Tell = _nobody,
    ) -> None:
        self._store, self._public, self._tell = store, public, tell
        self._private, self._webhooks = private_callbacks, webhooks

    def list(self, kind: Kind, call: Call) -> list[dict[str, Any]]:
        """GET of a kind."""
        skip, limit = page(call)
        where = {_FILTERS[name]: each for name, each in call.query.items() if name in _FILTERS}
        targets, objects = call.query.get("targets"), call.query.get("objects")

        def such(one: StoredObject) -> bool:
            named = {each for o in one.body.get("objectOperations", ()) for each in o["objects"]}
            return (not targets or not set(targets).isdisjoint(one.body.get("targets") or ())) and (
                not objects or not set(objects).isdisjoint(named)
            )

        found = self._store.find(
            kind,
            client=None if _sees_all(kind, call) else call.client,
            where=where,
            such=such if targets or objects else None,
            skip=skip,
            limit=limit,
        )
        return [shown(one, call.client) for one in found]

    def get(self, kind: Kind, call: Call) -> dict[str, Any]:
        """GET of one."""
        return shown(self._seen(kind, call), call.client)

    def add(self, kind: Kind, call: Call) -> dict[str, Any]:
        """POST."""
        client, body = self._made(kind, call, None)
        if self._store.count(kind, client) >= MOST:
            raise Refused(403, f"There are {MOST} of them already; remove some first.")
        one = StoredObject(kind, secrets.token_urlsafe(18), client, call.now, call.now, body)
        self._write(lambda: self._store.add(one))
        return self._told(one, "CREATE", call)

    def change(self, kind: Kind, call: Call) -> dict[str, Any]:
        """PUT."""
        before = self._writable(kind, call)
        client, body = self._made(kind, call, before)
        one = replace(before, client=client, modified=call.now, body=body)
        if not self._write(lambda: self._store.replace(one)):
            raise nothing(kind.lower())
        return self._told(one, "UPDATE", call)

    def remove(self, kind: Kind, call: Call) -> dict[str, Any]:
        """DELETE."""
        one = self._store.remove(kind, self._writable(kind, call).id)
        if one is None:
            raise nothing(kind.lower())
        return self._told(one, "DELETE", call)

    def check_ven(self, call: Call) -> None:
        """That the ven of a path may be seen."""
        self._seen("VEN", call)

    def _seen(self, kind: Kind, call: Call) -> StoredObject:
        one = self._store.get(kind, call.path[KEYS[kind]])
        if one is None or (one.client != call.client and not _sees_all(kind, call)):
            raise nothing(kind.lower())
        return one

    def _writable(self, kind: Kind, call: Call) -> StoredObject:
        one = self._seen(kind, call)
        shared = kind in ("VEN", "RESOURCE") and call.grant.may("read_all")
        if one.client != call.client and not shared and not call.grant.may("operate"):
            raise Refused(403, f"This {kind.lower()} is another client's; change your own.")
        return one

    def _write(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except TakenError:
            raise Refused(409, "The name is in use already; give another one.") from None

    def _told(self, one: StoredObject, operation: str, call: Call) -> dict[str, Any]:
        self._tell(one.kind, operation, shown(one, None), one.client)
        return shown(one, call.client)

    # ---- what is kept of a request

    def _made(
        self, kind: Kind, call: Call, before: StoredObject | None
    ) -> tuple[str, dict[str, Any]]:
        """Whose an object is, and what of a request is kept."""
        body = {name: each for name, each in call.body.items() if name not in _METADATA}
        client = call.client if before is None else before.client
        if kind == "SUBSCRIPTION":
            self._check_subscription(body)
        elif kind == "REPORT":
            place = step_of(body["eventID"])
            if "programID" not in body and place is not None:
                body["programID"] = place[0]
        else:
            client = self._owner(kind, call, client)
            if not call.body["objectType"].startswith("BL_"):  # targets are not the ven's to say
                body.pop("targets", None)
                if before is not None and before.body.get("targets") is not None:
                    body["targets"] = before.body["targets"]
        return client, body

    def _owner(self, kind: Kind, call: Call, client: str) -> str:
        """Whose a ven or resource is; its request says whether business logic or a ven sends it."""
        business = call.body["objectType"].startswith("BL_")
        if business and not _sees_all(kind, call):
            raise Refused(403, f"objectType is for business logic; send a VEN_{kind}_REQUEST.")
        if kind == "VEN":
            own = call.grant.ven
            if not business and own is not None and call.body["venName"] != own:
                raise Refused(403, "venName is not the one of this client; give its own.")
        else:
            ven = self._store.get("VEN", call.body["venID"])
            if ven is None or (ven.client != client and not _sees_all("VEN", call)):
                raise nothing("ven")
            client = ven.client if not business else client
        return str(call.body["clientID"]) if business else client

    def _check_subscription(self, body: Mapping[str, Any]) -> None:
        if not self._webhooks:
            raise Refused(403, "This service sends no webhooks; read events or use MQTT.")
        program = body.get("programID")
        if program is not None and not self._public.has(program):
            raise Refused(409, "programID is of no program; give one of GET /programs.")
        for one in body["objectOperations"]:
            try:
                check_callback(one["callbackUrl"], private=self._private)
            except ForbiddenTargetError as error:
                raise Refused(403, f"callbackUrl {error}") from None


def _sees_all(kind: Kind, call: Call) -> bool:
    return call.grant.may("operate") or (kind != "REPORT" and call.grant.may("read_all"))


def shown(one: StoredObject, reader: str | None) -> dict[str, Any]:
    """An object as it is answered; secrets of a subscription only to the client it is of."""
    body = dict(one.body)
    if one.kind in ("VEN", "RESOURCE"):
        body = {"attributes": None, "targets": None} | body
    if one.kind == "SUBSCRIPTION" and reader != one.client:
        body["objectOperations"] = [
            {name: each for name, each in o.items() if name != "bearerToken"}
            for o in body["objectOperations"]
        ]
    return body | {
        "id": one.id,
        "createdDateTime": utc(one.created),
        "modificationDateTime": utc(one.modified),
        "objectType": one.kind,
        "clientID": one.client,
    }
