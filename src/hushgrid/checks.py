"""Is this a number at all? What every type asks of its fields before it trusts them.

A field of a dataclass that is written as JSON has its `Rule` in its annotation:

    t: Annotated[int, whole(1)]
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats, Int32s
from hushgrid.errors import HushgridError


def is_real(value: Any) -> bool:
    """A finite number; True and False are none, text is none.

    >>> is_real(0.5), is_real(True), is_real("0.5"), is_real(float("nan"))
    (True, False, False, False)
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """A finite whole number, as an integer type or not."""
    return is_real(value) and value == math.floor(value)


def index_array(values: ArrayLike, what: str, error: type[HushgridError]) -> Int32s:
    """Whole numbers that fit 32 bits, read-only; nothing is rounded or wrapped to fit."""
    try:
        array = np.array(values)
    except ValueError:
        raise error(f"{what} is ragged; give whole numbers.") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise error(f"{what} has type {array.dtype}; give whole numbers.")
    bad = ~((array >= -(2**31)) & (array < 2**31)) | (array != np.floor(array))
    if bad.any():
        raise error(f"{what} holds {array[bad].flat[0]}; give whole numbers below 2^31.")
    own = array.astype(np.int32)
    own.flags.writeable = False
    return own


def float_array(
    values: ArrayLike, what: str, error: type[HushgridError], fields: tuple[str, ...] = ()
) -> Floats:
    """Numbers, as an array of one's own; `fields` are those of the error."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise error(
            f"{what} is ragged or holds no numbers; give one number in each place.", fields=fields
        ) from None


def is_hex(value: Any, length: int) -> bool:
    """So many digits 0-9a-f."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{length}}}", value) is not None


class Rule(NamedTuple):
    """What a field must be in JSON.

    Attributes:
        fits: Whether a value may be there.
        give: What to give instead of one that may not, in words.
        optional: The field is absent where it is None: texts of earlier versions lack it.
        infinite: Null is infinity, which JSON does not have.
    """

    fits: Callable[[Any], bool]
    give: str
    optional: bool = False
    infinite: bool = False


def whole(least: int | None = None) -> Rule:
    """A whole number, from `least` on (and below 2^53) if that is given."""
    if least is None:
        return Rule(lambda v: type(v) is int, "a whole number")
    return Rule(lambda v: type(v) is int and least <= v < 2**53, f"a whole number from {least} on")


def number(low: float, high: float = math.inf) -> Rule:
    """A finite number from `low` to `high`."""
    reach = f"from {low:g} on" if high == math.inf else f"from {low:g} to {high:g}"
    return Rule(lambda v: is_real(v) and low <= v <= high, f"a finite number {reach}")


def one_of(kind: Any) -> Rule:
    """One of the words of a `Literal`."""
    words = get_args(kind)
    return Rule(lambda v: isinstance(v, str) and v in words, f"one of {', '.join(words)}")


def or_null(rule: Rule, *, infinite: bool = False) -> Rule:
    """The same or null, which is None, or infinity where `infinite` is set."""
    return Rule(lambda v: v is None or rule.fits(v), f"{rule.give}, or null", infinite=infinite)


def optional(rule: Rule) -> Rule:
    """The same for a field that may be absent."""
    return rule._replace(optional=True)


TEXT = Rule(lambda v: isinstance(v, str) and v != "" and v.isprintable(), "printable text")
HASH = Rule(lambda v: is_hex(v, 64), "64 small hexadecimal digits")
TRUTH = Rule(lambda v: isinstance(v, bool), "true or false")
LOSS = number(0)
CHANCE = number(0, 1)


def rules_of(kind: Any) -> Mapping[str, Rule]:
    """The rules of a dataclass by field; the required ones first."""
    return _rules_of(kind)


@cache
def _rules_of(kind: Any) -> Mapping[str, Rule]:
    hints = get_type_hints(kind, include_extras=True)
    found = {
        one.name: rule
        for one in fields(kind)
        for rule in getattr(hints[one.name], "__metadata__", ())
        if isinstance(rule, Rule)
    }
    return dict(sorted(found.items(), key=lambda item: item[1].optional))


def to_json(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have rules, as JSON has them."""
    rules = rules_of(type(value))
    found = {name: getattr(value, name) for name in rules}
    return {
        name: None if rules[name].infinite and math.isinf(own) else own
        for name, own in found.items()
        if own is not None or not rules[name].optional
    }


def from_json(kind: type, body: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a dataclass's fields in `body`, to make it from; others are left out."""
    return {
        name: math.inf if rule.infinite and body[name] is None else body[name]
        for name, rule in rules_of(kind).items()
        if name in body
    }
