"""What hushgrid learn writes: the zone, a service that runs it, the model, pictures and a page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgrid.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hushgrid.learn.histories import Histories
    from hushgrid.learn.learned import Learned
    from hushgrid.learn.offered import Offered, ZoneChoices

DAY = 86_400  # [s]


def write(
    out: Path, result: Learned, made: Offered, asked: ZoneChoices, begins: datetime | None
) -> list[Path]:
    """theta.json, zone.toml and service.toml with a key; no figure has a part in them."""
    from secrets import token_hex

    import numpy as np

    from hushgrid.files import save_model, write_text
    from hushgrid.learn.offered import groups_of
    from hushgrid.learn.publish import theta
    from hushgrid.learn.zone import Offer, service_text, zone_text

    groups = groups_of(result, made)
    chain_of = np.repeat(np.arange(len(groups)), [len(names) for _, names in groups])
    model = theta(tuple(one for one, _ in groups), chain_of, f"{asked.zone} learned")
    offer = Offer(
        zone=asked.zone,
        seconds=result.seconds,
        time_zone=asked.time_zone,
        bound=made.bound,
        bound_by=made.bound_by,
        eta=made.eta,
        eta_by=made.eta_by,
        provenance=made.provenance,
        # who could be fitted is a secret of the homes; how many there are is not
        homes=len(result.ids),
        epsilon=made.epsilon,
        law=result.family,
        prior=result.habits,
        days=result.terms.days,
        # of private models it would be something to check guesses against
        digest=token_hex(32) if made.provenance == "private" else model.digest,
    )
    at = first_interval(result.ends, result.seconds, begins)
    return [
        save_model(out / "theta.json", model),
        write_text(out / "zone.toml", zone_text(offer, groups)),
        write_text(out / "service.toml", service_text(offer, at.strftime("%Y-%m-%dT%H:%M:%SZ"))),
        *put_key(out),
    ]


def put_key(out: Path) -> list[Path]:
    """The key of the service, where there is none yet; the files written."""
    from hushgrid.live.example import KEY_FILE, make_key

    key = out / KEY_FILE
    return [key] if not key.exists() and make_key(key) else []


def first_interval(ends: int, seconds: int, asked: datetime | None) -> datetime:
    """When a service begins: as asked, today, or on the day after readings that go on till then."""
    if asked is not None:
        at = int(asked.replace(tzinfo=asked.tzinfo or UTC).timestamp())
        return datetime.fromtimestamp(at // seconds * seconds, UTC)
    today = int(datetime.now(UTC).timestamp()) // DAY * DAY
    return datetime.fromtimestamp(max(today, -(-ends // DAY) * DAY), UTC)


def draw(
    out: Path, result: Learned, found: Histories, made: Offered, values: dict[str, Any]
) -> list[Path]:
    """Pictures of chains, laws and decoded days, and a page with all of them."""
    import numpy as np

    from hushgrid.files import png_of, save_figures, write_text
    from hushgrid.learn.em import homes_of, posterior
    from hushgrid.learn.histories import clamped
    from hushgrid.report.learn import html_page, learned_prose
    from hushgrid.report.learn_figures import chain_figure, law_figure

    some = np.unique(np.linspace(0, len(result.usable) - 1, 3).astype(int))
    usable = clamped(found.homes(result.usable[some]))
    post = posterior(usable.wh, homes_of(result.own, some))
    drawn = {
        "transitions": chain_figure(made.public, result.seconds),
        "laws": law_figure(made.public, made.bound),
        "days": example_days(usable, post),
    }
    pictures = {name: png_of(figure) for name, figure in drawn.items()}
    page = html_page(f"Learned zone {values['zone']}", learned_prose(values), pictures)
    return [*save_figures(out, drawn), write_text(out / "report.html", page)]


def example_days(found: Histories, post: Floats) -> Figure:
    """Two days of some homes with the chance that somebody is at home."""
    from hushgrid.report.learn_figures import days_figure

    these = _two_days(found)
    return days_figure(
        found.wh[:, these],
        post[:, these],
        found.shown[these],
        found.seconds,
        found.ids,
        None if found.labels is None else found.labels[:, these],
    )


def _two_days(found: Histories) -> slice:
    """Two days from a local midnight on, of which most is known; the middle of all such."""
    import numpy as np

    steps = found.steps_a_day
    midnights = np.flatnonzero(found.shown % DAY < found.seconds)
    midnights = midnights[midnights + 2 * steps <= found.wh.shape[1]]
    if not midnights.size:
        return slice(0, min(2 * steps, found.wh.shape[1]))
    worth = np.isfinite(found.wh).mean(axis=0)
    if found.labels is not None:
        worth += (found.labels >= 0).mean(axis=0)
    known = np.cumsum(np.pad(worth, (1, 0)))
    seen = known[midnights + 2 * steps] - known[midnights]
    best = midnights[seen >= seen.max() - 1e-9]
    return slice(int(best[len(best) // 2]), int(best[len(best) // 2]) + 2 * steps)
