"""hushgrid learn: occupancy models and consumption laws from histories or a survey."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli.common import Json, need, put_json, say

if TYPE_CHECKING:
    from hushgrid.learn.histories import Histories
    from hushgrid.learn.learned import Learned
    from hushgrid.learn.publish import Public
    from hushgrid.learn.trust import Trust


def learn(
    out: Annotated[Path, typer.Option(help="Folder for zone.toml and all that belongs to it.")],
    readings: Annotated[
        Path | None, typer.Option(help="Histories: csv, json, ndjson, arrow, parquet, xml.")
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="CSV or Parquet of chains, or the word richardsonpy.")
    ] = None,
    residents: Annotated[
        str, typer.Option(help="Residents of the survey's chains for the prior, such as 2,3.")
    ] = "2,3",
    mix: Annotated[
        str | None, typer.Option(help="Without readings: houses by residents, such as 1:30,2:40.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Known occupancy: meter_id, start_utc, occupied.")
    ] = None,
    zone: Annotated[str, typer.Option(help="Name of the zone.")] = "learned",
    time_zone: Annotated[str, typer.Option(help="Whose times of day habits keep.")] = "UTC",
    interval: Annotated[
        int | None, typer.Option(min=60, help="Steps [s]; else as long as most readings.")
    ] = None,
    prototypes: Annotated[int, typer.Option(min=0, help="Shared models; 0: one a home.")] = 4,
    law: Annotated[str, typer.Option(help="auto, lognormal, gamma or histogram.")] = "auto",
    days: Annotated[float, typer.Option(help="What the prior on habits is worth [days].")] = 30.0,
    bound: Annotated[
        int | None, typer.Option(min=1, help="Contract bound [Wh a step]; else that of 10 kW.")
    ] = None,
    bound_budget: Annotated[
        float | None, typer.Option(help="Choose the bound by a private quantile of this epsilon.")
    ] = None,
    pool_budget: Annotated[
        float | None, typer.Option(help="Publish one pooled model at the cost of this epsilon.")
    ] = None,
    eta: Annotated[
        float | None, typer.Option(min=0, max=1, help="Set eta yourself; needs --eta-set-by.")
    ] = None,
    eta_set_by: Annotated[str, typer.Option(help="Who set eta, and why.")] = "",
    mapping: Annotated[str, typer.Option(help="canonical, lcl or pecan: names of columns.")] = (
        "canonical"
    ),
    figures: Annotated[bool, typer.Option(help="Draw pictures and report.html.")] = True,
    json: Json = None,
) -> None:
    """Learn Theta, f and bounds from histories or a survey, and say how far to trust them.

    Example: hushgrid learn --readings readings.parquet --out learned --time-zone Europe/Zurich
    """
    from hushgrid.cli.histories import read_habits, read_histories
    from hushgrid.cli.survey import survey_prose, zone_from_survey
    from hushgrid.errors import PolicyError
    from hushgrid.files import make_folder
    from hushgrid.learn.learned import Terms
    from hushgrid.learn.learned import learn as learned

    if eta is not None and not eta_set_by.strip():
        raise PolicyError(f"eta is {eta:g} but eta-set-by is not set; say who set it, and why.")
    if figures:
        need("matplotlib", "plot")
    if readings is None:
        values = zone_from_survey(out, survey, mix, zone, interval or 900, time_zone, bound)
        say(survey_prose(values), json)
        put_json(values, json)
        return
    make_folder(out)
    found = read_histories(
        readings, mapping=mapping, time_zone=time_zone, seconds=interval, labels=labels
    )
    habits = read_habits(survey, residents, found.seconds)
    pooled = pool_budget is not None
    terms = Terms(
        law="lognormal" if pooled and law == "auto" else law,  # type: ignore[arg-type]
        days=days,
        prototypes=prototypes,
    )
    result = learned(found, habits, terms, tick=lambda text: _note(text))
    asked = _Asked(zone, time_zone, bound, bound_budget, pool_budget, eta, eta_set_by)
    values, public, groups = _offered(result, found, asked)
    written = _write(out, result, values, public, groups, asked)
    if figures:
        written += _draw(out, result, found, public, values)
    from hushgrid.report.learn import learned_prose

    say(learned_prose(values), json)
    written += put_json(values, json)
    say("\nWritten:\n" + "\n".join(f"  {path}" for path in written), json)


class _Asked:
    """Options that go into the zone file."""

    def __init__(
        self,
        zone: str,
        time_zone: str,
        bound: int | None,
        bound_budget: float | None,
        pool_budget: float | None,
        eta: float | None,
        eta_set_by: str,
    ) -> None:
        self.zone, self.time_zone, self.bound = zone, time_zone, bound
        self.bound_budget, self.pool_budget = bound_budget, pool_budget
        self.eta, self.eta_set_by = eta, eta_set_by


def _note(text: str) -> None:
    import sys

    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\n")


def _bound(result: Learned, found: Histories, asked: _Asked) -> tuple[int, str, float]:
    """The public bound [Wh], who answers for it, and what it cost."""
    import numpy as np

    from hushgrid.learn.private import bound_quantile, contract_sizes
    from hushgrid.noise import SecureNoise

    if asked.bound is not None:
        return asked.bound, "given as the contract's", 0.0
    if asked.bound_budget is None:
        return 10_000 * found.seconds // 3600, "assumed: a contract of 10 kW", 0.0
    wh = found.wh[result.usable]
    peaks = np.array([np.nanquantile(row, 0.999) for row in wh]).astype(np.int64)
    sizes = contract_sizes(found.seconds)
    at = bound_quantile(peaks, sizes, 0.98, asked.bound_budget, SecureNoise())
    return at, f"a private quantile at epsilon {asked.bound_budget:g}", asked.bound_budget


def _offered(
    result: Learned, found: Histories, asked: _Asked
) -> tuple[dict[str, Any], tuple[Public, ...], list[tuple[Public, list[str]]]]:
    """The values of the command, what is published, and the houses of each group."""
    import math

    import numpy as np

    from hushgrid.learn.histories import clamped
    from hushgrid.learn.judge import trust_of
    from hushgrid.learn.private import UNIT, noisy, pooled_model, statistics
    from hushgrid.learn.publish import publics
    from hushgrid.noise import SecureNoise
    from hushgrid.report.learn import ailment_names

    bound, bound_by, cost = _bound(result, found, asked)
    provenance, note = "private", (
        "The models come from these homes without noise: nothing they shape may be published,"
        " and hushgrid check holds a service to that."
    )  # fmt: skip
    public, which = result.public, result.shared.which
    if asked.pool_budget is not None:
        told = noisy(statistics(result.own, bound), asked.pool_budget, SecureNoise())
        which = np.zeros(len(result.usable), np.intp)
        public = publics(pooled_model(result.own, told, bound), result.terms.starts, which)
        cost += asked.pool_budget
        provenance = "pooled"
        noise = math.sqrt(2) * 2 * 4 * UNIT / asked.pool_budget / UNIT
        note = (
            f"Noisy sums over all homes cost every home epsilon {cost:g}; the noise on each sum is"
            f" worth {noise:.1f} homes. report.html and model.json stay with the utility."
        )
    groups = _groups(result, public, which)
    trust = result.trust
    if provenance == "pooled":  # other laws than those that were judged
        usable = clamped(found.homes(result.usable), bound)
        trust = trust_of(usable, public, which, result.terms.starts, bound)
    eta, basis = _eta(trust, provenance, asked)
    seen = max(int(result.own.readings.sum()), 1)
    total = float(result.own.log_likelihood.sum())
    values: dict[str, Any] = {
        "zone": asked.zone,
        "houses": len(result.ids),
        "fitted": len(result.usable),
        "groups": len(public),
        "log_likelihood": total,
        "log_likelihood_per_reading": total / seen,
        "converged": int(result.own.converged.sum()),
        "iterations": int(result.own.iterations.max()),
        "eta": eta,
        "eta_basis": basis,
        "eta_set_by": asked.eta_set_by or basis,
        "provenance": provenance,
        "epsilon_spent": cost,
        "leaks": note,
        "bound": bound,
        "bound_by": bound_by,
        "law": result.family,
        "law_tried": result.tried,
        "prior": result.habits,
        "days": result.terms.days,
        "seconds": result.seconds,
        "time_zone": asked.time_zone,
        "starts": list(result.terms.starts),
        "begins": result.begins,
        "ends": result.ends,
        "ailments": ailment_names(result),
        "readings": dict(found.counts),
        "trust": {
            "lower": trust.lower,
            "upper": trust.upper,
            "suggested": trust.suggested,
            "confidence": trust.confidence,
            "reasoning": trust.reasoning,
        },
        "accuracy": result.accuracy,
        "held_out": _held(result),
    }
    return values, public, groups


def _held(result: Learned) -> dict[str, Any] | None:
    import numpy as np

    held = result.held_out
    if held is None:
        return None
    worst = int(np.nanargmin(held.by_slot)) if np.isfinite(held.by_slot).any() else 0
    minute = worst * result.seconds // 60
    return {
        "days": held.days,
        "log_likelihood": held.log_likelihood,
        "plain": float(np.nanmean(held.plain)),
        "by_slot": held.by_slot.tolist(),
        "plain_by_slot": held.plain.tolist(),
        "worst_slot": f"{minute // 60:02d}:{minute % 60:02d}",
        "worst": float(held.by_slot[worst]),
    }


def _eta(trust: Trust, provenance: str, asked: _Asked) -> tuple[float, str]:
    """Eta for the zone file: a person's, never one computed from labels, which would leak them."""
    if provenance == "private":
        return 1.0, "private models allow eta = 1 only"
    if asked.eta is not None:
        return asked.eta, f"set by {asked.eta_set_by}; {trust.reasoning}"
    if trust.upper is not None:
        return 1.0, f"nobody set eta; suggested is {trust.suggested:g}; {trust.reasoning}"
    return 1.0, f"nobody set eta; {trust.reasoning}"


