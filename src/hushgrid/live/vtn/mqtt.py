"""Each release as a notification on the MQTT topics of OpenADR."""

from __future__ import annotations

from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.mqtt import MqttOut
from hushgrid.live.vtn.answers import written
from hushgrid.live.vtn.shapes import event_of, notification, program_id, topics


class MqttEvents(MqttOut):
    """A publisher: on the topic of a program's events, and on that of all events."""

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish and wait for the broker's word; OSError where it does not come."""
        text = written(notification("EVENT", "CREATE", event_of(zone, release))).decode()
        for under in (f"programs/{program_id(zone.id)}/events", "events"):
            self.send(topics(under)["CREATE"], text, retain=False)
