"""hushgrid model: show, compare and validate what hushgrid learn wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hushgrid.learning.evaluation import PublishedGroup
    from hushgrid.learning.histories import Histories, Roof

app = typer.Typer(help="Show, compare and validate learned models.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="What hushgrid learn wrote.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write a page with pictures.")]


@app.command()
def show(model: Folder, html: HtmlFile = None, json: common.Json = None) -> None:
    """Show what a learned model holds, how good it is and how far to trust it.

    Example: hushgrid model show learned --html model.html

    \f
    Args: see the help of each option.
    """
    from hushgrid.files.models import load_learned, published_groups
    from hushgrid.report.learn import learned_prose, zone_values

    contents = load_learned(model)
    left_out = ("prototypes", "homes", "roofs")
    parts = []
    for content in contents:
        part = {key: value for key, value in content.items() if key not in left_out}
        part["prototypes"] = [_summary(group, content) for group in published_groups(content)]
        parts.append(part)
    values = parts[0] if len(parts) == 1 else zone_values(parts)
    prose = learned_prose(values)
    if html is not None:
        from hushgrid.report.learn import chain_figure, law_figure

        common.require("matplotlib", "plot")
        part_groups = [published_groups(content) for content in contents]
        figures = {"transitions": chain_figure(sum(part_groups, ()), contents[0]["seconds"])}
        for number, (content, public) in enumerate(zip(contents, part_groups, strict=True), 1):
            name = "laws" if number == 1 else f"laws-{number}"
            figures[name] = law_figure(public, _top(content), content.get("export", 0))
        common.write_page(html, f"Learned zone {contents[0]['zone']}", prose, figures)
    common.echo(prose, json)
    common.write_json(values, json)


def _summary(group: PublishedGroup, content: dict[str, Any]) -> dict[str, Any]:
    """How large a group is, how often at home, and what it reads on average."""
    absent, present = _means(group, content)
    return {
        "homes": group.homes,
        "at_home": float(group.chain.home.mean()),
        "absent_mean_wh": absent if group.empty else absent[0],
        "present_mean_wh": present,
    }


@app.command()
def compare(first: Folder, second: Folder, html: HtmlFile = None, json: common.Json = None) -> None:
    """Compare two learned models: chains and laws.

    Example: hushgrid model compare january february

    \f
    Args: see the help of each option.

    Raises:
        ModelError: If the models have steps of different lengths, other export limits or seasons,
            or homes of several kinds.
    """
    import numpy as np

    from hushgrid.errors import ModelError
    from hushgrid.files.models import load_learned, published_groups

    models = [load_learned(folder) for folder in (first, second)]
    for folder, kinds in zip((first, second), models, strict=True):
        if len(kinds) > 1:
            raise ModelError(
                f"{folder} has models of {len(kinds)} kinds of homes, learned by a table of roofs;"
                " give two models of one kind."
            )
    (a,), (b,) = models
    if a["seconds"] != b["seconds"]:
        raise ModelError(
            f"the models have steps of {a['seconds']} s and {b['seconds']} s; give two with"
            " the same steps."
        )
    if a.get("export", 0) != b.get("export", 0):
        raise ModelError(
            f"the models have export limits of {a.get('export', 0)} and {b.get('export', 0)} Wh;"
            " give two with the same limit."
        )
    if a.get("seasons", []) != b.get("seasons", []):
        raise ModelError(
            f"the models have seasons {a.get('seasons', [])} and {b.get('seasons', [])}; give two"
            " with the same seasons."
        )
    bound = max(_top(a), _top(b))
    first_groups, second_groups = published_groups(a), published_groups(b)
    rows = []
    for i, x in enumerate(first_groups):
        gaps = [
            (float(np.abs(x.chain.home - y.chain.home).mean()), _law_distance(x, y, bound), j)
            for j, y in enumerate(second_groups)
        ]
        home, law, j = min(gaps, key=lambda gap: gap[0] + gap[1])
        rows.append({"group": i + 1, "nearest": j + 1, "at_home": home, "laws": law})
    keys = ("houses", "log_likelihood", "provenance")
    values: dict[str, Any] = {
        **{key: a[key] for key in keys},
        "other": {key: b[key] for key in keys},
        "groups": rows,
    }
    lines = [
        f"Group {r['group']}: nearest is group {r['nearest']} of the other; at home differs by"
        f" {r['at_home']:.3f} on average, laws by {r['laws']:.3f} (total variation)."
        for r in rows
    ]
    if html is not None:
        from hushgrid.report.learn import chain_figure

        common.require("matplotlib", "plot")
        figures = {
            f"transitions of {first}": chain_figure(first_groups, a["seconds"]),
            f"transitions of {second}": chain_figure(second_groups, b["seconds"]),
        }
        common.write_page(html, "Two learned models", "\n".join(lines), figures)
    common.echo("\n".join(lines), json)
    common.write_json(values, json)


def _law_distance(x: Any, y: Any, bound: int) -> float:
    """Mean total variation between the laws of two groups."""
    import numpy as np

    (a0, a1), (b0, b1) = x.laws(bound), y.laws(bound)
    empty = zip(a0, b0, strict=False) if x.empty or y.empty else [(a0[0], b0[0])]
    pairs = [*empty, *zip(a1, b1, strict=False)]
    return float(np.mean([0.5 * np.abs(p.pmf - q.pmf).sum() for p, q in pairs]))


def _top(content: dict[str, Any]) -> int:
    """Largest reading of the laws [Wh]: the bound, and the export limit that is in all of them."""
    return max(int(content["bound"]), 1) + int(content.get("export", 0))


def _means(group: PublishedGroup, content: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Mean net readings of absent and present, by slot group [Wh]."""
    v = int(content.get("export", 0))
    absent, present = group.laws(_top(content))
    return [law.mean - v for law in absent], [law.mean - v for law in present]


