"""hushgrid model: show, compare and validate what hushgrid learn wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.learn.evaluation import PublishedGroup

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
    from hushgrid.report.learn import HELD_OUT, learned_prose

    content = load_learned(model)
    left_out = ("prototypes", "homes", *HELD_OUT)  # models of before hold held-out scores
    values = {key: value for key, value in content.items() if key not in left_out}
    public = published_groups(content)
    values["prototypes"] = [
        {
            "homes": one.homes,
            "at_home": float(one.chain.home.mean()),
            "absent_mean_wh": _means(one, content)[0] if one.empty else _means(one, content)[0][0],
            "present_mean_wh": _means(one, content)[1],
        }
        for one in public
    ]
    prose = learned_prose(values)
    if html is not None:
        from hushgrid.report.learn import chain_figure, law_figure

        common.require("matplotlib", "plot")
        common.write_page(
            html,
            f"Learned zone {content['zone']}",
            prose,
            {
                "transitions": chain_figure(public, content["seconds"]),
                "laws": law_figure(public, _top(content), content.get("export", 0)),
            },
        )
    common.echo(prose, json)
    common.write_json(values, json)


@app.command()
def compare(first: Folder, second: Folder, html: HtmlFile = None, json: common.Json = None) -> None:
    """Compare two learned models: chains and laws.

    Example: hushgrid model compare january february

    \f
    Args: see the help of each option.

    Raises:
        ModelError: If the models have steps of different lengths.
    """
    import numpy as np

    from hushgrid.errors import ModelError
    from hushgrid.files.models import load_learned, published_groups

    a, b = load_learned(first), load_learned(second)
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
    bound = max(_top(a), _top(b))
    one, other = published_groups(a), published_groups(b)
    rows = []
    for i, x in enumerate(one):
        gaps = [
            (float(np.abs(x.chain.home - y.chain.home).mean()), _apart(x, y, bound), j)
            for j, y in enumerate(other)
        ]
        home, law, j = min(gaps, key=lambda gap: gap[0] + gap[1])
        rows.append({"group": i + 1, "nearest": j + 1, "at_home": home, "laws": law})
    keys = ("houses", "log_likelihood", "eta", "eta_basis", "provenance")
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
        drawn = {
            f"transitions of {first}": chain_figure(one, a["seconds"]),
            f"transitions of {second}": chain_figure(other, b["seconds"]),
        }
        common.write_page(html, "Two learned models", "\n".join(lines), drawn)
    common.echo("\n".join(lines), json)
    common.write_json(values, json)


def _apart(x: Any, y: Any, bound: int) -> float:
    """Mean total variation between the laws of two groups."""
    import numpy as np

    (a0, a1), (b0, b1) = x.laws(bound), y.laws(bound)
    empty = zip(a0, b0, strict=False) if x.empty or y.empty else [(a0[0], b0[0])]
    pairs = [*empty, *zip(a1, b1, strict=False)]
    return float(np.mean([0.5 * np.abs(p.pmf - q.pmf).sum() for p, q in pairs]))


def _top(content: dict[str, Any]) -> int:
    """Largest reading of the laws [Wh]: the bound, and the export limit that is in all of them."""
    return max(int(content["bound"]), 1) + int(content.get("export", 0))


def _means(one: PublishedGroup, content: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Mean net readings of absent and present, by slot group [Wh]."""
    v = int(content.get("export", 0))
    absent, present = one.laws(_top(content))
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
    import numpy as np

    from hushgrid.files.models import hidden_fit, load_learned, published_groups
    from hushgrid.files.readings import read_histories
    from hushgrid.learn.drift import FIGURES, by_day, weekly_figures, welch
    from hushgrid.learn.drift import drift as drift_of
    from hushgrid.learn.em import posterior, select_homes
    from hushgrid.learn.evaluation import decoding_accuracy, estimate_trust, marginal_scores
    from hushgrid.learn.habits import Habits, stationary
    from hushgrid.learn.histories import ailments, can_be_fitted, clamped
    from hushgrid.learn.learner import AUTO, LearningTerms, design_for

    content = load_learned(model)
    found = read_histories(
        readings,
        mapping=mapping,
        time_zone=content["time_zone"],
        seconds=content["seconds"],
        labels=labels,
    )
    public = published_groups(content)
    known = {one["meter"]: one for one in content["homes"] if "prototype" in one}
    found = replace(found, export=int(content.get("export", 0)))
    problems = ailments(found)
    usable = [i for i, a in enumerate(problems) if can_be_fitted(a)]
    new = clamped(found.homes(np.array(usable, np.intp)))
    hidden = np.array(content["prototypes"][0]["hidden"]["transition"])
    habits = Habits(hidden, stationary(hidden), "learned")
    starts = tuple(content["starts"])
    family = next((name for name in AUTO if name == content["law"]), AUTO[0])
    design = design_for(new, habits, LearningTerms(law=family, starts=starts), family)
    models = hidden_fit(content, design)
    which, new_homes = _assign_homes(new, known, models)
    post = posterior(new.wh, select_homes(models, which))
    top = _top(content)
    scores = by_day(marginal_scores(new, public, which, top), new.steps_a_day)
    compared = [n for n, name in enumerate(new.ids) if name in known]
    moved: dict[int, dict[str, Any]] = {}
    if all(len(known[new.ids[n]].get("weeks", ())) > 1 for n in compared):
        weeks = [np.array(known[new.ids[n]]["weeks"], np.float64) for n in compared]
        if weeks:
            figures = weekly_figures(new, public, which, top)[compared]
            found_drift = drift_of(np.array(weeks), content["begins"], figures, new.begins)
            for n, t, p, figure in zip(compared, *found_drift, strict=True):
                moved[n] = {"t": float(t), "p": float(p), "figure": FIGURES[figure]}
    else:  # less than two weeks, or learned by a version that kept no weeks
        for n in compared:
            old = known[new.ids[n]]["score"]
            t, p = welch((old["mean"], old["sd"], int(old["days"])), scores[n])
            moved[n] = {"t": t, "p": p, "figure": FIGURES[0]}
    homes, drifted = [], []
    for n, name in enumerate(new.ids):
        one: dict[str, Any] = {"meter": name, "prototype": int(which[n]), **moved.get(n, {})}
        if n in moved:
            one["drift"] = moved[n]["p"] * len(compared) < level
            if one["drift"]:
                drifted.append(name)
        homes.append(one)
    judged = estimate_trust(new, public, which, top)
    accuracy = {}
    if new.labels is not None:
        accuracy = decoding_accuracy(new, new.labels, post)
    unusable = {
        name: list(a) for name, a in zip(found.ids, problems, strict=True) if not can_be_fitted(a)
    }
    values = {
        "houses": len(found.ids),
        "log_likelihood": float(np.nanmean(scores)) if np.isfinite(scores).any() else None,
        "eta": content["eta"],
        "eta_basis": content["eta_basis"],
        "provenance": content["provenance"],
        "drifted": drifted,
        "new_homes": new_homes,
        "unusable": unusable,
        "homes": homes,
        "accuracy": accuracy,
        "trust": {
            "lower": judged.lower,
            "upper": judged.upper,
            "suggested": judged.suggested,
            "reasoning": judged.reasoning,
        },
    }
    lines = [
        f"{len(new.ids)} homes scored; {len(drifted)} drifted at level {level:g}"
        + (f": {', '.join(drifted[:8])}." if drifted else "."),
        f"New homes, placed by likelihood: {len(new_homes)}. Unusable: {len(unusable)}.",
        f"Trust on these readings: {judged.reasoning}.",
    ]
    if accuracy:
        lines.append(f"Accuracy: {accuracy['06-22']:.3f} at 06-22 h, {accuracy['all']:.3f} in all.")
    if html is not None:
        from hushgrid.cli.learn import example_days
        from hushgrid.report.learn import chain_figure, law_figure

        common.require("matplotlib", "plot")
        some = [new.ids.index(name) for name in drifted[:3]] or _spread(len(new.ids))
        drawn = {
            "decoded days": example_days(new.homes(np.array(some)), post[some]),
            "transitions": chain_figure(public, content["seconds"]),
            "laws": law_figure(public, top),
        }
        title = f"New readings of {content['zone']}"
        common.write_page(html, title, "\n".join(lines), drawn, ["decoded days"])
    common.echo("\n".join(lines), json)
    common.write_json(values, json)
    if drifted:
        raise typer.Exit(1)


def _spread(homes: int) -> list[int]:
    """Three homes or fewer, from first to last."""
    return sorted({0, homes // 2, homes - 1} & set(range(homes)))


def _assign_homes(new: Any, known: dict[str, Any], models: Any) -> tuple[Any, list[str]]:
    """The prototype of each home: its own, or for a new one the likeliest."""
    import numpy as np

    from hushgrid.learn.learner import Prototypes, assign

    which = np.array([known[n]["prototype"] if n in known else -1 for n in new.ids], np.intp)
    new_homes = np.flatnonzero(which < 0)
    if new_homes.size:
        shared = Prototypes(models, np.zeros(0, np.intp), ())
        which[new_homes] = assign(new.wh[new_homes], shared, models.design)[0]
    return which, [new.ids[i] for i in new_homes]
