"""Experiments: simulated and recorded days, methods to compare with, audits from outside.

No room of the service imports it.
"""
