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

    given = load_survey(survey)
    try:
        counts = {int(n): int(count) for n, count in (part.split(":") for part in mix.split(","))}
    except ValueError:
        raise ModelError(f"mix is {mix!r}; give houses by residents such as 1:30,2:40.") from None
    if not all(count > 0 for count in counts.values()):
        raise ModelError(f"mix is {mix!r}; give at least one house for each number of residents.")
    definitions = {key[2] for key in given.chances}
    return given, counts, "present" if "present" in definitions else "active"


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
    given, counts, definition = read_mix(survey, mix or "2:20")
    houses = [n for n, count in counts.items() for _ in range(count)]
    ids = () if listed is None else tuple(read_meters(listed))
    if ids and len(ids) != len(houses):
        raise FileError(
            f"meters has {len(ids)} meters but mix has {len(houses)} houses; give a mix of as many."
        )
    models = survey_models(given, houses, seconds=seconds, definition=definition)
    raw = survey_models(given, houses, seconds=seconds, definition=definition, pseudo_count=0.0)
    make_folder(out)
    sources, written = survey_files(out, models)
    made = NewZone(
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
    written += _service_files(out, made, _first_interval(0, seconds, table.begins))
    groups = [
        PublishedGroup(
            survey_chain(given, n, seconds=seconds, definition=definition), {}, (), (0,), count
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
    return values, tuple(groups), written


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
    sources, written = list[ModelSource](), list[Path]()
    for number, model in enumerate(models, 1):
        name = "theta.json" if number == 1 else f"theta{number}.json"
        written.append(save_model(folder / name, model))
        sources.append(ModelSource(name, f"public, of the survey {model.name}, {smoothed}"))
    return tuple(sources), written


def _by_contract(bound: int | None) -> str:
    return "a 10 kW contract, assumed" if bound is None else "given as the contract's"


def _draw_survey(
    out: Path, values: dict[str, Any], public: tuple[PublishedGroup, ...], seconds: int
) -> list[Path]:
    """A figure of the chains, and a page with it; there are no laws and no days to draw."""
    from hushgrid.files.results import save_figures
    from hushgrid.report.learn import chain_figure

    drawn = {"transitions": chain_figure(public, seconds)}
    title = f"Zone {values['zone']} of a survey"
    page = common.write_page(out / "report.html", title, _survey_prose(values), drawn)
    return [*save_figures(out, drawn), page]


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

    found: Histories
    result: Learned
    made: ExportedModels
    registers: dict[str, str]  # of energy fed in, by meter


def _write(
    out: Path,
    parts: Sequence[_Part],
    asked: ZoneChoices,
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

    by_part = [groups_of(part.result, part.made) for part in parts]
    groups = [group for some in by_part for group in some]
    chain_of = np.repeat(np.arange(len(groups)), [len(names) for _, names in groups])
    model = model_of([one.chain for one, _ in groups], chain_of, f"{asked.zone} learned")
    written = [save_model(out / "theta.json", model)]
    result, made = parts[0].result, parts[0].made
    first = _first_interval(max(one.result.ends for one in parts), result.seconds, begins)
    if made.provenance == "pooled":
        ((public, meters),) = groups
        return [
            *written,
            *_service_files(out, _pooled(parts[0], public, meters, asked, model, season), first),
        ]
    offers = [
        ZoneSettings(
            zone=asked.zone,
            seconds=result.seconds,
            time_zone=asked.time_zone,
            bound=part.made.bound,
            export=part.made.export,
            registers=part.registers,
            months=season,
            seasons=result.seasons,
            bound_by=part.made.bound_by,
            # who could be fitted is a secret of the homes; how many there are is not
            homes=sum(len(one.result.ids) for one in parts),
            epsilon=max(one.made.epsilon for one in parts),
            law=", ".join(dict.fromkeys(one.result.family for one in parts)),
            prior=result.habits,
            days=result.terms.days,
            usual=usual_wh(asked.usual, result.seconds),
        )
        for part in parts
    ]
    more = list(zip(offers[1:], by_part[1:], strict=True))
    return [*written, write_text(out / "zone.toml", zone_text(offers[0], by_part[0], more))]


def _pooled(
    part: _Part,
    public: PublishedGroup,
    meters: Sequence[str],
    asked: ZoneChoices,
    model: OccupancyModel,
    season: tuple[int, ...],
) -> NewZone:
    """The zone of a pooled model; laws where the noise of the pool leaves them good for something.

    All of it is public, or comes from noisy sums.
    """
    from hushgrid.learning.export import drowned, law_lines, usual_wh
    from hushgrid.operate.template import ModelSource, NewZone

    result, made = part.result, part.made
    homes = len(result.ids)
    return NewZone(
        homes=homes,
        id=asked.zone,
        time_zone=asked.time_zone,
        seconds=result.seconds,
        usual=usual_wh(asked.usual, result.seconds),
        bound=made.bound,
        bound_by=made.bound_by,
        meters=tuple(meters),
        models=(ModelSource("theta.json", "pooled, by hushgrid learn"),),
        learned={
            "provenance": made.provenance,
            "homes": homes,
            "epsilon": made.epsilon,
            "digest": model.digest,
            **({"months": list(season)} if season else {}),
            **({"seasons": [list(some) for some in result.seasons]} if result.seasons else {}),
        },
        laws=() if drowned(homes, asked.pool_budget or 0.0) else tuple(law_lines(public)),
    )


def _service_files(out: Path, zone: NewZone, begins: datetime) -> list[Path]:
    """service.toml, and its key where there is none yet."""
    from hushgrid.files.results import write_text
    from hushgrid.operate.template import KEY_FILE, new_file, planned_errors
    from hushgrid.stores.ledger.writer import create

    text = new_file(int(begins.timestamp()), zone, planned_errors(zone))
    written, key = [write_text(out / "service.toml", text)], out / KEY_FILE
    if not key.exists():
        create(key)
        written.append(key)
    return written


def _first_interval(ends: int, seconds: int, asked: int | None) -> datetime:
    """First interval of a service: the given one, else today, or the day after the readings."""
    if asked is not None:
        return datetime.fromtimestamp(asked // seconds * seconds, UTC)
    today = int(datetime.now(UTC).timestamp()) // DAY * DAY
    return datetime.fromtimestamp(max(today, -(-ends // DAY) * DAY), UTC)


def _draw(out: Path, parts: Sequence[_Part], values: dict[str, Any]) -> list[Path]:
    """Figures of chains, laws and decoded days, and a page with all of them."""
    import numpy as np

    from hushgrid.files.results import save_figures
    from hushgrid.learning.em import posterior, select_homes
    from hushgrid.learning.histories import clamped
    from hushgrid.report.learn import chain_figure, law_figure, learned_prose

    public = tuple(group for part in parts for group in part.made.public)
    drawn = {"transitions": chain_figure(public, parts[0].result.seconds)}
    secret = []
    for number, (found, result, made, _) in enumerate(parts, 1):
        kind = "" if number == 1 else f"-{number}"
        some = np.unique(np.linspace(0, len(result.usable) - 1, 3).astype(int))
        usable = clamped(found.homes(result.usable[some]))
        post = posterior(usable.wh, select_homes(result.own, some))
        drawn[f"laws{kind}"] = law_figure(made.public, made.bound, made.export)
        drawn[f"days{kind}"] = example_days(usable, post)
        secret.append(f"days{kind}")
    title = f"Learned zone {values['zone']}"
    page = common.write_page(out / "report.html", title, learned_prose(values), drawn, secret)
    return [*save_figures(out, drawn), page]


def example_days(found: Histories, post: Floats) -> Figure:
    """Figure of two days of some homes with the probability that they are occupied.

    Args:
        found: Histories of the homes.
        post: (homes, steps) probability of occupancy.

    Returns:
        The figure.
    """
    from hushgrid.report.learn import days_figure

    these = _two_days(found)
    return days_figure(
        found.wh[:, these] - found.offset,
        post[:, these],
        found.local_time[these],
        found.seconds,
        found.ids,
        None if found.labels is None else found.labels[:, these],
    )


def _two_days(found: Histories) -> slice:
    """Two days from a local midnight on, of which most is known; the middle of all such."""
    import numpy as np

    steps = found.steps_a_day
    midnights = np.flatnonzero(found.local_time % DAY < found.seconds)
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
        rows_apart,
    )
    from hushgrid.files.results import make_folder
    from hushgrid.learning.export import (
        ZoneChoices,
        check_rows_apart,
        export_models,
        operator_figures,
    )
    from hushgrid.learning.histories import netted, split_roofs
    from hushgrid.learning.learner import LearningTerms
    from hushgrid.learning.learner import learn as learned
    from hushgrid.mechanism.noise import SecureNoise
    from hushgrid.report.learn import learned_content, learned_prose, learned_values, zone_values

    table = load_learn(config)
    asked = ZoneChoices(
        table.zone,
        time_zone,
        table.bound,
        table.bound_budget,
        pool_budget,
        table.usual,
    )
    if table.figures:
        common.require("matplotlib", "plot")
    seconds, span = _seconds(interval), (("from", begin), ("to", end))
    first, last = (None if text is None else common.instant(word, text) for word, text in span)
    if readings is None:
        seconds = seconds or 900
        with common.progress("making the models of the survey", None):
            values, chains, written = _zone_from_survey(
                out, survey, mix, seconds, time_zone, table, meters
            )
        if table.figures:
            written += _draw_survey(out, values, chains, seconds)
        common.echo(_survey_prose(values), json)
        written += common.write_json(values, json)
        common.echo_written(written, json, "\n")
        return
    given = {"--from": first, "--to": last, "--interval": seconds, "--meters": meters}
    _need_public(asked, [name for name, value in given.items() if value is None])
    if asked.pool_budget is not None or asked.bound_budget is not None:
        check_rows_apart(asked, rows_apart(readings, mapping))
    season, export = tuple(sorted(set(table.months))), table.export
    if season and table.seasons:
        raise IntakeError("months and seasons are both set; give one of them.")
    panels = {} if table.roofs is None else read_roofs(table.roofs)
    _check_panels(panels, export, pool_budget)
    registers = {name: one.export_meter for name, one in panels.items() if one.export_meter}
    second = [*registers.values(), *filter(None, (o.production_meter for o in panels.values()))]
    make_folder(out)
    with common.stages() as watch:
        found = read_histories(
            readings, mapping=mapping, time_zone=time_zone, seconds=seconds, begins=first,
            ends=last, meters=None if meters is None else [*read_meters(meters), *second],
            labels=labels, watch=watch, registers=registers, months=season,
            seasons=table.seasons,
        )  # fmt: skip
        kinds = split_roofs(replace(found, export=export or 0), panels)
        kinds = tuple(netted(kind) for kind in kinds) if table.net_laws else kinds
        habits = read_habits(survey, table.residents, found.seconds)
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
            own = replace(terms, law="auto") if net else terms
            results.append(learned(kind, habits, own, watch=watch, pooled=pooled))
        noise = SecureNoise()
        watch("making the models that are written", None)
        parts = [
            _Part(
                kind,
                result,
                export_models(result, kind, asked, noise),
                {name: registers[name] for name in kind.ids if name in registers},
            )
            for kind, result in zip(kinds, results, strict=True)
        ]
        # before any figure: none of them may decide whether a pooled model is published
        written = _write(out, parts, asked, table.begins, season)
        each, contents = [], []
        tick = watch("judging them on days held out", len(parts))
        for kind, result, made, _ in parts:
            judged = operator_figures(result, made, kind, habits)
            each.append(learned_values(result, made, judged, asked, kind))
            each[-1] |= {"months": list(season)} if season else {}
            contents.append(learned_content(result, made, judged, each[-1]))
            tick()
            if some := [name for name in kind.ids if name in panels]:
                pairs = {n: (panels[n].export_meter, panels[n].production_meter) for n in some}
                contents[-1]["roofs"] = pairs
        values = each[0] if len(each) == 1 else zone_values(each)
        written.append(save_learned(out, contents))
        if table.figures:
            watch("drawing", None)
            written += _draw(out, parts, values)
        values["verdict"] = None
        if parts[0].made.provenance != "private":
            watch("planning the service", None)
            values["verdict"] = _verdict(out, [one["held_out"] for one in each])
    advice = values["verdict"]["sentence"] if values["verdict"] else _FOR_EXPERIMENTS
    common.echo(f"{learned_prose(values)}\n\n{advice}", json)
    written += common.write_json(values, json)
    common.echo_written(written, json, "\n")


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


def _verdict(out: Path, held: Sequence[dict[str, Any] | None] = ()) -> dict[str, Any]:
    """What the written service is worth as it is, for the operator alone.

    A model is granted the error that it had on the days held out, where that is more than usual.
    """
    from hushgrid.curator.promise import outlook
    from hushgrid.files.service_file import load_deployment
    from hushgrid.report.promise import verdict

    (zone,) = load_deployment(out / "service.toml").zones
    found = outlook(zone)
    rho = max([found.rho, *(one["forecast_error"] for one in held if one)])
    if zone.policy.estimator != "releases":  # in which no model has a part
        found = replace(found, rho=rho)
    return verdict(found, len(zone.meters), zone.accept_error)


def _groups(asked: str | int, *, public: bool) -> tuple[int, ...]:
    """Slot groups a day to try; of a public model one number, which no reading decides."""
    from hushgrid.learning.learner import GROUPS

    if asked != "auto":
        return (int(asked),)
    # noise on more sums costs a pool more than they say, below a hundred thousand homes
    return GROUPS[:1] if public else GROUPS


def _need_public(asked: ZoneChoices, missing: list[str]) -> None:
    """Refuse a budget where readings would decide what no noise covers."""
    from hushgrid.errors import PolicyError

    if missing and (asked.pool_budget is not None or asked.bound_budget is not None):
        word = "pool-budget" if asked.pool_budget is not None else "learn.bound_budget"
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
    found = seconds_of(int(interval) if interval.isdecimal() else interval)
    if found is None or found < 60:
        raise IntakeError(
            f"interval is {interval!r}; give 60 seconds or more, such as 1800 or PT30M."
        )
    return found
