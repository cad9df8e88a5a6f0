"""Green Button documents: a golden feed, how links resolve, what is refused and why."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hushgrid import ExtraError, IntakeError
from hushgrid.intake.espi import ReadingType, espi_batches
from hushgrid.intake.readings import collect
from tests.intake.renderings import Row, as_espi, entry, espi_block, espi_meter, espi_type, feed

POINT = "RetailCustomer/9b6c7063/UsagePoint/01"
NOON = 1293915600  # 1 January 2011, 21:00 UTC
ONE: list[Row] = [("", NOON, 3600, 974)]

# In the manner of the Green Button Alliance's sample files: default namespaces on the content,
# links with and without a host, milliwatt hours.
GOLDEN = f"""<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="GreenButtonDataStyleSheet.xslt"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <id>urn:uuid:46B8A59C-AE4C-4A63-B9C6-5A5E616C9661</id>
  <title>Green Button Usage Feed</title>
  <!-- the customer -->
  <entry>
    <link rel="self" href="https://x.org/DataCustodian/espi/1_1/resource/{POINT}"/>
    <link rel="up" href="https://x.org/DataCustodian/espi/1_1/resource/RetailCustomer/9b6c7063/UsagePoint"/>
    <link rel="related" href="https://x.org/DataCustodian/espi/1_1/resource/{POINT}/MeterReading"/>
    <title>Coastal Single Family</title>
    <content><UsagePoint xmlns="http://naesb.org/espi">
      <ServiceCategory><kind>0</kind></ServiceCategory></UsagePoint></content>
  </entry>
  <entry>
    <link rel="self" href="/espi/1_1/resource/{POINT}/MeterReading/01"/>
    <link rel="related" href="/espi/1_1/resource/ReadingType/07"/>
    <content><MeterReading xmlns="http://naesb.org/espi"/></content>
  </entry>
  <entry>
    <link rel="self" href="https://x.org/DataCustodian/espi/1_1/resource/ReadingType/07?a=b"/>
    <content><ReadingType xmlns="http://naesb.org/espi">
      <accumulationBehaviour>4</accumulationBehaviour><commodity>1</commodity>
      <flowDirection>1</flowDirection><intervalLength>900</intervalLength>
      <powerOfTenMultiplier>-3</powerOfTenMultiplier><uom>72</uom></ReadingType></content>
  </entry>
  <entry>
    <link rel="self" href="{POINT}/MeterReading/01/IntervalBlock/0173"/>
    <link rel="up" href="{POINT}/MeterReading/01/IntervalBlock"/>
    <content><IntervalBlock xmlns="http://naesb.org/espi">
      <interval><duration>86400</duration><start>{NOON}</start></interval>
      <IntervalReading><cost>974</cost>
        <timePeriod><duration>3600</duration><start>{NOON}</start></timePeriod>
        <value>974500</value></IntervalReading>
      <IntervalReading>
        <timePeriod><start> {NOON + 3600} </start></timePeriod>
        <ReadingQuality><quality>8</quality></ReadingQuality><value>965499</value></IntervalReading>
      <IntervalReading>
        <timePeriod><duration>900</duration><start>{NOON + 4500}</start></timePeriod>
        <value>?</value></IntervalReading>
    </IntervalBlock></content>
  </entry>
