"""hushgrid model: show, compare and validate what hushgrid learn wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.learning.evaluation import PublishedGroup
    from hushgrid.learning.histories import Histories

app = typer.Typer(help="Show, compare and validate learned models.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="What hushgrid learn wrote.")]


@app.command()
def show(model: Folder, json: common.Json = None) -> None:
    """Show what a learned model holds, how good it is and how far to trust it.

    Example: hushgrid model show learned

    \f
    Args: see the help of each option.
    """
    from hushgrid.files.models import load_learned, published_groups
    from hushgrid.report.learn import learned_prose

    content = load_learned(model)
    values = {key: value for key, value in content.items() if key not in ("prototypes", "homes")}
    values["prototypes"] = [_summary(group, content) for group in published_groups(content)]
    common.echo(learned_prose(values), json)
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
def compare(first: Folder, second: Folder, json: common.Json = None) -> None:
    """Compare two learned models: chains and laws.

    Example: hushgrid model compare january february

    \f
    Args: see the help of each option.

    Raises:
        ModelError: If the models have steps of different lengths, other export limits or seasons.
    """
    import numpy as np

    from hushgrid.errors import ModelError
    from hushgrid.files.models import load_learned, published_groups

    a, b = (load_learned(folder) for folder in (first, second))
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

    content = load_learned(model)
    histories = read_histories(
        readings,
        mapping=mapping,
        time_zone=content["time_zone"],
        seconds=content["seconds"],
        labels=labels,
        seasons=content.get("seasons", ()),
    )
    export = int(content.get("export", 0))
    values, lines = _validated(replace(histories, export=export), content, level)
    common.echo("\n".join(lines), json)
    common.write_json(values, json)
    if values["drifted"]:
        raise typer.Exit(1)


def _validated(
    histories: Histories, content: dict[str, Any], level: float
) -> tuple[dict[str, Any], list[str]]:
    """Figures of new readings under a model, and the lines that say them."""
    import numpy as np

    from hushgrid.files.models import hidden_fit, published_groups
    from hushgrid.learning.em import posterior, select_homes
    from hushgrid.learning.evaluation import decoding_accuracy, estimate_trust, marginal_scores
    from hushgrid.learning.habits import Habits, stationary
    from hushgrid.learning.histories import ailments, can_be_fitted, clamped
    from hushgrid.learning.learner import AUTO, LearningTerms, design_for
    from hushgrid.learning.weeks import FIGURES, by_day, weekly_figures, welch
    from hushgrid.learning.weeks import drift as drift_of

    public = published_groups(content)
    learned_homes = {home["meter"]: home for home in content["homes"] if "prototype" in home}
    problems = ailments(histories)
    usable = [i for i, a in enumerate(problems) if can_be_fitted(a)]
    new = clamped(histories.homes(np.array(usable, np.intp)))
    hidden = np.array(content["prototypes"][0]["hidden"]["transition"])
    habits = Habits(hidden, stationary(hidden), "learned")
    starts = tuple(content["starts"])
    family = next((name for name in AUTO if name == content["law"]), AUTO[0])
    design = design_for(new, habits, LearningTerms(law=family, starts=starts), family)
    models = hidden_fit(content, design)
    prototypes, new_homes = _assign_homes(new, learned_homes, models)
    post = posterior(new.wh, select_homes(models, prototypes))
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

    return values, lines


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
