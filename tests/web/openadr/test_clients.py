"""Clients that others wrote, unmodified, against a running service and a real broker."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toadr3
from openadr3.api import OpenADRClient
from openadr3_client import BlClient, VenClient
from toadr3.models import (
    Interval,
    ObjectOperation,
    ObjectType,
    OperationType,
    Report,
    Subscription,
    ValuesMap,
)
from toadr3.models.reportdata import ReportData

from hushgrid.files.settings import Mqtt
from hushgrid.stores.clients import KINDS
from hushgrid.web.openadr.app import MqttEvents
from hushgrid.web.openadr.events import event_of
from tests.web.brokers import Broker, until
from tests.web.openadr.hooks import hooks
from tests.web.openadr.judge import STANDARD, check_as, standard
from tests.web.openadr.setup import FIRST, SECRET, ZONES, World, release, report, resource, world

ELM = ZONES[0]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp("broker"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def vtn(tmp_path: Path, broker: Broker) -> Iterator[World]:
    uris = (f"mqtt://127.0.0.1:{broker.port}",)
    with world(tmp_path, mqtt_uris=uris) as made:
        yield made


def oa3(vtn: World, client: str = "ven-1") -> VenClient:
    """As its guide has it: a URL, an id and a secret."""
    spec = str(STANDARD) if STANDARD.is_file() else None
    return VenClient(
        url=vtn.url, client_id=client, client_secret=SECRET, spec_path=spec, validate=bool(spec)
    )


# ---- python-oa3-client


def test_oa3_reads_programs_and_events(vtn: World) -> None:
    with oa3(vtn) as client:
        names = [zone.id for zone in ZONES]
        every = [*names, *(f"{name} forecast" for name in names)]
        assert [one.program_name for one in client.programs()] == every
        program = client.find_program_by_name("elm-street")
        assert program is not None
        assert client.resolve_program_id("oak-lane") == "oak-lane"
        (descriptor,) = program.payload_descriptors or ()
        assert (descriptor.units, descriptor.currency) == ("KWH", "EUR")
        events = client.poll_events("elm-street")
        newest = vtn.history.last("elm-street", 1)[0]
        (interval,) = events[0].resolved_intervals()
        assert float(interval.payloads[0].values[0]) == newest.rate
        assert interval.interval_period is not None
        start, end = interval.interval_period.period or (None, None)
        assert (start.timestamp(), end.timestamp()) == (  # type: ignore[union-attr]
            newest.applies_start, newest.applies_start + ELM.seconds,
        )  # fmt: skip
        assert client.event(events[0].id).id == events[0].id
        assert client.create_event({"programID": "elm-street"}).status_code == 403


def test_oa3_reads_without_a_token_where_that_is_allowed(vtn: World) -> None:
    with OpenADRClient(vtn.url) as client:
        assert len(client.programs()) == 4
        assert client.get_vens().status_code == 401


def test_oa3_registers_a_ven_with_its_resources_and_reports(vtn: World) -> None:
    with oa3(vtn) as client:
        client.register("house 7")
        first = client.ven_id
        with oa3(vtn) as again:
            assert again.register("house 7").ven_id == first, "found, not made again"
        assert client.ven(first).ven_name == "house 7"
        made = client.create_resource(resource(first or ""))
        assert made.status_code == 201
        assert client.resources(venID=first)[0].resource_name == "battery"
        event = client.poll_events("elm-street")[0]
        assert client.create_report(report(event.id or "")).status_code == 201
        assert client.reports(eventID=event.id)[0].client_name == "a client"
        assert client.get_mqtt_topics_ven_events().status_code == 200
        assert client.delete_ven(first or "").status_code == 200
    with oa3(vtn, "ven-2") as other:
        assert other.vens() == other.reports() == []


def test_oa3_as_business_logic(vtn: World) -> None:
    with BlClient(url=vtn.url, client_id="business", client_secret=SECRET) as client:
        made = client.create_ven(
            {"objectType": "BL_VEN_REQUEST", "clientID": "ven-1", "venName": "v", "targets": ["g"]}
        )
        assert made.status_code == 201
        assert client.vens(targets="g")[0].client_id == "ven-1"
        assert client.create_program({"programName": "mine"}).status_code == 403


@pytest.mark.filterwarnings("ignore:Callback API version 1:DeprecationWarning")  # the client's
def test_oa3_hears_of_a_release_over_mqtt(vtn: World, broker: Broker) -> None:
    events = MqttEvents(Mqtt("127.0.0.1", broker.port), "hushgrid-openadr-test")
    try:
        assert until(events._client.is_connected)
        with oa3(vtn) as client:
            assert client.vtn_supports_mqtt()
            (uri,) = client.get_mqtt_broker_uris()
            channel = client.add_mqtt(uri)
            channel.start()
            topics = client.subscribe(["elm-street"], ["EVENT"], ["CREATE"], channel)
            assert "OpenADR/3.1.0/programs/elm-street/events/create" in topics
            assert until(lambda: _subscribed(broker, events, channel))
            channel.clear_messages()
            one = release("elm-street", FIRST, 0.31)
            vtn.history.publish(ELM, one)
            events.publish(ELM, one)
            assert until(lambda: _told(channel))  # a trial message may come late
            (message,) = _told(channel)
            assert message.payload.object.id == event_of(ELM, one)["id"]
            body = json.loads(message.raw_payload)
            assert body["object"] == client.get_event_by_id(message.payload.object.id).json()
            if standard() is not None:
                check_as("notification", body)
    finally:
        events.stop()


def _told(channel: Any) -> list[Any]:
    """What came, but for trial messages."""
    return [one for one in list(channel.messages) if json.loads(one.raw_payload)]


def _subscribed(broker: Broker, events: MqttEvents, channel: Any) -> bool:
    """The client does not say when the broker has its subscription: a trial message does."""
    events.send("OpenADR/3.1.0/programs/elm-street/events/update", "{}", retain=False)
    return bool(channel.messages)


def test_oa3_is_called_back_on_a_release(vtn: World) -> None:
    with oa3(vtn) as client:
        client.register("house 8")
        channel = client.add_webhook(host="127.0.0.1", bearer_token="a-bearer")
        channel.start()
        client.subscribe(["elm-street"], ["EVENT"], ["CREATE"], channel)
        assert len(client.subscriptions()) == 1
        one = release("elm-street", FIRST, 0.31)
        vtn.history.publish(ELM, one)
        (message,) = channel.await_messages(1, timeout=30)
        assert message.payload.object.id == event_of(ELM, one)["id"]
        assert float(message.payload.object.intervals[0].payloads[0].values[0]) == 0.31


# ---- the guide


def test_the_guides_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "openadr.md").read_text()
    first, second = re.findall(r"```python\n(.*?)```", guide, re.S)
    with world(tmp_path, clients={"house-7": KINDS["ven"]}) as vtn:
        names: dict[str, Any] = {"URL": vtn.url, "SECRET": SECRET}
        newest = str(vtn.history.last("elm-street", 1)[0].rate)
        exec(first, names)
        assert newest in capsys.readouterr().out
        exec(second, names)
        asyncio.run(names["prices"]())
        assert newest in capsys.readouterr().out


# ---- toadr3


def run(vtn: World, work: Any, scope: str | None = None, secret: str = SECRET) -> Any:
    async def inner() -> Any:
        config = None
        if scope is not None:
            config = toadr3.OAuthScopeConfig(
                f"{vtn.url}/auth/token", "client_credentials", scope, "ven-1", secret
            )
        async with toadr3.ToadrClient(vtn.url, config) as client:
            return await work(client)

    return asyncio.run(inner())


@pytest.mark.parametrize("scope", [None, "read_targets"])
def test_toadr3_reads_programs_and_events(vtn: World, scope: str | None) -> None:
    async def work(client: Any) -> None:
        programs = await client.get_programs()
        names = [one.program_name for one in programs]
        assert names == ["elm-street", "oak-lane", "elm-street forecast", "oak-lane forecast"]
        (ahead,) = await client.get_events(program_id="elm-street-forecast")
        assert len(ahead.intervals) >= 94
        assert (await client.get_program("elm-street")) == programs[0]
        events = await client.get_events(program_id="elm-street", limit=2)
        newest = vtn.history.last("elm-street", 1)[0]
        assert events[0].intervals[0].payloads[0].values == [newest.rate]
        assert events[0].interval_period.start.timestamp() == newest.applies_start
        assert events[0].interval_period.duration.total_seconds() == ELM.seconds
        assert len(await client.get_events(skip=1, limit=50)) == 5 + 2
        assert await client.get_events(target_type="GROUP", target_values=["a"], limit=1)
        with pytest.raises(toadr3.ToadrError) as caught:
            await client.delete_program("elm-street")
        assert caught.value.status_code == 403

    run(vtn, work, scope)


def test_toadr3_reports_and_reads_its_reports(vtn: World) -> None:
    async def work(client: Any) -> None:
        (event,) = await client.get_events(program_id="elm-street", limit=1)
        usage = Interval(id=0, payloads=[ValuesMap(type="USAGE", values=[1.5])])
        data = ReportData(resource_name="battery", intervals=[usage])
        made = await client.post_report(
            Report(
                program_id=event.program_id, event_id=event.id, client_name="c", resources=[data]
            )
        )
        assert made.resources[0].intervals[0].payloads[0].values == [1.5]
        assert [one.id for one in await client.get_reports(client_name="c")] == [made.id]

    run(vtn, work, "write_reports read_ven_objects read_targets")


def test_toadr3_lists_makes_and_removes_its_subscriptions(vtn: World) -> None:
    """Its verbs are those of 3.0; its models refuse any others."""

    async def work(client: Any) -> None:
        every = list(OperationType)
        asked = ObjectOperation(
            objects=[ObjectType.EVENT], operations=every, callback_url=f"{taken.url}/ok/toadr3"
        )
        sent = Subscription(client_name="c", program_id="elm-street", object_operations=[asked])
        made = await client.post_subscription(sent)
        assert made.object_operations[0].operations == every
        assert await client.get_subscriptions() == [made]
        assert await client.get_subscription(made.id) == made
        changed = await client.put_subscription(made.id, sent)
        assert (changed.id, changed.object_operations) == (made.id, made.object_operations)
        one = release("elm-street", FIRST, 0.31)
        vtn.history.publish(ELM, one)
        assert until(lambda: taken.came)
        assert taken.came[0].body["object"] == event_of(ELM, one)
        assert (await client.delete_subscription(made.id)).id == made.id
        assert await client.get_subscriptions() == []

    with hooks() as taken:
        run(vtn, work, "write_subscriptions read_ven_objects read_targets")


def test_toadr3_is_told_what_is_wrong(vtn: World) -> None:
    async def forbidden(client: Any) -> None:
        with pytest.raises(toadr3.ToadrError) as caught:
            await client.get_reports()
        assert caught.value.status_code == 403

    run(vtn, forbidden, "read_targets")

    async def unknown(client: Any) -> None:
        with pytest.raises(toadr3.ToadrError, match="invalid_client"):
            await client.get_programs()

    run(vtn, unknown, "read_targets", secret="wrong")
