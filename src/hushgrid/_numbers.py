"""Checks of numbers and fields, exact sums of losses, canonical digests, and array types.

A field of a dataclass that is written as JSON has its `Rule` in its annotation:

    t: Annotated[int, whole_number(1)]
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.errors import HushgridError


class _Brief(reprlib.Repr):
    """Values on one line: arrays by type and shape, a few elements of the rest; no word is cut."""

    def repr_ndarray(self, x: NDArray[Any], _: int) -> str:
        """Type and shape."""
        return f"{x.dtype}{list(x.shape)}"

    def repr_float(self, x: float, _: int) -> str:
        """Six digits."""
        return f"{x:.6g}"

    def repr_str(self, x: str, _: int) -> str:
        """The text, or its first words."""
        if len(text := repr(x)) <= self.maxstring:
            return text
        words = x[: self.maxstring].rpartition(" ")[0]
        return repr(f"{words} ...".strip())

    def repr_instance(self, x: Any, _: int) -> str:
        """The object's own text, or its class alone."""
        return text if len(text := repr(x)) <= self.maxother else f"{type(x).__name__}(...)"


_LINE = 100  # characters


def brief(value: Any, *summary: str, names: Iterable[str] | None = None) -> str:
    """The `repr` of a dataclass or named tuple on one line of 100 characters.

    Args:
        value: The object.
        summary: What is said of it before its fields.
        names: The fields; None: all of its `repr`.

    Returns:
        Name, summary and fields, with "..." in the place of those that do not fit.

    >>> brief(Spent(Fraction(10**60), True), "a sum")
    'Spent(a sum, finite=Fraction(...), endless=True)'
    """
    short = _Brief()
    short.maxlevel, short.maxtuple, short.maxlist, short.maxdict, short.maxother = 2, 3, 3, 2, 40
    if names is None:
        names = getattr(value, "_fields", None) or [
            field.name for field in fields(value) if field.repr
        ]
    parts = [*summary, *(f"{name}={short.repr(getattr(value, name))}" for name in names)]
    name = type(value).__name__
    if len(text := f"{name}({', '.join(parts)})") <= _LINE:
        return text
    short_parts: list[str] = []
    for part in parts:
        fits = len(f"{name}({', '.join([*short_parts, part])}, ...)") <= _LINE
        if fits or short_parts[-1:] != ["..."]:
            short_parts.append(part if fits else "...")
    return f"{name}({', '.join(short_parts)})"


def count_of(noun: str, number: int) -> str:
    """How many of something there are.

    >>> count_of("house", 1), count_of("house", 1000)
    ('1 house', '1,000 houses')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_real(value: Any) -> bool:
    """Whether a value is a number in the range of floats; Booleans and text are not numbers.

    >>> is_real(0.5), is_real(True), is_real("0.5"), is_real(float("nan")), is_real(10**309)
    (True, False, False, False, False)
    """
    real = isinstance(value, (int, float, numbers.Real))  # the first two are found faster
    try:
        return real and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def is_whole(value: Any) -> bool:
    """Whether a value is a finite whole number, of an integer type or not."""
    return is_real(value) and value == math.floor(value)


def index_array(values: ArrayLike, label: str, error: type[HushgridError]) -> Int32s:
    """Whole numbers that fit 32 bits as a read-only array; nothing is rounded or wrapped to fit."""
    try:
        array = np.array(values)
    except ValueError:
        raise error(f"{label} is ragged; give whole numbers.") from None
    if array.dtype.kind not in "iuf" and array.size:
        raise error(f"{label} has type {array.dtype}; give whole numbers.")
    bad = ~((array >= -(2**31)) & (array < 2**31)) | (array != np.floor(array))
    if bad.any():
        raise error(f"{label} holds {array[bad].flat[0]}; give whole numbers below 2^31.")
    indices = array.astype(np.int32)
    indices.flags.writeable = False
    return indices


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """A read-only view in C order; compiled code that is given such is compiled once for all."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def float_array(
    values: ArrayLike, label: str, error: type[HushgridError], fields: tuple[str, ...] = ()
) -> Floats:
    """Numbers as a new float array; `fields` are those of the error."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise error(
            f"{label} is ragged or holds no numbers; give one number in each place.", fields=fields
        ) from None


def is_hex(value: Any, length: int) -> bool:
    """Whether a value is text of `length` digits 0-9a-f."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{length}}}", value) is not None


