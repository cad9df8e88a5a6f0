"""Clients of the service, their secrets, tokens and sessions."""