</feed>
"""


def test_golden_feed() -> None:
    found = collect(espi_batches(GOLDEN.encode()))
    assert list(found.readings.rows()) == [
        (POINT, NOON, 3600, 974),  # 974.5, to even
        (POINT, NOON + 3600, 900, 965),
    ]
    assert found.problems == ("reading 3: value is not a number",)


def test_order_of_entries_does_not_matter() -> None:
    parts = [
        espi_block(POINT, "01", ONE),
        espi_meter(POINT, "01", "in"),
        espi_type("out", uom=72, flowDirection=19),
        espi_type("in", uom=72, powerOfTenMultiplier=3),
    ]
    for turn in range(4):
        found = collect(espi_batches(feed(*parts[turn:], *parts[:turn])))
        assert list(found.readings.rows()) == [(POINT, NOON, 3600, 974_000)]


def test_links_may_stand_after_the_content() -> None:
    block = espi_block(POINT, "01", ONE)
    content = block[block.index("<content>") : block.index("</entry>")]
    late = (
        f'<entry>{content}<link rel="self" href="{POINT}/MeterReading/01/IntervalBlock/1"/></entry>'
    )
    data = feed(espi_type("t", uom=72), espi_type("u", uom=38), espi_meter(POINT, "01", "t"), late)
    assert list(collect(espi_batches(data)).readings.rows()) == [(POINT, NOON, 3600, 974)]


def test_usage_points_of_two_customers_are_two_meters() -> None:
    points = ["RetailCustomer/1/UsagePoint/01", "RetailCustomer/2/UsagePoint/01"]
    data = as_espi([(point, NOON, 900, 5) for point in points])
    assert collect(espi_batches(data)).readings.ids == tuple(points)


def test_a_document_without_links_needs_one_type_and_a_meter_id() -> None:
    bare = entry([], espi_block(POINT, "01", ONE).split("<content>")[1].split("</content>")[0])
    one, same, other = espi_type("a", uom=72), espi_type("b", uom=72), espi_type("c", uom=38)
    assert collect(espi_batches(feed(one, bare))).problems == (
        "reading 1: no link names the UsagePoint of the reading, and no meter id was given",
    )
    for kinds in ([one], [one, same]):
        found = collect(espi_batches(feed(*kinds, bare), meter_id="home"))
        assert list(found.readings.rows()) == [("home", NOON, 3600, 974)]
    for kinds in ([], [one, other]):
        found = collect(espi_batches(feed(*kinds, bare), meter_id="home"))
        assert found.problems == ("reading 1: no ReadingType is known for the reading",)
    point = entry([POINT], "<espi:UsagePoint/>")
    assert collect(espi_batches(feed(one, point, bare))).malformed == 1


OTHER = "RetailCustomer/2/UsagePoint/01"
LINKED = POINT.replace("01", "02")


@pytest.mark.parametrize(
    "added",
    [
        [espi_type("out", uom=72, flowDirection=19)],
        [espi_type("out", uom=72, flowDirection=19), espi_meter(OTHER, "01", "out")],
        [entry([OTHER], "<espi:UsagePoint/>")],
        [espi_block(OTHER, "01", ONE)],
        [espi_meter(OTHER, "01", "in"), espi_block(OTHER, "01", ONE)],
        [entry([f"{OTHER}/ReadingType/x"], "<espi:ReadingType/>")],
        [
            espi_type("out", uom=72, flowDirection=19),
            entry([OTHER, f"{LINKED}/MeterReading/02", "/ReadingType/out"], "<espi:MeterReading/>"),
        ],
    ],
    ids=["type", "meter", "point", "block", "linked block", "own type", "type of another's"],
)
def test_one_home_decides_nothing_for_another(added: list[str]) -> None:
    """Blocks without a link to a type or a usage point, with and without another home's entries."""
    nameless = entry([], espi_block(POINT, "01", ONE).split("<content>")[1].split("</content>")[0])
    kept = [espi_meter(LINKED, "01", "in"), espi_block(LINKED, "02", ONE)]

    def rows(*entries: str) -> list[Row]:
        return list(collect(espi_batches(feed(espi_type("in", uom=72), *entries))).readings.rows())

    for home in ([espi_block(POINT, "01", ONE)], [nameless], kept):
        assert sorted(rows(*home, *added)) == sorted(rows(*home) + rows(*added))
    assert rows(*kept) == [(LINKED, NOON, 3600, 974)]  # by the one type of its own MeterReadings


@pytest.mark.parametrize(
    "twice",
    [
        [espi_type("in", uom=72), espi_type("in", uom=72, powerOfTenMultiplier=3)],
        [espi_meter(POINT, "01", "in"), espi_meter(POINT, "01", "out")],
        [entry(["/MeterReading/1", home], "<espi:MeterReading/>") for home in (POINT, OTHER)],
    ],
    ids=["type", "type of a meter", "home of a meter"],
)
def test_one_name_for_two_things_is_refused(twice: list[str]) -> None:
    """Which of the two holds would be decided by what other homes send."""
    collect(espi_batches(feed(*twice[:1] * 2)))
    with pytest.raises(IntakeError, match="of one name that differ"):
        collect(espi_batches(feed(*twice)))


