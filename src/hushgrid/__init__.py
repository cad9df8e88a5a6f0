"""hushgrid: electricity prices with a stated bound on what they reveal about occupancy.

The public names are listed once, in `__init__.pyi`, where type checkers find them too. Each is
loaded when it is first used, so that a part of the package that needs little (the adversary: numpy
and array-api-compat) imports little.
"""

from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES = {
    line.split()[-1]: line.split()[1] for line in _STUB.splitlines() if line.startswith("from ")
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    member = getattr(import_module(_HOMES[name]), name)
    globals()[name] = member
    return member


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
