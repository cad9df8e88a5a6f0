"""The tariff interface of Swiss utilities, as its public description (version 1.0) has it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges
from hushgrid.web.feeds import USUAL, PriceRange
from hushgrid.web.http.prices import feeds
from hushgrid.web.prices import History, Pages
from hushgrid.web.vse import FEED, FEED_2
from tests.curator.worlds import START, service
from tests.web.http.faces import Face, Still, refused
from tests.web.releases import release

PATH = "/v1/vse/tariffs"
CHARGES = Charges(fixed=(0.1,), relative=(0.081,))


@pytest.fixture
def face() -> Face:
    made = Face()
    made.clock.wall = START + 900 * 6 + 10
    for i in range(6):
        made.history.publish(made.zone, release(i))
    return made


def swiss(**changes: Any) -> ZoneService:
    own: dict[str, Any] = {"currency": "CHF", "time_zone": "Europe/Zurich", "charges": CHARGES}
    return service(**(own | changes))


def body(
    zone: ZoneService, span: PriceRange = USUAL, path: str = PATH, **changes: Any
) -> dict[str, Any]:
    history = History([zone])
    for i in range(6):
        history.publish(zone, release(i, **changes))
    page = Pages(history, feeds(), Still()).page(path, zone.id, span)
    assert page is not None
    (model,) = (feed.model for feed in (FEED, FEED_2) if feed.path == path)
    model.model_validate_json(page.body, strict=True)
    return dict(json.loads(page.body))


def test_a_price_has_its_components_in_local_time() -> None:
    found = body(swiss())
    # published when the last interval was over, see releases.py
    stamp = datetime.fromtimestamp(release(5).published_at).astimezone()
    assert datetime.fromisoformat(found["publication_timestamp"]) == stamp
    first = found["prices"][0]
    assert first["start_timestamp"] == "2025-06-15T17:45:00+02:00"
    assert first["end_timestamp"] == "2025-06-15T18:00:00+02:00"
    values = {name: first[name] for name in ("electricity", "grid", "integrated")}
    assert all([one["unit"] for one in prices] == ["CHF_kWh"] for prices in values.values())
    electricity, grid, integrated = (prices[0]["value"] for prices in values.values())
    assert electricity == pytest.approx(0.1 * 1.081)
    assert grid == pytest.approx(0.1 * 1.081)
    assert integrated == pytest.approx(0.2 * 1.081)
    assert list(first) == ["start_timestamp", "end_timestamp", *values]


def test_only_published_prices_are_there(face: Face) -> None:
    rows = face.call("GET", "/v1/prices").json()
    assert rows["forecast"]
    found = face.call("GET", f"{PATH}?start_timestamp=2020-01-01T00:00:00Z").json()
    assert [row["start_timestamp"] for row in found["prices"]] == [
        row["start"].replace("Z", "+00:00") for row in rows["published"]
    ]


def test_without_charges_energy_is_all_there_is(face: Face) -> None:
    for row in face.call("GET", PATH).json()["prices"]:
        assert row["electricity"] == row["integrated"]
        assert not {"grid", "feed_in"} & set(row)
    for name in ("grid", "feed_in"):
        found = face.call("GET", PATH, params={"tariff_type": name}).json()
        assert found["prices"] == []
        assert found["publication_timestamp"]


def test_one_component_is_what_the_whole_has() -> None:
    zone, feed_in = swiss(), {"feed_in": 0.0333}
    rows = body(zone, **feed_in)["prices"]
    for name in ("electricity", "grid", "integrated", "feed_in"):
        parts = body(zone, PriceRange(options=(name,)), **feed_in)["prices"]
        for part, row in zip(parts, rows, strict=True):
            assert set(part) == {"start_timestamp", "end_timestamp", name}
            assert part[name] == row[name]
    assert part["feed_in"] == [{"unit": "CHF_kWh", "value": 0.0333}]


def test_the_second_version_has_the_same_prices_named() -> None:
    zone = swiss()
    first, second = (
        body(zone, feed_in=0.03),
        body(zone, path=f"{PATH[:7]}/v2/tariffs", feed_in=0.03),
    )
    assert second["publication_timestamp"] == first["publication_timestamp"]
    for old, new in zip(first["prices"], second["prices"], strict=True):
        assert list(old) == list(new)
        for name in ("electricity", "grid", "integrated", "feed_in"):
            energy = {"unit": "CHF/kWh", "value": old[name][0]["value"]}
            assert new[name] == {"tariff_name": "elm-street", "energy": energy}


def test_components_have_the_digits_of_the_tariff_and_the_sum_of_the_total() -> None:
    for row in body(swiss(digits=2))["prices"]:
        parts = [row[name][0]["value"] for name in ("electricity", "grid", "integrated")]
        assert parts == [round(part, 2) for part in parts]
        assert parts[0] + parts[1] == pytest.approx(parts[2])


def test_before_the_first_release_nothing_is_published() -> None:
    assert Face().call("GET", PATH).json() == {"publication_timestamp": "", "prices": []}


SUMMER = "2025-06-15T16:15:00+00:00"  # a price begins


@pytest.mark.parametrize(
    "text",
    [
        "2025-06-15T16:15:00Z", "2025-06-15T16:15Z", "2025-06-15T18:15+02:00",
        "2025-06-15T18:15:00+0200", "2025-06-15t16:15:00z", "2025-06-15T16:15:00.5Z",
        "2025-06-15T16:22:10Z", "2025-06-15T16:15", "2025-06-15T16:15:00",
    ],
)  # fmt: skip
def test_instants_are_read_as_clients_write_them(face: Face, text: str) -> None:
    for plus in ("%2B", " ", "%20"):  # a plus sign in a query is a space
        url = f"{PATH}?start_timestamp={text.replace('+', plus)}"
        assert face.call("GET", url).json()["prices"][0]["start_timestamp"] == SUMMER
    end = face.call("GET", f"{PATH}?end_timestamp={text.replace('+', '%2B')}").json()["prices"]
    later = {"2025-06-15T16:15:00.5Z": 0, "2025-06-15T16:22:10Z": 1}.get(text, 0)
    assert [row["start_timestamp"] for row in end][2 + later :] == []
    assert end[1 + later]["end_timestamp"] in (SUMMER, "2025-06-15T16:30:00+00:00")


def test_an_instant_without_an_offset_is_local(face: Face) -> None:
    history = face.history
    history.renew(replace(face.zone, time_zone="Europe/Zurich"))
    found = face.call("GET", f"{PATH}?start_timestamp=2025-06-15T18:15:00").json()
    assert found["prices"][0]["start_timestamp"] == "2025-06-15T18:15:00+02:00"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("tariff_type=metering", "tariff_type"),
        ("tariff_type=", "tariff_type"),
        ("tariff_name=vario", "tariff_name"),
        ("zone=elm-street&tariff_name=", "tariff_name"),
        ("start_timestamp=yesterday", "start_timestamp"),
        ("start_timestamp=1750000500", "start_timestamp"),
        ("start_timestamp=2025-13-01T00:00:00Z", "start_timestamp"),
        ("start_timestamp=1969-01-01T00:00:00Z", "start_timestamp"),
        ("end_timestamp=9999-12-31T23:59:59-14:00", "end_timestamp"),
        ("end_timestamp=", "end_timestamp"),
        ("start_timestamp=2025-06-15T16:15Z&end_timestamp=2025-06-15T16:00Z", "end_timestamp"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_fix(face: Face, query: str, field: str) -> None:
    answer = face.call("GET", f"{PATH}?{query}")
    said = refused(answer, 400)
    assert answer.json()["field"] == field
    assert said.startswith(f"{field} is ")


def test_a_tariffs_name_is_its_zones() -> None:
    face = Face("elm-street", "oak-lane")
    for name in ("elm-street", "oak-lane"):
        zone = face.history.zones[name]
        face.history.publish(zone, replace(release(0), head=name[0] * 64))
    both = [face.call("GET", PATH, params={key: "oak-lane"}) for key in ("zone", "tariff_name")]
    assert both[0].content == both[1].content
    assert both[0].headers["etag"] == both[1].headers["etag"]
    said = refused(face.call("GET", f"{PATH}?zone=elm-street&tariff_name=oak-lane"), 400)
    assert said == "zone is 'elm-street'; give oak-lane, as in tariff_name."
    said = refused(face.call("GET", f"{PATH}?tariff_name=vario"), 400)
    assert said == "tariff_name is 'vario'; give one of elm-street, oak-lane."
    said = refused(face.call("GET", f"{PATH}?tariff_type=all&zone=oak-lane"), 400)
    assert said.startswith("tariff_type is 'all'; ")
    assert "'integrated'" in said
