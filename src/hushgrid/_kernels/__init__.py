"""Compiled inner loops. Each has a numpy counterpart in the tests."""