@app.command()
def validate(
    model: Folder,
    readings: Annotated[Path, typer.Option(help="New readings of the same homes.")],
    labels: common.Labels = None,
    level: Annotated[float, typer.Option(min=0, max=0.5, help="Chance of a false alarm.")] = 0.01,
    mapping: common.Columns = "canonical",
    html: HtmlFile = None,
    json: common.Json = None,
) -> None:
    """Check new readings against a model: drift of each home, and trust. Exit 1 on drift.

    Example: hushgrid model validate learned --readings february.parquet

    \f
    Args: see the help of each option.

    Raises:
        typer.Exit: With code 1 if a home drifted.
    """
    from hushgrid.files.models import load_learned
    from hushgrid.files.readings import read_histories

    contents = load_learned(model)
    panels = _panels(contents)
    histories = read_histories(
        readings,
        mapping=mapping,
        time_zone=contents[0]["time_zone"],
        seconds=contents[0]["seconds"],
        labels=labels,
        registers={name: roof.export_meter for name, roof in panels.items() if roof.export_meter},
        months=contents[0].get("months", ()),
        seasons=contents[0].get("seasons", ()),
    )
    pairs, strange = _by_kind(histories, contents, panels)
    results = [_validate_kind(part, content, level / len(pairs)) for content, part in pairs]
    values, lines, _ = results[0]
    if len(results) > 1 or strange:
        values = _merge([figures for figures, _, _ in results], strange)
        lines = [line for _, home_lines, _ in results for line in home_lines]
    if strange:
        lines.append(f"Homes of a kind that has no models: {', '.join(strange[:8])}.")
    if html is not None:
        common.require("matplotlib", "plot")
        pictures: dict[str, Figure] = {}
        for number, (_, _, draw) in enumerate(results, 1):
            suffix = "" if number == 1 else f" {number}"
            pictures |= {f"{name}{suffix}": figure for name, figure in draw().items()}
        secret = [name for name in pictures if name.startswith("decoded days")]
        title = f"New readings of {contents[0]['zone']}"
        common.write_page(html, title, "\n".join(lines), pictures, secret)
    common.echo("\n".join(lines), json)
    common.write_json(values, json)
    if values["drifted"]:
        raise typer.Exit(1)


