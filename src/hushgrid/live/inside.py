"""Why the next release of a zone gets the noise it gets, for its operator. Nothing of a reading."""

from __future__ import annotations

from dataclasses import dataclass

from hushgrid.live.deployment import ZoneService
from hushgrid.mechanism import PreparedNoise


@dataclass(frozen=True, slots=True)
class Inside:
    """The calibration of the next release, without the noise that was drawn by it.

    `scale` [Wh]; `epsilon` and `epsilon_any` of all that it spends; `house` and `model` (numbers
    from 0, None where there is none) set the scale; `protected`: how many houses are.
    `away`: publishers, by number, that did not take the last release. `paid`: how many releases
    of that epsilon the budget still pays for; None without a budget or a cost.
    """

    scale: float | None
    epsilon: float | None
    epsilon_any: float | None
    house: int | None
    model: int | None
    protected: int | None
    away: tuple[int, ...] = ()
    paid: int | None = None

    @classmethod
    def of(
        cls, draws: PreparedNoise | None, away: tuple[int, ...] = (), paid: int | None = None
    ) -> Inside:
        """Of what is drawn already; nothing where the next release has no noise of its own."""
        if draws is None:
            return cls(None, None, None, None, None, None, away)
        own, look = draws.calibration, draws.look
        return cls(
            own.scale,
            draws.cost,
            own.epsilon_any + (look.epsilon_any if look and look is not own else 0.0),
            own.house,
            own.model,
            len(own.protected),
            away,
            paid,
        )


def why(zone: ZoneService, inside: Inside) -> str:
    """One sentence: whose protection takes this much noise, and by which model."""
    if inside.scale is None:
        return "The next price uses no reading, so there is no noise."
    if inside.scale == 0:
        return "No house's occupancy is uncertain at this step, so the load goes out as it is."
    models = len(zone.scenario.models)
    by = "its model" if models == 1 else f"model {inside.model} of {models}"
    by = "all models together" if inside.model is None else by
    if inside.house is None:
        return f"The largest contract sets the scale of {inside.scale:,.0f} Wh."
    policy, bound = zone.policy, int(zone.scenario.zone.bound[inside.house])
    meter = zone.meters[inside.house]
    who = f"House {inside.house} (meter {meter}, contract {bound:,} Wh) under {by}"
    if not policy.schedule.per_release:
        kept = f"{policy.schedule.multiple:.3g} times what it can add"
    else:
        kept = f"so that one price tells of it at most epsilon = {inside.epsilon:.3g}"
    return (
        f"{who} needs the most noise of the {inside.protected:,} protected houses:"
        f" {inside.scale:,.0f} Wh, {kept}."
    )
