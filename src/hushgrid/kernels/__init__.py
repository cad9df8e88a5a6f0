"""Compiled inner loops. Each has a plain numpy twin that the tests hold it against."""