def _panels(contents: list[dict[str, Any]]) -> dict[str, Roof]:
    """The homes with panels that a table of roofs named when the models were learned."""
    from hushgrid.learning.histories import Roof

    return {
        meter: Roof(content["export"], *registers)
        for content in contents
        for meter, registers in content.get("roofs", {}).items()
    }


def _by_kind(
    histories: Histories, contents: list[dict[str, Any]], panels: dict[str, Roof]
) -> tuple[list[tuple[dict[str, Any], Histories]], list[str]]:
    """The models of each kind of homes with their readings, and homes of no such kind."""
    from hushgrid.errors import IntakeError
    from hushgrid.learning.histories import netted, split_roofs

    if not panels:
        (content,) = contents
        return [(content, replace(histories, export=int(content.get("export", 0))))], []
    models = {}
    for content in contents:
        roof = panels.get(next(iter(content.get("roofs", ())), ""))
        models[(0, False, False) if roof is None else roof.kind] = content
    roofs = {name: roof for name, roof in panels.items() if name in histories.ids}
    pairs, strange = [], list[str]()
    for part in split_roofs(histories, roofs):
        kind = roofs[part.ids[0]].kind if part.ids[0] in roofs else (0, False, False)
        if kind in models:
            solar = "solar" in models[kind]
            pairs.append((models[kind], part if solar else netted(part)))
        else:
            strange += part.ids
    if not pairs:
        raise IntakeError("no home of the readings has a model; give readings of the same homes.")
    return pairs, strange


def _merge(parts: list[dict[str, Any]], strange: list[str]) -> dict[str, Any]:
    """The values of a zone with several kinds of homes."""
    unusable = {name: ["no models of its kind"] for name in strange}
    for part in parts:
        unusable |= part["unusable"]
    return {
        "houses": sum(part["houses"] for part in parts) + len(strange),
        "provenance": parts[0]["provenance"],
        **{
            key: [item for part in parts for item in part[key]]
            for key in ("drifted", "new_homes", "homes")
        },
        "unusable": unusable,
        "parts": parts,
    }


