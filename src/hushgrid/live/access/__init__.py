"""Who may do what: clients, their secrets, tokens and scopes."""
