"""A zone of 1,000 simulated houses, alive: real curator, ledger, meters' way in and price server.

Beside it two adversaries, and the truth that only a simulation knows: what they believe of one
house with protection and without. Nothing here is for real prices: noise is simulated and marked.
"""
