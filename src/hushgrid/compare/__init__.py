"""Simulated and recorded days on which mechanisms are compared, and the methods of the paper."""
