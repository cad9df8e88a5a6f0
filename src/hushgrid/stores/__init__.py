"""Stores over SQLite or PostgreSQL: ledger, readings, clients, objects of OpenADR."""
