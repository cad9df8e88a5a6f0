"""The Bayesian adversary (paper II-C): beliefs about occupancy from published releases alone.

`Exact` keeps the joint law of up to 14 houses, `Population` one target among thousands of houses
with one chain and one law, `Factored` the marginal of each of up to a million houses. All run on
numpy or GPU arrays.
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
