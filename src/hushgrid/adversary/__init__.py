"""The adversary (paper II-C): who is at home, guessed from published releases alone.

`Exact` keeps the joint law of up to 14 houses, `Population` a target among thousands of houses
alike, `Factored` each of up to a million houses by itself. All run on numpy or GPU arrays.
"""

from hushgrid.adversary.exact import Exact
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Adversary, Beliefs, Posteriors, look_back, watch
from hushgrid.adversary.knowledge import Knowledge, KnownOccupancy, KnownReadings
from hushgrid.adversary.population import Population

__all__ = [
    "Adversary",
    "Beliefs",
    "Exact",
    "Factored",
    "Knowledge",
    "KnownOccupancy",
    "KnownReadings",
    "Population",
    "Posteriors",
    "look_back",
    "watch",
]
