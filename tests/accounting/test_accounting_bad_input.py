"""Bad input for accounting: one sentence that names the field, the value and the fix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    HushgridError,
    ModelError,
    OccupancyModel,
    PolicyError,
    Tariff,
    Uniform,
)
from hushgrid.accounting.composition import GaussianEvent, compose
from hushgrid.accounting.temporal import (
    temporal_leakage,
)

E = [[0.9, 0.1], [0.2, 0.8]]
STAYS = [[1.0, 0.0], [0.0, 1.0]]
THETA = OccupancyModel.factored([[0.5, 0.5], [1.0, 0.0]], [[E, STAYS]])
F = Consumption.by_class(absent=[Uniform(5)] * 2, present=[Uniform(10), Uniform(20)])
TARIFF = Tariff(1.0, 62.5)


BAD: list[tuple[str, Callable[[], object], type[HushgridError], str]] = [
    ("no steps", lambda: temporal_leakage(THETA, []), PolicyError, r"shape \(0,\)"),
    ("no columns", lambda: temporal_leakage(THETA, np.zeros((0, 2))), PolicyError, "1 step"),
    ("no shape", lambda: temporal_leakage(THETA, 0.5), PolicyError, r"shape \(\)"),
    ("no models", lambda: temporal_leakage([], [0.5]), ModelError, "set of models is empty"),
    ("NaN loss", lambda: temporal_leakage(THETA, [0.5, math.nan]), PolicyError, "nan at step 2;"),
    ("infinite loss", lambda: temporal_leakage(THETA, [math.inf]), PolicyError, "inf at step 1;"),
    (
        "infinite loss of one house",
        lambda: temporal_leakage(THETA, [[0.5, 0.5], [0.5, math.inf]]),
        PolicyError,
        "inf at step 2, house 1;",
    ),
    ("negative loss", lambda: temporal_leakage(THETA, [-0.5]), PolicyError, "-0.5 at step 1"),
    ("losses of text", lambda: temporal_leakage(THETA, ["a"]), PolicyError, "epsilon_t is ragged"),
    ("ragged losses", lambda: temporal_leakage(THETA, [[1], [1, 2]]), PolicyError, "ragged"),  # type: ignore[list-item]
    ("other houses", lambda: temporal_leakage(THETA, [[0.5] * 3]), PolicyError, "3 columns"),
    ("delta 1", lambda: compose([0.5], 1.0), PolicyError, "delta is 1.0"),
    ("delta below 0", lambda: compose([0.5], -1e-9), PolicyError, "delta is -1e-09"),
    ("delta NaN", lambda: compose([0.5], math.nan), PolicyError, "delta is nan"),
    ("delta of nothing", lambda: compose([], math.nan), PolicyError, "delta is nan"),
    ("delta of text", lambda: compose([0.5], "0.1"), PolicyError, "delta is 0.1"),  # type: ignore[arg-type]
    ("loss NaN", lambda: compose([0.5, math.nan]), PolicyError, "loss is nan"),
    ("loss inf", lambda: compose([math.inf], 1e-6), PolicyError, "loss is inf"),
    ("loss of text", lambda: compose(["a"]), PolicyError, "loss is a"),  # type: ignore[list-item]
    ("sigma below 0", lambda: GaussianEvent(10, -1.0), PolicyError, "sigma is -1.0"),
    ("half a Wh apart", lambda: GaussianEvent(0.5, 1.0), PolicyError, "distance is 0.5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "kind", "words"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input(call: Callable[[], object], kind: type[HushgridError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind
    assert message.endswith(".")
    assert "\n" not in message
    assert ";" in message, "the fix follows a semicolon"


def test_a_chain_that_never_mixes_is_answered() -> None:
    """Every loss adds up: all releases speak of one and the same secret."""
    stuck = OccupancyModel.factored([[0.5, 0.5]], [[STAYS]])
    found = temporal_leakage(stuck, [0.5, 0.25, 1.0])
    assert found.total[:, 0] == pytest.approx([1.75] * 3)
