"""One text for one meaning, to take digests of: named fields, defaults left out, exact numbers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Value:
    """A value that keeps what it has computed from it.

    It compares, hashes and pickles by the arguments it was made from. What it keeps is no part of
    it: an equal value gives equal answers whatever either was asked before.
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
    """SHA-256 (hex) over an array's shape in decimal and its values in this form, as `<i4`."""
    h = hashlib.sha256(f"{form} {' '.join(map(str, array.shape))}\n".encode())
    h.update(np.ascontiguousarray(array, form).tobytes())
    return h.hexdigest()


def unlike(fields: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not as usual; a field of `usual` that equals its default is left out.

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
