"""hushgrid learn: occupancy models and consumption laws from histories or a survey.

Writes a zone, a service file that runs it, the model, figures and a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hushgrid._numbers import Floats
    from hushgrid.files.learn_file import LearnTable
    from hushgrid.learning.evaluation import PublishedGroup
    from hushgrid.learning.export import ExportedModels, ZoneChoices
    from hushgrid.learning.habits import Survey
    from hushgrid.learning.histories import Histories, Roof
    from hushgrid.learning.learner import Learned
    from hushgrid.model.occupancy import OccupancyModel
    from hushgrid.operate.template import ModelSource, NewZone


DAY = 86_400  # [s]


def read_mix(survey: str, mix: str) -> tuple[Survey, dict[int, int], str]:
    """Read a survey, and a mix of houses with their numbers of residents.

    Args:
        survey: CSV or Parquet file of chains, or the word richardsonpy.
        mix: Houses by residents, such as 1:30,2:40.

    Returns:
        The survey, the houses by number of residents, and its definition of occupancy: present
        where it has that, else active.

    Raises:
        ModelError: The mix is none.
    """
    from hushgrid.errors import ModelError
    from hushgrid.files.models import load_survey

    chains = load_survey(survey)
    try:
        counts = {int(n): int(count) for n, count in (part.split(":") for part in mix.split(","))}
    except ValueError:
        raise ModelError(f"mix is {mix!r}; give houses by residents such as 1:30,2:40.") from None
    if not all(count > 0 for count in counts.values()):
        raise ModelError(f"mix is {mix!r}; give at least one house for each number of residents.")
    definitions = {key[2] for key in chains.chances}
    return chains, counts, "present" if "present" in definitions else "active"


def _zone_from_survey(
    out: Path,
    survey: str | None,
    mix: str | None,
    seconds: int,
    time_zone: str,
    table: LearnTable,
    listed: Path | None,
) -> tuple[dict[str, Any], tuple[PublishedGroup, ...], list[Path]]:
    """A zone of the survey's chains and of a usual consumption: public.

    Meters have the ids of the list, else made-up ones.

    Returns:
        The figures of the command, the chains by number of residents, and the files written.
    """
    from hushgrid.errors import FileError
    from hushgrid.files.readings import read_meters
    from hushgrid.files.results import make_folder
    from hushgrid.learning.evaluation import PublishedGroup
    from hushgrid.learning.export import CONTRACT_W, usual_wh
    from hushgrid.learning.habits import (
        PSEUDO_COUNT,
        RESPONDENTS,
        slots_unprotected,
        survey_chain,
        survey_models,
    )
    from hushgrid.operate.template import NewZone

    if survey is None:
        raise FileError("readings and survey are both unset; give histories, a survey, or both.")
    chains, counts, definition = read_mix(survey, mix or "2:20")
    houses = [n for n, count in counts.items() for _ in range(count)]
    ids = () if listed is None else tuple(read_meters(listed))
    if ids and len(ids) != len(houses):
        raise FileError(
            f"meters has {len(ids)} meters but mix has {len(houses)} houses; give a mix of as many."
        )
    models = survey_models(chains, houses, seconds=seconds, definition=definition)
    raw = survey_models(chains, houses, seconds=seconds, definition=definition, pseudo_count=0.0)
    make_folder(out)
    sources, paths = survey_files(out, models)
    zone = NewZone(
        homes=len(houses),
        id=table.zone,
        time_zone=time_zone,
        seconds=seconds,
        usual=usual_wh(table.usual, seconds),
        bound=table.bound or CONTRACT_W * seconds // 3600,
        bound_by=_by_contract(table.bound),
        meters=ids,
        prefix=f"{table.zone}-",
        models=sources,
    )
    paths += _service_files(out, zone, _first_interval(0, seconds, table.begins))
    groups = [
        PublishedGroup(
            survey_chain(chains, n, seconds=seconds, definition=definition), {}, (), (0,), count
        )
        for n, count in counts.items()
    ]
    week = 7 * 86_400 // seconds
    values = {
        "zone": table.zone,
        "houses": len(houses),
        "log_likelihood": None,
        "provenance": "public",
        "models": [model.name for model in models],
        "pseudo_count": PSEUDO_COUNT,
        "respondents": RESPONDENTS,
        "slots": week,
        "slots_unprotected": {
            "smoothed": slots_unprotected(models),
            "raw": slots_unprotected(raw),
        },
        "verdict": _verdict(out),
    }
    return values, tuple(groups), paths


def survey_files(
    folder: Path, models: Sequence[OccupancyModel]
) -> tuple[tuple[ModelSource, ...], list[Path]]:
    """Write the models of a survey next to a service file.

    Args:
        folder: Where to write.
        models: A model for each source of the survey.

    Returns:
        What the service file says of each, and the files written.
    """
    from hushgrid.files.results import save_model
    from hushgrid.learning.habits import PSEUDO_COUNT, RESPONDENTS
    from hushgrid.operate.template import ModelSource

    smoothed = f"pseudo-count {PSEUDO_COUNT:g} of {RESPONDENTS:g}"
    sources, paths = list[ModelSource](), list[Path]()
    for number, model in enumerate(models, 1):
        name = "theta.json" if number == 1 else f"theta{number}.json"
        paths.append(save_model(folder / name, model))
        sources.append(ModelSource(name, f"public, of the survey {model.name}, {smoothed}"))
    return tuple(sources), paths


def _by_contract(bound: int | None) -> str:
    return "a 10 kW contract, assumed" if bound is None else "given as the contract's"


def _draw_survey(
    out: Path, values: dict[str, Any], public: tuple[PublishedGroup, ...], seconds: int
) -> list[Path]:
    """A figure of the chains, and a page with it; there are no laws and no days to draw."""
    from hushgrid.files.results import save_figures
    from hushgrid.report.learn import chain_figure

    figures = {"transitions": chain_figure(public, seconds)}
    title = f"Zone {values['zone']} of a survey"
    page = common.write_page(out / "report.html", title, _survey_prose(values), figures)
    return [*save_figures(out, figures), page]


def _survey_prose(values: dict[str, Any]) -> str:
    """What the zone is, and what smoothing protects."""
    slots = values["slots_unprotected"]
    return (
        f"Zone {values['zone']}: {values['houses']} houses, Theta = {', '.join(values['models'])};"
        " public, so it leaks nothing.\n"
        f"Chances have pseudo-count {values['pseudo_count']:g} of {values['respondents']:g} diaries"
        " on each side.\n"
        f"Slots of the week in which some house leaves the protected set: {slots['smoothed']} of"
        f" {values['slots']} smoothed, {slots['raw']} with the survey's sampling zeros.\n\n"
        f"{values['verdict']['sentence']}"
    )


class _Part(NamedTuple):
    """Homes of one kind, and what was learned of them."""

    histories: Histories
    result: Learned
    exported: ExportedModels
    registers: dict[str, str]  # of energy fed in, by meter


def _write(
    out: Path,
    parts: Sequence[_Part],
    choices: ZoneChoices,
    begins: int | None,
    season: tuple[int, ...],
) -> list[Path]:
    """theta.json; of private models zone.toml, of pooled ones service.toml with a key.

    No evaluation figure affects them.
    """
    import numpy as np

    from hushgrid.files.results import save_model, write_text
    from hushgrid.learning.export import ZoneSettings, groups_of, usual_wh, zone_text
    from hushgrid.learning.habits import model_of

    by_part = [groups_of(part.result, part.exported) for part in parts]
    groups = [group for part_groups in by_part for group in part_groups]
    chain_of = np.repeat(np.arange(len(groups)), [len(names) for _, names in groups])
    model = model_of([group.chain for group, _ in groups], chain_of, f"{choices.zone} learned")
    paths = [save_model(out / "theta.json", model)]
    result, exported = parts[0].result, parts[0].exported
    first = _first_interval(max(part.result.ends for part in parts), result.seconds, begins)
    if exported.provenance == "pooled":
        ((public, meters),) = groups
        return [
            *paths,
            *_service_files(out, _pooled(parts[0], public, meters, choices, model, season), first),
        ]
    offers = [
        ZoneSettings(
            zone=choices.zone,
            seconds=result.seconds,
            time_zone=choices.time_zone,
            bound=part.exported.bound,
            export=part.exported.export,
            registers=part.registers,
            months=season,
            seasons=result.seasons,
            bound_by=part.exported.bound_by,
            # who could be fitted is a secret of the homes; how many there are is not
            homes=sum(len(part.result.ids) for part in parts),
            epsilon=max(part.exported.epsilon for part in parts),
            law=", ".join(dict.fromkeys(part.result.family for part in parts)),
            prior=result.habits,
            days=result.terms.days,
            usual=usual_wh(choices.usual, result.seconds),
        )
        for part in parts
    ]
    more = list(zip(offers[1:], by_part[1:], strict=True))
    return [*paths, write_text(out / "zone.toml", zone_text(offers[0], by_part[0], more))]


def _pooled(
    part: _Part,
    public: PublishedGroup,
    meters: Sequence[str],
    choices: ZoneChoices,
    model: OccupancyModel,
    season: tuple[int, ...],
) -> NewZone:
    """The zone of a pooled model; laws where the noise of the pool leaves them good for something.

    All of it is public, or comes from noisy sums.
    """
    from hushgrid.curator.curator import utc
    from hushgrid.learning.export import drowned, law_lines, usual_wh
    from hushgrid.operate.template import ModelSource, NewZone

    result, exported = part.result, part.exported
    homes = len(result.ids)
    return NewZone(
        homes=homes,
        id=choices.zone,
        time_zone=choices.time_zone,
        seconds=result.seconds,
        usual=usual_wh(choices.usual, result.seconds),
        bound=exported.bound,
        bound_by=exported.bound_by,
        meters=tuple(meters),
        models=(ModelSource("theta.json", "pooled, by hushgrid learn"),),
        learned={
            "provenance": exported.provenance,
            "homes": homes,
            "epsilon": exported.epsilon,
            "digest": model.digest,
            "first_reading": utc(result.begins),
            "last_reading": utc(result.ends),
            **({"months": list(season)} if season else {}),
            **({"seasons": [list(months) for months in result.seasons]} if result.seasons else {}),
        },
        laws=() if drowned(homes, choices.pool_budget or 0.0) else tuple(law_lines(public)),
    )


def _service_files(out: Path, zone: NewZone, begins: datetime) -> list[Path]:
    """service.toml, and its key where there is none yet."""
    from hushgrid.files.results import write_text
    from hushgrid.operate.template import KEY_FILE, new_file, planned_errors
    from hushgrid.stores.ledger.writer import create

    text = new_file(int(begins.timestamp()), zone, planned_errors(zone))
    paths, key = [write_text(out / "service.toml", text)], out / KEY_FILE
    if not key.exists():
        create(key)
        paths.append(key)
    return paths


def _first_interval(ends: int, seconds: int, begins: int | None) -> datetime:
    """First interval of a service: the given one, else today, or the day after the readings."""
    if begins is not None:
        return datetime.fromtimestamp(begins // seconds * seconds, UTC)
    today = int(datetime.now(UTC).timestamp()) // DAY * DAY
    return datetime.fromtimestamp(max(today, -(-ends // DAY) * DAY), UTC)


def _draw(out: Path, parts: Sequence[_Part], values: dict[str, Any]) -> list[Path]:
    """Figures of chains, laws and decoded days, and a page with all of them."""
    import numpy as np

    from hushgrid.files.results import save_figures
    from hushgrid.learning.em import posterior, select_homes
    from hushgrid.learning.histories import clamped
    from hushgrid.report.learn import chain_figure, law_figure, learned_prose

    public = tuple(group for part in parts for group in part.exported.public)
    figures = {"transitions": chain_figure(public, parts[0].result.seconds)}
    secret = []
    for number, (histories, result, exported, _) in enumerate(parts, 1):
        kind = "" if number == 1 else f"-{number}"
        sample = np.unique(np.linspace(0, len(result.usable) - 1, 3).astype(int))
        usable = clamped(histories.homes(result.usable[sample]))
        post = posterior(usable.wh, select_homes(result.fits, sample))
        figures[f"laws{kind}"] = law_figure(exported.public, exported.bound, exported.export)
        figures[f"days{kind}"] = example_days(usable, post)
        secret.append(f"days{kind}")
    title = f"Learned zone {values['zone']}"
    page = common.write_page(out / "report.html", title, learned_prose(values), figures, secret)
    return [*save_figures(out, figures), page]


def example_days(histories: Histories, post: Floats) -> Figure:
    """Figure of two days of some homes with the probability that they are occupied.

    Args:
        histories: Histories of the homes.
        post: (homes, steps) probability of occupancy.

    Returns:
        The figure.
    """
    from hushgrid.report.learn import days_figure

    two_days = _two_days(histories)
    return days_figure(
        histories.wh[:, two_days] - histories.offset,
        post[:, two_days],
        histories.local_time[two_days],
        histories.seconds,
        histories.ids,
        None if histories.labels is None else histories.labels[:, two_days],
    )


def _two_days(histories: Histories) -> slice:
    """Two days from a local midnight on, of which most is known; the middle of all such."""
    import numpy as np

    steps = histories.steps_a_day
    midnights = np.flatnonzero(histories.local_time % DAY < histories.seconds)
    midnights = midnights[midnights + 2 * steps <= histories.wh.shape[1]]
    if not midnights.size:
        return slice(0, min(2 * steps, histories.wh.shape[1]))
    worth = np.isfinite(histories.wh).mean(axis=0)
    if histories.labels is not None:
        worth += (histories.labels >= 0).mean(axis=0)
    worth_before = np.cumsum(np.pad(worth, (1, 0)))
    worth_of_days = worth_before[midnights + 2 * steps] - worth_before[midnights]
    best = midnights[worth_of_days >= worth_of_days.max() - 1e-9]
    return slice(int(best[len(best) // 2]), int(best[len(best) // 2]) + 2 * steps)


def learn(
    out: Annotated[
        Path, typer.Option(help="Folder for the zone's file and all that belongs to it.")
    ],
    readings: Annotated[
        Path | None, typer.Option(help="Histories: csv, json, ndjson, arrow, parquet, xml.")
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="CSV or Parquet of chains, or the word richardsonpy.")
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="Without readings: houses by residents, such as 1:30,2:40.")
    ] = None,
    labels: common.Labels = None,
    mapping: common.Columns = "canonical",
    time_zone: Annotated[str, typer.Option(help="Zone of the times of day.")] = "UTC",
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
        Path | None,
        typer.Option(help="Meters of the zone, one a line; else all of the readings, or made up."),
    ] = None,
    pool_budget: Annotated[
        float | None,
        typer.Option(
            help="Publish one pooled model at the cost of this epsilon; needs --from, --to,"
            " --interval and --meters."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with a [learn] table: further choices.")
    ] = None,
    json: common.Json = None,
) -> None:
    """Learn Theta, f and bounds from histories or a survey, with the trust they deserve.

    Choices that most runs leave as they are stand in the [learn] table of a file (docs/learn.md).

    Example: hushgrid learn --readings readings.parquet --out learned --time-zone Europe/Zurich

    \f
    Args: see the help of each option.
    """
    from hushgrid.errors import IntakeError
    from hushgrid.files.learn_file import load_learn
    from hushgrid.files.models import save_learned
    from hushgrid.files.readings import (
        read_habits,
        read_histories,
        read_meters,
        read_roofs,
        rows_independent,
    )
    from hushgrid.files.results import make_folder
    from hushgrid.learning.export import (
        ZoneChoices,
        check_rows_independent,
        export_models,
        operator_figures,
    )
    from hushgrid.learning.histories import netted, split_roofs
    from hushgrid.learning.learner import LearningTerms
    from hushgrid.learning.learner import learn as learned
    from hushgrid.mechanism.noise import SecureNoise
    from hushgrid.report.learn import learned_content, learned_prose, learned_values, zone_values

    table = load_learn(config)
    choices = ZoneChoices(
        table.zone,
        time_zone,
        table.bound,
        table.bound_budget,
        pool_budget,
        table.usual,
    )
    if table.figures:
        common.require("matplotlib", "plot")
    noise = SecureNoise()  # before any work: it says what it lacks
    seconds, span = _seconds(interval), (("from", begin), ("to", end))
    first, last = (None if text is None else common.instant(word, text) for word, text in span)
    if readings is None:
        seconds = seconds or 900
        with common.progress("making the models of the survey", None):
            values, chains, paths = _zone_from_survey(
                out, survey, mix, seconds, time_zone, table, meters
            )
        if table.figures:
            paths += _draw_survey(out, values, chains, seconds)
        common.echo(_survey_prose(values), json)
        paths += common.write_json(values, json)
        common.echo_written(paths, json, "\n")
        return
    options = {"--from": first, "--to": last, "--interval": seconds, "--meters": meters}
    _need_public(choices, [name for name, value in options.items() if value is None])
    if choices.pool_budget is not None or choices.bound_budget is not None:
        check_rows_independent(choices, rows_independent(readings, mapping))
    season, export = tuple(sorted(set(table.months))), table.export
    if season and table.seasons:
        raise IntakeError("months and seasons are both set; give one of them.")
    panels = {} if table.roofs is None else read_roofs(table.roofs)
    _check_panels(panels, export, pool_budget)
    registers = {name: roof.export_meter for name, roof in panels.items() if roof.export_meter}
    second = [*registers.values(), *filter(None, (o.production_meter for o in panels.values()))]
    make_folder(out)
    with common.stages() as watch:
        histories = read_histories(
            readings, mapping=mapping, time_zone=time_zone, seconds=seconds, begins=first,
            ends=last, meters=None if meters is None else [*read_meters(meters), *second],
            labels=labels, watch=watch, registers=registers, months=season,
            seasons=table.seasons,
        )  # fmt: skip
        kinds = split_roofs(replace(histories, export=export or 0), panels)
        kinds = tuple(netted(kind) for kind in kinds) if table.net_laws else kinds
        habits = read_habits(survey, table.residents, histories.seconds)
        pooled = pool_budget is not None
        terms = LearningTerms(
            law="lognormal" if table.law == "auto" and pooled and not export else table.law,
            days=table.days,
            prototypes=table.prototypes,
            groups=_groups(table.groups, public=pooled),
        )
        results = []
        for kind in kinds:
            # of homes of a table, net readings have histograms, whatever the others have
            net = bool(panels and kind.export and kind.solar is None)
            kind_terms = replace(terms, law="auto") if net else terms
            results.append(learned(kind, habits, kind_terms, watch=watch, pooled=pooled))
        watch("making the models that are written", None)
        parts = [
            _Part(
                kind,
                result,
                export_models(result, kind, choices, noise),
                {name: registers[name] for name in kind.ids if name in registers},
            )
            for kind, result in zip(kinds, results, strict=True)
        ]
        # before any figure: none of them may decide whether a pooled model is published
        paths = _write(out, parts, choices, table.begins, season)
        home_values, contents = [], []
        tick = watch("judging them on days held out", len(parts))
        for kind, result, exported, _ in parts:
            judged = operator_figures(result, exported, kind, habits)
            home_values.append(learned_values(result, exported, judged, choices, kind))
            home_values[-1] |= {"months": list(season)} if season else {}
            contents.append(learned_content(result, exported, judged, home_values[-1]))
            tick()
            if names := [name for name in kind.ids if name in panels]:
                pairs = {n: (panels[n].export_meter, panels[n].production_meter) for n in names}
                contents[-1]["roofs"] = pairs
        values = home_values[0] if len(home_values) == 1 else zone_values(home_values)
        paths.append(save_learned(out, contents))
        if table.figures:
            watch("drawing", None)
            paths += _draw(out, parts, values)
        values["verdict"] = None
        if parts[0].exported.provenance != "private":
            watch("planning the service", None)
            values["verdict"] = _verdict(out, [scores["held_out"] for scores in home_values])
    advice = values["verdict"]["sentence"] if values["verdict"] else _FOR_EXPERIMENTS
    common.echo(f"{learned_prose(values)}\n\n{advice}", json)
    paths += common.write_json(values, json)
    common.echo_written(paths, json, "\n")


_FOR_EXPERIMENTS = (
    "This model is for experiments (hushgrid plan, simulate, compare): hushgrid check and serve"
    " refuse it. For a service learn with --pool-budget, or from a survey alone."
)


def _check_panels(panels: dict[str, Roof], export: int | None, pool_budget: float | None) -> None:
    """Refuse options that do not go with a table of homes with panels."""
    from hushgrid.errors import PolicyError

    if panels and export is not None:
        raise PolicyError(
            f"export is {export} and roofs are set; give the export limits of homes in one of them."
        )
    if panels and pool_budget is not None:
        raise PolicyError(
            f"pool-budget is {pool_budget:g} and roofs are set, but noisy sums are of readings from"
            " 0 Wh on; learn without a pool budget, for experiments."
        )


def _verdict(out: Path, held_out: Sequence[dict[str, Any] | None] = ()) -> dict[str, Any]:
    """What the written service is worth as it is, for the operator alone.

    A model is granted the error that it had on the days held out, where that is more than usual.
    """
    from hushgrid.curator.promise import outlook
    from hushgrid.files.service_file import load_deployment
    from hushgrid.report.outlook import verdict

    (zone,) = load_deployment(out / "service.toml").zones
    forecast = outlook(zone)
    rho = max([forecast.rho, *(scores["forecast_error"] for scores in held_out if scores)])
    if zone.policy.estimator != "releases":  # in which no model has a part
        forecast = replace(forecast, rho=rho)
    return verdict(forecast, len(zone.meters), zone.accept_error)


def _groups(number: str | int, *, public: bool) -> tuple[int, ...]:
    """Slot groups a day to try; of a public model one number, which no reading decides."""
    from hushgrid.learning.learner import GROUPS

    if number != "auto":
        return (int(number),)
    # noise on more sums costs a pool more than they say, below a hundred thousand homes
    return GROUPS[:1] if public else GROUPS


def _need_public(choices: ZoneChoices, missing: list[str]) -> None:
    """Refuse a budget where readings would decide what no noise covers."""
    from hushgrid.errors import PolicyError

    if missing and (choices.pool_budget is not None or choices.bound_budget is not None):
        word = "pool-budget" if choices.pool_budget is not None else "learn.bound_budget"
        raise PolicyError(
            f"{word} is set but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not:"
            " taken from readings, they would publish without noise what one home did; give"
            " --from, --to, --interval and --meters."
        )


def _seconds(interval: str | None) -> int | None:
    """A step in seconds."""
    from hushgrid.errors import IntakeError
    from hushgrid.files.toml import seconds_of

    if interval is None:
        return None
    seconds = seconds_of(int(interval) if interval.isdecimal() else interval)
    if seconds is None or seconds < 60:
        raise IntakeError(
            f"interval is {interval!r}; give 60 seconds or more, such as 1800 or PT30M."
        )
    return seconds
