"""Every method the paper names, and ours, behind one small interface (docs/proofs/baselines.md)."""

from hushgrid.baselines.fourier import FOURIER
from hushgrid.baselines.group import GROUP
from hushgrid.baselines.method import Method, MethodPromise, MethodSetting, Outcome, Ready, Refusal
from hushgrid.baselines.ours import (
    BOUND,
    DPHMM,
    FORECAST,
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    WEVENT,
    hushgrid,
)
from hushgrid.baselines.quilt import QUILT
from hushgrid.baselines.wasserstein import WASSERSTEIN
from hushgrid.baselines.wavelet import WAVELET
from hushgrid.checks import is_real
from hushgrid.errors import PolicyError

METHODS: tuple[Method, ...] = (
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    BOUND,
    WASSERSTEIN,
    QUILT,
    GROUP,
    WEVENT,
    DPHMM,
    FOURIER,
    WAVELET,
    FORECAST,
)


def methods_with(eta: float) -> tuple[Method, ...]:
    """All methods, hushgrid at another middle trust than 0.05.

    >>> methods_with(0.2)[1].name
    'hushgrid_eta2'
    """
    if not (is_real(eta) and 0 < eta < 1):
        raise PolicyError(f"eta is {eta}; 0 and 1 are always there: give a share between them.")
    name = "hushgrid_eta" + f"{eta:.6f}".split(".")[1].rstrip("0")
    return tuple(hushgrid(name, eta) if m is HUSHGRID_ETA05 else m for m in METHODS)


__all__ = [
    "METHODS",
    "Method",
    "MethodPromise",
    "MethodSetting",
    "Outcome",
    "Ready",
    "Refusal",
    "methods_with",
]
