"""One day of the demo without a page, as fast as the work allows; then judged."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory

import numpy as np

from hushgrid.audit.certificate import Certificate, certify
from hushgrid.errors import ServiceError
from hushgrid.files import write_text
from hushgrid.intervals import next_one
from hushgrid.live.access.hashing import new_secret
from hushgrid.live.audit import fingerprint, load_case
from hushgrid.live.demo.living import HOST, Wishes
from hushgrid.live.demo.pace import SimulatedPace
from hushgrid.live.demo.panel import BELIEFS, PanelStep, by_adversary
from hushgrid.live.demo.run import DemoRun, telling_house
from hushgrid.live.demo.setting import Dials, Secrets, lay_out
from hushgrid.live.demo.show import DAY
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import schedule_digest
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.promise import sentence
from hushgrid.live.web.server import Server
from hushgrid.live.web.stage import Stage
from hushgrid.planning import examine
from hushgrid.report import certificate_json, certificate_page
from hushgrid.report.demo import CHANCE, Foreseen, Played
from hushgrid.simulation import Mechanism, days

BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z, a Monday
DAYS = 24  # simulated to foresee one day's error
_FORESEEN = 2**31  # keeps the simulated days' seeds apart from the played one's


@dataclass(frozen=True, slots=True)
class DayFigures:
    """What is left of the day: its figures, and the files that were written."""

    day: Played
    files: tuple[Path, ...]
    ledger: Path


def play_once(
    dials: Dials, out: Path, wishes: Wishes, *, seed: int, tick: Callable[[], None]
) -> DayFigures:
    """Play a day through real parts, check ledger and promise, and write what others can check."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                TemporaryDirectory(prefix="hushgrid-demo-", ignore_cleanup_errors=True)
            )
        )
        stage = Stage()
        server = Server(stage, HOST, 0)
        server.start()
        stack.callback(server.stop)
        secrets = Secrets(token_urlsafe(), new_secret())
        made = lay_out(folder, dials, secrets, begins=BEGINS, port=server.port)
        (zone,) = made.zones
        tick()
        url, clock = f"http://{HOST}:{server.port}", SimulatedPace(BEGINS, math.inf)
        with DemoRun(made, stage, clock, url=url, token=secrets.token, seed=seed) as run:
            seen = [_step(run, wishes, tick) for _ in range(DAY // zone.seconds)]
        foreseen = foresee(zone, seed, len(seen), tick)
        found, records, files = _audited(folder, made.ledger, zone.id, out)
        tick()
        return DayFigures(
            _played(dials, zone, seed, seen, foreseen, found, records), files, files[0]
        )


def _step(run: DemoRun, wishes: Wishes, tick: Callable[[], None]) -> PanelStep:
    seen = run.step(wishes.wake)
    if seen is None:
        if wishes.stopping:
            raise KeyboardInterrupt
        raise ServiceError("the demo's zone left an interval out; see the log above.")
    tick()
    return seen


def foresee(zone: ZoneService, seed: int, steps: int, tick: Callable[[], None]) -> Foreseen:
    """The error that one day of the zone's policy should have, from public models alone."""
    policy = zone.policy.first(steps)
    world = zone.scenario
    terms = (world.zone, world.tariff, world.models, world.consumption)
    played = days(lambda _: world, {"it": Mechanism(policy)}, count=DAYS, seed=seed + _FORESEEN)
    errors = []
    for day in played:
        errors.append(day.traces["it"].rmsre_paper)
        tick()
    planned = examine(*terms, policy).prospect.estimated(rho=0.0)  # these days follow the model
    low, high = next_one(errors, CHANCE)
    return Foreseen(planned, float(np.mean(errors)), low, high, DAYS)


def _audited(
    folder: Path, ledger: str, zone: str, out: Path
) -> tuple[Certificate, int, tuple[Path, ...]]:
    """Copy out what anybody needs for an audit, and make one from the copies."""
    with open_store(ledger, create=False) as store:
        lines = [record.line for record in store.records(zone)]
    written = write_text(out / "ledger.ndjson", "".join(f"{line}\n" for line in lines))
    terms = write_text(out / "service.toml", (folder / "service.toml").read_text("utf-8"))
    case = load_case(str(written), [terms])
    found = certify(
        case.evidence,
        case.terms,
        chain=case.chain,
        commit=schedule_digest,
        inputs={
            "file": str(written),
            "kind": case.kind,
            "digests": {str(path): fingerprint(path) for path in (written, terms)},
            "config": [str(terms)],
            **dict.fromkeys(("zone", "publisher", "samples", "confidence", "seed", "key")),
            "heads": [],
        },
    )
    page = write_text(out / "certificate.html", certificate_page(certificate_json(found)))
    return found, len(lines), (written, terms, page)


def _played(
    dials: Dials,
    zone: ZoneService,
    seed: int,
    seen: list[PanelStep],
    foreseen: Foreseen,
    found: Certificate,
    records: int,
) -> Played:
    home = {name: np.array([one.home[name] for one in seen]) for name in BELIEFS}
    (houses,) = found.houses
    return Played(
        epsilon=dials.epsilon,
        eta=dials.eta,
        promise=sentence(zone),
        seed=seed,
        house=telling_house(zone, seed, len(seen)),
        optimal=np.array([one.optimal for one in seen]),
        published=np.array([one.rate for one in seen]),
        occupancy=np.array([one.occupancy for one in seen]),
        prior=home["prior"],
        beliefs=by_adversary(home),
        foreseen=foreseen,
        leakage=math.inf if houses.leakage is None else float(houses.leakage.max()),
        records=records,
        chain=found.check("chain").status,
        verdict=found.verdict,
    )
