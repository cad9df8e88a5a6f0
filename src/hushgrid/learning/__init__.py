"""Occupancy models and consumption laws learned from meter histories or a time-use survey."""
