"""Public series that a load may move with."""

from __future__ import annotations

from dataclasses import dataclass, field

from hushgrid._numbers import is_real
from hushgrid.errors import ModelError

FURTHEST = 6.0  # scales from the centre that a covariate counts at most


@dataclass(frozen=True, slots=True)
class Covariate:
    """A public series that the load may move with, such as the temperature.

    No value of it depends on a reading of the zone: that is an assumption, which no one can check
    from releases.

    Attributes:
        name: Name in records and assumptions.
        centre: A usual value; a missing one counts as this.
        scale: How far values usually are from it.
        vouched_by: Who says that it depends on no reading of the zone.
    """

    name: str
    centre: float
    scale: float
    vouched_by: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ModelError(f"covariate name is {self.name!r}; give a printable text.")
        if not (is_real(self.centre) and is_real(self.scale) and self.scale > 0):
            raise ModelError(
                f"covariate {self.name} has centre {self.centre} and scale {self.scale}; give"
                " numbers, the scale above 0."
            )

    def standard(self, value: float | None) -> float:
        """A value in scales from the centre, within `FURTHEST`; 0 for a missing one.

        >>> each = Covariate("temperature", 10.0, 8.0)
        >>> each.standard(6.0), each.standard(None), each.standard(1e9)
        (-0.5, 0.0, 6.0)
        """
        if value is None:
            return 0.0
        return min(max((value - self.centre) / self.scale, -FURTHEST), FURTHEST)
