"""hushgrid learn: occupancy models and consumption laws from histories or a survey.

Writes a zone, a service file that runs it, the model, figures and a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.files.learn_file import LearnTable
    from hushgrid.learning.evaluation import PublishedGroup
    from hushgrid.learning.export import ExportedModels, ZoneChoices
    from hushgrid.learning.habits import Survey
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
) -> tuple[dict[str, Any], list[Path]]:
    """A zone of the survey's chains and of a usual consumption: public.

    Meters have the ids of the list, else made-up ones.

    Returns:
        The figures of the command, and the files written.
    """
    from hushgrid.errors import FileError
    from hushgrid.files.readings import read_meters
    from hushgrid.files.results import make_folder
    from hushgrid.learning.export import CONTRACT_W, usual_wh
    from hushgrid.learning.habits import (
        PSEUDO_COUNT,
        RESPONDENTS,
        slots_unprotected,
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
    return values, paths


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


def _write(
    out: Path,
    result: Learned,
    exported: ExportedModels,
    choices: ZoneChoices,
    begins: int | None,
) -> list[Path]:
    """theta.json; of private models zone.toml, of pooled ones service.toml with a key.

    No evaluation figure affects them.
    """
    import numpy as np

    from hushgrid.files.results import save_model, write_text
    from hushgrid.learning.export import ZoneSettings, groups_of, usual_wh, zone_text
    from hushgrid.learning.habits import model_of

    groups = groups_of(result, exported)
    chain_of = np.repeat(np.arange(len(groups)), [len(names) for _, names in groups])
    model = model_of([group.chain for group, _ in groups], chain_of, f"{choices.zone} learned")
    paths = [save_model(out / "theta.json", model)]
    if exported.provenance == "pooled":
        ((public, meters),) = groups
        zone = _pooled(result, exported, public, meters, choices, model)
        first = _first_interval(result.ends, result.seconds, begins)
        return [*paths, *_service_files(out, zone, first)]
    settings = ZoneSettings(
        zone=choices.zone,
        seconds=result.seconds,
        time_zone=choices.time_zone,
        bound=exported.bound,
        export=exported.export,
        seasons=result.seasons,
        bound_by=exported.bound_by,
        # who could be fitted is a secret of the homes; how many there are is not
        homes=len(result.ids),
        epsilon=exported.epsilon,
        law=result.family,
        prior=result.habits,
        days=result.terms.days,
        usual=usual_wh(choices.usual, result.seconds),
    )
    return [*paths, write_text(out / "zone.toml", zone_text(settings, groups))]


def _pooled(
    result: Learned,
    exported: ExportedModels,
    public: PublishedGroup,
    meters: Sequence[str],
    choices: ZoneChoices,
    model: OccupancyModel,
) -> NewZone:
    """The zone of a pooled model; laws where the noise of the pool leaves them good for something.

    All of it is public, or comes from noisy sums.
    """
    from hushgrid.curator.clock import utc
    from hushgrid.learning.export import drowned, law_lines, usual_wh
    from hushgrid.operate.template import ModelSource, NewZone

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


def _draw(out: Path, result: Learned, exported: ExportedModels, values: Any) -> list[Path]:
    """Figures of chains and laws, and a page with both."""
    from hushgrid.files.results import save_figures
    from hushgrid.report.learn import chain_figure, law_figure, learned_prose

    figures = {
        "transitions": chain_figure(exported.public, result.seconds),
        "laws": law_figure(exported.public, exported.bound, exported.export),
    }
    title = f"Learned zone {values['zone']}"
    page = common.write_page(out / "report.html", title, learned_prose(values), figures)
    return [*save_figures(out, figures), page]


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
    from hushgrid.files.learn_file import load_learn
    from hushgrid.files.models import save_learned
    from hushgrid.files.readings import (
        read_habits,
        read_histories,
        read_meters,
        rows_independent,
    )
    from hushgrid.files.results import make_folder
    from hushgrid.learning.export import (
        ZoneChoices,
        check_rows_independent,
        export_models,
        operator_figures,
    )
    from hushgrid.learning.learner import LearningTerms
    from hushgrid.learning.learner import learn as learned
    from hushgrid.mechanism.noise import SecureNoise
    from hushgrid.report.learn import learned_content, learned_prose, learned_values

    table = load_learn(config)
    choices = ZoneChoices(
        table.zone,
        time_zone,
        table.bound,
        table.bound_budget,
        pool_budget,
        table.usual,
    )
    if table.figures and readings is not None:
        common.require("matplotlib", "plot")
    noise = SecureNoise()  # before any work: it says what it lacks
    seconds = None if interval is None else common.seconds("interval", interval, 60)
    span = (("from", begin), ("to", end))
    first, last = (None if text is None else common.instant(word, text) for word, text in span)
    if readings is None:
        seconds = seconds or 900
        with common.progress("making the models of the survey", None):
            values, paths = _zone_from_survey(out, survey, mix, seconds, time_zone, table, meters)
        common.echo(_survey_prose(values), json)
        paths += common.write_json(values, json)
        common.echo_written(paths, json, "\n")
        return
    options = {"--from": first, "--to": last, "--interval": seconds, "--meters": meters}
    _need_public(choices, [name for name, value in options.items() if value is None])
    if choices.pool_budget is not None or choices.bound_budget is not None:
        check_rows_independent(choices, rows_independent(readings, mapping))
    export = table.export
    make_folder(out)
    with common.stages() as watch:
        histories = read_histories(
            readings, mapping=mapping, time_zone=time_zone, seconds=seconds, begins=first,
            ends=last, meters=None if meters is None else read_meters(meters), labels=labels,
            watch=watch, seasons=table.seasons,
        )  # fmt: skip
        histories = replace(histories, export=export or 0)
        habits = read_habits(survey, table.residents, histories.seconds)
        pooled = pool_budget is not None
        terms = LearningTerms(
            law="lognormal" if table.law == "auto" and pooled and not export else table.law,
            days=table.days,
            prototypes=table.prototypes,
            groups=_groups(table.groups, public=pooled),
        )
        result = learned(histories, habits, terms, watch=watch, pooled=pooled)
        watch("making the models that are written", None)
        exported = export_models(result, histories, choices, noise)
        # before any figure: none of them may decide whether a pooled model is published
        paths = _write(out, result, exported, choices, table.begins)
        watch("judging them on days held out", None)
        judged = operator_figures(result, exported, histories, habits)
        values = learned_values(result, exported, judged, choices, histories)
        paths.append(save_learned(out, learned_content(result, exported, judged, values)))
        if table.figures:
            watch("drawing", None)
            paths += _draw(out, result, exported, values)
        values["verdict"] = None
        if exported.provenance != "private":
            watch("planning the service", None)
            values["verdict"] = _verdict(out, values["held_out"])
    advice = values["verdict"]["sentence"] if values["verdict"] else _FOR_EXPERIMENTS
    common.echo(f"{learned_prose(values)}\n\n{advice}", json)
    paths += common.write_json(values, json)
    common.echo_written(paths, json, "\n")


_FOR_EXPERIMENTS = (
    "This model is for experiments (hushgrid plan, simulate, compare): hushgrid check and serve"
    " refuse it. For a service learn with --pool-budget, or from a survey alone."
)


def _verdict(out: Path, held_out: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the written service is worth as it is, for the operator alone.

    A model is granted the error that it had on the days held out, where that is more than usual.
    """
    from hushgrid.curator.promise import outlook
    from hushgrid.files.service_file import load_deployment
    from hushgrid.report.outlook import verdict

    (zone,) = load_deployment(out / "service.toml").zones
    forecast = outlook(zone)
    rho = max(forecast.rho, held_out["forecast_error"] if held_out else 0.0)
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
