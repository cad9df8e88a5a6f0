"""Readings in and prices out over HTTP, the operator's view and the pages."""