def _groups(result: Learned, public: Any, which: Any) -> list[tuple[Public, list[str]]]:
    """Houses by group; one that could not be fitted joins the largest group."""
    import numpy as np

    largest = int(np.bincount(which).argmax())
    of = {int(i): int(which[n]) for n, i in enumerate(result.usable)}
    meters: list[list[str]] = [[] for _ in public]
    for i, name in enumerate(result.ids):
        meters[of.get(i, largest)].append(name)
    return [(one, names) for one, names in zip(public, meters, strict=True) if names]


def _write(
    out: Path,
    result: Learned,
    values: dict[str, Any],
    public: Any,
    groups: list[tuple[Public, list[str]]],
    asked: _Asked,
) -> list[Path]:
    from datetime import UTC, datetime

    import numpy as np

    from hushgrid.files import save_model, write_text
    from hushgrid.learn.publish import theta
    from hushgrid.learn.zone import Offer, service_text, zone_text
    from hushgrid.live.example import KEY_FILE, make_key
    from hushgrid.modelfile import save_learned
    from hushgrid.report.learn import learned_content

    chain_of = np.repeat(np.arange(len(groups)), [len(names) for _, names in groups])
    model = theta(tuple(one for one, _ in groups), chain_of, f"{asked.zone} learned")
    offer = Offer(
        zone=asked.zone,
        seconds=result.seconds,
        time_zone=asked.time_zone,
        bound=values["bound"],
        bound_by=values["bound_by"],
        eta=values["eta"],
        eta_by=values["eta_set_by"],
        provenance=values["provenance"],
        # who could be fitted is a secret of the homes; how many there are is not
        homes=values["houses"],
        epsilon=values["epsilon_spent"],
        law=values["law"],
        prior=values["prior"],
        days=values["days"],
        digest=model.digest,
    )
    begins = -(-result.ends // 86_400) * 86_400
    at = datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    written = [
        save_model(out / "theta.json", model),
        write_text(out / "zone.toml", zone_text(offer, groups)),
        write_text(out / "service.toml", service_text(offer, at)),
        save_learned(out, learned_content(result, public, values)),
    ]
    key = out / KEY_FILE
    if not key.exists() and make_key(key):
        written.append(key)
    return written


def _draw(out: Path, result: Learned, found: Histories, public: Any, values: Any) -> list[Path]:
    import numpy as np

    from hushgrid.files import png_of, save_figures, write_text
    from hushgrid.learn.em import homes_of, posterior
    from hushgrid.learn.histories import clamped
    from hushgrid.report.learn import (
        chain_figure,
        days_figure,
        html_page,
        law_figure,
        learned_prose,
    )

    usable = clamped(found.homes(result.usable))
    some = np.unique(np.linspace(0, len(result.usable) - 1, 3).astype(int))
    steps = found.steps_a_day
    chosen = homes_of(result.own, some)
    post = posterior(usable.wh[some], chosen)
    seen = np.isfinite(usable.wh[some]).all(axis=0)
    days = seen[: len(seen) // steps * steps].reshape(-1, steps).all(axis=1)
    day = int(np.flatnonzero(days)[len(np.flatnonzero(days)) // 2]) if days.any() else 0
    these = slice(day * steps, (day + 2) * steps)
    names = [f"home {i + 1}, two days" for i in some]
    drawn = {
        "transitions": chain_figure(public, result.seconds),
        "laws": law_figure(public, values["bound"]),
        "days": days_figure(
            np.nan_to_num(usable.wh[some][:, these]), post[:, these], result.seconds, names
        ),
    }
    pictures = {name: png_of(figure) for name, figure in drawn.items()}
    page = html_page(f"Learned zone {values['zone']}", learned_prose(values), pictures)
    return [*save_figures(out, drawn), write_text(out / "report.html", page)]