class Rule(NamedTuple):
    """What a field must be in JSON.

    Attributes:
        fits: Whether a value is allowed.
        give: What is allowed, in words, for the error's message.
        optional: The field is absent where it would be null.
        infinite: Null is infinity, which JSON does not have.
    """

    fits: Callable[[Any], bool]
    give: str
    optional: bool = False
    infinite: bool = False


def whole_number(least: int | None = None) -> Rule:
    """A whole number, at least `least` (and below 2^53) if that is given."""
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
    """The same rule, with null for None, or for infinity where `infinite` is set."""
    return Rule(lambda v: v is None or rule.fits(v), f"{rule.give}, or null", infinite=infinite)


def optional(rule: Rule) -> Rule:
    """The same rule for a field that may be absent."""
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
    rules = {
        field.name: rule
        for field in fields(kind)
        for rule in getattr(hints[field.name], "__metadata__", ())
        if isinstance(rule, Rule)
    }
    return dict(sorted(rules.items(), key=lambda item: item[1].optional))


def to_json(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have rules, as JSON values."""
    rules = rules_of(type(value))
    values = {name: getattr(value, name) for name in rules}
    values = {
        name: None if rules[name].infinite and math.isinf(item) else item
        for name, item in values.items()
    }
    return {
        name: item for name, item in values.items() if item is not None or not rules[name].optional
    }


def from_json(kind: type, body: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a dataclass's fields in `body`, to make it from; others are left out."""
    return {
        name: math.inf if rule.infinite and body[name] is None else body[name]
        for name, rule in rules_of(kind).items()
        if name in body
    }


# ---- exact sums of losses


def sum_up(losses: Iterable[float]) -> float:
    """A sum of losses that is never too small: exact, then rounded up once.

    A loss is a double, so as a rational number it is exact. The order of the losses, a restart
    of the publisher and the program that adds them up make no difference to the sum.
    """
    values = list(losses)
    total = math.fsum(values)
    if math.isinf(total):
        return total
    remainder = math.fsum([*values, -total])
    return math.nextafter(total, math.inf) if remainder > 0 else total


@dataclass(frozen=True, slots=True)
class Spent:
    """The exact sum of losses so far.

    Attributes:
        finite: The exact sum of the finite losses.
        endless: Whether a loss was infinite.
    """

    finite: Fraction = Fraction()
    endless: bool = False

    def add(self, *losses: float) -> Spent:
        """The sum with more losses; each 0 or more, or infinite."""
        finite, endless = self.finite, self.endless
        for loss in losses:
            if math.isinf(loss):
                endless = True
            else:
                finite += Fraction(loss)
        return Spent(finite, endless)

    @property
    def total(self) -> float:
        """The sum as a double, rounded up."""
        if self.endless:
            return math.inf
        nearest = float(self.finite)
        return math.nextafter(nearest, math.inf) if nearest < self.finite else nearest


# ---- values and digests


class Value:
    """A value that caches what it has computed.

    It compares, hashes and pickles by the arguments it was made from. Its caches are not part of
    it: equal values give equal answers whatever was computed before.
    """

    def made_from(self) -> tuple[Any, ...]:
        """The arguments of the class, in their order."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.made_from() == self.made_from()

    def __hash__(self) -> int:
        return hash(self.made_from())

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), self.made_from()


def canonical_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over canonical JSON: keys sorted, no spaces, UTF-8, floats as `repr` has them.

    >>> canonical_digest({"b": 1.0, "a": 2}) == canonical_digest({"a": 2, "b": 1.0})
    True
    """
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def array_digest(array: NDArray[Any], form: str) -> str:
    """SHA-256 (hex) over an array's shape in decimal and its values as a type such as `<i4`."""
    h = hashlib.sha256(f"{form} {' '.join(map(str, array.shape))}\n".encode())
    h.update(np.ascontiguousarray(array, form).tobytes())
    return h.hexdigest()


def unlike(fields: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that equal their default in `usual`.

    >>> unlike({"alpha": 1, "gamma": 0.0}, {"gamma": 0.0})
    {'alpha': 1}
    """
    return {
        name: value for name, value in fields.items() if name not in usual or value != usual[name]
    }


def real(value: Any) -> float:
    """A number as a float: 1 and 1.0 are one number, and so are 0.0 and -0.0.

    >>> real(1), real(-0.0)
    (1.0, 0.0)
    """
    return float(value) + 0.0 if math.isfinite(value) else float(value)


# ---- array types


Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]
Int32s = NDArray[np.int32]
UInt8s = NDArray[np.uint8]
Indices = NDArray[np.intp]
