"""Readings in and prices out over HTTP."""
