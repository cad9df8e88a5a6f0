"""The command `replay`: what private prices would have cost the homes of a file of readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.files.layouts import HomesRead
    from hushgrid.lab.datasets import Real, Recorded
    from hushgrid.lab.evidence import Contents, PlayedTerms, ReplayEvidence
    from hushgrid.lab.replay import Played, ReplayPromise
    from hushgrid.model.zone import Tariff

USUAL = 3300.0  # what a home uses in a year by published figures [kWh], as `compare` takes it
CONTRACT_W = 15_000  # of a home, where nothing is given [W], as `compare` takes it
_DAY = 86_400  # [s]
_FORMAT = 1  # of parts of a run; raised where equal settings give other figures than before


class _Setting(NamedTuple):
    """What is asked for, the same for the recorded homes and for synthetic ones."""

    bound: int | Sequence[int]
    bound_from: str
    usual: float
    usual_from: str
    tariff: Tariff | None
    tariff_from: str
    train: int | None
    draws: int
    seed: int
    quick: bool
    jobs: int | None


def replay(
    readings: Annotated[
        list[Path],
        typer.Argument(metavar="READINGS...", help="Files of any layout, or folders of them."),
    ],
    tariff: Annotated[
        Path | None,
        typer.Option(help="TOML with a table [tariff]; else scaled to the load, as compare does."),
    ] = None,
    bound: Annotated[
        int | None,
        typer.Option(min=1, help="Contract bound of a home [Wh an interval]; else 15 kW."),
    ] = None,
    contracts: Annotated[
        Path | None, typer.Option(help="CSV of contracts: meter_id, and kw or bound [Wh].")
    ] = None,
    usual: Annotated[
        float | None,
        typer.Option(
            min=1, help="What a home uses in a year by published figures [kWh]; else 3300."
        ),
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Of times without an offset, and where days begin at 0:00.")
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="The layout, where it is not found by itself."),
    ] = None,
    unit: Annotated[
        Literal["Wh", "kWh"] | None, typer.Option(help="Unit of values, where no name has it.")
    ] = None,
    interval: Annotated[
        int | None, typer.Option(min=60, help="Step [s]; else that of most readings.")
    ] = None,
    train_days: Annotated[
        int | None, typer.Option(min=7, help="First days, which are not judged; else 90.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, max=20, help="Draws of noise.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="One draw, and ε = 1 alone.")] = False,
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Run it again on synthetic homes of public statistics, for a page that may be"
            " published.",
        ),
    ] = False,
    dpia: Annotated[
        Path | None,
        typer.Option(help="Write the text of a data-protection impact assessment (Markdown)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Promises played at once; else one a core.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder; a stopped run goes on from it.")] = Path(
        "out/replay"
    ),
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Play a year of readings at private prices: the page that decides, for one zone.

    The layout, interval, homes and gaps are found from the files. What it writes is computed from
    private readings and is for the operator, except for what --public adds.

    Example: hushgrid replay readings-2025.csv --time-zone Europe/London --out out/replay

    \f
    Args: see the help of each option.

    Raises:
        PlanError: If options contradict each other.
        IntakeError: If readings are such that nothing can be said.
    """
    from hushgrid.errors import IntakeError, PlanError
    from hushgrid.files.layouts import read_homes
    from hushgrid.files.results import make_folder, write_text
    from hushgrid.files.zone_file import load_tariff
    from hushgrid.lab.conclusions import check_homes, too_large
    from hushgrid.lab.datasets import real_days
    from hushgrid.report.dpia import dpia_text
    from hushgrid.report.replay import replay_prose

    common.require("matplotlib", "plot")
    if bound is not None and contracts is not None:
        raise PlanError(f"bound is {bound} and contracts is {contracts}; give one of them.")
    if dpia is not None and (out / "public").resolve() in dpia.resolve().parents:
        raise PlanError(f"dpia is {dpia}, in the folder of what may be published; give another.")
    zone_tariff = None if tariff is None else load_tariff(tariff)
    with common.stages() as watch:
        homes = read_homes(
            readings, mapping=mapping, time_zone=time_zone, seconds=interval,
            unit=None if unit is None else _UNITS[unit], watch=watch,
        )  # fmt: skip
    check_homes(homes.histories)
    large = too_large(homes.histories)
    if large.any():
        homes = homes._replace(histories=homes.histories.homes((~large).nonzero()[0]))
    left_out = {"values that no home can have": int(large.sum())} if large.any() else {}
    real, seconds = real_days(homes.histories), homes.histories.seconds
    if not len(real.readings):
        raise IntakeError(
            f"readings has no day on which some home has a value in every step of {seconds} s; give"
            " --interval the length of its steps."
        )
    bounds, bound_from = _bounds(bound, contracts, real.meters, seconds)
    setting = _Setting(
        bounds, bound_from, USUAL if usual is None else usual,
        "as published for a home of Great Britain" if usual is None else "given",
        zone_tariff,
        "scaled so that the mean load of the first days costs 0.25 above the price at no load"
        if tariff is None else f"table [tariff] of {tariff.name}",
        train_days, 1 if quick else draws, seed, quick, jobs,
    )  # fmt: skip
    make_folder(out)
    wh = homes.histories.wh
    evidence = _run(
        real, wh, lambda days: _contents(homes, real, days, left_out), setting, out, "private"
    )
    paths = _write(evidence, out, homes.time_zone, tariff)
    if dpia is not None:
        paths.append(write_text(dpia, dpia_text(evidence), private=True))
    values = _json(evidence)
    if public:
        synthetic, made = _synthetic(real, setting, seconds)
        published = _run(
            synthetic, _rows(synthetic), made, setting._replace(bound=_largest(bounds)),
            out / "public", "synthetic",
        )  # fmt: skip
        paths += _write(published, out / "public", "UTC", tariff)
        if dpia is not None:
            text = dpia_text(published)
            paths.append(write_text(out / "public" / dpia.name, text, private=True))
    paths += common.write_json(values, json, private=True)
    common.echo(replay_prose(evidence), json)
    common.echo_written(paths, json)


