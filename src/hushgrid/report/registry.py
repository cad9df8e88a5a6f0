"""What a zone promises and has spent, and the same in the fields of a public registry.

The fields are those of the registry of differential-privacy deployments that OpenDP keeps and NIST
has proposed to host (github.com/opendp/deployments-registry-data, its schema of 2026): a record
has a slug and a deployment with the parts `basic`, `dp_variant`, `privacy_loss`,
`deployment_model`, `implementation` and `administrative`. The Epsilon Registry that Dwork, Kohli
and Mulligan (2019) proposed asks for the same in other words.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hushgrid._numbers import count_of

UNKNOWN = "not stated"


@dataclass(frozen=True, slots=True)
class LedgerSpent:
    """What the ledger of a zone has spent on any one home.

    Attributes:
        life: Sum over the life of the ledger [nats]; None: no bound.
        windows: By a length of time in words, the largest sum over any stretch of that length.
        blocks: How many blocks of prices were computed from readings.
        models: How many learned models were charged.
        lost: How many lost stretches were booked.
        first: Day of the first release, ISO 8601; empty before any.
        last: Day of the last release.
        records: How many records there are, all of them checked.
        head: Digest of the last one.
        key: Public key of all signatures.
        reach: The most by which two readings of a home can differ in a step [Wh]; None: not stated.
    """

    life: float | None
    windows: Mapping[str, float | None]
    blocks: int
    models: int
    lost: int
    first: str
    last: str
    records: int
    head: str
    key: str
    reach: float | None


@dataclass(frozen=True, slots=True)
class RegistryFacts:
    """What a statement about a zone is made of; nothing in it is secret.

    Attributes:
        zone: Name of the zone.
        houses: How many homes.
        interval: Length of a price interval in words.
        secret: "step", "interval" or "window".
        epsilon: What is promised about it.
        window: Length of a promised window in words; empty for another secret.
        words: The promise in a householder's words.
        sentence: The promise exactly.
        not_covered: What the words do not cover.
        assumptions: What must hold.
        simulated: Whether noise is simulated and protects no one.
        models: How many occupancy models the promise uses; 0 for windows.
        origin: Where the models come from: "public", "pooled" or "private".
        charged: What the models cost every home [nats].
        clamped: Whether readings are cut at a clamp below the contract limit.
        publish: What is published: "raw" or "estimate", or a forecast.
        ahead: Whether prices are listed a day ahead.
        error: Expected relative error of a price; None: not known.
        retention: How long readings are kept, in words.
        version: Of hushgrid.
        losses: What the ledger says; None: there is none yet.
        curator: Who publishes the prices.
        region: What region they are of.
    """

    zone: str
    houses: int
    interval: str
    secret: str
    epsilon: float
    window: str
    words: str
    sentence: str
    not_covered: tuple[str, ...]
    assumptions: tuple[str, ...]
    simulated: bool
    models: int
    origin: str
    charged: float
    clamped: bool
    publish: str
    ahead: bool
    error: float | None
    retention: str
    version: str
    losses: LedgerSpent | None = None
    curator: str = ""
    region: str = ""

    @property
    def turn(self) -> str:
        """An interval after "every": "hour" or "15 minutes"."""
        return self.interval.removeprefix("1 ")

    @property
    def unit(self) -> str:
        """The unit of privacy."""
        if self.secret == "window":
            return f"one home, any {self.window}"
        about = "any one interval" if self.secret == "interval" else "the interval of a price"
        return f"one home, its occupancy in {about} of {self.interval}"

    @property
    def open_points(self) -> list[str]:
        """What keeps the entry from being handed in, a sentence each."""
        points = []
        if self.simulated:
            points.append("The noise is simulated and protects no one: this is no deployment.")
        if self.losses is None or not self.losses.first:
            points.append("Nothing is published yet, so there is no day of publication.")
        if not self.curator:
            points.append("Give --curator, who publishes the prices.")
        if not self.region:
            points.append("Give --region, whose law applies.")
        return points


def statement_json(facts: RegistryFacts) -> dict[str, Any]:
    """The promise beside what was spent, under public keys.

    Args:
        facts: What is known.

    Returns:
        Values for JSON.
    """
    losses = facts.losses
    return {
        "zone": facts.zone,
        "houses": facts.houses,
        "unit": facts.unit,
        "epsilon": facts.epsilon,
        "delta": 0.0,
        "secret": facts.secret,
        "words": facts.words,
        "sentence": facts.sentence,
        "not_covered": list(facts.not_covered),
        "assumptions": list(facts.assumptions),
        "simulated": facts.simulated,
        "spent": None
        if losses is None
        else {
            "life": losses.life,
            "windows": dict(losses.windows),
            "blocks": losses.blocks,
            "models": losses.models,
            "lost": losses.lost,
            "first": losses.first,
            "last": losses.last,
            "records": losses.records,
            "head": losses.head,
            "key": losses.key,
        },
        "open": facts.open_points,
    }


def statement_prose(facts: RegistryFacts) -> str:
    """The same in plain words.

    Args:
        facts: What is known.

    Returns:
        Lines of text.
    """
    lines = [f"Zone {facts.zone}, {count_of('home', facts.houses)}.", ""]
    if facts.words:
        lines += [facts.words, ""]
    lines += [f"Exactly: {facts.sentence}", "", "It assumes:"]
    lines += [f"- {line}" for line in facts.assumptions]
    if facts.not_covered:
        lines += ["", f"Not covered: {', '.join(facts.not_covered)}."]
    lines += ["", f"Unit: {facts.unit}. Epsilon {facts.epsilon:g}, delta 0.", "", _spent(facts)]
    if facts.simulated:
        lines += ["", facts.open_points[0]]
    return "\n".join(lines)


def _spent(facts: RegistryFacts) -> str:
    """What was spent, in sentences."""
    losses = facts.losses
    if losses is None:
        return "Spent so far: nothing is on record."
    parts = [count_of("block", losses.blocks) + " of prices"]
    parts += [count_of("learned model", losses.models)] if losses.models else []
    parts += [count_of("lost stretch", losses.lost)] if losses.lost else []
    period = f", {losses.first} to {losses.last}" if losses.first else ""
    over = ", ".join(f"any {words}: {_epsilon(most)}" for words, most in losses.windows.items())
    return (
        f"Sum over the life of the ledger ({' and '.join(parts)}{period}): {_epsilon(losses.life)}."
        f" Largest sum over {over}. The promise is about its unit; the sum over the life grows with"
        " every block, and no promise bounds it."
    )


def _epsilon(loss: float | None) -> str:
    return "no bound" if loss is None else f"epsilon {loss:.4g}"


def registry_entry(facts: RegistryFacts) -> dict[str, Any]:
    """The record of a zone as the registry has it.

    Args:
        facts: What is known.

    Returns:
        Its fields; YAML is a superset of their JSON.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", facts.zone.casefold()).strip("-")
    day = facts.losses.first if facts.losses is not None and facts.losses.first else UNKNOWN
    return {
        "url_slug": f"{slug}-private-electricity-prices",
        "deployment": {
            "basic": {
                "name": f"Private electricity prices of the zone {facts.zone}",
                "data_curators": [
                    {
                        "data_curator_name": facts.curator or UNKNOWN,
                        "data_curator_type": "Industry",
                    }
                ],
                "description": (
                    f"An electricity price every {facts.turn}"
                    f"{', listed a day ahead' if facts.ahead else ''}, which follows the load of"
                    f" {count_of('home', facts.houses)} with noise, beside that noisy load and the"
                    " scale of its noise."
                ),
                "intended_use": "Bill, and shift the use of electricity by a price that is true to"
                " the load.",
                "data_product_type": "Summary statistics",
                "data_product_region": facts.region or UNKNOWN,
                "data_product_sector": "Energy",
                "publication_date": day,
            },
            "dp_variant": _variant(facts),
            "privacy_loss": _privacy_loss(facts),
            "deployment_model": _deployment_model(facts),
            "implementation": _implementation(facts),
            "administrative": {
                "status": "Draft",
                "registry_authors": [facts.curator or UNKNOWN],
                "tier": 3,
            },
        },
    }


