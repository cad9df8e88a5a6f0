"""Every method the paper names, and ours, behind one small interface (docs/proofs/baselines.md)."""

from hushgrid.baselines.fourier import FOURIER
from hushgrid.baselines.group import GROUP
from hushgrid.baselines.method import Method, Outcome, Promise, Ready, Refusal, Setting
from hushgrid.baselines.ours import BOUND, DPHMM, FORECAST, HUSHGRID_ETA0, HUSHGRID_ETA05, WEVENT
from hushgrid.baselines.quilt import QUILT
from hushgrid.baselines.wasserstein import WASSERSTEIN
from hushgrid.baselines.wavelet import WAVELET

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

__all__ = [
    "METHODS",
    "Method",
    "Outcome",
    "Promise",
    "Ready",
    "Refusal",
    "Setting",
]