_UNITS: Mapping[str, Literal["wh", "kwh"]] = {"Wh": "wh", "kWh": "kwh"}


def _largest(bounds: int | Sequence[int]) -> int:
    return bounds if isinstance(bounds, int) else max(bounds)


def _bounds(
    bound: int | None, contracts: Path | None, meters: Sequence[str], seconds: int
) -> tuple[int | Sequence[int], str]:
    """Contract bounds [Wh a step], and where they are from."""
    if contracts is not None:
        return _of_contracts(contracts, meters, seconds), f"the largest of {contracts.name}"
    if bound is not None:
        return bound, "given"
    return round(CONTRACT_W * seconds / 3600), "15 kW, as nothing was given"


def _of_contracts(path: Path, meters: Sequence[str], seconds: int) -> list[int]:
    """The bound of each meter [Wh a step]."""
    import csv

    from hushgrid.errors import FileError
    from hushgrid.files.results import read_text

    rows = csv.DictReader(read_text(path).splitlines())
    names = {name.strip().casefold(): name for name in rows.fieldnames or ()}
    column = names.get("bound") or names.get("kw")
    if "meter_id" not in names or column is None:
        raise FileError(f"{path} lacks a column meter_id, or one of kw and bound [Wh]; add it.")
    factor = 1000 * seconds / 3600 if column == names.get("kw") else 1.0
    bounds = dict[str, int]()
    for number, row in enumerate(rows, 2):
        try:
            bounds[row[names["meter_id"]].strip()] = round(float(row[column]) * factor)
        except (TypeError, ValueError):
            raise FileError(f"{path} has no number in line {number}; give {column}.") from None
    lacking = sum(bounds.get(meter, 0) < 1 for meter in meters)
    if lacking:
        raise FileError(
            f"{path} has no contract above 0 for {lacking} of {len(meters)} homes; add them, or"
            " give --bound."
        )
    return [bounds[meter] for meter in meters]


# ---- the run


def _run(
    real: Real,
    wh: Any,
    contents: Callable[[int], Contents],
    setting: _Setting,
    out: Path,
    kind: Literal["private", "synthetic"],
) -> ReplayEvidence:
    """Play all promises on some homes, and conclude."""
    from hushgrid.lab.findings import JudgedDays, evidence_from
    from hushgrid.lab.replay import play_others, promises, source_of

    with common.progress("learning from the first days", None):
        source = source_of(
            real, bound=setting.bound, usual=setting.usual, tariff=setting.tariff,
            train=setting.train,
        )  # fmt: skip
    chosen = promises(quick=setting.quick)
    days = len(source.date) + (0 if source.before is None else len(source.before.date))
    steps = days * source.horizon * setting.draws * len(chosen)
    jobs = min(setting.jobs or _cores(), len(chosen))
    common.say_duration(60 + 0.0025 * steps / jobs, ", and the same command goes on")
    played = _play_all(source, chosen, setting, out, jobs)
    with common.progress("other prices, days", len(source.date)) as tick:
        others = play_others(source, tick=tick)
    with common.progress("bills and attacks, promises", 2 * len(chosen) + 1) as tick:
        judged, terms = JudgedDays.of(source), _terms(source, setting)
        return evidence_from(
            kind, contents(len(source.date)), terms, judged, played, others, wh, tick=tick
        )