def _variant(facts: RegistryFacts) -> dict[str, Any]:
    models = "" if facts.secret == "window" else " The occupancy models are public."
    return {
        "variant_name": "Pure DP" if facts.secret == "window" else "Custom",
        "data_domain": (
            f"Readings in whole Wh of {count_of('home', facts.houses)}, one for each"
            f" {facts.turn}, from 0 or an export limit to the limit of a home's contract"
            f"{', cut at a public clamp' if facts.clamped else ''}."
        ),
        "unprotected_quantities": (
            "Contract limits, the number of homes, the tariff, the clamp, the schedule of noise,"
            f" and that no meter at all reports in an interval.{models}"
        ),
    }


def _privacy_loss(facts: RegistryFacts) -> dict[str, Any]:
    reach = None if facts.losses is None else facts.losses.reach
    within = "" if reach is None else f", at most {reach:g} Wh in each interval after the clamp"
    if facts.secret == "window":
        details = (
            f"Two data sets are adjacent where they differ in the readings of one home within one"
            f" window of {facts.window}, by anything its contract allows{within}. The window may"
            " begin at any second. All other readings, and the number of homes, are the same."
        )
    else:
        details = (
            "Blowfish privacy. The secrets are that a home is occupied in an interval, or not; the"
            f" adversary's belief about occupancy follows {count_of('public model', facts.models)}."
            " Input metric: pairs of secrets of one home in one interval. Bound on input distance:"
            " 1. Output measure: the largest log ratio of the probabilities of any prices."
            f" Bound on output distance: {facts.epsilon:g}."
        )
    return {
        "privacy_unit": facts.unit,
        "privacy_unit_details": details,
        "number_of_privacy_units": facts.houses,
        "privacy_parameters": {"epsilon": facts.epsilon, "delta": 0.0},
        "privacy_parameters_details": _joined(
            facts.sentence,
            _spent(facts),
            "Assumptions: " + " ".join(facts.assumptions),
            f"Not covered: {', '.join(facts.not_covered)}." if facts.not_covered else "",
        ),
    }


