"""The VTN of a running process: its store, its app, and the sender of webhooks.

with Vtn(history, open_vtn("vtn.sqlite"), access, clock, OpenAdr()) as vtn:
    Mount(BASE, vtn.app)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from hushgrid.live.access import Access
from hushgrid.live.clock import Clock
from hushgrid.live.deployment import OpenAdr, ZoneService
from hushgrid.live.history import History
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.vtn.answers import written
from hushgrid.live.vtn.app import make_vtn
from hushgrid.live.vtn.objects import Objects
from hushgrid.live.vtn.public import PublicObjects
from hushgrid.live.vtn.shapes import event_of, notification
from hushgrid.live.vtn.store import VtnStore
from hushgrid.live.vtn.webhooks import Callback, Note, Webhooks


class Vtn:
    """Everything of the VTN but its MQTT publisher. Closes the store at its end."""

    def __init__(
        self,
        history: History,
        store: VtnStore,
        access: Access,
        clock: Clock,
        settings: OpenAdr,
        *,
        mqtt_uris: Iterable[str] = (),
        alone: bool = True,
        counted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._history, self._store, self._clock = history, store, clock
        private = settings.allow_private_callbacks
        self.webhooks = Webhooks(self.callbacks, private=private, counted=counted)
        self._sends, self._alone = settings.webhooks, alone
        public = PublicObjects(history, mqtt_uris)
        objects = Objects(
            store, public, private_callbacks=private, webhooks=self._sends, tell=self._changed
        )
        self.app = make_vtn(
            public, objects, access, clock, anonymous=settings.anonymous, url=settings.url
        )
        self._unwatch: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self._sends:
            self.webhooks.start()
            self._unwatch = self._history.watch(self._released, own=True)
            if self._alone:  # else whoever takes a zone over does it
                self._again()
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch()
        if self._sends:
            self.webhooks.stop()
        self._store.close()

    def callbacks(self) -> Iterator[Callback]:
        """Every callback of every subscription."""
        for one in self._store.find("SUBSCRIPTION"):
            for i, each in enumerate(one.body["objectOperations"]):
                yield Callback(
                    (one.id, i),
                    one.client,
                    one.body.get("programID"),
                    frozenset(each["objects"]),
                    frozenset(each["operations"]),
                    each["callbackUrl"],
                    each.get("bearerToken"),
                )

    def _again(self) -> None:
        """A price that still applies is told again: who was told before the restart is unknown."""
        for zone in self._history.zones.values():
            newest = self._history.newest(zone.id)
            if newest and newest.applies_start + zone.seconds > self._clock.now():
                self._released(zone, newest)

    def _released(self, zone: ZoneService, release: ReleaseRecord) -> None:
        event = event_of(zone, release)
        content = written(notification("EVENT", "CREATE", event))
        self.webhooks.tell(Note("EVENT", "CREATE", event["programID"], None, content))

    def _changed(self, kind: str, operation: str, thing: dict[str, Any], client: str) -> None:
        """Changes of a client's objects are told to its own subscriptions alone."""
        if self._sends:
            content = written(notification(kind, operation, thing))
            self.webhooks.tell(Note(kind, operation, thing.get("programID"), client, content))
