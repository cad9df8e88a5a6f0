"""Service files: the example, every mistake by its line, many zones, promises that are planned."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushgrid import OccupancyModel, Policy
from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.curator.terms import first_state
from hushgrid.errors import ConfigError, FileError, PolicyError, ServiceError
from hushgrid.files.deployment import Deployment, Promise, ZoneService, as_curator
from hushgrid.files.results import save_model
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.files.toml import instant_of, seconds_of
from hushgrid.files.weeks import placed
from hushgrid.files.zone_file import Provenance
from hushgrid.mechanism.scheduler import house_losses, schedule
from hushgrid.model.occupancy import Calendar
from hushgrid.planning.expected_error import RHO
from tests.curator.setups import example, service
from tests.examples import examples

BEGINS = 1_767_225_600  # 2026-01-01T00:00:00Z, a Thursday
EXAMPLE = example(BEGINS)


def put(folder: Path, *edits: tuple[str, str], name: str = "service.toml") -> Path:
    text = EXAMPLE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / name
    path.write_text(text)
    return path


def mistakes(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_deployment(path)
    found = caught.value
    assert isinstance(found, FileError)
    assert str(found).splitlines() == [str(problem) for problem in found.problems]
    return [f"{Path(p.file).name}:{p.line}: {p.message}" for p in found.problems]


def line_of(path: Path, words: str) -> int:
    lines = enumerate(path.read_text().splitlines(), 1)
    return next(i for i, line in lines if words.strip() in line)


def test_service_files_of_one_folder_and_key_have_one_witness(tmp_path: Path) -> None:
    """One of several would be older than the ledger."""
    server = ('ledger = "ledger.sqlite"', 'ledger = "postgresql://a@b/c"')
    paths = [put(tmp_path, server, name=name) for name in ("service.toml", "batch.toml")]
    assert {load_deployment(path).witness_folder for path in paths} == {
        tmp_path / "hushgrid.key.witness"
    }


@pytest.mark.parametrize(
    ("line", "state"), [("", "missing"), ("format = 2", "2"), ("format = true", "True")]
)
def test_a_file_of_another_format_is_refused_in_one_sentence(
    tmp_path: Path, line: str, state: str
) -> None:
    """Whatever else is wrong with it."""
    path = put(tmp_path, ("format = 1", line), ('mode = "simulation"', 'mode = "other"'))
    with pytest.raises(ConfigError) as caught:
        load_deployment(path)
    (problem,) = caught.value.problems
    assert (problem.file, problem.key) == (str(path), "format")
    assert problem.message.startswith(f"format is {state}; give format = 1 at the top of the file")


def test_the_example_runs(tmp_path: Path) -> None:
    found = load_deployment(put(tmp_path))
    (zone,) = found.zones
    assert (found.mode, zone.id, len(zone.meters)) == ("simulation", "elm-street", 40)
    assert zone.meters[0] == "elm-0001"
    assert zone.meters[39] == "elm-0040"
    assert (zone.begins, zone.seconds, zone.grace, zone.retention) == (BEGINS, 900, 60, 604_800)
    assert found.ledger == str(tmp_path / "ledger.sqlite")
    assert found.meters == str(tmp_path / "meters.sqlite")
    assert found.http is not None
    assert (found.http.host, found.http.port, found.http.tokens) == ("127.0.0.1", 8080, ())
    assert found.http.limit == 64 << 20
    assert found.mqtt is None
    assert found.price_file == tmp_path / "prices.json"
    for calendar in (zone.scenario.consumption.calendar, zone.scenario.models[0].calendar):
        assert calendar.slots.size == zone.policy.horizon
    # midnight UTC is one o'clock in Zurich; workers leave from 07:00 there, 06:00 UTC
    theta = zone.scenario.models[0]
    leaving = [theta.chains[0].transition[theta.calendar.slot(t), 0, 1, 0] for t in (24, 25)]
    assert leaving == [0.001, 0.20]


EDITS = [
    ("alpha = 0.012", "alpha = -1", "tariff alpha is -1"),
    ("beta = 0.05 ", "beta = 'x' ", "tariff.beta is 'x'; give a number"),
    ("bound = 2500", "bound = 0", "houses[0].bound is 0"),
    ('mode = "simulation"', 'mode = "live"', "service.mode is 'live'; give one of production"),
    ("port = 8080", "port = 99999", "http.port is 99999; give a port"),
    ("leave = 0.20", "leave = 1.20", "periods[1].leave is 1.2"),
    ('currency = "EUR"', 'currency = "Euro"', "service.currency is 'Euro'"),
    ('secret = "step"', 'secret = "day"', "policy.secret is 'day'"),
    ('grace = "PT1M"', 'grace = "1 min"', "service.grace is '1 min'"),
    ('ledger = "ledger.sqlite"', 'ledger = "mysql://a:pw@b/c"', "stores.ledger is not usable"),
    ('law = "gamma", shape = 2.0, scale = 25.0', 'law = "zeta"', "houses[1].absent.law is 'zeta'"),
    ('file = "prices.json"', 'fil = "prices.json"', "publish.fil is not known"),
    ("\neta = 0.05", "\nhorizon = 672 #", "policy.horizon is 672; leave it out: a service"),
]


def test_all_mistakes_are_found_at_once_with_their_lines(tmp_path: Path) -> None:
    path = put(tmp_path, *((old, new) for old, new, _ in EDITS))
    found = mistakes(path)
    for _, new, words in EDITS:
        line = line_of(path, new)
        assert any(one.startswith(f"service.toml:{line}: ") and words in one for one in found), (
            words
        )
    assert not any("pw" in one for one in found)
    assert len(found) == len(EDITS)  # a misspelt key is one mistake, not a missing key as well
    numbers = [int(one.split(":")[1]) for one in found]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(("old", "new", "words"), EDITS)
def test_each_mistake_alone(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = put(tmp_path, (old, new))
    found = mistakes(path)
    place = f"service.toml:{line_of(path, new)}: "
    assert any(one.startswith(place) and words in one for one in found), found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('interval = "PT15M"  ', "interval = 300  ", "one reading would enter several releases"),
        ('meter_interval = "PT15M"', "meter_interval = 400", "does not divide the interval"),
        ('interval = "PT15M"  ', "interval = 7000  ", "service.interval is 7000"),
        ('interval = "PT15M"  ', "interval = 0  ", "give whole seconds that divide a day"),
        ("T00:00:00Z", "T00:07:00Z", "service.begins is not on a border"),
        ("T00:00:00Z", "T00:00:00", "service.begins is"),
        ("Europe/Zurich", "Europe/Atlantis", "service.time_zone is 'Europe/Atlantis'"),
        ('retention = "P7D"', "retention = 900", "service.retention is 900 s, shorter"),
        ("fallback_rate = 0.25", "fallback_rate = 2.5", "outside the tariff's 0 to 2"),
        ("first = 31", "first = 30", "'elm-0030' twice (also in houses[0].meters)"),
        ('{ prefix = "elm-", first = 1 } ', '["a", "b"] ', "has 2 ids for 30 houses"),
        ('meters = { prefix = "elm-", first = 1 } ', "", "meters_file are both unset"),
        ('{ prefix = "elm-", first = 1 } ', '["a\\n"] ', "give ids of 1 to 128"),
        ('id = "elm-street"', 'id = "../elm"', "zone.id is '../elm'"),
        ("count = 30", "count = 2000000000", "give a zone at most"),
        ("bound = 2500", "bound = 2000000000", "give at most 1000000 Wh"),
        ('host = "127.0.0.1"', 'host = "0.0.0.0"\ntoken = 1', "http.token is not known"),
        ("token_digests = []", 'token_digests = ["hunter2"]', "never the token"),
        ("limit = 67108864", "limit = 1023", "http.limit is 1023; give a whole number from 1024"),
        ("limit = 67108864", "limit = 4294967297", "http.limit is 4294967297; give a whole number"),
        ("limit = 67108864", "limit = 1e6", "http.limit is 1000000.0; give a whole number"),
        ("limit = 67108864", "limit = true", "http.limit is True; give a whole number"),
        (
            "[publish]",
            "[mqtt]\nhost = 'b'\n[openadr]\nmqtt = false\n[publish]",
            "mqtt has neither readings nor prices",
        ),
        ("[publish]", "[mqtt]\npassword = 'hunter2'\n[publish]", "mqtt.password is not known"),
        ("[publish]", "[mqtt]\nhost='b'\nprices='a/#'\n[publish]", "without wildcards"),
        ("[zone]", "[zone", "this is not TOML"),
        ('currency = "EUR"', f"currency = {'9' * 5000}", "this is not TOML"),
        ("[stores]", "[store]", "store is not known; did you mean stores?"),
        ("epsilon = 0.5", 'epsilon = 0.5\nrho = 0.2\nclamp = [1, 1]', "rho and clamp are both set"),
        ("[[models]]", "[elasticity]\nreference = 1\nexponent = 0.5\n[[models]]", "give eta = 1"),
        ("shape = 2.0, scale = 40.0", "shape = 999, scale = 40.0", "puts no mass on 0..4000"),
        ('publish = "estimate"', 'publish = "pg://me:hunter2@b"', "policy publish is 'pg://***@b'"),
        ('name = "survey"', 'file = "none.json"', "none.json does not exist"),
    ],
)  # fmt: skip
def test_rules(tmp_path: Path, old: str, new: str, words: str) -> None:
    found = mistakes(put(tmp_path, (old, new)))
    assert any(words in one for one in found), found
    assert "hunter2" not in "".join(found)


def test_several_mistakes_in_one_table_are_all_named(tmp_path: Path) -> None:
    edits = [
        ("alpha = 0.012", "alpha = -1"),
        ("floor = 0.0", "floor = inf"),
        ("cap = 2.0", "cap = nan"),
    ]
    path = put(tmp_path, *edits, ("epsilon = 0.5", "epsilon = 0"), ("\neta = 0.05", "\neta = 5"))
    found = mistakes(path)
    starts = [f"service.toml:{line_of(path, new)}: tariff {new.split()[0]} is" for _, new in edits]
    starts += [
        f"service.toml:{line_of(path, f'{key} = {value}')}: policy {key} is"
        for key, value in (("epsilon", 0), ("eta", 5))
    ]
    assert len(found) == 5
    assert all(one.startswith(start) for one, start in zip(found, starts, strict=True)), found


def test_who_set_eta_matters_in_production(tmp_path: Path) -> None:
    production = ('mode = "simulation"', 'mode = "production"')
    assert load_deployment(put(tmp_path, production)).mode == "production"
    (found,) = mistakes(put(tmp_path, production, ("eta_set_by", "# eta_set_by")))
    assert "policy.eta_set_by is not set but eta is 0.05 in production" in found
    unset = put(tmp_path, production, ("eta_set_by", "# eta_set_by"), ("\neta = 0.05", "\neta = 1"))
    assert load_deployment(unset).zones[0].policy.eta == 1
    assert load_deployment(put(tmp_path, ("eta_set_by", "# eta_set_by"))).mode == "simulation"


def test_demand_that_reacts_is_fine_where_nothing_is_trusted(tmp_path: Path) -> None:
    reacts = ("[[models]]", "[elasticity]\nreference = 1\nexponent = 0.5\n[[models]]")
    found = load_deployment(put(tmp_path, reacts, ("\neta = 0.05", "\neta = 1")))
    assert found.zones[0].scenario.consumption.reacts


@pytest.mark.parametrize("seconds", [300, 1800, 3600])
def test_other_intervals(tmp_path: Path, seconds: int) -> None:
    edits = [('interval = "PT15M"  ', f"interval = {seconds}  ")]
    edits += [('meter_interval = "PT15M"', f"meter_interval = {seconds}")]
    if seconds == 3600:
        (found,) = mistakes(put(tmp_path, *edits))
        assert "from is '16:30'; give a time such as '07:00' at which a step of 3600 s" in found
        edits += [("16:30", "16:00")]
    (zone,) = load_deployment(put(tmp_path, *edits)).zones
    assert zone.seconds == seconds
    theta = zone.scenario.models[0]
    seven = 6 * 3600 // seconds + 1  # 07:00 in Zurich
    assert theta.chains[0].transition[theta.calendar.slot(seven), 0, 1, 0] == 0.20
    assert theta.chains[0].transition[theta.calendar.slot(seven - 1), 0, 1, 0] == 0.001


def short(secret: str, more: str = "") -> list[tuple[str, str]]:
    policy = f'secret = "{secret}"{more}'
    return [
        ('secret = "step"', policy),
        ("epsilon = 0.5", "epsilon = 1.0"),
    ]


def losses(zone: ZoneService) -> list[Floats]:
    """What the release of each step loses for every house, of readings after the clamp."""
    state = first_state(zone)
    cut, s = state.scheduler, zone.scenario
    return [
        house_losses(cut.zone, cut.consumption, one.t, one.scale, zone.policy.eta)[0]
        for one in schedule(s.models, s.zone, s.consumption, zone.policy)
    ]


def test_an_interval_is_promised(tmp_path: Path) -> None:
    """The first week of the example is four days long, the next one follows at once."""
    (zone,) = load_deployment(put(tmp_path, *short("interval"))).zones
    assert zone.promise == Promise("interval", 1.0, rho=RHO)
    later = placed(zone, zone.ends)
    alone = temporal_leakage(zone.scenario.models, np.array(losses(zone))).worst
    slots = [week.scenario.models[0].calendar.slots for week in (zone, later)]
    goes_on = replace(zone.scenario.models[0], calendar=Calendar(np.concatenate(slots)))
    both = temporal_leakage(goes_on, np.array([*losses(zone), *losses(later)])).worst
    assert 0.9 < alone <= both <= 1
    assert zone.leakage is not None
    assert 1 - 1e-4 <= zone.leakage <= 1.0 + 1e-9  # the search stops within 1e-6 of epsilon
    assert both <= zone.leakage


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"step"', '"trajectory"', "policy.secret is 'trajectory'; give one of step"),
        ("# rho", "delta = 1e-6\n# rho", "policy.delta is 1e-06; leave it out: a service"),
        ("# rho", "gaussian = 41.4\n# rho", "policy.gaussian is 41.4; leave it out: a service"),
        ("# rho", "negligible = 0.01\n# rho", "policy.negligible is 0.01; leave it out:"),
        ("# rho", 'on_empty = "publish_exact"\n# rho', "policy.on_empty is 'publish_exact';"),
        ("# rho", 'blocks = "block"\n# rho', "policy.blocks is 'block'; leave it out: each"),
        ("# rho", 'models = "paper"\n# rho', "policy.models is 'paper'; leave it out: a"),
        ("# rho", "epsilon_t = [0.5]\n# rho", "policy.epsilon_t is [0.5]; leave it out: the"),
        ("currency", "budget = 400.0\ncurrency", "service.budget is 400.0; leave it out: the"),
        ("[tariff]", '[learned]\nprovenance = "private"\n[tariff]',
         "learned.provenance is 'private'; all that they shape would reveal"),
        ("[tariff]", '[learned]\nprovenance = "public"\nbound_by = "private"\n[tariff]',
         "learned.bound_by is 'private'; all that"),
        ("count = 30", 'count = 30\nprovenance = "Private, by hushgrid learn"',
         "houses[0].provenance is 'Private, by hushgrid learn'; all that"),
    ],
)  # fmt: skip
def test_what_experiments_alone_use_is_refused(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    """One sentence with the key, its value and what to use instead."""
    with pytest.raises(ConfigError) as caught:
        load_deployment(put(tmp_path, (old, new)))
    (problem,) = caught.value.problems
    assert problem.message.startswith(said)
    assert "  " not in problem.message


def test_a_model_of_homes_that_move_together_is_refused(tmp_path: Path) -> None:
    theta = OccupancyModel.blocked(
        [[2 * i, 2 * i + 1] for i in range(20)],
        [np.full(4, 0.25)] * 20,
        [np.full((1, 4, 4), 0.25)] * 20,
    )
    save_model(tmp_path / "pairs.json", theta)
    path = put(tmp_path)
    text = path.read_text()
    path.write_text(text[: text.index("[[models]]")] + '[[models]]\nfile = "pairs.json"\n')
    with pytest.raises(ConfigError, match=r"models\[0\] has 2 homes that move together; give"):
        load_deployment(path)
    zone = service(2)
    pair = OccupancyModel.joint(np.full(4, 0.25), [np.full((4, 4), 0.25)])
    for change in (
        {"scenario": replace(zone.scenario, models=(pair,))},
        {"learned": Provenance("private")},
        {"policy": Policy(1.0, on_empty="publish_exact")},
    ):
        with pytest.raises(PolicyError, match="'elm'"):
            replace(zone, **change)  # type: ignore[arg-type]


def test_a_clamp_is_planned_where_rho_is_given(tmp_path: Path) -> None:
    assert not load_deployment(put(tmp_path, *short("step"))).zones[0].policy.clamp
    (zone,) = load_deployment(put(tmp_path, *short("step", "\nrho = 0.1"))).zones
    assert len(zone.policy.clamp) == 2
    assert zone.policy.epsilon == 1.0


OTHER = """
format = 1