def _deployment_model(facts: RegistryFacts) -> dict[str, Any]:
    if facts.secret == "window":
        budget = (
            f"A block of prices is computed from readings only where every window of {facts.window}"
            f" that touches it has lost at most {facts.epsilon:g} with it; else the price is a"
            " forecast from what is public. Nothing resets: windows overlap. The sum over the life"
            " is stated beside the promise."
        )
    elif facts.secret == "interval":
        budget = (
            "An account of all prices, past and future, about any one interval admits each block of"
            " prices or refuses it; where it refuses, the price is a forecast from what is public."
        )
    else:
        budget = (
            "The promise is about each price alone. The losses of different prices add up without"
            " end; their sum is stated beside the promise."
        )
    return {
        "model_name": "Central",
        "model_name_details": "Readings reach one service of the utility, which adds them up and"
        " adds the noise.",
        "trust_assumptions": (
            "The utility's service is trusted with all readings, to run the published program with"
            " secure noise, and to publish nothing else about them. Everyone else is trusted with"
            " nothing: the promise holds against someone who knows all other homes' readings"
            f"{'' if facts.secret == 'window' else ', within the stated assumptions'}."
        ),
        "actors": (
            "Homes and their meters; the utility's service and those who run its machine;"
            " auditors, who see the signed ledger; everyone else, who sees prices, forecasts, the"
            " promise and, where it is published, the ledger."
        ),
        "release_type": "Many releases",
        "release_type_details": f"A price every {facts.turn}. {budget}",
        "data_source_type": "Dynamic",
        "data_source_type_details": f"Meters go on reporting; readings are kept for"
        f" {facts.retention}, then deleted.",
        "access_type": "Non-interactive",
        "access_type_details": "No one can ask for a figure; prices are computed by the clock.",
    }


def _implementation(facts: RegistryFacts) -> dict[str, Any]:
    noise = (
        "It is SIMULATED from a seed and protects no one."
        if facts.simulated
        else "It is drawn by OpenDP from the operating system's randomness, before the load is"
        " known."
    )
    learned = (
        f"The occupancy models were learned from readings at epsilon {facts.charged:g} for every"
        " home, which is on record and counted."
        if facts.charged
        else f"Models and clamps are planned from public figures (origin: {facts.origin}); no"
        " reading is used."
    )
    error = (
        "No error is planned for these terms."
        if facts.error is None
        else f"Expected error of a price against the exact one, root mean square:"
        f" {facts.error:.1%}."
    )
    return {
        "preprocessing_and_hyperparameter_tuning": (
            "Readings are rounded to whole Wh and cut at the limit of the contract"
            f"{' and at a public clamp' if facts.clamped else ''} before they are added up."
            f" {learned} Epsilon and its unit are set by the utility in a public file."
        ),
        "mechanisms": (
            "Noise of whole Wh on the sum of readings: for a block of intervals the K-norm"
            " mechanism of Hardt and Talwar (2010) for the largest coordinate, for a single one"
            f" discrete Laplace noise. {noise} Loads and noise are"
            " integers, so no digit of a float tells anything. Prices come by the clock, not when a"
            " computation ends. A retry publishes the stored price and draws nothing."
            f" hushgrid {facts.version}, Apache-2.0."
        ),
        "composition": (
            "Pure epsilon, sequential: the losses of all blocks, learned models and lost stretches"
            " that a window touches are added. `hushgrid ledger export --mechanisms` writes them as"
            " events for dp_accounting."
        ),
        "post_processing": (
            "The price is a public function of "
            + (
                "the public's best estimate of the load, which follows the noisy loads alone."
                if facts.publish == "estimate"
                else "the noisy load."
            )
        ),
        "justification": (
            "Proofs are beside the code. An audit computes every scale, loss and account again from"
            " the signed ledger and the public file; a script of the standard library checks the"
            " chain and the accounts without hushgrid; a black-box test looks for a larger loss."
        ),
        "utility": error,
        "additional_information": _verification(facts),
    }


def _verification(facts: RegistryFacts) -> str:
    losses = facts.losses
    if losses is None:
        return "No ledger yet."
    return (
        f"Verification: {count_of('record', losses.records)} of the ledger, each with the digest of"
        f" the one before, all signed by the key {losses.key}; head {losses.head}. `hushgrid ledger"
        " verify`, `hushgrid audit` and `scripts/verify_ledger.py` check them again. No check shows"
        " that readings were true, that the noise came from a secure source, or that nothing else"
        " was published."
    )


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def registry_prose(entry: Mapping[str, Any], open_points: list[str]) -> str:
    """A record of the registry for people.

    Args:
        entry: As from `registry_entry`.
        open_points: What keeps it from being handed in.

    Returns:
        Lines of text.
    """
    lines = [f"url_slug: {entry['url_slug']}"]
    for part, fields in entry["deployment"].items():
        lines += ["", part]
        for name, value in fields.items():
            lines += textwrap.wrap(
                f"{name}: {_plain(value)}", 96, initial_indent="  ", subsequent_indent="    "
            )
    if open_points:
        lines += ["", "Before it is handed in:", *(f"- {point}" for point in open_points)]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
