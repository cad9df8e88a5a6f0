"""Extensions by entry point: the guide's feed and format, each one file, and faulty ones."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hushgrid.errors import IntakeError, ServiceError
from hushgrid.files.extensions import by_key, extensions
from hushgrid.files.readings import formats_by_media, read_readings
from hushgrid.web.http.prices import feeds
from tests.code_blocks import ROOT, code_blocks
from tests.web.http.faces import Face, shown

FEED, FORMAT = code_blocks(ROOT / "docs" / "extend.md")[2:]
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with one module and one entry point on the path."""

    def put(module: str, code: str, group: str) -> None:
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        name = "FEED" if group.endswith("feeds") else "FORMAT"
        (info / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}:{name}\n")
        monkeypatch.syspath_prepend(tmp_path)
        extensions.cache_clear()

    yield put
    extensions.cache_clear()


def test_a_feed_is_one_short_file(install: Install) -> None:
    assert len(FEED.splitlines()) <= 30
    install("plain_feed", FEED, "hushgrid.feeds")
    face = Face()
    face.history.publish(face.zone, shown())
    answer = face.call("GET", "/v1/plain")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["etag"] == face.call("GET", "/v1/prices").headers["etag"]
    start, price = answer.text.splitlines()[0].split()
    first = face.call("GET", "/v1/evcc").json()[0]
    assert (start, float(price)) == (first["start"], first["value"])
    assert "/v1/plain" in face.call("GET", "/v1/openapi.json").json()["paths"]


DAYS = """
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from hushgrid.web.feeds import Feed, PriceRange
from hushgrid.web.http.prices import requested_zone


class DayQuery(BaseModel):
    place: str
    day: date
    word: str = "price"

    def resolve(self, zones):
        zone = zones[requested_zone(self.place, zones)]
        starts = (
            int(datetime.combine(day, datetime.min.time(), ZoneInfo(zone.time_zone)).timestamp())
            for day in (self.day, self.day + timedelta(1))
        )
        return zone.id, PriceRange(*starts, options=(self.word,))


def lines(series):
    (word,) = series.options
    return "".join(f"{word} {entry.rate}\\n" for entry in series.entries).encode()


FEED = Feed("/v1/days", "text/plain; charset=utf-8", lines, "Of a day.", query=DayQuery)
"""


def test_a_feed_has_parameters_of_its_own(install: Install) -> None:
    install("day_feed", DAYS, "hushgrid.feeds")
    face, record = Face(), shown()
    face.history.publish(face.zone, record)
    day = datetime.fromtimestamp(record.applies_start, UTC).date()
    for word in ("price", "rate"):
        answer = face.call("GET", f"/v1/days?place=elm-street&day={day}&word={word}")
        assert f"{word} {record.rate}\n" in answer.text
    assert "price" not in answer.text, "an answer is of all its parameters"
    assert face.call("GET", "/v1/days?place=elm-street&day=2020-01-01").text == ""
    assert face.call("GET", f"/v1/days?place=none&day={day}").status_code == 404
    assert face.call("GET", "/v1/days?place=elm-street&day=soon").json()["field"] == "day"
    described = face.call("GET", "/v1/openapi.json").json()["paths"]["/v1/days"]["get"]
    assert [one["name"] for one in described["parameters"]] == ["place", "day", "word"]


def test_a_format_is_one_short_file(install: Install, tmp_path: Path) -> None:
    assert len(FORMAT.splitlines()) <= 30
    file = tmp_path / "readings.semi"
    file.write_text("a;2026-01-05T00:00Z;900;120\nb;2026-01-05T00:00Z;900\n")
    with pytest.raises(IntakeError, match=r"ends in '.semi'; give one that ends in .arrows"):
        read_readings(file, "canonical")
    install("semicolon_format", FORMAT, "hushgrid.intake")
    found = read_readings(file, "canonical")
    assert list(found.readings.rows()) == [("a", 1767571200, 900, 120)]
    assert found.malformed == 1
    assert "text/x-semicolon" in formats_by_media()


def test_the_example_package_is_a_feed_and_a_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    """Its entry points as an installer would write them; `make check` checks its types."""
    folder = ROOT / "examples" / "plugin"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = tmp_path / "hushgrid_plain-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hushgrid-plain\nVersion: 0.1.0\n")
    parts = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(parts))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(folder / "src")
    extensions.cache_clear()
    monkeypatch.setenv("HUSHGRID_LINES", str(tmp_path / "prices.txt"))
    face = Face()
    opens = [one for one in extensions("hushgrid.publishers") if "plain" in one.__module__]
    made = [opened(None, "x") for opened in opens]
    for one in [face.history, *made]:
        one.publish(face.zone, shown())
    answer = face.call("GET", "/v1/plain").text.splitlines()[0]
    assert (tmp_path / "prices.txt").read_text() == f"{face.zone.id} {answer}\n"
    monkeypatch.delenv("HUSHGRID_LINES")
    assert [opened(None, "x") for opened in opens] == [None]


def test_a_faulty_extension_is_named(install: Install) -> None:
    install("broken_feed", "import nothing_of_this_name", "hushgrid.feeds")
    with pytest.raises(ServiceError, match=r"extension broken_feed \(broken_feed:FEED\) of hushgr"):
        feeds()


def test_two_extensions_with_one_path_are_refused(install: Install) -> None:
    install("second_feed", FEED.replace("/v1/plain", "/v1/price"), "hushgrid.feeds")
    with pytest.raises(ServiceError, match=r"two extensions of hushgrid.feeds have '/v1/price'"):
        feeds()


def test_without_an_installation_nothing_is_guessed() -> None:
    with pytest.raises(ServiceError, match="install hushgrid"):
        by_key("hushgrid.nothing", lambda _: [])
