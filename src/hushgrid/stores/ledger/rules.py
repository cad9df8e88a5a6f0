"""What the fields of records must be: rules of values that are more than a number or a text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hushgrid._numbers import CHANCE, LOSS, Rule, is_hex, number, whole_number
from hushgrid.model.zone import MOST_PRICES

# the zone's public number of houses; how many meters report is for operators
COUNTS = ("houses",)


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        name in COUNTS and type(count) is int and count >= 0 for name, count in value.items()
    )


HOUSE_DIGITS = 12
HOUSES = Rule(
    lambda v: isinstance(v, str) and len(v) % HOUSE_DIGITS == 0 and is_hex(v, len(v)),
    f"{HOUSE_DIGITS} small hexadecimal digits for each house",
)
HEADS = Rule(
    lambda v: isinstance(v, str) and v != "" and len(v) % 64 == 0 and is_hex(v, len(v)),
    "64 small hexadecimal digits for each history",
)
# optional fields that a release without readings may have, where its zone has such figures; a
# fallback has no estimate and so no offset
FREE = ("feed_in", "offset")
# for each model and chain: loss, known, room, law's ends
AccountRows = tuple[tuple[float, ...], ...]
StatedModels = Sequence[Mapping[str, Any]]  # see `TermsRecord`


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) > 0


def _are_floats(value: Any, count: int, least: float = -math.inf, most: float = math.inf) -> bool:
    return (
        _is_list(value)
        and len(value) == count
        and all(isinstance(figure, float) and math.isfinite(figure) for figure in value)
        and least <= min(value) <= max(value) <= most
    )


class WindowRows(NamedTuple):
    """The account of promises about windows of time, as a record has it.

    Attributes:
        promises: For each promise in force: its window [s], its epsilon, from when on windows begin
            [UTC s], and the last second published before another promise, or -1.
        blocks: For each block that still counts: its first and last second [UTC s], and what
            it loses.
    """

    promises: tuple[tuple[float, ...], ...]
    blocks: tuple[tuple[float, ...], ...]


def _are_windows(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(rows, (tuple, list)) for rows in value)
        and all(_are_numbers(row, 4) and row[0] > 0 and row[1] > 0 for row in value[0])
        and all(_are_numbers(row, 3) and row[0] <= row[1] and row[2] >= 0 for row in value[1])
    )


def _are_numbers(row: Any, count: int) -> bool:
    numbers = isinstance(row, (tuple, list)) and len(row) == count
    return numbers and all(type(n) in (int, float) and math.isfinite(n) for n in row)


WINDOWS = Rule(_are_windows, "promises about windows, and the blocks of steps that count for them")


_NUMBER = number(-math.inf)


def _are_figures(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and (_NUMBER.fits(figure) or _are_figures(figure) or _are_pairs(figure))
        for name, figure in value.items()
    )


def _are_pairs(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(_are_numbers(row, 2) for row in value)


def _is_promise(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    names = {"secret", "epsilon", "eta", *(["window"] if value.get("secret") == "window" else ())}
    return (
        names <= set(value) <= names | {"eta_set_by"}
        and value["secret"] in ("step", "interval", "window")
        and LOSS.fits(value["epsilon"])
        and CHANCE.fits(value["eta"])
        and whole_number(1).fits(value.get("window", 1))
        and isinstance(value.get("eta_set_by", ""), str)
    )


def _is_plan(value: Any) -> bool:
    blocks = value.get("blocks", ()) if isinstance(value, Mapping) else ()
    return _is_list(blocks) and all(
        _are_numbers(row, 3)
        and whole_number(1).fits(row[0])
        and row[1] >= 0
        and whole_number(1).fits(row[2])
        for row in blocks
    )


def _are_rates(value: Any) -> bool:
    return (
        _is_list(value)
        and len(value) <= MOST_PRICES
        and all(isinstance(rate, float) and math.isfinite(rate) for rate in value)
    )


RATES = Rule(_are_rates, f"1 to {MOST_PRICES} finite numbers")
FIGURES = Rule(_are_figures, "numbers, or pairs of numbers, by name")
PROMISE = Rule(_is_promise, "secret, epsilon and eta, and with the secret window its seconds")
PLAN = Rule(_is_plan, "blocks: rows of their steps, what each loses, and how many follow")


def _are_rows(value: Any) -> bool:
    return _is_list(value) and all(
        _are_floats(row, 5) and min(row[:3]) >= 0 and row[3] <= row[4] for row in value
    )


def _is_chain(value: Any, slots: int) -> bool:
    """Whether a chain has a law, a reach and a matrix for every slot."""
    if not isinstance(value, Mapping) or set(value) != {"law", "moves", "reach"}:
        return False
    moves = value["moves"]
    return (
        _are_floats([value["reach"]], 1, 0)
        and _are_floats(value["law"], 2, 0, 1)
        and _is_list(moves)
        and len(moves) >= slots
        and all(_are_floats(row, 4, 0, 1) for row in moves)
    )


def _are_models(value: Any) -> bool:
    return _is_list(value) and all(
        isinstance(model, Mapping)
        and set(model) == {"chains", "slots"}
        and all(_is_list(part) for part in model.values())
        and all(type(slot) is int and slot >= 0 for slot in model["slots"])
        and all(_is_chain(chain, max(model["slots"]) + 1) for chain in model["chains"])
        for model in value
    )


ROWS = Rule(_are_rows, "rows of five finite numbers: loss, known, room and the ends of a law")
MODELS = Rule(_are_models, "models with slots and chains of a law, moves and a reach")
COUNTED = Rule(_are_counts, f"whole numbers named {', '.join(COUNTS)}")
