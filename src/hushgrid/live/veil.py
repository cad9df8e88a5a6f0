"""Private models stay outside a service: it knows what is possible, not how probable it is.

A number fitted to homes without noise tells of them wherever it goes, even in a digest: whoever
knows all homes but one can try out guesses of that one until the digest fits. So where models are
private the mechanism, the ledger and every feed are given these instead. At eta = 1 the noise is
the same: it hangs on bounds and on who can be at home at all, and zeros are declared, not learned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hushgrid.consumption import Consumption
from hushgrid.laws import Uniform
from hushgrid.occupancy import Chains
from hushgrid.simulation import Scenario


def veiled(scenario: Scenario) -> Scenario:
    """The scenario with models that say nothing but what is declared impossible.

    The private ones remain as its truth, by which simulated meters go.
    """
    bounds, class_of = np.unique(scenario.zone.bound, return_inverse=True)
    laws = [Uniform(int(bound)) for bound in bounds]
    return replace(
        scenario,
        models=tuple(
            replace(model, chains=tuple(_veiled(piece) for piece in model.chains))
            for model in scenario.models
        ),
        consumption=Consumption.by_class(
            absent=laws,
            present=laws,
            class_of=class_of,
            elasticity=scenario.consumption.elasticity,
        ),
        truth=scenario.truth or scenario.models[0],
        consumed=scenario.consumed or scenario.consumption,
    )


def _veiled(piece: Chains) -> Chains:
    """Every move that is possible is as probable as any; chains that then are alike are one."""
    first, moves = piece.initial > 0, piece.transition > 0
    chains = len(first)
    flat = np.concatenate(
        [first.reshape(chains, -1), np.moveaxis(moves, 1, 0).reshape(chains, -1)], axis=1
    )
    used = np.unique(piece.chain_of)  # a chain that no house follows says nothing either
    _, kept, of = np.unique(flat[used], axis=0, return_index=True, return_inverse=True)
    place = np.zeros(chains, np.int32)
    place[used] = of.ravel()
    which = used[kept]
    return replace(
        piece,
        initial=first[which] / first[which].sum(axis=-1, keepdims=True),
        transition=moves[:, which] / moves[:, which].sum(axis=-1, keepdims=True),
        chain_of=place[piece.chain_of],
    )
