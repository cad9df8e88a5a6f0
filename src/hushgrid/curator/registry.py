"""What a zone promises and its ledger has spent, gathered for a statement to the public."""

from __future__ import annotations

import math

from hushgrid import __version__
from hushgrid.accounting.composition import DURATIONS
from hushgrid.curator.clock import utc
from hushgrid.curator.promise import (
    expected_error,
    promise_of,
    sentence,
    stated_epsilon,
    window_words,
    zone_assumptions,
    zone_words,
)
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.toml import duration_text, window_text
from hushgrid.mechanism.release import Mode
from hushgrid.report.registry import LedgerSpent, RegistryFacts
from hushgrid.stores.ledger.mechanisms import loss_of, mechanisms, spent_in
from hushgrid.stores.ledger.state import LedgerState


def registry_facts(
    zone: ZoneService,
    mode: Mode,
    ledger: LedgerState | None,
    *,
    curator: str = "",
    region: str = "",
) -> RegistryFacts:
    """What a statement about a zone is made of.

    Args:
        zone: The zone.
        mode: The service's mode.
        ledger: The zone's ledger, all of its records checked; None: there is none.
        curator: Who publishes the prices.
        region: What region they are of.

    Returns:
        The facts.

    Raises:
        LedgerError: If the newest terms of the ledger promise something else than the file.
    """
    promise, words = promise_of(zone), zone_words(zone)
    if ledger is not None and ledger.terms is not None:
        stated = ledger.terms.promise
        on_record = (stated["secret"], stated["epsilon"], stated.get("window"))
        if on_record != (promise.secret, promise.epsilon, promise.window):
            raise LedgerError(
                f"the newest terms on record promise {_promised(*on_record)} and the file of zone"
                f" {zone.id} {_promised(promise.secret, promise.epsilon, promise.window)}; give the"
                " file of the ledger."
            )
    window = promise.secret == "window"
    return RegistryFacts(
        zone=zone.id,
        houses=len(zone.meters),
        interval=duration_text(zone.seconds),
        secret=promise.secret,
        epsilon=stated_epsilon(zone),
        window=window_words(zone),
        words=words.words,
        sentence=sentence(zone),
        not_covered=words.not_covered,
        assumptions=zone_assumptions(zone),
        simulated=mode == "simulation" or (ledger is not None and ledger.mode == "simulation"),
        models=0 if window else len(zone.scenario.models),
        origin=zone.learned.origin,
        charged=zone.learned.epsilon,
        clamped=bool(zone.policy.clamp),
        publish=zone.policy.publish,
        ahead=zone.ahead is not None,
        error=expected_error(zone),
        retention=duration_text(zone.retention),
        version=__version__,
        losses=None if ledger is None else _spent(ledger, promise.window),
        curator=curator,
        region=region,
    )


def _promised(secret: str, epsilon: float, window: int | None) -> str:
    about = f"any {window_text(window)}" if window is not None else f"one {secret}"
    return f"epsilon {epsilon:g} about {about}"


def _spent(ledger: LedgerState, window: int | None) -> LedgerSpent:
    """What the ledger has spent on any one home."""
    events = mechanisms(ledger)
    lengths = sorted({*([] if window is None else [window]), *_STATED})
    kinds = [event.what for event in events]
    releases = ledger.releases
    return LedgerSpent(
        life=_finite(loss_of(events)),
        windows={window_text(length): _finite(spent_in(events, length)) for length in lengths},
        blocks=kinds.count("block"),
        models=kinds.count("model"),
        lost=kinds.count("lost"),
        first=utc(releases[0].start)[:10] if releases else "",
        last=utc(releases[-1].start)[:10] if releases else "",
        records=ledger.head.seq,
        head=ledger.head.digest,
        key=ledger.key,
        reach=None if ledger.terms is None else ledger.terms.reach,
    )


_STATED = tuple(DURATIONS[name] for name in ("P1D", "P7D", "P30D"))


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