[service]
interval = 1800
[zone]
id = "oak"
[tariff]
alpha = 0.1
beta = 0.1
[policy]
epsilon = 1.0
[[houses]]
count = 2
bound = 100
meters_file = "oak.txt"
chain = "a"
absent = {law = "uniform"}
present = {law = "uniform"}
[[models]]
[models.chains.a]
home_at_start = 0.5
periods = [{from = "00:00", leave = 0.1, come = 0.1}]
"""


def two_zones(folder: Path, meters: str = "oak-1\noak-2\n", lone: bool = False) -> Path:
    (folder / "oak.toml").write_text(OTHER)
    (folder / "oak.txt").write_text(meters)
    path = put(folder, ('key = "hushgrid.key"', 'key = "k"\nzones = ["oak.toml"]'))
    if lone:
        path.write_text(path.read_text()[: path.read_text().index("[zone]")])
    return path


def test_many_zones(tmp_path: Path) -> None:
    found = load_deployment(two_zones(tmp_path))
    elm, oak = found.zones
    assert (elm.id, oak.id) == ("elm-street", "oak")
    assert (oak.seconds, oak.time_zone) == (1800, "Europe/Zurich")
    assert elm.seconds == 900
    assert oak.meters == ("oak-1", "oak-2")
    (alone,) = load_deployment(two_zones(tmp_path, lone=True)).zones
    assert alone.id == "oak"


def test_mistakes_in_further_files_are_named_by_their_own_lines(tmp_path: Path) -> None:
    path = two_zones(tmp_path, "elm-0007\noak-2\n")
    (found,) = mistakes(path)
    assert found.startswith("oak.toml:13: houses has the meter 'elm-0007', which is of zone elm-s")
    bad = OTHER.replace('"oak"', '"elm-street"').replace("1800", "600")
    (tmp_path / "oak.toml").write_text(bad)
    path.write_text(path.read_text().replace("port = 8080", "port = 0"))
    first, second = mistakes(path)
    assert "http.port is 0" in first
    assert second.startswith("oak.toml:5: service.interval is 600 s but the meters' own is 900 s")
    (tmp_path / "oak.toml").write_text(OTHER.replace('"oak"', '"elm-street"'))
    assert any("give each zone its own" in one for one in mistakes(two_zones_kept(path)))
    (tmp_path / "oak.toml").unlink()
    assert any("oak.toml does not exist" in one for one in mistakes(path))


def two_zones_kept(path: Path) -> Path:
    path.write_text(path.read_text().replace("port = 0", "port = 80"))
    (path.parent / "oak.txt").write_text("oak-1\noak-2\n")
    return path


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "absent.toml"
    with pytest.raises(ConfigError) as caught:
        load_deployment(path)
    says = str(caught.value)  # without a line, and the name once
    assert says == f"{path} does not exist; give the path of a file."
    with pytest.raises(ConfigError) as caught:
        load_deployment(tmp_path)
    assert str(caught.value).count(str(tmp_path)) == 1


def test_the_tables_that_half_a_file_lacks_are_one_mistake(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('format = 1\n\n[service]\nmode = "simulation"\nkey = "k"\n')
    problems = mistakes(path)
    lacking = [one for one in problems if "missing" in one]
    assert lacking == [
        "half.toml:5: [stores], [zone], [tariff], [policy] and [[houses]] are missing; add these"
        " tables, as hushgrid init writes them."
    ]
    names = ("stores", "zone", "tariff", "policy", "houses")
    assert not [one for one in problems if one.partition(": ")[2].startswith(names)]
    path.write_text(path.read_text() + '[stores]\nledger = "l"\nmeters = "m"\n')
    assert "[zone], [tariff], [policy] and [[houses]] are missing" in "".join(mistakes(path))


def test_durations_and_instants() -> None:
    assert [seconds_of(x) for x in ("PT15M", "P1D", "P1WT1S", "PT0S", 60)] == [
        900, 86400, 604801, 0, 60,
    ]  # fmt: skip
    for bad in ("P", "PT", "15M", "PT1.5M", "P1Y", "", -1, 1.5, True, None, [900]):
        assert seconds_of(bad) is None
    assert instant_of(tomllib.loads("x = 2026-01-01T01:00:00+01:00")["x"]) == BEGINS
    for text in ("x = 2026-01-01", "x = 2026-01-01T00:00:00", "x = 1", "x = 0001-01-01T00:00:00Z"):
        assert instant_of(tomllib.loads(text)["x"]) is None


SECRET = "pw0rd-S3cret/x"
URL = f"postgresql://me:{SECRET}@db.example/grid"
BASE = (
    EXAMPLE.replace('"ledger.sqlite"', f'"{URL}"')
    .replace('"meters.sqlite"   ', f'"{URL}"   ')
    .replace("# [mqtt]", "[mqtt]")
    .replace('# host = "127.0.0.1"', 'host = "b"')
    .replace('# prices = "', 'prices = "')
)
ASSIGNMENTS = [
    (i, *found.span(1))
    for i, line in enumerate(BASE.splitlines())
    if not line.startswith("#")
    for found in re.finditer(r"= (\"[^\"]*\"|[\w.:+-]+)", line)
]
TOML_VALUES = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-3, 100_000).map(str),
    st.floats(allow_nan=True).map(repr),
    st.sampled_from(
        ["true", "inf", "-nan", "[]", "{}", '""', "1979-05-27", "07:32:00", "[[1], ['a']]",
         "1979-05-27T07:32:00Z", "9999-12-31T23:59:59Z", '"\\u0000"', "{a = 1}", "'PT15M'",
         f'"{URL}"', f'["{URL}"]', f'{{ x = "{URL}" }}', "'interval'", "'..'"]
    ),
    st.text(st.characters(codec="ascii", exclude_characters="'"), max_size=8)
    .filter(str.isprintable).map(lambda text: f"'{text}'"),
)  # fmt: skip


def attempt(path: Path, text: str) -> Deployment | None:
    """The deployment, or None after a look at the mistakes; any other error fails the test."""
    path.write_text(text, "utf-8")
    try:
        return load_deployment(path)
    except ConfigError as error:
        problems = error.problems
    assert problems
    for problem in problems:
        assert SECRET[:6] not in str(problem)
        assert len(problem.message.splitlines()) == 1
        assert 1 <= problem.line <= text.count("\n") + 1
    return None


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(ASSIGNMENTS), TOML_VALUES), min_size=1, max_size=3))
def test_other_values_are_named_and_never_show_a_password(
    tmp_path: Path, changes: list[tuple[Any, str]]
) -> None:
    lines = BASE.splitlines()
    for (i, start, end), value in sorted(changes, key=lambda change: change[0], reverse=True):
        lines[i] = lines[i][:start] + value + lines[i][end:]
    attempt(tmp_path / "service.toml", "\n".join(lines))


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, len(BASE.splitlines()) - 1), min_size=1, max_size=3))
def test_missing_lines_are_named(tmp_path: Path, gone: list[int]) -> None:
    kept = [line for i, line in enumerate(BASE.splitlines()) if i not in gone]
    attempt(tmp_path / "service.toml", "\n".join(kept))


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(BASE)), st.integers(0, 40), st.text(max_size=3))
def test_torn_files_are_named(tmp_path: Path, at: int, length: int, new: str) -> None:
    torn = (BASE[:at] + new + BASE[at + length :]).encode("utf-8", "replace").decode()
    attempt(tmp_path / "service.toml", torn)


def test_the_base_of_the_mutations_is_sound(tmp_path: Path) -> None:
    found = attempt(tmp_path / "service.toml", BASE)
    assert found is not None
    assert found.ledger == URL
    assert SECRET not in repr(found)
    assert found.mqtt is not None


def test_the_longest_body_is_a_setting(tmp_path: Path) -> None:
    for line, limit in (("limit = 1024", 1024), ("limit = 4294967296", 4 << 30), ("", 64 << 20)):
        found = load_deployment(put(tmp_path, ("limit = 67108864", line)))
        assert found.http is not None
        assert found.http.limit == limit


STANDBY = ('key = "hushgrid.key"', 'key = "hushgrid.key"\nstandby = true')
DATABASE = "postgresql://hushgrid:pw@db/prices"


def test_curators_stand_by_on_databases_alone(tmp_path: Path) -> None:
    (said,) = mistakes(put(tmp_path, (STANDBY[0], STANDBY[1].replace("true", "1"))))
    assert "service.standby is 1; give true or false" in said
    found = mistakes(put(tmp_path, STANDBY))
    fix = "is a path but service.standby is true; give a postgresql:// URL"
    assert len(found) == 2
    assert f"stores.ledger {fix}" in found[0]
    assert f"stores.meters {fix}" in found[1]
    databases = (
        ('"ledger.sqlite"', f'"{DATABASE}"'),
        ('meters = "meters.sqlite"', f'meters = "{DATABASE}"'),
    )
    (clients,) = mistakes(
        put(tmp_path, STANDBY, *databases, ("[http]", 'clients = "clients.sqlite"\n[http]'))
    )
    assert f"stores.clients {fix}" in clients
    made = load_deployment(put(tmp_path, STANDBY, *databases))
    assert made.standby
    assert made.vtn_store == DATABASE


def test_a_curator_has_a_port_and_a_name_of_its_own(tmp_path: Path) -> None:
    made = load_deployment(put(tmp_path))
    moved = as_curator(made, 8081, None)
    assert moved.http == replace(made.http or Http(), port=8081)
    assert moved.name == "8081"
    assert as_curator(made, None, "north").name == "north"
    for name in ("", "a b", "x" * 33, "a?b"):
        with pytest.raises(ServiceError, match=f"name is '{re.escape(name)}'; give 1 to 32"):
            as_curator(made, None, name)
    with pytest.raises(ServiceError, match="port is 8081 but the service file has no"):
        as_curator(replace(made, http=None), 8081, None)
