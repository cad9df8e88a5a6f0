"""What tells Home Assistant over MQTT that there is a price. Pure."""

from __future__ import annotations

import hashlib
import json
import re

from hushgrid.live.deployment import ZoneService


def discovery(zone: ZoneService, prefix: str, state_topic: str) -> tuple[str, str]:
    """Topic and text of a zone's discovery message; prices come on `state_topic`."""
    name = object_id(zone.id)
    said = {
        "name": "Electricity price",
        "unique_id": name,
        "object_id": name,
        "state_topic": state_topic,
        "value_template": "{{ value_json.price }}",
        "json_attributes_topic": state_topic,
        "unit_of_measurement": f"{zone.currency}/kWh",
        "state_class": "measurement",
        "suggested_display_precision": 4,
        "device": {
            "identifiers": [name],
            "name": f"hushgrid {zone.id}",
            "manufacturer": "hushgrid",
        },
        "origin": {"name": "hushgrid"},
    }
    return f"{prefix}/sensor/{name}/config", json.dumps(said)


def object_id(zone: str) -> str:
    """A name of letters, digits, dashes and underscores, another one for every zone.

    >>> object_id("elm-street"), object_id("Ulmenstraße 7")
    ('hushgrid_elm-street', 'hushgrid_Ulmenstra_e_7_5e2102ce')
    """
    plain = re.sub("[^A-Za-z0-9_-]", "_", zone)
    if plain == zone:
        return f"hushgrid_{zone}"
    return f"hushgrid_{plain}_{hashlib.sha256(zone.encode()).hexdigest()[:8]}"
