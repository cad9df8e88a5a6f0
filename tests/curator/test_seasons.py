"""Laws that hold in some months of the year: in files, over local time, and under one promise."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hushgrid.audit.certificate import certify
from hushgrid.curator.terms import first_state
from hushgrid.demo.simulated_meters import Fleet
from hushgrid.errors import FileError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from hushgrid.files.weeks import Steps, in_week, placed, scenario_over
from hushgrid.files.zone_file import load_zone
from hushgrid.model.laws import Gamma
from hushgrid.operate.audit import load_ledger, terms_of
from tests.curator.borders import exact
from tests.curator.curators import Shown, curator
from tests.curator.setups import service_text
from tests.curator.streets import publish, standing

STEP, WHERE = 14_400, ZoneInfo("Europe/Zurich")
BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z
CHAINS = {  # local hour from which on: chance to leave, to come, in four hours
    "workers": [(0, 0.03, 0.2), (4, 0.6, 0.1), (16, 0.05, 0.7)],
    "at home": [(0, 0.05, 0.3), (12, 0.4, 0.5)],
}
SUMMER = {"workers": (20.0, 2.0), "at home": (6.0, 25.0)}  # scales: usual, June to August


def laws(name: str) -> str:
    """A law without months, and one for the summer, whose nights have their own."""
    usual, summer = SUMMER[name]
    return (
        'absent = { law = "gamma", shape = 2.0, scale = 2.0 }\npresent = [\n'
        f'{{ law = "gamma", shape = 2.0, scale = {usual} }},\n'
        f'{{ months = [6, 7, 8], from = "08:00", law = "gamma", shape = 2.0, scale = {summer} }},\n'
        '{ months = [6, 7, 8], from = "20:00", law = "gamma", shape = 2.0, scale = 3.0 },\n]'
    )


def text_of(begins: str = "2026-01-05T00:00:00Z") -> str:
    """Two homes of two kinds, a price every four hours, eta below 1."""
    chains = "\n".join(
        f'[models.chains."{name}"]\nhome_at_start = 0.8\nperiods = ['
        + ", ".join(f'{{ from = "{h:02}:00", leave = {x}, come = {c} }}' for h, x, c in periods)
        + "]"
        for name, periods in CHAINS.items()
    )
    groups = "\n".join(
        f'[[houses]]\ncount = 1\nbound = 90\nchain = "{name}"\n{laws(name)}\nmeters = ["m-{i}"]\n'
        for i, name in enumerate(CHAINS)
    )
    return f"""
{service_text(begins, "PT4H", "Europe/Zurich", "elm-street")}
[policy]
secret = "interval"
epsilon = 1.0
eta = 0.3
eta_set_by = "the test"
{groups}
[[models]]
{chains}
"""


def service(folder: Path, *given: object) -> ZoneService:
    (folder / "service.toml").write_text(text_of(*given))  # type: ignore[arg-type]
    (found,) = load_deployment(folder / "service.toml").zones
    return found


def test_laws_follow_the_local_month(tmp_path: Path) -> None:
    """The change is at local midnight: 22:00 UTC."""
    zone = service(tmp_path, "2026-05-31T00:00:00Z")
    assert zone.pattern is not None
    one = scenario_over(zone.pattern, Steps(zone.begins, STEP, 12, zone.time_zone))
    first = int(datetime(2026, 5, 31, tzinfo=UTC).timestamp())
    for t in range(1, 13):
        at = datetime.fromtimestamp(first + (t - 1) * STEP, WHERE)
        scale = 2.0 if 8 <= at.hour < 20 else 3.0
        scale = scale if at.month == 6 else 20.0
        assert one.consumption.law(t, 0, occupied=True) == Gamma(2.0, scale, 90)
        assert one.consumption.law(t, 0, occupied=False) == Gamma(2.0, 2.0, 90)


@pytest.mark.parametrize(
    ("zone", "times", "scale"),
    [
        ("", "", 20.0),
        ("month = 7", "", 2.0),
        ("", "[service]\ntime_zone = 'Europe/Zurich'\nbegins = 2026-05-31T22:00:00Z", 2.0),
        ("month = 5", "[service]\nbegins = 2026-07-01T00:00:00Z", 20.0),
    ],
)
def test_days_without_a_date_have_one_month(
    tmp_path: Path, zone: str, times: str, scale: float
) -> None:
    text = text_of().replace('id = "elm-street"', f'id = "elm-street"\n{zone}')
    head, _, rest = text.partition("[service]")
    path = tmp_path / "zone.toml"
    head += times or "[service]"
    path.write_text(f"{head}\ninterval = 'PT4H'\n[zone]" + rest.split("[zone]")[1])
    found = load_zone(path).scenario.consumption
    assert len(found.calendar.slots) == 6
    assert found.law(4, 0, occupied=True) == Gamma(2.0, scale, 90)


@pytest.mark.parametrize(
    ("months", "words"),
    [
        ("[6, 13]", r"houses\[0\]\.present\[1\]\.months is \[6, 13\]; give months from 1 to 12"),
        ("[]", r"months is \[\]; give months from 1 to 12"),
    ],
)
def test_months_of_a_law_are_months(tmp_path: Path, months: str, words: str) -> None:
    text = text_of().replace("[6, 7, 8]", months, 1)
    (tmp_path / "service.toml").write_text(text)
    with pytest.raises(FileError, match=words):
        load_deployment(tmp_path / "service.toml")


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ('{ law = "uniform", months = [1] }', r"houses\[0\]\.absent has no law for month 2;"),
        (
            '[{ law = "uniform" }, { law = "uniform", months = [3] },'
            ' { law = "uniform", months = [2, 3] }]',
            r"absent\[2\]\.months gives month 3 two laws from the same time",
        ),
        (
            '{ law = "mixture", parts = [{ law = "uniform", share = 1.0, months = [3] }] }',
            r"parts\[0\]\.months is set in a part of a law",
        ),
    ],
)
def test_every_month_has_one_law_at_a_time(tmp_path: Path, present: str, words: str) -> None:
    path = tmp_path / "service.toml"
    given = f"absent = {present}\npresent = {present}"
    path.write_text(text_of().replace(laws("workers"), given))
    with pytest.raises(FileError, match=words):
        load_deployment(path)


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> ZoneService:
    """The zone in its first week."""
    return service(tmp_path_factory.mktemp("january"))


def test_simulated_meters_follow_the_month(january: ZoneService) -> None:
    """Months after the begin that the file names."""
    now, used = datetime(2026, 5, 31, tzinfo=UTC).timestamp(), np.zeros(12)
    for seed in range(20):
        fleet = Fleet(january, seed, now)
        assert fleet.start == now
        used = np.maximum(used, [fleet.interval(None).wh[0] for _ in range(12)])
    assert used[:6].max() > 3 * used[6:].max()


def test_weeks_of_any_season_have_one_epsilon(january: ZoneService) -> None:
    """The plan of a week has the laws of all the year."""
    one = january
    july = placed(one, BEGINS + 27 * 7 * 86_400)
    assert july is not None
    assert july.policy.epsilon == pytest.approx(one.policy.epsilon, rel=1e-6)
    assert july.scenario.consumption != one.scenario.consumption


@pytest.mark.soak
def test_a_service_publishes_and_is_audited_over_a_change_of_laws(tmp_path: Path) -> None:
    """Three days about the first of June, a Monday; the noise is that of the month."""
    one = service(tmp_path, "2026-05-31T00:00:00Z")
    with curator(tmp_path, one, Shown(), now=one.begins) as it:
        publish(it, 18)
    found = standing(tmp_path)
    scales = [release.scale for release in found.releases]
    assert (len(scales), len(found.terms_records)) == (18, 1)
    assert scales[:6] != scales[6:12] == scales[12:]
    evidence, chain = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    assert chain.status == "passed"
    made = certify(evidence, [terms_of(one)])
    for name in ("terms", "promise", "noise_scale"):
        assert made.check(name).status == "passed", made.check(name).text


@pytest.mark.soak
def test_one_promise_holds_over_a_year_of_seasons(january: ZoneService) -> None:
    """Week after week for a year, by the log-ratio of outputs; the laws of summer say more of one
    home and less of the other."""
    one = january
    losses, epsilons = list[np.ndarray](), set[float]()
    for _ in range(53):
        scheduler, horizon = first_state(one).scheduler, one.policy.horizon
        each = [scheduler.losses(t, scheduler.at(t).scale) for t in range(1, horizon + 1)]
        losses += each
        epsilons.add(round(one.policy.epsilon, 9))
        one = in_week(one, one.begins // STEP + horizon)
    lost = np.array(losses)
    steps = [[], []]  # type: list[list[np.ndarray]]
    for t in range(len(lost)):
        hour = datetime.fromtimestamp(BEGINS + t * STEP, WHERE).hour
        for chain, own in zip(CHAINS.values(), steps, strict=True):
            _, leave, come = next(one for one in reversed(chain) if one[0] <= hour)
            own.append(np.array([[1 - come, come], [leave, 1 - leave]]))
    said = np.array([exact(steps[h], [0.2, 0.8], lost[:, h].tolist()) for h in range(2)])
    assert said.max() <= 1.0
    assert said.max() > 0.9, "and no noise is wasted"
    month = [datetime.fromtimestamp(BEGINS + t * STEP, WHERE).month for t in range(len(lost))]
    summer = np.isin(month, (6, 7, 8))
    most = [said[0, ~summer].max(), said[0, summer].max()]
    assert most[0] > most[1] + 0.02, "summer says less of the first home"
    assert len(epsilons) == 1
