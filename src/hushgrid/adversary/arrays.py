"""What the filters need of any array library: logarithms of probabilities, added up safely."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

Array = Any  # an array of any library that keeps the array API standard
HOST: Array = np.zeros(0)  # stands for numpy where no other library is asked for


def like(values: Any, other: Array) -> Array:
    """`values` as an array of the same library and device as `other`."""
    if isinstance(other, np.ndarray):
        return np.asarray(values)
    own = np.array(values)  # a copy: some libraries share memory, and ours is read-only
    return array_namespace(other).asarray(own, device=device(other))


def on_host(values: Array) -> Any:
    """The same numbers as a numpy array."""
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "get"):  # cupy
        return values.get()
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


def log(values: Array) -> Array:
    """Logarithm that takes 0 to -inf without a warning."""
    xp = array_namespace(values)
    some = values > 0
    return xp.where(some, xp.log(xp.where(some, values, 1.0)), -xp.inf)


def log_sum(values: Array, axis: int | tuple[int, ...] | None = None) -> Array:
    """log of the sum of exponentials; all -inf gives -inf."""
    xp = array_namespace(values)
    most = xp.max(values, axis=axis, keepdims=True)
    most = xp.where(xp.isfinite(most), most, 0.0)
    total = log(xp.sum(xp.exp(values - most), axis=axis, keepdims=True)) + most
    return xp.reshape(total, ()) if axis is None else xp.squeeze(total, axis=axis)
