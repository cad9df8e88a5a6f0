"""Evidence of a replay that was never run, for tests of what is made of it."""

from __future__ import annotations

from hushgrid.lab.evidence import (
    AttackFigures,
    Bills,
    Contents,
    CutFigures,
    Estimate,
    Kind,
    OtherPrice,
    PlayedTerms,
    PromiseFigures,
    Recommended,
    ReplayEvidence,
    SourceFile,
    WeekOfPrices,
)

WINDOWS = (None, "P1D", "P7D", "P14D")


def evidence(kind: Kind = "private") -> ReplayEvidence:
    """Figures of the form and size of a real run."""
    files = () if kind == "synthetic" else (SourceFile("homes.csv", "ab" * 32, "lcl"),)
    bills = Bills(-0.01, 0.0, 0.02, 0.05, 0.001)
    promises = tuple(
        PromiseFigures(
            secret="window" if window else "interval",
            window=window,
            epsilon=epsilon,
            ahead=ahead,
            error=Estimate(0.1 / epsilon, (0.09 / epsilon, 0.11 / epsilon)),
            bills=bills,
            waste=Estimate(1.0, (0.9, 1.1)),
            peak_error=0.15,
            peak_hits=0.8,
            clamp=700,
            block=14_400,
            scale=3000.0,
        )
        for ahead in (False, True)
        for window in WINDOWS
        for epsilon in (0.5, 1.0, 2.0)
    )
    return ReplayEvidence(
        kind=kind,
        found=Contents(
            files, 1800, 100, {"gaps": 2}, 365, 275, "2013-01-01", "2013-12-31", 0.04,
            "Europe/London", 3600.0, ("Values are kWh, as the header says.",),
        ),
        terms=PlayedTerms(
            7500, "15 kW, as nothing was given", 3300.0, "published", "linear",
            "scaled to the load", 0.1, 62.5, "", 2, 1,
        ),
        promises=promises,
        others=(
            OtherPrice(
                name="flat", label="flat price", gives_away="nothing", ahead=False,
                error=Estimate(0.22, (0.2, 0.24)), bills=bills,
            ),
        ),
        weeks=(WeekOfPrices("usual", "2013-04-01", (1.0, 2.0), (1.1, 1.9), (None, 2.1)),),
        attacks={
            "absence": (
                AttackFigures("absence", "exact", None, None, 10, 1.0, 1.0, 1.0),
                AttackFigures("absence", "any two weeks", "P14D", 1.0, 10, 0.56, 0.6, 0.02, 0.62),
            ),
            "occupancy": (),
        },
        cuts=(CutFigures("window", "P14D", 1.0, "highest fifth", 20, 700, 19, 0.06, 0.1),),
        recommended=Recommended("window", "P14D", 1.0, False, ("Its error is below 10 %.",)),
        assumptions=("Homes do not react to prices.",),
        limits=(),
    )  # fmt: skip
