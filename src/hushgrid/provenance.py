"""Where a model comes from, and what it may shape: the [learned] table of a zone file.

A model that was fitted to the homes' own readings, without noise, says something about them in
every number it shapes: a scale, an estimate, a forecast, a value put in for a missing reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from hushgrid.checks import is_real
from hushgrid.policy import Policy
from hushgrid.tables import Faults, Table, known, shown

Origin = Literal["public", "pooled", "private"]
LEAST_POOLED = 15  # homes
_KEYS = {"provenance", "homes", "epsilon", "by", "law", "prior", "days", "bound_by", "digest"}


@dataclass(frozen=True, slots=True)
class Provenance:
    """`public` (a survey), `pooled` (many homes, noisy sums worth `epsilon`) or `private`."""

    origin: Origin = "public"
    epsilon: float = 0.0  # that every home has spent on the models
    homes: int = 0
    digest: str = ""  # of the model that was made; a random name where it is private

    @property
    def private(self) -> bool:
        """Whether the model may shape nothing that is published."""
        return self.origin == "private"


def read_provenance(content: Table, faults: Faults) -> Provenance:
    """The [learned] table; without one the models are public, as somebody wrote them."""
    if "learned" not in content:
        return Provenance()
    table: Any = content["learned"]
    known(table, "learned.", _KEYS, _KEYS - {"provenance"}, faults)
    if not isinstance(table, Mapping):
        return Provenance("private")
    origin, epsilon, homes = (
        table.get("provenance"),
        table.get("epsilon", 0.0),
        table.get("homes", 0),
    )
    before = len(faults)
    if origin not in get_args(Origin):
        faults.add(
            "learned.provenance",
            f"learned.provenance is {shown(origin)}; give one of {', '.join(get_args(Origin))}.",
        )
    if not (is_real(epsilon) and epsilon >= 0):
        faults.add("learned.epsilon", f"learned.epsilon is {shown(epsilon)}; give 0 or more.")
    if not isinstance(homes, int) or isinstance(homes, bool) or homes < 0:
        faults.add("learned.homes", f"learned.homes is {shown(homes)}; give a whole number.")
    if len(faults) > before:
        return Provenance("private")
    if origin == "pooled" and (homes < LEAST_POOLED or not epsilon > 0):
        faults.add(
            "learned.provenance",
            f"learned.provenance is 'pooled' with {homes} homes and epsilon {epsilon:g}; a pooled"
            f" model has at least {LEAST_POOLED} homes and noise worth an epsilon above 0.",
            "learned.homes",
            "learned.epsilon",
        )
    named: Origin = next(word for word in get_args(Origin) if word == origin)
    return Provenance(named, float(epsilon), homes, str(table.get("digest", "")))


def check_private(found: Provenance, policy: Policy, secret: str, rho: Any, faults: Faults) -> None:
    """What a private model may not shape; each way out that is open is a mistake of its own."""
    if not found.private:
        return
    why = "the models are private (learned.provenance) and would leak through"
    left_out = policy.schedule.negligible
    rules = (
        ("eta", policy.eta != 1, f"{policy.eta:g}", "the scale of the noise; give eta = 1"),
        ("publish", policy.publish != "raw", repr(policy.publish), "the estimate; give 'raw'"),
        ("clamp", bool(policy.clamp), "set", "what is put back; leave it out"),
        ("rho", rho is not None, f"{rho}", "the choice of a clamp; leave it out"),
        ("negligible", left_out != 0, f"{left_out:g}", "who is left out; give 0"),
        ("secret", secret == "interval", repr(secret), "the budget of each step; give 'step'"),
        (
            "on_empty",
            policy.on_empty != "protect_all",
            repr(policy.on_empty),
            "steps without noise; give 'protect_all'",
        ),
    )
    for key, wrong, value, leak in rules:
        if wrong:
            faults.add(f"policy.{key}", f"policy.{key} is {value} but {why} {leak}.")