def test_one_meter_id_for_two_usage_points_is_refused() -> None:
    data = as_espi([(POINT, NOON, 900, 5), (POINT + "x", NOON, 900, 5)])
    with pytest.raises(IntakeError, match="two usage points"):
        collect(espi_batches(data, meter_id="home"))
    with pytest.raises(IntakeError, match="meter_id is ''"):
        collect(espi_batches(data, meter_id=""))


def test_a_meter_reading_leads_to_its_usage_point() -> None:
    """Links that do not spell the whole way down."""
    block = espi_block(POINT, "01", ONE).replace(f"{POINT}/MeterReading/01", "/MeterReading/01")
    meter = entry(
        ["/MeterReading/01", f"{POINT}/MeterReading", "ReadingType/a"], "<espi:MeterReading/>"
    )
    other = entry([f"{POINT}2"], "<espi:UsagePoint/>")
    types = [espi_type("a", uom=72), espi_type("b", uom=38)]
    for parts in ([meter, block], [block, meter]):
        found = collect(espi_batches(feed(*types, *parts, other)))
        assert list(found.readings.rows()) == [(POINT, NOON, 3600, 974)]


def test_large_powers_do_not_wrap() -> None:
    """2^52 * 10^12 is 0 in 64 bits."""
    huge = ReadingType(12, 1, 900, None).watt_hours(
        np.array([2**52, -(2**52), 1, 2]), np.zeros(4, np.int64)
    )
    assert huge.tolist() == [10**12 + 1, -(10**12) - 1, 10**12, 10**12 + 1]


def test_of_a_long_text_only_the_beginning_is_kept() -> None:
    """The same value, though the text that follows it would change it."""
    block = f"<espi:IntervalBlock>{reading('5' + ' ' * 1_000 + '7')}</espi:IntervalBlock>"
    found = collect(
        espi_batches(
            feed(espi_type("a", uom=72), espi_meter(POINT, "01", "a"), entry([POINT], block))
        )
    )
    assert list(found.readings.rows()) == [(POINT, NOON, 900, 5)]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "uom"),
        ({"uom": 38}, "uom"),
        ({"uom": 72, "powerOfTenMultiplier": 13}, "powerOfTenMultiplier"),
        ({"uom": 72, "powerOfTenMultiplier": "?"}, "powerOfTenMultiplier"),
        ({"uom": 72, "flowDirection": 4}, "flow direction"),
        ({"uom": 72, "flowDirection": 4, "accumulationBehaviour": 3}, "flow direction"),
        ({"uom": 72, "flowDirection": 20, "accumulationBehaviour": 4}, "flow direction"),
        ({"uom": 72, "commodity": 7}, "commodity"),
        ({"uom": 72, "accumulationBehaviour": 3}, "register"),
    ],
)
def test_types_that_are_refused(fields: dict[str, int], why: str) -> None:
    blocks = [espi_block(POINT, "01", ONE), espi_block(POINT, "02", ONE)]
    types = [espi_type("bad", **fields), espi_type("good", uom=72)]
    meters = [espi_meter(POINT, "01", "bad"), espi_meter(POINT, "02", "good")]
    found = collect(espi_batches(feed(*types, *meters, *blocks)))
    assert list(found.readings.rows()) == [(POINT, NOON, 3600, 974)]
    (problem,) = found.problems
    assert problem.startswith("reading 1: ")
    assert why in problem