def _terms(source: Recorded, setting: _Setting) -> PlayedTerms:
    from hushgrid.lab.evidence import PlayedTerms

    tariff = source.scenarios[0].tariff
    words = f"{tariff.alpha:.4g} for each kWh of load in the interval, and {tariff.beta:g}"
    if tariff.curve is not None:
        words = "a curve of prices by load"
    return PlayedTerms(
        _largest(setting.bound), setting.bound_from, setting.usual, setting.usual_from, words,
        setting.tariff_from, tariff.alpha, tariff.beta, "", setting.draws, setting.seed,
    )  # fmt: skip


def _cores() -> int:
    import os

    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _play_all(
    source: Recorded, chosen: Sequence[ReplayPromise], setting: _Setting, out: Path, jobs: int
) -> list[Played]:
    """All promises, those that an earlier run has finished from its folder."""
    folder = out / f".parts-{_digest(source, setting)[:16]}"
    parts = {promise: _stored(folder / f"{promise.name}.npz", promise) for promise in chosen}
    missing = [promise for promise, played in parts.items() if played is None]
    days = len(source.date) * setting.draws
    with common.progress("promises, days", days * len(chosen)) as tick:
        tick(days * (len(chosen) - len(missing)))
        for played in _played(source, missing, setting, jobs, tick):
            _store(folder / f"{played.promise.name}.npz", played)
            parts[played.promise] = played
    return [played for played in parts.values() if played is not None]


def _digest(source: Recorded, setting: _Setting) -> str:
    from hashlib import sha256

    from hushgrid import __version__

    before = "" if source.before is None else source.before.digest
    parts = (_FORMAT, __version__, source.digest, before, source.published, setting.draws,
             setting.seed)  # fmt: skip
    return sha256(repr(parts).encode()).hexdigest()


def _played(
    source: Recorded,
    chosen: Sequence[ReplayPromise],
    setting: _Setting,
    jobs: int,
    tick: Callable[..., None],
) -> Iterator[Played]:
    """Each promise once it is played; in processes of their own where there are several."""
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
    from multiprocessing import get_context

    from hushgrid.lab.replay import play

    if jobs == 1 or len(chosen) < 2:
        for promise in chosen:
            yield play(source, promise, draws=setting.draws, seed=setting.seed, tick=tick)
        return
    context = get_context("spawn")
    counter = context.Value("q", 0)
    terms = (source, setting.draws, setting.seed, counter)
    with ProcessPoolExecutor(jobs, context, _begin, terms) as pool:
        waiting, seen = {pool.submit(_play_one, promise) for promise in chosen}, 0
        try:
            while waiting:
                done, waiting = wait(waiting, 1.0, FIRST_COMPLETED)
                now = counter.value
                tick(now - seen)
                seen = now
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker: list[Any] = []  # of a process that plays promises: the days, draws, seed and counter


def _begin(*terms: Any) -> None:
    _worker[:] = terms


def _play_one(promise: ReplayPromise) -> Played:
    import os
    from multiprocessing import parent_process

    from hushgrid.lab.replay import play

    source, draws, seed, counter = _worker
    parent = parent_process()

    def tick() -> None:
        if parent is not None and not parent.is_alive():  # killed: nobody waits for the result
            os._exit(1)
        with counter.get_lock():
            counter.value += 1

    return play(source, promise, draws=draws, seed=seed, tick=tick)


def _store(path: Path, played: Played) -> None:
    """Keep what was played: prices that were published, no reading."""
    import io

    import numpy as np

    from hushgrid.files.results import write_text

    arrays = {
        f"{part}_{k}": values
        for k, published in enumerate(played.draws)
        for part, values in published._asdict().items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, cut_at=played.cut_at, lengths=np.array(played.lengths, np.int64),
        scale=played.scale, refusal=np.array(played.refusal), **arrays,
    )  # fmt: skip
    write_text(path, buffer.getvalue(), private=True)


def _stored(path: Path, promise: ReplayPromise) -> Played | None:
    """What an earlier run played; None where there is no whole file of it."""
    from zipfile import BadZipFile

    import numpy as np

    from hushgrid.lab.replay import Played, PublishedLoads

    try:
        with np.load(path, allow_pickle=False) as file:
            draws = sum(name.startswith("estimated_") for name in file)
            years = [PublishedLoads(file[f"estimated_{k}"], file[f"ahead_{k}"])
                     for k in range(draws)]  # fmt: skip
            return Played(
                promise, tuple(years),
                file["cut_at"], tuple(file["lengths"].tolist()), file["scale"],
                str(file["refusal"]),
            )  # fmt: skip
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


# ---- what is said of the files


