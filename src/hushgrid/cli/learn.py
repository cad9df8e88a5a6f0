"""hushgrid learn: occupancy models and consumption laws from histories or a survey."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrid.cli.common import Json, need, put_json, say, stages

if TYPE_CHECKING:
    from hushgrid.learn.offered import ZoneChoices


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
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="First step, UTC; else the earliest reading."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="End of the last step; else the latest reading."),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Steps: 1800 [s] or PT30M; else as most readings are."),
    ] = None,
    meters: Annotated[
        Path | None, typer.Option(help="Meters of the zone, one a line; else all in the readings.")
    ] = None,
    prototypes: Annotated[int, typer.Option(min=0, help="Shared models; 0: one a home.")] = 4,
    law: Annotated[str, typer.Option(help="auto, lognormal, gamma or histogram.")] = "auto",
    days: Annotated[float, typer.Option(help="What the prior on habits is worth [days].")] = 30.0,
    bound: Annotated[
        int | None, typer.Option(min=1, help="Contract bound [Wh a step]; else that of 10 kW.")
    ] = None,
    bound_budget: Annotated[
        float | None,
        typer.Option(
            help="Choose the bound by a private quantile of this epsilon; needs what a pool needs."
        ),
    ] = None,
    pool_budget: Annotated[
        float | None,
        typer.Option(
            help="Publish one pooled model at the cost of this epsilon; needs --from, --to,"
            " --interval and --meters."
        ),
    ] = None,
    eta: Annotated[
        float | None, typer.Option(min=0, max=1, help="Set eta yourself; needs --eta-set-by.")
    ] = None,
    eta_set_by: Annotated[str, typer.Option(help="Who set eta, and why.")] = "",
    mapping: Annotated[str, typer.Option(help="canonical, lcl or pecan: names of columns.")] = (
        "canonical"
    ),
    begins: Annotated[
        datetime | None,
        typer.Option(
            help="First interval of service.toml, UTC; else today, or after the readings."
        ),
    ] = None,
    figures: Annotated[bool, typer.Option(help="Draw pictures and report.html.")] = True,
    json: Json = None,
) -> None:
    """Learn Theta, f and bounds from histories or a survey, and say how far to trust them.

    Example: hushgrid learn --readings readings.parquet --out learned --time-zone Europe/Zurich
    """
    from hushgrid.cli.histories import read_habits, read_histories, read_meters
    from hushgrid.cli.learned import draw, write
    from hushgrid.cli.survey import draw_survey, survey_prose, zone_from_survey
    from hushgrid.files import make_folder
    from hushgrid.learn.learned import LearningTerms
    from hushgrid.learn.learned import learn as learned
    from hushgrid.learn.offered import ZoneChoices, offered
    from hushgrid.learn.offered import figures as figures_of
    from hushgrid.modelfile import save_learned
    from hushgrid.noise import SecureNoise
    from hushgrid.report.learn import learned_content, learned_prose, learned_values

    asked = ZoneChoices(zone, time_zone, bound, bound_budget, pool_budget, eta, eta_set_by)
    if figures:
        need("matplotlib", "plot")
    seconds, first, last = _seconds(interval), _instant("from", begin), _instant("to", end)
    if readings is None:
        seconds = seconds or 900
        values, chains, written = zone_from_survey(
            out, survey, mix, zone, seconds, time_zone, bound, begins
        )
        if figures:
            written += draw_survey(out, values, chains, seconds)
        say(survey_prose(values), json)
        written += put_json(values, json)
        say(_written(written), json)
        return
    given = {"--from": first, "--to": last, "--interval": seconds, "--meters": meters}
    _need_public(asked, [name for name, value in given.items() if value is None])
    make_folder(out)
    with stages() as watch:
        found = read_histories(
            readings, mapping=mapping, time_zone=time_zone, seconds=seconds, begins=first,
            ends=last, meters=None if meters is None else read_meters(meters), labels=labels,
            watch=watch,
        )  # fmt: skip
        habits = read_habits(survey, residents, found.seconds)
        terms = LearningTerms(
            law="lognormal" if pool_budget is not None and law == "auto" else law,  # type: ignore[arg-type]
            days=days,
            prototypes=prototypes,
        )
        result = learned(found, habits, terms, watch=watch, pooled=pool_budget is not None)
    made = offered(result, found, asked, SecureNoise())
    # before any figure: none of them may decide whether a pooled model is published
    written = write(out, result, made, asked, begins)
    judged = figures_of(result, made, found, habits, asked)
    values = learned_values(result, made, judged, asked, found)
    written.append(save_learned(out, learned_content(result, made, judged, values)))
    if figures:
        written += draw(out, result, found, made, values)
    say(learned_prose(values), json)
    written += put_json(values, json)
    say(_written(written), json)


def _written(paths: list[Path]) -> str:
    """The files, one on each line."""
    return "\nWritten:\n" + "\n".join(f"  {path}" for path in paths)


def _need_public(asked: ZoneChoices, missing: list[str]) -> None:
    """Refuse a budget where readings would decide what no noise covers."""
    from hushgrid.errors import PolicyError

    if missing and (asked.pool_budget is not None or asked.bound_budget is not None):
        word = "pool-budget" if asked.pool_budget is not None else "bound-budget"
        raise PolicyError(
            f"{word} is set but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not:"
            " taken from readings, they would publish without noise what one home did; give"
            " --from, --to, --interval and --meters."
        )


def _seconds(interval: str | None) -> int | None:
    """A step in seconds."""
    from hushgrid.durations import seconds_of
    from hushgrid.errors import IntakeError

    if interval is None:
        return None
    found = seconds_of(int(interval) if interval.isdecimal() else interval)
    if found is None or found < 60:
        raise IntakeError(
            f"interval is {interval!r}; give 60 seconds or more, such as 1800 or PT30M."
        )
    return found


def _instant(word: str, text: str | None) -> int | None:
    """Seconds since 1970 of a date or date-time; UTC where it has no offset."""
    from hushgrid.durations import instant_of
    from hushgrid.errors import IntakeError

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    found = None if at is None else instant_of(at if at.tzinfo else at.replace(tzinfo=UTC))
    if found is None:
        raise IntakeError(
            f"{word} is {text!r}; give a date or time from 1970 on, such as 2026-01-05 or"
            " 2026-01-05T00:00Z."
        )
    return found
