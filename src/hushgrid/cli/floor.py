"""hushgrid floor: the least noise any additive mechanism could do with, for small cases."""

from __future__ import annotations

from typing import Annotated

import typer

from hushgrid.cli.common import Json, Seed, put_json, say


def floor(
    absent: Annotated[int, typer.Option(help="Readings are uniform on 0..this when away [Wh].")],
    present: Annotated[int, typer.Option(help="The same when somebody is at home [Wh].")],
    epsilon: Annotated[float, typer.Option(help="What one release may lose.")] = 0.5,
    cells: Annotated[int, typer.Option(help="Cells of the grid, at most 200.")] = 40,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Compare the noise of our rules with a linear programme's floor, one reading, one step.

    Example: hushgrid floor --absent 500 --present 1000 --epsilon 0.5
    """
    import numpy as np

    from hushgrid.baselines.floor import floor_of_uniform
    from hushgrid.baselines.wasserstein import quantile_gap
    from hushgrid.calibration import smallest_scale
    from hushgrid.laws import Uniform

    del seed  # nothing is random; every command takes one
    least = floor_of_uniform(absent, present, epsilon, cells)
    top = max(absent, present)
    laws = [np.pad(Uniform(u).pmf, (0, top - u)) for u in (absent, present)]
    scales = {
        "hushgrid_eta0": smallest_scale(*laws, bound=top, epsilon=epsilon, eta=0.0),
        "wasserstein": quantile_gap(*laws) / epsilon,
        "bound": top / epsilon,
    }
    values = {
        "absent": absent,
        "present": present,
        "epsilon": epsilon,
        "cells": cells,
        "floor": least / top,
        "floor_wh": least,
        "sd": {name: 2**0.5 * b / top for name, b in scales.items()},
    }
    lines = [f"standard deviation of the noise, in {top} Wh:", f"  {'floor':14s} {least / top:.3f}"]
    lines += [f"  {name:14s} {2**0.5 * b / top:.3f}" for name, b in scales.items()]
    say("\n".join(lines), json)
    put_json(values, json)
