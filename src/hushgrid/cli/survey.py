"""A zone of a survey's chains alone, for hushgrid learn."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgrid.learn.publish import PublishedGroup


def zone_from_survey(
    out: Path,
    survey: str | None,
    mix: str | None,
    zone: str,
    seconds: int,
    time_zone: str,
    bound: int | None,
    begins: datetime | None,
) -> tuple[dict[str, Any], tuple[PublishedGroup, ...], list[Path]]:
    """A zone of the survey's chains alone: public, with laws that say nothing.

    Returns:
        The figures of the command, the chains by number of residents, and the files written.
    """
    from hushgrid.cli.learned import first_interval, put_key
    from hushgrid.errors import FileError, ModelError
    from hushgrid.files import make_folder, save_model, write_text
    from hushgrid.learn.publish import PublishedGroup
    from hushgrid.learn.survey import (
        PSEUDO_COUNT,
        RESPONDENTS,
        chain,
        slots_unprotected,
        survey_models,
    )
    from hushgrid.learn.zone import Offer, service_text, zone_text
    from hushgrid.surveyfile import load_survey

    if survey is None:
        raise FileError("readings and survey are both unset; give histories, a survey, or both.")
    given = load_survey(survey)
    try:
        counts = {
            int(n): int(count)
            for n, count in (part.split(":") for part in (mix or "2:20").split(","))
        }
    except ValueError:
        raise ModelError(f"mix is {mix!r}; give houses by residents such as 1:30,2:40.") from None
    if not all(count > 0 for count in counts.values()):
        raise ModelError(f"mix is {mix!r}; give at least one house for each number of residents.")
    houses = [n for n, count in counts.items() for _ in range(count)]
    definitions = {key[2] for key in given.chances}
    definition = "present" if "present" in definitions else "active"
    models = survey_models(given, houses, seconds=seconds, definition=definition)
    raw = survey_models(given, houses, seconds=seconds, definition=definition, pseudo_count=0.0)
    make_folder(out)
    top = bound or 10_000 * seconds // 3600
    offer = Offer(
        zone=zone,
        seconds=seconds,
        time_zone=time_zone,
        bound=top,
        bound_by="given as the contract's" if bound else "assumed: a contract of 10 kW",
        eta=1.0,
        eta_by="nobody: there are no laws to trust",
        provenance="public",
        homes=0,
        epsilon=0.0,
        law="uniform",
        prior=f"survey, pseudo-count {PSEUDO_COUNT:g} of {RESPONDENTS:g}",
        days=0.0,
        digest=models[0].digest,
    )
    flat = {"law": "uniform"}
    first = 0
    groups = []
    for n, count in counts.items():
        habits = chain(given, n, seconds=seconds, definition=definition)
        meters = [f"{zone}-{first + i + 1:05d}" for i in range(count)]
        groups.append((PublishedGroup(habits, flat, (flat,), (0,), count), meters))
        first += count
    text = zone_text(offer, groups).replace('publish = "estimate"', 'publish = "raw"')
    names = ["theta.json", *(f"theta{i}.json" for i in range(2, len(models) + 1))]
    for name in names[1:]:
        text += f'\n[[models]]\nfile = "{name}"\n'
    at = first_interval(0, seconds, begins)
    written = [
        *(save_model(out / name, model) for name, model in zip(names, models, strict=True)),
        write_text(out / "zone.toml", text),
        write_text(out / "service.toml", service_text(offer, at.strftime("%Y-%m-%dT%H:%M:%SZ"))),
        *put_key(out),
    ]
    week = 7 * 86_400 // seconds
    values = {
        "zone": zone,
        "houses": len(houses),
        "log_likelihood": None,
        "eta": 1.0,
        "eta_basis": "no laws were learned",
        "provenance": "public",
        "models": [model.name for model in models],
        "pseudo_count": PSEUDO_COUNT,
        "respondents": RESPONDENTS,
        "slots": week,
        "slots_unprotected": {
            "smoothed": slots_unprotected(models),
            "raw": slots_unprotected(raw),
        },
    }
    return values, tuple(public for public, _ in groups), written


def draw_survey(
    out: Path, values: dict[str, Any], public: tuple[PublishedGroup, ...], seconds: int
) -> list[Path]:
    """The chains as a picture, and a page with it; there are no laws and no days to draw."""
    from hushgrid.files import png_of, save_figures, write_text
    from hushgrid.report.learn import html_page
    from hushgrid.report.learn_figures import chain_figure

    drawn = {"transitions": chain_figure(public, seconds)}
    pictures = {name: png_of(figure) for name, figure in drawn.items()}
    page = html_page(f"Zone {values['zone']} of a survey", survey_prose(values), pictures)
    return [*save_figures(out, drawn), write_text(out / "report.html", page)]


def survey_prose(values: dict[str, Any]) -> str:
    """What the zone is, and what smoothing protects."""
    slots = values["slots_unprotected"]
    return (
        f"Zone {values['zone']}: {values['houses']} houses, Theta = {', '.join(values['models'])};"
        " public, so it leaks nothing.\n"
        f"Chances have pseudo-count {values['pseudo_count']:g} of {values['respondents']:g} diaries"
        " on each side.\n"
        f"Slots of the week in which some house leaves the protected set: {slots['smoothed']} of"
        f" {values['slots']} smoothed, {slots['raw']} with the survey's sampling zeros."
    )