def _validate_kind(
    histories: Histories, content: dict[str, Any], level: float
) -> tuple[dict[str, Any], list[str], Callable[[], dict[str, Figure]]]:
    """Figures of homes of one kind, the lines that say so, and what draws them."""
    import numpy as np

    from hushgrid.files.models import hidden_fit, published_groups
    from hushgrid.learning.em import posterior, select_homes
    from hushgrid.learning.evaluation import decoding_accuracy, estimate_trust, marginal_scores
    from hushgrid.learning.habits import Habits, stationary
    from hushgrid.learning.histories import ailments, can_be_fitted, clamped, netted
    from hushgrid.learning.learner import AUTO, LearningTerms, design_for
    from hushgrid.learning.weeks import FIGURES, by_day, weekly_figures, welch
    from hushgrid.learning.weeks import drift as drift_of

    public = published_groups(content)
    learned_homes = {home["meter"]: home for home in content["homes"] if "prototype" in home}
    problems = ailments(histories)
    usable = [i for i, a in enumerate(problems) if can_be_fitted(a)]
    clamped_homes = clamped(histories.homes(np.array(usable, np.intp)))
    new = clamped(netted(histories.homes(np.array(usable, np.intp))))
    hidden = np.array(content["prototypes"][0]["hidden"]["transition"])
    habits = Habits(hidden, stationary(hidden), "learned")
    starts = tuple(content["starts"])
    family = next((name for name in AUTO if name == content["law"]), AUTO[0])
    design = design_for(clamped_homes, habits, LearningTerms(law=family, starts=starts), family)
    models = hidden_fit(content, design)
    prototypes, new_homes = _assign_homes(clamped_homes, learned_homes, models)
    post = posterior(clamped_homes.wh, select_homes(models, prototypes))
    top = _top(content)
    scores = by_day(marginal_scores(new, public, prototypes, top), new.steps_a_day)
    compared = [n for n, name in enumerate(new.ids) if name in learned_homes]
    drifts: dict[int, dict[str, Any]] = {}
    if all(len(learned_homes[new.ids[n]]["weeks"]) > 1 for n in compared):
        weeks = [np.array(learned_homes[new.ids[n]]["weeks"], np.float64) for n in compared]
        if weeks:
            figures = weekly_figures(new, public, prototypes, top)[compared]
            drift_figures = drift_of(np.array(weeks), content["begins"], figures, new.begins)
            for n, t, p, figure in zip(compared, *drift_figures, strict=True):
                drifts[n] = {"t": float(t), "p": float(p), "figure": FIGURES[figure]}
    else:  # less than two weeks
        for n in compared:
            old = learned_homes[new.ids[n]]["score"]
            t, p = welch((old["mean"], old["sd"], int(old["days"])), scores[n])
            drifts[n] = {"t": t, "p": p, "figure": FIGURES[0]}
    homes, drifted = [], []
    for n, name in enumerate(new.ids):
        entry: dict[str, Any] = {
            "meter": name,
            "prototype": int(prototypes[n]),
            **drifts.get(n, {}),
        }
        if n in drifts:
            entry["drift"] = drifts[n]["p"] * len(compared) < level
            if entry["drift"]:
                drifted.append(name)
        homes.append(entry)
    trust = estimate_trust(new, public, prototypes, top)
    accuracy = {}
    if new.labels is not None:
        accuracy = decoding_accuracy(new, new.labels, post)
    unusable = {
        name: list(a)
        for name, a in zip(histories.ids, problems, strict=True)
        if not can_be_fitted(a)
    }
    values = {
        "houses": len(histories.ids),
        "log_likelihood": float(np.nanmean(scores)) if np.isfinite(scores).any() else None,
        "provenance": content["provenance"],
        "drifted": drifted,
        "new_homes": new_homes,
        "unusable": unusable,
        "homes": homes,
        "accuracy": accuracy,
        "trust": {
            "lower": trust.lower,
            "upper": trust.upper,
            "suggested": trust.suggested,
            "reasoning": trust.reasoning,
        },
    }
    lines = [
        f"{len(new.ids)} homes scored; {len(drifted)} drifted at level {level:g}"
        + (f": {', '.join(drifted[:8])}." if drifted else "."),
        f"New homes, placed by likelihood: {len(new_homes)}. Unusable: {len(unusable)}.",
        f"Trust on these readings: {trust.reasoning}.",
    ]
    if accuracy:
        lines.append(f"Accuracy: {accuracy['06-22']:.3f} at 06-22 h, {accuracy['all']:.3f} in all.")

    def draw() -> dict[str, Figure]:
        from hushgrid.cli.learn import example_days
        from hushgrid.report.learn import chain_figure, law_figure

        examples = [new.ids.index(name) for name in drifted[:3]] or _spread(len(new.ids))
        return {
            "decoded days": example_days(new.homes(np.array(examples)), post[examples]),
            "transitions": chain_figure(public, content["seconds"]),
            "laws": law_figure(public, top, content.get("export", 0)),
        }

    return values, lines, draw


def _spread(homes: int) -> list[int]:
    """Three homes or fewer, from first to last."""
    return sorted({0, homes // 2, homes - 1} & set(range(homes)))


def _assign_homes(new: Any, learned_homes: dict[str, Any], models: Any) -> tuple[Any, list[str]]:
    """The prototype of each home: its own, or for a new one the likeliest."""
    import numpy as np

    from hushgrid.learning.pools import Prototypes, assign

    prototypes = np.array(
        [learned_homes[n]["prototype"] if n in learned_homes else -1 for n in new.ids], np.intp
    )
    new_homes = np.flatnonzero(prototypes < 0)
    if new_homes.size:
        pool = Prototypes(models, np.zeros(0, np.intp), ())
        prototypes[new_homes] = assign(new.wh[new_homes], pool, models.design)[0]
    return prototypes, [new.ids[i] for i in new_homes]
