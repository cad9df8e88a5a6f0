"""The limits that docs/security.md names are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushgrid.curator import clock, ingest
from hushgrid.files import apart
from hushgrid.files.settings import Http, Times
from hushgrid.stores import openadr as store
from hushgrid.web.http import common, middleware, prices, readings, server
from hushgrid.web.openadr import objects, webhooks
from hushgrid.web.openadr.app import VtnApp
from hushgrid.web.tokens import Access

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
HTTP, ACCESS = Http(), Access(None, b"k" * 32, clock.SystemClock())
HEAVY, OPENADR, UNDER_WAY = common.Heavy(), VtnApp().heavy, common.UnderWay()
FIELDS = Times.__dataclass_fields__


def at_a_time(one: common.Heavy) -> str:
    threads = int(one._threads.total_tokens)
    return f"{threads} at a time, {one._limit - threads} waiting"


@pytest.mark.parametrize(
    "row",
    [
        f"| connections | `http.connections`, {HTTP.connections:,}; of one address a quarter",
        f"| `http.rate_limit` a second, {HTTP.rate_limit:g}, over {middleware.BURST} seconds |",
        f"| {server.LARGEST >> 10} KiB and {server.HEAD:g} s; `http.limit`, {HTTP.limit >> 20} MiB,"
        f" {readings.PATIENCE:g} s for readings, {middleware.REPORT[0] >> 10} KiB,"
        f" {middleware.REPORT[1]:g} s for usage reports, {middleware.FORM[0]:,} bytes,"
        f" {middleware.FORM[1]:g} s for forms, {middleware.BODY[0] >> 10} KiB,"
        f" {middleware.BODY[1]:g} s else |",
        f"| bodies and answers of OpenADR, long ranges and replays in memory |"
        f" {UNDER_WAY.caller_limit >> 20} MiB of one sender,"
        f" {UNDER_WAY.total_limit >> 20} MiB of all,",
        f"| listeners | three quarters of the connections; of one sender a quarter of that, or"
        f" {prices.FEW} |",
        f"| an answer that is not read | {server.STALLED:g} s |",
        f"| long ranges and replays of streams | {at_a_time(HEAVY)} or being sent, of one sender"
        f" {HEAVY._limit // 4},",
        f"| OpenADR operations | {at_a_time(OPENADR)} or being sent, of one sender"
        f" {OPENADR._share} and {OPENADR._limit // 4},",
        f"{apart.MEMORY >> 30} GiB beyond the body, {apart.SECONDS} s of computing;",
        f"| from the {ACCESS._addresses._free + 1}th of an address and the"
        f" {ACCESS._names._free + 1}st of an id on | pauses of up to"
        f" {ACCESS._addresses._longest:g} s"
        f" and {ACCESS._names._longest:g} s |",
        f"| a callback | {webhooks.PATIENCE:g} s, {webhooks.OWN[False]} at a time for a client;"
        f" one attempt after {webhooks.ATTEMPTS} failures |",
        f"| `service.early_limit`, {FIELDS['early_limit'].default} intervals |",
        f"| {clock.LINES} in {clock.SPAN:g} s |",
        f"| `service.clock_limit`, {FIELDS['clock_limit'].default} intervals |",
        f"after the present and {ingest.PAST:,} before |",
        f"keep more than {readings.OWN} bodies open",
        f"keep {store.MOST:,} objects of a kind, {store.SUBSCRIPTIONS} subscriptions,"
        f" {objects.CALLBACKS} callbacks each, {store.SIZE >> 20} MiB in all",
        f"after {common.SHED:g} to {common.SHED * common.LONGEST:g} s",
    ],
)
def test_a_limit_of_the_document_is_the_one_of_the_code(row: str) -> None:
    assert row in TEXT