def _contents(homes: HomesRead, real: Real, judged: int, left_out: Mapping[str, int]) -> Contents:
    from hushgrid.lab.conclusions import mean_use
    from hushgrid.lab.evidence import Contents, SourceFile
    from hushgrid.lab.replay import calendar_days

    days = calendar_days(real.date)
    files = tuple(SourceFile(file.path.name, file.sha256, file.layout.name) for file in homes.files)
    return Contents(
        files, homes.histories.seconds, len(real.meters), left_out, len(real.date), judged,
        str(days[0]), str(days[-1]), float((real.readings < 0).mean()), homes.time_zone,
        mean_use(homes.histories.wh, homes.histories.seconds), _notes(homes, real),
    )  # fmt: skip


def _notes(homes: HomesRead, real: Real) -> tuple[str, ...]:
    span = int(real.date[-1] - real.date[0]) + 1
    gone = span - len(real.date)
    notes = [*homes.notes]
    if gone:
        notes.append(
            f"{gone} days within the period are left out: in some interval no home reported, or"
            " clocks went forward or back."
        )
    return tuple(notes)


def _synthetic(
    real: Real, setting: _Setting, seconds: int
) -> tuple[Real, Callable[[int], Contents]]:
    """Synthetic homes, as many as the zone has, and what is said of them."""
    from hushgrid.lab.conclusions import mean_use
    from hushgrid.lab.evidence import Contents
    from hushgrid.lab.replay import calendar_days, synthetic_days

    homes, span = len(real.meters), int(real.date[-1] - real.date[0]) + 1
    made = synthetic_days(
        homes, days=min(span, 365), seconds=seconds, usual=setting.usual,
        bound=_largest(setting.bound), seed=setting.seed,
    )  # fmt: skip
    days = calendar_days(made.date)
    notes = (
        "Homes are drawn from the published load shape and from how homes and readings spread"
        " about it. Taken from the zone are its number of homes, interval, contract bound and"
        " tariff, and the length of the period, which are public.",
        "Synthetic homes share no weather and no holidays, so real zones are harder to follow.",
    )
    mean = mean_use(_rows(made), seconds)

    def contents(judged: int) -> Contents:
        return Contents(
            (), seconds, homes, {}, len(made.date), judged, str(days[0]), str(days[-1]), 0.0,
            "UTC", mean, notes,
        )  # fmt: skip

    return made, contents


def _rows(real: Real) -> Any:
    """(homes, steps): readings [Wh], NaN where missing."""
    import numpy as np

    flat = real.readings.reshape(-1, real.readings.shape[2]).T.astype(np.float64)
    return np.where(flat < 0, np.nan, flat)


# ---- what is written


def _json(evidence: ReplayEvidence) -> dict[str, Any]:
    from hushgrid.lab.evidence import evidence_json

    return evidence_json(evidence)


def _write(evidence: ReplayEvidence, out: Path, time_zone: str, tariff: Path | None) -> list[Path]:
    """The page, the figures, and a service file where terms are recommended; for the owner."""
    from hushgrid.files.results import json_text, write_text
    from hushgrid.report.replay import replay_page

    paths = [
        write_text(out / "replay.html", replay_page(evidence), private=True),
        write_text(out / "evidence.json", json_text(_json(evidence)), private=True),
    ]
    service = out / "service.toml"
    if evidence.recommended.window is not None:
        text = _service_file(evidence, time_zone, tariff)
        paths.append(write_text(service, text, private=True))
    else:
        service.unlink(missing_ok=True)  # of an earlier run
    return paths


def _service_file(evidence: ReplayEvidence, time_zone: str, tariff: Path | None) -> str:
    """A service file of the recommended terms, with what could be written without the readings."""
    import re
    from datetime import UTC, datetime

    from hushgrid.files.results import read_text
    from hushgrid.operate.template import NewZone, new_file

    contents, terms, chosen = evidence.found, evidence.terms, evidence.recommended
    assert chosen.window is not None
    assert chosen.epsilon is not None
    step = contents.interval
    zone = NewZone(
        contents.homes, "my-zone", time_zone, step,
        round(1000 * terms.usual * step / (365 * _DAY), 1), terms.bound, terms.bound_from,
        prefix="home-",
    )  # fmt: skip
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    text = new_file(int(today.timestamp()), zone, promise=(chosen.window, chosen.epsilon))
    if tariff is not None:
        table = re.search(r"^\[tariff\][^\n]*\n(?:(?!\[(?!tariff)).*\n?)*", read_text(tariff), re.M)
        if table is not None:
            own = table[0].rstrip() + "\n\n"
            text = re.sub(r"^\[tariff\]\n(?:(?!\[).*\n)*", lambda _: own, text, flags=re.M)
    return (
        "# Promise, window, count of homes, contract bound, published use and tariff: nothing else"
        " of a replay is in here.\n# Put the ids of your meters below [[houses]].\n" + text
    )