def reading(value: str = "5", start: str = str(NOON), duration: str = "900") -> str:
    return (
        f"<espi:IntervalReading><espi:timePeriod><espi:duration>{duration}</espi:duration>"
        f"<espi:start>{start}</espi:start></espi:timePeriod><espi:value>{value}</espi:value>"
        "</espi:IntervalReading>"
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (reading(value=""), "value is missing"),
        (reading(value="1."), "not a number"),
        (reading(value="1.2.3"), "not a number"),
        (reading(value="1.5e3"), "not a number"),
        (reading(value="NaN"), "not a number"),
        (reading(value="9" * 18), "beyond 10^12"),
        (reading(value="9" * 19), "not a number"),
        (reading(value="9" * 100_000), "not a number"),
        (reading(start=""), "time is missing"),
        (reading(start="today"), "time is not in"),
        (reading(start="-1"), "outside the years"),
        (reading(start=str(10**17)), "outside the years"),
        (reading(duration="0"), "duration"),
        (reading(duration="-5"), "duration"),
        (reading(duration="x"), "duration"),
        ("<espi:IntervalReading/>", "time is missing"),
        (reading().replace("espi:value", "espi:cost"), "value is missing"),
        (reading().replace("espi:timePeriod", "espi:other"), "time is missing"),
    ],
)
def test_a_bad_reading_harms_itself_alone(bad: str, why: str) -> None:
    block = f"<espi:IntervalBlock>{reading()}{bad}{reading()}</espi:IntervalBlock>"
    found = collect(
        espi_batches(
            feed(espi_type("a", uom=72), espi_meter(POINT, "01", "a"), entry([POINT], block))
        )
    )
    assert list(found.readings.rows()) == [(POINT, NOON, 900, 5)] * 2
    (problem,) = found.problems
    assert problem.startswith("reading 2: ")
    assert why in problem


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not well-formed"),
        (b"meter_id,start", "not well-formed"),
        (b"<feed>", "not well-formed"),
        (GOLDEN.encode()[:2000], "not well-formed"),
        (b"<html/>", "no ESPI element"),
        (b'<?xml version="1.0" encoding="no-such"?><a/>', "encoding"),
        (f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a>&l9;</a>'.encode(), "document type"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "document type"),
        (b'<!DOCTYPE a SYSTEM "http://x.org/a.dtd"><a/>', "document type"),
        (feed(entry([POINT], "&x;")), "undefined entity"),
        (feed("<a>" * 70 + "</a>" * 70), "nests deeper"),
        (feed("".join(f"<a{i:0200}/>" for i in range(2000))), "too many names"),
        (feed("".join(f'<a b{i:0200}=""/>' for i in range(2000))), "too many names"),
        (feed("".join(f'<a xmlns:b{i:0200}="c"/>' for i in range(2000))), "too many names"),
        (feed(f"<!--{'x' * 2_000_000}-->"), "beyond 1 MiB"),
        (feed(f'<a b="{"x" * 2_000_000}"/>'), "beyond 1 MiB"),
    ],
)
def test_unusable_documents(data: bytes, why: str) -> None:
    with pytest.raises(IntakeError, match=why):
        collect(espi_batches(data))


@pytest.mark.parametrize(
    ("name", "limit", "data"),
    [
        (
            "_WAITING",
            2,
            feed(entry([POINT], f"<espi:IntervalBlock>{reading() * 3}</espi:IntervalBlock>")),
        ),
        ("_WAITING", 2, feed(*[espi_block(POINT, "01", ONE)] * 3)),
        ("_KNOWN", 2, feed(*(espi_block(f"{POINT}{i}", "01", ONE) for i in range(3)))),
        ("_KNOWN", 2, feed(*(espi_type(f"{i}", uom=72) for i in range(3)))),
        ("_KNOWN", 2, feed(*(espi_meter(POINT, f"{i}", "x") for i in range(3)))),
    ],
)
def test_what_a_document_may_keep_waiting_is_limited(
    name: str, limit: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(espi_batches(data))
    monkeypatch.setattr(f"hushgrid.intake.espi.{name}", limit)
    with pytest.raises(IntakeError, match="ESPI has more than 2"):
        collect(espi_batches(data))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "defusedxml.ElementTree", None)
    with pytest.raises(ExtraError, match=r"hushgrid\[intake\]"):
        collect(espi_batches(GOLDEN.encode()))


def test_other_encodings() -> None:
    text = GOLDEN.replace("UTF-8", "UTF-16")
    assert len(collect(espi_batches(text.encode("utf-16"))).readings) == 2


def test_many_readings_come_in_batches() -> None:
    rows: list[Row] = [(POINT, 900 * i, 900, i) for i in range(40_000)]
    parts = [espi_type("a", uom=72), espi_meter(POINT, "01", "a")]
    days = [espi_block(POINT, "01", rows[i : i + 96]) for i in range(0, len(rows), 96)]
    batches = list(espi_batches([feed(*parts, *days)]))
    assert len(batches) > 2
    assert [row for batch in batches for row in batch.readings.rows()] == rows
